"""Checkpoints of DTensors and of modules of distribute_module(): any number of processes loads what any other number wrote."""
import pytest
from processes import run

import pyflame as pf
import pyflame.distributed as dist
import pyflame.distributed.checkpoint as dcp
from pyflame.distributed.checkpoint.state_dict import get_model_state_dict, set_model_state_dict, set_optimizer_state_dict
from pyflame.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_module, distribute_tensor

# save(n) and load(n) are called in each process of a world of n; the values depend on the name of the checkpoint only.
PROGRAM = """
import os
import pyflame as pf
import pyflame.distributed as dist
import pyflame.distributed.checkpoint as dcp
from pyflame.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict, get_state_dict, set_model_state_dict, set_state_dict
from pyflame.distributed.device_mesh import init_device_mesh
from pyflame.distributed.tensor import DTensor, Replicate, Shard, distribute_module, distribute_tensor

R, S = Replicate(), Shard

def partition(name, module, mesh):
    if name == "0":
        for key in ("weight", "bias"):
            module.register_parameter(key, pf.nn.Parameter(distribute_tensor(getattr(module, key), mesh, [S(0)])))
    if name == "2":
        module.register_parameter("weight", pf.nn.Parameter(distribute_tensor(module.weight, mesh, [S(1)])))

def plain(seed):
    pf.manual_seed(seed)
    m = pf.nn.Sequential(pf.nn.Linear(3, 5), pf.nn.Tanh(), pf.nn.Linear(5, 2))
    m.register_buffer("count", pf.tensor([seed]))
    return m

def made(seed, mesh):
    return distribute_module(plain(seed), mesh, partition, lambda m, i, mesh: (distribute_tensor(i[0], mesh),), lambda m, y, mesh: y.redistribute(placements=[R]).to_local())

def trained(m):
    optimizer = pf.optim.AdamW(m.parameters(), lr=0.05)
    pf.manual_seed(9)
    for _ in range(3):
        optimizer.zero_grad()
        m(pf.randn(4, 3)).square().sum().backward()
        optimizer.step()
    return optimizer

def values(seed):
    pf.manual_seed(seed)
    return {"rows": pf.randn(5, 3), "columns": pf.randn(2, 6), "cube": pf.randn(2, 3, 7), "all": pf.randn(3), "none": pf.zeros(0, 4), "tiny": pf.randn(1, 1).to(pf.bfloat16)}

PLACED = {"rows": [S(0)], "columns": [S(1)], "cube": [S(2)], "all": [R], "none": [S(0)], "tiny": [S(1)]}
OTHERS = {"rows": [S(1)], "columns": [S(0)], "cube": [S(1)], "all": [S(0)], "none": [R], "tiny": [R]}

def stepped(mesh, placement):
    w = distribute_tensor(pf.arange(10.0).reshape(5, 2).requires_grad_(), mesh, [placement])
    optimizer = pf.optim.AdamW([w], lr=0.1)
    (w * w).sum().redistribute(placements=[R]).backward()
    optimizer.step()
    return optimizer

def save(folder, n, seed):
    mesh = init_device_mesh("cpu", (n,))
    m = made(seed, mesh)
    model, optim = get_state_dict(m, trained(m))
    tensors = {k: distribute_tensor(v, mesh, PLACED[k]) for k, v in values(seed).items()}
    dcp.save({"model": model, "optim": optim, "tensors": tensors, "list": [tensors["rows"], tensors["all"]], "alone": stepped(mesh, S(0)).state_dict()}, checkpoint_id=folder)
    if n > 1:
        dcp.async_save({"tensors": tensors}, checkpoint_id=folder + "-later").result()
        dist.barrier()
        dcp.load(again := {"tensors": {"rows": distribute_tensor(pf.zeros(5, 3), mesh, [R])}}, checkpoint_id=folder + "-later")
        assert again["tensors"]["rows"].to_local().equal(values(seed)["rows"])

def load(folder, n, seed):
    mesh = init_device_mesh("cpu", (n,))
    want = plain(seed)
    expected = trained(want)
    for placed in (PLACED, OTHERS):
        m = made(seed + 100, mesh)
        optimizer = pf.optim.AdamW(m.parameters(), lr=0.05)
        model, optim = get_state_dict(m, optimizer)
        tensors = {k: distribute_tensor(pf.zeros_like(v), mesh, placed[k]) for k, v in values(seed).items()}
        first = tensors["rows"]
        state = {"model": model, "optim": optim, "tensors": tensors, "list": [distribute_tensor(pf.zeros(5, 3), mesh, [S(1)]), distribute_tensor(pf.zeros(3), mesh)]}
        dcp.load(state, checkpoint_id=folder)
        assert state["tensors"]["rows"] is first and isinstance(first, DTensor)
        for k, v in values(seed).items():
            assert tensors[k].placements == tuple(placed[k]) and tensors[k].full_tensor().equal(v), (n, k)
        assert state["list"][0].full_tensor().equal(first.full_tensor())
        set_state_dict(m, optimizer, model_state_dict=state["model"], optim_state_dict=state["optim"])
        full = get_model_state_dict(m, options=StateDictOptions(full_state_dict=True))
        for (k, t), u in zip(full.items(), want.state_dict().values()):
            assert pf.allclose(t, u, atol=1e-5) and t.shape == u.shape, (n, k)
        assert m.count.item() == seed
        for p, q in zip(m.parameters(), want.parameters()):
            for k in ("exp_avg", "exp_avg_sq"):
                assert pf.allclose(p._sharding.whole(optimizer.state[p][k]), expected.state[q][k], atol=1e-5)
        if n == 4:  # parts of parts, and parts that two processes have
            grid = init_device_mesh("cpu", (2, 2))
            for there, here in (([S(0), S(0)], [S(1), R]), ([R, S(1)], [S(0), S(0)])):
                d = distribute_tensor(pf.zeros(5, 3), grid, there)
                dcp.load({"tensors": {"rows": d}}, checkpoint_id=folder)
                assert d.full_tensor().equal(values(seed)["rows"]), there
                dcp.save({"d": d}, checkpoint_id=folder + "-parts")
                e = distribute_tensor(pf.zeros(5, 3), grid, here)
                dcp.load({"d": e}, checkpoint_id=folder + "-parts")
                assert e.full_tensor().equal(values(seed)["rows"]), here
                dist.barrier()
        # The state of an optimizer of DTensors alone.
        optimizer = stepped(mesh, placed["rows"][0])
        optimizer.step()
        state = {"alone": optimizer.state_dict()}
        dcp.load(state, checkpoint_id=folder)
        optimizer.load_state_dict(state["alone"])
        (w,), = [group["params"] for group in optimizer.param_groups]
        assert optimizer.state[w]["step"] == 1 and w._sharding.whole(optimizer.state[w]["exp_avg"]).allclose(pf.arange(10.0).reshape(5, 2) * 0.2)
        # Whole tensors, and DTensors, go into the parts of a module.
        other = made(seed + 200, mesh)
        set_model_state_dict(other, full)
        assert all(p.equal(q) for p, q in zip(other.parameters(), m.parameters()))
        third = made(seed + 300, mesh)
        set_model_state_dict(third, {k: DTensor.from_local(t.to_local(), mesh, t.placements, shape=t.global_shape) if hasattr(t, "placements") else t for k, t in m.state_dict().items()})
        assert all(p.equal(q) for p, q in zip(third.parameters(), m.parameters()))
        if n == 2:  # a part of the same shape in another place
            swapped = {**full, "2.weight": DTensor.from_local(pf.zeros(1, 5), mesh, [S(0)])}
            try:
                set_model_state_dict(third, swapped)
                raise AssertionError("not refused")
            except ValueError as e:
                assert "set_model_state_dict: another part than the model has; got 2.weight of shape (1, 5)" in str(e) and "hint: full_tensor()" in str(e), e
            assert third[2].weight.equal(m[2].weight)
"""


