"""DTensors in unusual hands: parts of unequal size or without elements, sums that are read, several meshes, copies, printing, files."""
import copy
import pickle

import numpy as np
import pytest
from processes import run

import pyflame as pf
import pyflame.distributed as dist
from pyflame.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_module, distribute_tensor

PROGRAM = """
import copy
from pyflame.distributed.device_mesh import DeviceMesh, init_device_mesh
from pyflame.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_module, distribute_tensor

R, P, S = Replicate(), Partial(), Shard
mesh = init_device_mesh("cpu", (4,))
grid = init_device_mesh("cpu", (2, 2), mesh_dim_names=("a", "b"))

def refused(call, *texts, error=ValueError):
    try:
        call()
    except error as e:
        for text in texts:
            assert text in str(e), e
        return
    raise AssertionError(("not refused", texts))

# 5 rows over 4 processes are 2, 2, 1 and none; 2 rows are 1, 1, none and none.
five, two = pf.arange(10.0).reshape(5, 2), pf.arange(2.0)
w = distribute_tensor(five.clone().requires_grad_(), mesh, [S(0)])
t = distribute_tensor(two, mesh, [S(0)])
assert w.to_local().shape == ((2, 2), (2, 2), (1, 2), (0, 2))[rank] and t.to_local().tolist() == ([0.0], [1.0], [], [])[rank]
assert f"DTensor(shape=(5, 2), local_tensor=tensor(" in repr(w) and "placements=(Shard(dim=0),)" in str(w) and len(w) == 5
assert abs((t * 2 + 1).exp().sum().redistribute(placements=[R]).item() - (two * 2 + 1).exp().sum().item()) < 1e-5
assert t.mean().redistribute(placements=[R]).item() == 0.5 and w.softmax(1).full_tensor().allclose(five.softmax(1))
assert (w.T @ w).full_tensor().equal(five.T @ five) and w.redistribute(placements=[S(1)]).redistribute(placements=[S(0)]).full_tensor().equal(five)
assert distribute_tensor(pf.zeros(0, 3), mesh, [S(0)]).full_tensor().shape == (0, 3)
nested = distribute_tensor(pf.arange(5.0), grid, [S(0), S(0)])  # 3 and 2, then 2, 1, 1 and 1
assert nested.to_local().shape == ((2,), (1,), (1,), (1,))[rank] and nested.full_tensor().tolist() == [0.0, 1.0, 2.0, 3.0, 4.0]
plain = five.clone().requires_grad_()
for make in (pf.optim.AdamW, pf.optim.Adagrad, pf.optim.RMSprop, pf.optim.NAdam):
    w.grad = plain.grad = None
    a, b = make([w], lr=0.1), make([plain], lr=0.1)
    for _ in range(3):
        a.zero_grad(), b.zero_grad()
        (w * w).sum().redistribute(placements=[R]).backward(), (plain * plain).sum().backward()
        norms = pf.nn.utils.clip_grad_norm_([w], 1.0).item(), pf.nn.utils.clip_grad_norm_([plain], 1.0).item()
        assert abs(norms[0] - norms[1]) < 1e-4 * norms[1], norms
        a.step(), b.step()
    assert w.full_tensor().allclose(plain, rtol=1e-5, atol=1e-5), make
for p in (0, 1, 3, float("inf"), float("-inf")):
    got, want = pf.nn.utils.get_total_norm([w.grad, w.grad], p).item(), pf.nn.utils.get_total_norm([plain.grad, plain.grad], p).item()
    assert abs(got - want) < 1e-4 * max(want, 1), (p, got, want)

# In place: the part is written, as the tape allows it.
refused(lambda: w.__iadd__(1), "a leaf tensor that requires grad", error=RuntimeError)
was = w.full_tensor().detach()
with pf.no_grad():
    v = w
    v -= w.grad * 0.5
    v *= 2
    v /= 4
    v += 1
assert v is w and w.full_tensor().detach().allclose((was - 0.5 * plain.grad) / 2 + 1, atol=1e-5) and w.is_leaf
whole = distribute_tensor(pf.zeros(5, 2), mesh)
refused(lambda: whole.__iadd__(w.detach()), "DTensor.iadd: the result does not fit in place; got shape (5, 2) with [Shard(dim=0)]; expected (5, 2) with [Replicate()]")

# A sum that is read: the part is what this process has, and nothing takes it for the whole.
s = DTensor.from_local(pf.full((2,), float(rank)), mesh, [P])
assert s.to_local().tolist() == [rank, rank] and s.full_tensor().tolist() == [6.0, 6.0] and "Partial()" in repr(s)
assert copy.deepcopy(s).full_tensor().tolist() == [6.0, 6.0]
for call in (lambda: s.sum().item(), lambda: bool(s.sum()), lambda: s + 1, lambda: s.exp(), lambda: s.softmax(0)):
    refused(call, "got Partial()")
s += s
assert s.full_tensor().tolist() == [12.0, 12.0]

# Meshes: of some of the processes, of others, and two in one program.
half = DeviceMesh("cpu", [0, 1])
if rank < 2:
    assert distribute_tensor(pf.arange(3.0), half, [S(0)]).full_tensor().tolist() == [0.0, 1.0, 2.0]
else:
    refused(lambda: distribute_tensor(pf.ones(3), half, [S(0)]), "distribute_tensor: this process is not in the mesh; got rank", "expected one of [0, 1]")
    refused(lambda: distribute_module(pf.nn.Linear(2, 2), half), "distribute_module: this process is not in the mesh")
g = distribute_tensor(five.clone().requires_grad_(), grid, [S(0), R])
w = distribute_tensor(five.clone().requires_grad_(), mesh, [S(0)])
for call in (lambda: w + g, lambda: w @ g.T, lambda: w.maximum(g), lambda: w.__imul__(g)):
    refused(call, "the meshes differ; got DeviceMesh(a=2, b=2; ranks [[0, 1], [2, 3]]) and DeviceMesh(0=4; ranks [0, 1, 2, 3])")
refused(lambda: w.redistribute(grid, [R, R]), "DTensor.redistribute: a value stays on its mesh")
(w * w).sum().redistribute(placements=[R]).backward(), (g * g).sum().redistribute(placements=[R, R]).backward()
norm = pf.nn.utils.clip_grad_norm_([w, g], 1.0).item()  # each parameter over its own mesh
assert abs(norm - 2 * (2 * five.square().sum()).sqrt().item()) < 1e-3, norm
optimizer = pf.optim.SGD([w, g], lr=1.0)
optimizer.step()
assert w.full_tensor().equal(g.full_tensor()) and w.full_tensor().allclose(five - 2 * five / norm, atol=1e-5)
refused(lambda: distribute_module(pf.nn.Linear(2, 3), mesh)(g), "DTensor.matmul: the meshes differ")
refused(lambda: distribute_module(pf.nn.Linear(2, 3), mesh, lambda n, m, _: m.register_parameter("weight", pf.nn.Parameter(distribute_tensor(m.weight, grid, [S(0), R])))),
        "distribute_module: a parameter is on another mesh; got weight on DeviceMesh(a=2, b=2")
refused(lambda: distribute_module(pf.nn.Embedding(5, 2), mesh)(distribute_tensor(pf.tensor([1, 2]), grid)), "Embedding: the meshes differ")

# A step that one process cannot make is left out by all.
scaler = pf.amp.GradScaler(init_scale=2.0)
w = distribute_tensor(five.clone().requires_grad_(), mesh, [S(0)])
optimizer = pf.optim.SGD([w], lr=1.0)
scaler.scale(pf.tensor(1.0))
w.grad = w.detach() * (float("inf") if rank == 0 else 1.0)
scaler.step(optimizer)
scaler.update()
assert w.full_tensor().equal(five) and scaler.get_scale() == 1.0

# Parts that do not belong together are found.
refused(lambda: DTensor.from_local(pf.ones(2 if rank == 0 else 1), mesh, [S(0)]).full_tensor(), "the ranks make different calls")
print("right")
"""


