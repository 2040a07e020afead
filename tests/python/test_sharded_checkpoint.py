"""Checkpoints that several processes write: whole at each moment, and the same bits in any number of processes."""
import json
import os
import signal

import pytest
from processes import run

import pyflame as pf
import pyflame.distributed as dist
import pyflame.distributed.checkpoint as dcp
from pyflame.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict, get_optimizer_state_dict, get_state_dict, set_optimizer_state_dict, set_state_dict

MODEL = """
import pyflame as pf

class Net(pf.nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.norm, self.b = pf.nn.Linear(5, 7), pf.nn.BatchNorm1d(7), pf.nn.Linear(7, 3)
        self.scale = pf.nn.Parameter(pf.randn(3).to(pf.bfloat16))

    def forward(self, x):
        return self.b(self.norm(self.a(x)).relu()) * self.scale.to(pf.float32)

def made(seed):
    pf.manual_seed(seed)
    return Net()

def adam(m):
    return pf.optim.AdamW([{"params": [m.a.weight, m.a.bias]}, {"params": [m.norm.weight, m.norm.bias, m.b.weight, m.b.bias, m.scale], "lr": 0.02}], lr=0.01)

def train(m, optimizer, steps, begin=0):
    for step in range(begin, begin + steps):
        pf.manual_seed(step)
        optimizer.zero_grad()
        m(pf.randn(6, 5)).square().sum().backward()
        optimizer.step()
"""