def test_any_number_of_processes(tmp_path):
    folder = {n: str(tmp_path / f"of-{n}") for n in (1, 2, 4)}
    names = {}
    exec(PROGRAM, names)

    def inside(n, text):
        assert run(n, PROGRAM + text + "\nprint('right')\n", tmp_path) == ["right\n"] * n

    inside(4, f"save({folder[4]!r}, 4, 4)")
    inside(2, f"load({folder[4]!r}, 2, 4); save({folder[2]!r}, 2, 2)")
    names["load"](folder[4], 1, 4)
    names["load"](folder[2], 1, 2)
    names["save"](folder[1], 1, 1)
    inside(4, f"load({folder[2]!r}, 4, 2); load({folder[1]!r}, 4, 1)")
    dist.destroy_process_group()


def test_one_process(tmp_path):
    mesh = dist.init_device_mesh("cpu", (1,))
    try:
        d = distribute_tensor(pf.arange(6.0).reshape(2, 3), mesh, [Shard(0)])
        dcp.save({"a": {"b": d}}, checkpoint_id=tmp_path / "c")
        assert dcp.load_whole(tmp_path / "c")["a.b"].equal(d.full_tensor())
        with pytest.raises(ValueError, match="checkpoint.save: x: the value is a sum that is not computed yet; got placements \\[Partial\\(\\)\\]"):
            dcp.save({"x": DTensor.from_local(pf.ones(2), mesh, [Partial()])}, checkpoint_id=tmp_path / "d")
        other = distribute_tensor(pf.zeros(3, 2), mesh)
        with pytest.raises(ValueError, match="a.b has shape \\(2, 3\\), here \\(3, 2\\)"):
            dcp.load({"a": {"b": other}}, checkpoint_id=tmp_path / "c")
        assert other.full_tensor().equal(pf.zeros(3, 2))
        linear = pf.nn.Linear(2, 2)
        whole = distribute_module(pf.nn.Linear(2, 2), mesh)
        set_model_state_dict(whole, get_model_state_dict(linear))
        assert whole.weight.equal(linear.weight) and whole.weight.placements == (Replicate(),)
        optimizer = pf.optim.SGD(whole.parameters(), lr=0.1)
        with pytest.raises(ValueError, match="parameters are not in the state; got none for bias, weight"):
            set_optimizer_state_dict(whole, optimizer, {"state": {}, "param_groups": []})
    finally:
        dist.destroy_process_group()