def test_four_processes(tmp_path):
    assert run(4, PROGRAM, tmp_path) == ["right\n"] * 4


@pytest.fixture
def mesh():
    yield dist.init_device_mesh("cpu", (1,))
    dist.destroy_process_group()


def test_copies(mesh):
    d = distribute_tensor(pf.ones(2, 3, requires_grad=True), mesh, [Shard(0)])
    deep, shallow = copy.deepcopy({"a": d, "b": d}), copy.copy(d)
    assert deep["a"] is deep["b"] and deep["a"].is_leaf and deep["a"].requires_grad and deep["a"].device_mesh is mesh
    with pf.no_grad():
        deep["a"] += 1
        assert d.full_tensor().equal(pf.ones(2, 3))
        shallow += 1
    assert d.full_tensor().equal(pf.full((2, 3), 2.0)) and shallow is not d and shallow.requires_grad
    optimizer = pf.optim.SGD([deep["a"]], lr=1.0)
    deep["a"].sum().backward()
    optimizer.step()
    assert deep["a"].full_tensor().equal(pf.ones(2, 3)) and d.grad is None
    placements = [Shard(1), Replicate(), Partial()]
    assert pickle.loads(pickle.dumps(placements)) == placements == copy.deepcopy(placements) and copy.deepcopy(mesh) is mesh