WRITE = MODEL + """
import glob
from pyflame.distributed.fsdp import fully_shard
import pyflame.distributed.checkpoint as dcp
from pyflame.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict, get_state_dict, set_state_dict

dist.init_process_group(timeout=60)
folder = os.environ["FOLDER"]

def sharded(seed):
    m = made(seed)
    fully_shard(m.a)
    return fully_shard(m)

class Progress(dcp.stateful.Stateful):
    def __init__(self, epoch):
        self.epoch = epoch

    def state_dict(self):
        return {"epoch": self.epoch, "times": [0.5, float("inf")], "seed": pf.tensor([self.epoch])}

    def load_state_dict(self, state):
        self.epoch = state["epoch"]
        assert state["times"] == [0.5, float("inf")] and state["seed"].item() == self.epoch

m = sharded(0)
optimizer = adam(m)
train(m, optimizer, 3)
model, optim = get_state_dict(m, optimizer)
dcp.save({"model": model, "optim": optim, "progress": Progress(3), "mine": {f"rank{rank}": rank}}, checkpoint_id=folder)
wholes = get_model_state_dict(m, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
if rank == 0:
    pf.save(wholes, folder + "/whole.safetensors")

# Another object goes on where this one was, with the same bits.
train(m, optimizer, 2, 3)
m2 = sharded(1)
optimizer2 = adam(m2)
model, optim = get_state_dict(m2, optimizer2)
before = [p.detach().clone() for p in m2.parameters()]
assert optim["state"]["a.weight"]["step"] == 1 and all(p.grad is None for p in m2.parameters()) and optimizer2.param_groups[1]["lr"] == 0.02
progress = Progress(0)
state = {"model": model, "optim": optim, "progress": progress}
dcp.load(state, checkpoint_id=folder)
set_state_dict(m2, optimizer2, model_state_dict=state["model"], optim_state_dict=state["optim"])
assert progress.epoch == 3 and optimizer2.state[m2.a.weight]["step"] == 3
train(m2, optimizer2, 2, 3)
for (name, t), u in zip(m.state_dict().items(), m2.state_dict().values()):
    assert t.equal(u), name
for p, q in zip(m.parameters(), m2.parameters()):
    assert all(optimizer.state[p][k].equal(optimizer2.state[q][k]) for k in ("exp_avg", "exp_avg_sq"))

# On a thread: what is written is what was there at the call.
later = folder + "-later"
value = m.a.weight.full_tensor().clone()
future = dcp.async_save({"model": m.state_dict()}, checkpoint_id=later)
train(m, optimizer, 1)
assert future.result() is None
dist.barrier()
assert dcp.load_whole(later)["model.a.weight"].equal(value)
future = dcp.async_save({"model": m.state_dict()}, checkpoint_id=later)
dcp.save({"model": m2.state_dict()}, checkpoint_id=later)
assert future.done() and dcp.load_whole(later)["model.a.weight"].equal(m2.a.weight.full_tensor())
dist.barrier()

# One rank cannot write: all are told, the checkpoint before is there, and nothing else is.
from pyflame import _C
was = sorted(os.listdir(later))
write = _C.save_safetensors
def broken(path, *rest):
    if rank == 1:
        raise OSError("save_safetensors: the disk is full")
    write(path, *rest)
_C.save_safetensors = broken
for call in (lambda: dcp.save({"model": m.state_dict()}, checkpoint_id=later), lambda: dcp.async_save({"model": m.state_dict()}, checkpoint_id=later).result()):
    try:
        call()
        raise AssertionError("nobody was told")
    except OSError as e:
        assert "the checkpoint was not written; got on rank 1: save_safetensors: the disk is full; expected one folder that all ranks see and can write" in str(e), e
    dist.barrier()
    assert sorted(os.listdir(later)) == was
    dist.barrier()
_C.save_safetensors = write

# Rank 1 writes to another folder, as on hosts without a common disk: rank 0 does not see its part.
part, other = {"model": m.state_dict()}, later if rank == 0 else later + "-of-rank-1"
for call in (lambda: dcp.save(part, checkpoint_id=other), lambda: dcp.async_save(part, checkpoint_id=other).result()):
    try:
        call()
        raise AssertionError("nobody was told")
    except OSError as e:
        for text in ("the checkpoint was not written; got on rank 0: not all parts are in '", f"later' on ", f"rank 1 wrote to '", "later-of-rank-1' on ", "expected one folder that all ranks see and can write"):
            assert text in str(e), e
    dist.barrier()
    assert sorted(os.listdir(later)) == was and (rank == 0 or os.listdir(other) == [])
    dist.barrier()
dcp.load_whole(later)
try:
    dcp.save({"t": pf.zeros(2 + rank)}, checkpoint_id=later)
    raise AssertionError("the shapes differ")
except ValueError as e:
    assert "checkpoint.save: the ranks have different tensors; got t of float32 (2,) and, on rank 1, of float32 (3,); expected one shape and dtype" in str(e), e
assert len([f for f in os.listdir(later) if f.endswith(".safetensors")]) == world

# Read by fewer processes, and written by those.
from pyflame.distributed.checkpoint.state_dict import set_model_state_dict
from pyflame.distributed.device_mesh import DeviceMesh

def read(mesh):
    m = made(1)
    fully_shard(m, mesh=mesh)
    optimizer = adam(m)
    model, optim = get_state_dict(m, optimizer)
    state = {"model": model, "optim": optim}
    dcp.load(state, checkpoint_id=folder, process_group=mesh.get_group())
    set_state_dict(m, optimizer, model_state_dict=state["model"], optim_state_dict=state["optim"])
    found = dcp.load_whole(folder)
    for name, t in m.state_dict().items():
        assert (t.full_tensor() if hasattr(t, "full_tensor") else t).equal(found["model." + name]), name
    for name, p in m.named_parameters():
        for k in ("exp_avg", "exp_avg_sq"):
            assert p._sharding.whole(optimizer.state[p][k]).equal(found[f"optim.state.{name}.{k}"]), (name, k)
    assert optimizer.state[m.scale]["step"] == 3

    # Whole tensors go into parts as well, and a checkpoint of this world has the same values.
    other = made(2)
    fully_shard(other, mesh=mesh)
    set_model_state_dict(other, pf.load(folder + "/whole.safetensors"), options=StateDictOptions(full_state_dict=True))
    assert all(p.equal(q) for p, q in zip(other.parameters(), m.parameters()))
    dcp.async_save(state, checkpoint_id=f"{folder}-{mesh.size()}", process_group=mesh.get_group()).result()
    dist.barrier(mesh.get_group())
    again = dcp.load_whole(f"{folder}-{mesh.size()}")
    assert all(again[k].equal(v) if isinstance(v, pf.Tensor) else again[k] == v for k, v in found.items() if k.startswith(("model.", "optim.")))

for n in (3, 2):  # as many processes
    mesh = DeviceMesh("cpu", range(n))
    if rank < n:
        read(mesh)
    dist.barrier()
print("written")
"""