def test_handles(mesh):
    """What an optimizer has is the leaf of the DTensor, also where from_local() made it."""
    part = pf.ones(3, requires_grad=True)
    d = DTensor.from_local(part, mesh, [Shard(0)])
    optimizer = pf.optim.SGD([d], lr=0.5)
    (d * d).sum().backward()
    assert part.grad.tolist() == [2.0] * 3 and optimizer.param_groups[0]["params"][0].full_tensor().tolist() == [1.0] * 3
    optimizer.step()
    assert part.tolist() == [0.0] * 3
    optimizer.zero_grad()
    assert part.grad is None and d.grad is None
    with pytest.raises(ValueError, match="optimizer: a parameter appears twice"):
        pf.optim.SGD([d, d], lr=0.5)
    with pytest.raises(ValueError, match="optimizer: can only optimize leaf tensors"):
        pf.optim.SGD([d * 2], lr=0.5)
    p = pf.nn.Parameter(d)
    assert isinstance(p, pf.nn.Parameter) and p.placements == (Shard(0),) and p.device_mesh is mesh and "shape (3,)" in repr(p)
    named = pf.optim.AdamW([("weight", d)], lr=0.5)
    assert named.param_groups[0]["param_names"] == ["weight"]


WRONG = [
    (TypeError, "DTensor: it cannot be iterated; got placements .*hint: full_tensor\\(\\)", lambda d, m, f: list(d)),
    (TypeError, "DTensor: it cannot be indexed", lambda d, m, f: d[0]),
    (TypeError, "DTensor: it cannot be written by index", lambda d, m, f: d.__setitem__(0, 1)),
    (TypeError, "DTensor: it is no array; got placements", lambda d, m, f: np.asarray(d)),
    (AttributeError, "DTensor.add_: not available for a DTensor", lambda d, m, f: d.add_(1)),
    (TypeError, "distribute_tensor: placements are no list; got int; expected Shard", lambda d, m, f: distribute_tensor(pf.ones(2), m, 0)),
    (ValueError, "distribute_tensor: placements do not fit the mesh; got \\['Shard", lambda d, m, f: distribute_tensor(pf.ones(2), m, ["Shard(0)"])),
    (ValueError, "there is no such dim; got Shard\\(dim=0\\) for a tensor of 0 dims", lambda d, m, f: distribute_tensor(pf.tensor(1.0), m, [Shard(0)])),
    (TypeError, "tensor: cannot make a tensor of this; got DTensor", lambda d, m, f: pf.tensor(d)),
    (TypeError, "optimizer: params is a tensor; expected an iterable", lambda d, m, f: pf.optim.SGD(d, lr=0.1)),
    (RuntimeError, "save: the tensor is a part of a larger one; .*distributed.checkpoint.save", lambda d, m, f: pf.save({"a": d}, f / "a.safetensors")),
    (RuntimeError, "pickle: a DTensor is divided", lambda d, m, f: pickle.dumps({"a": d})),
    (RuntimeError, "pickle: a mesh has connections of this process; got DeviceMesh", lambda d, m, f: pickle.dumps(m)),
    (RuntimeError, "pickle: a module of distribute_module\\(\\) cannot be pickled; got Linear; .*checkpoint.save", lambda d, m, f: pickle.dumps(distribute_module(pf.nn.Linear(2, 2), m))),
    (RuntimeError, "load_state_dict: .*received DTensor", lambda d, m, f: pf.nn.Linear(4, 3, bias=False).load_state_dict({"weight": d})),
]


@pytest.mark.parametrize("error, message, call", WRONG, ids=[m[:50] for _, m, _ in WRONG])
def test_refused(error, message, call, mesh, tmp_path):
    with pytest.raises(error, match="(?s)" + message):
        call(distribute_tensor(pf.ones(3, 4), mesh, [Shard(0)]), mesh, tmp_path)