def test_any_number_of_processes(tmp_path):
    folder = str(tmp_path / "checkpoint")
    assert run(4, WRITE, tmp_path, FOLDER=folder) == ["written\n"] * 4
    names = {}
    exec(MODEL, names)
    m = names["made"](1)
    optimizer = names["adam"](m)
    model, optim = get_state_dict(m, optimizer)
    state = {"model": model, "optim": optim, "mine": {f"rank{r}": None for r in range(4)}}
    dcp.load(state, checkpoint_id=folder)
    set_state_dict(m, optimizer, model_state_dict=state["model"], optim_state_dict=state["optim"])
    whole = pf.load(folder + "/whole.safetensors")
    assert all(t.equal(whole[k]) for k, t in m.state_dict().items()) and state["mine"] == {f"rank{r}": r for r in range(4)} and optimizer.state[m.scale]["step"] == 3
    assert m.norm.num_batches_tracked.item() == 3 and m.scale.dtype == pf.bfloat16


def _state(value):
    return {"a": pf.full((300, 3), float(value)), "b": {"c": pf.tensor([value]), "n": value}}


def _loaded(folder):
    state = _state(-1)
    dcp.load(state, checkpoint_id=folder)
    return state


def _is(state, value):
    return state["a"].equal(_state(value)["a"]) and state["b"]["c"].item() == state["b"]["n"] == value


def test_killed_at_any_moment(tmp_path, monkeypatch):
    """Before and after each operation on files, a kill leaves the old checkpoint or the new one; the next save goes well, and removes what was left."""
    folder = str(tmp_path / "checkpoint")
    dcp.save(_state(1), checkpoint_id=folder)
    operations = [(pf._C, "save_safetensors"), (pf._C, "write_file_atomically"), (os, "unlink")]

    def child(at):
        passed = [0]

        def around(original):
            def operation(*args, **kwargs):
                for half in (lambda: None, lambda: original(*args, **kwargs)):
                    half()
                    passed[0] += 1
                    if passed[0] == at:
                        os.kill(os.getpid(), signal.SIGKILL)

            return operation

        for owner, name in operations:
            setattr(owner, name, around(getattr(owner, name)))
        dcp.save(_state(2), checkpoint_id=folder)

    seen = []
    for at in range(1, 20):
        pid = os.fork()
        if pid == 0:
            try:
                child(at)
                os._exit(0)
            finally:
                os._exit(1)
        status = os.waitpid(pid, 0)[1]
        state = _loaded(folder)
        seen.append(2 if _is(state, 2) else 1)
        assert _is(state, seen[-1])
        if status == 0:
            break
        assert os.WIFSIGNALED(status)
        dcp.save(_state(1), checkpoint_id=folder)
        assert _is(_loaded(folder), 1) and len(os.listdir(folder)) == 2
    assert seen == [1, 1, 1, 2, 2, 2, 2], seen


def test_what_is_left_of_others(tmp_path):
    """Files of a save that was killed while it wrote go with the next save; other files stay."""
    (tmp_path / "0123456789abcdef-0.safetensors.tmp.12.0").write_text("half")
    (tmp_path / "checkpoint.json.tmp.12.1").write_text("half")
    (tmp_path / "notes.txt").write_text("mine")
    dcp.save(_state(1), storage_writer=dcp.FileSystemWriter(tmp_path))
    left = set(os.listdir(tmp_path)) - {"checkpoint.json", "notes.txt"}
    assert len(left) == 1 and left.pop().endswith("-0.safetensors") and len(os.listdir(tmp_path)) == 3 and not os.path.exists(tmp_path / "0123456789abcdef-0.safetensors.tmp.12.0")
    state = _state(0)
    dcp.load(state, storage_reader=dcp.FileSystemReader(tmp_path))
    assert _is(state, 1)


def test_kinds(tmp_path):
    """Each dtype, numbers, empty tensors, and containers of values."""
    tensors = {str(d): pf.tensor([[0.0, 1.0], [2.0, 3.0]]).to(d) for d in (pf.float64, pf.float32, pf.float16, pf.bfloat16, pf.int64, pf.int32, pf.int16, pf.int8, pf.uint8, pf.bool, pf.complex64)}
    saved = {**tensors, "number": pf.tensor(3.5), "none": pf.zeros(0, 4), "values": {"x": [1, (2, "a")], "y": None, 7: float("nan")}, "list": [pf.ones(2), {"z": 1}], "turned": pf.arange(6.0).reshape(2, 3).t()}
    dcp.save(saved, checkpoint_id=tmp_path)
    state = {**{k: pf.zeros_like(t) for k, t in tensors.items()}, "number": pf.tensor(0.0), "none": pf.zeros(0, 4), "values": {"x": None, "y": 1, 7: 0}, "list": [pf.zeros(2), {"z": 0}], "turned": pf.zeros(3, 2)}
    dcp.load(state, checkpoint_id=tmp_path)
    assert all(state[k].equal(t) for k, t in tensors.items()) and state["number"].item() == 3.5 and state["turned"].equal(saved["turned"])
    assert state["values"]["x"] == [1, (2, "a")] and state["values"]["y"] is None and state["values"][7] != state["values"][7] and state["list"][0].tolist() == [1, 1] and state["list"][1] == {"z": 1}


def test_errors(tmp_path):
    folder = str(tmp_path / "c")
    with pytest.raises(FileNotFoundError, match="checkpoint.load: there is no checkpoint; got no file '.*checkpoint.json'; expected a folder that checkpoint.save wrote"):
        dcp.load({}, checkpoint_id=folder)
    dcp.save(_state(1), checkpoint_id=folder)
    state = {"a": pf.zeros(2), "new": pf.zeros(1), "n": 0, "b": {"c": pf.tensor([5]), "n": 5}}
    with pytest.raises(ValueError, match="got a has shape \\(300, 3\\), here \\(2,\\); new is not there; n is not there; expected"):
        dcp.load(state, checkpoint_id=folder)
    assert state["b"]["c"].item() == 5
    with pytest.raises(ValueError, match="got b is empty here, and there it has b.c; .*hint: checkpoint.state_dict.get_state_dict"):
        dcp.load({"b": {}}, checkpoint_id=folder)
    (file,) = [f for f in os.listdir(folder) if f != "checkpoint.json"]
    path = os.path.join(folder, file)
    data = open(path, "rb").read()
    for damaged in (data[:-8], data[:4], b"\xff" * 100, b""):
        with open(path, "wb") as f:
            f.write(damaged)
        with pytest.raises(ValueError, match="checkpoint.load: the checkpoint is damaged; got '.*safetensors'"):
            _loaded(folder)
    os.unlink(path)
    with pytest.raises(ValueError, match="checkpoint.load: the checkpoint is damaged; got '.*FileNotFoundError"):
        _loaded(folder)
    with open(path, "wb") as f:
        f.write(data)
    index = os.path.join(folder, "checkpoint.json")
    good = json.load(open(index))

    def changed(change):
        with open(index, "w") as f:
            other = json.loads(json.dumps(good))
            change(other)
            json.dump(other, f)

    for change, message in (
        (lambda i: i["tensors"]["a"].update(parts=[]), "got 0 of 900 elements of a; expected parts that make the whole tensor"),
        (lambda i: i["tensors"]["a"]["parts"][0].update(offsets=[0]), "got '.*checkpoint.json': ValueError: parts of other dims"),
        (lambda i: i["tensors"]["a"].update(dtype="zeros"), "got '.*checkpoint.json': ValueError: no dtype 'zeros'"),
        (lambda i: i.pop("values"), "got '.*checkpoint.json': KeyError"),
        (lambda i: i["tensors"]["a"]["parts"][0].update(file="../else.safetensors"), "got '.*c/else.safetensors': FileNotFoundError"),
    ):
        changed(change)
        state = _state(-1)
        with pytest.raises(ValueError, match="checkpoint.load: the checkpoint is damaged; " + message):
            dcp.load(state, checkpoint_id=folder)
        assert _is(state, -1)
    for text, message in (("{", "the checkpoint is damaged; got '.*checkpoint.json'"), (json.dumps({"format": "other"}), "the checkpoint has another format")):
        with open(index, "w") as f:
            f.write(text)
        with pytest.raises(ValueError, match=message):
            _loaded(folder)
    with pytest.raises(OSError, match="checkpoint.save: the checkpoint was not written; got on rank 0: .*expected one folder that all ranks see and can write"):
        dcp.save(_state(1), checkpoint_id=index)
    with pytest.raises(ValueError, match="checkpoint.save: nothing names a folder; got no checkpoint_id"):
        dcp.save({})
    with pytest.raises(TypeError, match="checkpoint.save: state_dict is not a dict; got list"):
        dcp.save([], checkpoint_id=folder)
    with pytest.raises(TypeError, match="save: cannot save Linear at m.layer; expected tensors, numbers"):
        dcp.save({"m": {"layer": _Opaque()}}, checkpoint_id=folder)
    with pytest.raises(ValueError, match="checkpoint.save: two entries have the same path; got a.b; expected different paths"):
        dcp.save({"a.b": 1, "a": {"b": 2}}, checkpoint_id=folder)


class _Opaque:
    pass


_Opaque.__name__ = "Linear"


def test_states_by_name():
    m = pf.nn.Sequential(pf.nn.Linear(2, 2), pf.nn.Linear(2, 1))
    first, second = pf.optim.SGD(m[0].parameters(), lr=0.1, momentum=0.9), pf.optim.Adam(m[1].parameters())
    m(pf.ones(1, 2)).sum().backward()
    first.step()
    saved = get_optimizer_state_dict(m, [first, second])
    assert sorted(saved["state"]) == ["0.bias", "0.weight", "1.bias", "1.weight"] and saved["param_groups"][0]["params"] == ["0.weight", "0.bias"]
    again = pf.optim.SGD(m[0].parameters(), lr=0.5, momentum=0.9)
    set_optimizer_state_dict(m, again, saved)
    assert again.param_groups[0]["lr"] == 0.1 and again.state[m[0].weight]["momentum_buffer"].equal(first.state[m[0].weight]["momentum_buffer"])
    assert list(get_model_state_dict(pf.nn.parallel.DistributedDataParallel(m))) == list(m.state_dict())
    with pytest.raises(ValueError, match="get_optimizer_state_dict: the optimizer has a parameter that the model does not have; got one of shape \\(2, 2\\)"):
        get_optimizer_state_dict(m[1], first)
    with pytest.raises(ValueError, match="set_optimizer_state_dict: parameters are not in the state; got none for 0.bias, 0.weight"):
        set_optimizer_state_dict(m, again, {"state": {}, "param_groups": []})
    with pytest.raises(NotImplementedError, match="StateDictOptions: broadcast_from_rank0 is not available; got True"):
        StateDictOptions(broadcast_from_rank0=True)
    with pytest.raises(NotImplementedError, match="get_model_state_dict: submodules is not available"):
        get_model_state_dict(m, submodules={m[0]})
    with pytest.raises(NotImplementedError, match="distributed.checkpoint.DefaultSavePlanner: not available"):
        dist.checkpoint.DefaultSavePlanner()
