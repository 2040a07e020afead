"""DTensor in several processes, against the same computation with whole tensors in each of them."""
import copy
import pickle

import numpy as np
import pytest
from processes import run

import pyflame as pf
import pyflame.distributed as dist
from pyflame.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor

HEAD = """
from pyflame.distributed.device_mesh import init_device_mesh
from pyflame.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor

R, P = Replicate(), Partial()
pf.manual_seed(3)  # the same whole tensors in each process

def close(a, b, what=""):
    assert tuple(a.shape) == tuple(b.shape) and a.dtype == b.dtype and pf.allclose(a, b, rtol=1e-4, atol=1e-5), (what, a, b)

def leaf(*shape):
    return pf.randn(*shape).requires_grad_()

def check(fn, mesh, *operands, gives=None):
    # operands: (whole tensor, placements). The result and the gradients are those of whole tensors.
    wholes = [w.detach().clone().requires_grad_() for w, _ in operands]
    parts = [distribute_tensor(w, mesh, p) for w, (_, p) in zip(wholes, operands)]
    assert all(d.is_leaf and d.requires_grad and tuple(d.shape) == tuple(w.shape) for d, w in zip(parts, wholes))
    want, got = fn(*wholes), fn(*parts)
    if gives is not None:
        assert got.placements == tuple(gives), (got.placements, gives)
    assert tuple(got.shape) == tuple(want.shape), (got.shape, want.shape)
    close(got.full_tensor(), want, fn)
    weight = pf.arange(1.0, want.numel() + 1).reshape(want.shape) / want.numel()
    (want * weight).sum().backward()
    (got.full_tensor() * weight).sum().backward()
    for d, w in zip(parts, wholes):
        assert d.grad.placements == d.placements and d.grad.shape == d.shape
        close(d.grad.full_tensor(), w.grad, ("gradient", fn, d.placements))

def refused(call, *texts, error=ValueError):
    try:
        call()
    except error as e:
        for text in texts:
            assert text in str(e), e
        return
    raise AssertionError(("not refused", texts))
"""

ONE_AXIS = HEAD + """
mesh = init_device_mesh("cpu", (world,))
S = Shard
# Layouts and back, with sizes that the processes do not divide.
for shape in ((4, 6), (5, 3), (1, 2), (7, 1, 4)):
    whole = pf.randn(*shape)
    for p in (S(0), S(1), S(-1), R):
        d = distribute_tensor(whole, mesh, [p])
        dim = p.dim if p.is_shard() else 0
        part = whole.chunk(world, dim) if p.is_shard() else [whole] * world
        assert rank >= len(part) and d.to_local().numel() == 0 or d.to_local().equal(part[rank]), (p, d)
        assert d.full_tensor().equal(whole) and d.device_mesh is mesh and d.shape == shape
        for q in (S(0), S(1), R):
            e = d.redistribute(placements=[q])
            assert e.placements == (q,) and e.full_tensor().equal(whole)
    s = DTensor.from_local(whole, mesh, [P])
    assert s.shape == shape
    for q in (S(0), S(1), R):
        close(s.redistribute(mesh, [q]).full_tensor(), whole * world)
a, b, bias, row = leaf(5, 6), leaf(6, 7), leaf(7), leaf(1, 7)
for p in (S(0), S(1), R):
    for q in (S(0), S(1), R):
        check(lambda x: x.redistribute(placements=[q]) * 2 if isinstance(x, DTensor) else x * 2, mesh, (a, [p]), gives=[q])
# Elementwise: placements go on; whole operands are taken in parts, or broadcast.
check(lambda x: (2 * x.tanh() + 1).exp() / 3 - x, mesh, (a, [S(1)]), gives=[S(1)])
for p in (S(0), S(1)):
    check(lambda x, y: x * y + x / (y * y + 1), mesh, (a, [p]), (a * 2, [p]), gives=[p])
    check(lambda x, y: x * y, mesh, (a, [p]), (a * 2, [R]), gives=[p])
    check(lambda x, y: (x - y).relu(), mesh, (pf.randn(5, 7), [p]), (bias, [R]), gives=[p])
    check(lambda x, y: x * y, mesh, (pf.randn(5, 7), [p]), (row, [R]), gives=[p])
check(lambda x, y: x * y, mesh, (pf.randn(5, 7), [S(1)]), (bias, [S(0)]), gives=[S(1)])
check(lambda x, y: x.maximum(y), mesh, (a, [S(0)]), (a.flip(0), [S(0)]), gives=[S(0)])
# Products of matrices.
for p, q, out in ((R, R, R), (S(0), R, S(0)), (R, S(1), S(1)), (S(1), S(0), P), (S(1), R, P), (R, S(0), P)):
    check(lambda x, y: x @ y, mesh, (a, [p]), (b, [q]), gives=[out])
batch, other = pf.randn(4, 5, 6), pf.randn(4, 6, 3)
check(lambda x, y: x @ y, mesh, (batch, [S(0)]), (other, [S(0)]), gives=[S(0)])
check(lambda x, y: x @ y, mesh, (batch, [S(0)]), (b, [R]), gives=[S(0)])
check(lambda x, y: x @ y, mesh, (batch, [R]), (other, [S(0)]), gives=[S(0)])
check(lambda x, y: x @ y, mesh, (batch, [S(1)]), (b, [R]), gives=[S(1)])
check(lambda x, y: x @ y, mesh, (a, [R]), (other[:, :, :], [S(2)]), gives=[S(2)])
# A sum that is not computed yet goes through what is linear.
check(lambda x, y, z: -(x @ y) * 2 + (x @ y) * z, mesh, (a, [S(1)]), (b, [S(0)]), (bias, [R]), gives=[P])
check(lambda x, y, z: (x @ y) @ z, mesh, (a, [S(1)]), (b, [S(0)]), (pf.randn(7, 2), [R]), gives=[P])
check(lambda x, y: (x @ y).redistribute(placements=[S(0)]).relu() if isinstance(x, DTensor) else (x @ y).relu(), mesh, (a, [S(1)]), (b, [S(0)]), gives=[S(0)])
# Reductions, softmax, order of dims.
for p in (S(0), S(1), R):
    check(lambda x: x.sum(), mesh, (a, [p]), gives=[R if p == R else P])
    check(lambda x: x.mean(dim=1), mesh, (a, [p]), gives=[P if p == S(1) else p])
    check(lambda x: x.sum(dim=0, keepdim=True), mesh, (a, [p]), gives=[P if p == S(0) else p])
    check(lambda x: x.T @ x if p == R else x.T * 2, mesh, (a, [p]), gives=[R if p == R else S(1 - p.dim)])
check(lambda x: x.softmax(1), mesh, (a, [S(0)]), gives=[S(0)])
check(lambda x: x.log_softmax(-1), mesh, (a, [S(0)]), gives=[S(0)])
check(lambda x: x.permute(2, 0, 1).unsqueeze(1).transpose(0, 1), mesh, (batch, [S(1)]), gives=[S(3)])
# Another shape: a dim that is split stays, or begins what is merged or divided in equal parts.
cube = pf.randn(4, 3, 5)
for p in (S(0), S(1), S(2), R):
    check(lambda x: x.reshape(1, 4, 1, 3, 5).square(), mesh, (cube, [p]), gives=[R if p == R else S({0: 1, 1: 3, 2: 4}[p.dim])])
check(lambda x: x.flatten(0, 1), mesh, (cube, [S(2)]), gives=[S(1)])
check(lambda x: x.view(-1, 5).reshape((2, 6, 5)), mesh, (cube, [S(2)]), gives=[S(2)])
check(lambda x: x.flatten(), mesh, (cube, [S(0)]), gives=[S(0)])
check(lambda x: x.flatten(0, -2).reshape(4, 3, 5), mesh, (cube, [S(0)]), gives=[S(0)])
check(lambda x: x.view(4, 15), mesh, (cube, [S(0)]), gives=[S(0)])
check(lambda x: (x @ x.T).flatten(), mesh, (pf.randn(3, 4), [R]), gives=[R])
assert DTensor.from_local(cube, mesh, [P]).reshape(12, 5).placements == (P,)
for d, shape in ((S(1), (12, 5)), (S(1), (4, 15)), (S(2), (4, 15)), (S(2), (60,)), (S(0), (3, 4, 5))):
    refused(lambda: distribute_tensor(cube, mesh, [d]).reshape(shape), f"DTensor.reshape: the result cannot be computed from the parts; got {d}; expected a shape in which dim {d.dim} of (4, 3, 5) stays")
assert distribute_tensor(pf.zeros(0, 4), mesh, [S(0)]).unsqueeze(0).shape == (1, 0, 4)
# An MLP of three layers, and a step by hand.
w1, w2, x = leaf(6, 8), leaf(8, 5), pf.randn(3, 6)
loss = ((x @ w1).tanh() @ w2).square().mean()
loss.backward()
d1, d2, dx = distribute_tensor(w1, mesh, [S(1)]), distribute_tensor(w2, mesh, [S(0)]), distribute_tensor(x, mesh, [R])
y = ((dx @ d1).tanh() @ d2).redistribute(placements=[R]).square().mean()
close(y.to_local(), loss)
assert abs(y.item() - loss.item()) < 1e-5
y.backward()
close(d1.grad.full_tensor(), w1.grad), close(d2.grad.full_tensor(), w2.grad)
optimizer = pf.optim.SGD([d1.to_local(), d2.to_local()], lr=0.5)
optimizer.step()
close(d1.full_tensor(), w1 - 0.5 * w1.grad)
# Gradients through from_local, to_local and full_tensor.
part = pf.full((2, 3), float(rank + 1), requires_grad=True)
d = DTensor.from_local(part, mesh, [S(0)])
assert d.shape == (2 * world, 3) and d.to_local() is part
(d.full_tensor() * pf.arange(2.0 * world).reshape(-1, 1)).sum().backward()
assert part.grad.tolist() == [[2.0 * rank] * 3, [2.0 * rank + 1] * 3], part.grad
part = pf.ones(2, requires_grad=True)
local = DTensor.from_local(part, mesh, [R]).to_local(grad_placements=[P])
(local * (rank + 1)).sum().backward()
assert part.grad.tolist() == [world * (world + 1) / 2] * 2
part = pf.full((3,), float(rank))
assert DTensor.from_local(part, mesh, [R], run_check=True).to_local().tolist() == [0.0] * 3
uneven = pf.ones(2 if rank == 0 else 1, 3)
refused(lambda: DTensor.from_local(uneven, mesh, [S(0)], run_check=True), "the parts of the processes do not belong together")
if world == 2:
    assert DTensor.from_local(uneven, mesh, [S(0)], shape=(3, 3)).full_tensor().equal(pf.ones(3, 3))
src = distribute_tensor(pf.full((4,), float(rank)), mesh, [S(0)], src_data_rank=world - 1)
assert src.full_tensor().tolist() == [world - 1.0] * 4
# What parts do not suffice for. The message says what to do.
d0, d1, partial = distribute_tensor(a, mesh, [S(0)]), distribute_tensor(a, mesh, [S(1)]), DTensor.from_local(a, mesh, [P])
hint = "hint: redistribute() one of them, or all to Replicate()"
refused(lambda: d0 + d1, "DTensor.add: the result cannot be computed from the parts; got Shard(dim=0), Shard(dim=1); expected one dim that is split", hint)
refused(lambda: partial.relu(), "DTensor.relu: ", "got Partial(); expected no Partial(), because relu of a sum is not the sum", hint)
refused(lambda: partial + 1, "got Partial(), int; expected no Partial()")
refused(lambda: partial * partial, "DTensor.mul: ")
refused(lambda: 1 / partial, "DTensor.rtruediv: ")
refused(lambda: d0 @ distribute_tensor(b, mesh, [S(1)]), "DTensor.matmul: ", hint)
refused(lambda: d1.softmax(1), "expected dim 1 as a whole")
refused(lambda: d0.sum().item(), "DTensor.item: ")
refused(lambda: distribute_tensor(row, mesh, [S(0)]) * distribute_tensor(pf.ones(5, 7), mesh, [R]), "expected no split along dim 0, which is broadcast")
dist.barrier()
print("right")
"""


@pytest.mark.parametrize("n", [2, 4])
def test_one_axis(n, tmp_path):
    assert run(n, ONE_AXIS, tmp_path) == ["right\n"] * n


TWO_AXES = HEAD + """
S = Shard
mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
a, b, bias = leaf(6, 5), leaf(5, 8), leaf(8)
every = [(p, q) for p in (S(0), S(1), R) for q in (S(0), S(1), R)]
for p in every:
    d = distribute_tensor(a, mesh, p)
    assert d.full_tensor().equal(a)
    for q in every:
        assert d.redistribute(placements=q).full_tensor().equal(a), (p, q)
        check(lambda x: x.redistribute(placements=q) * 3 if isinstance(x, DTensor) else x * 3, mesh, (a, p), gives=q)
twice = distribute_tensor(pf.arange(7.0), mesh, [S(0), S(0)])  # a part of a part
assert twice.to_local().tolist() == [[0, 1], [2, 3], [4, 5], [6]][rank], twice
for now in ((P, S(0)), (S(0), P), (P, P), (P, R)):
    local = pf.ones(4, 4)
    d = DTensor.from_local(local, mesh, now)
    whole = d.full_tensor()
    assert whole.equal(pf.full(tuple(d.shape), 2.0 ** sum(p == P for p in now))), (now, whole)
    for then in ((S(0), S(0)), (S(1), S(0)), (R, S(1)), (S(0), R)):
        assert d.redistribute(placements=then).full_tensor().equal(whole), (now, then)
# Rows along one axis and columns along the other, as with data and tensor parallel layers.
check(lambda x, w, c: x @ w + c, mesh, (a, [S(0), R]), (b, [R, S(1)]), (bias, [R, S(0)]), gives=[S(0), S(1)])
check(lambda x, w, c: (x @ w + c).relu(), mesh, (a, [S(0), R]), (b, [R, S(1)]), (bias, [R, R]), gives=[S(0), S(1)])
check(lambda x, w: x @ w, mesh, (a, [S(0), S(1)]), (b, [R, S(0)]), gives=[S(0), P])
check(lambda x, w: (x @ w).sum(dim=0), mesh, (a, [S(0), R]), (b, [R, S(1)]), gives=[P, S(0)])
check(lambda x, y: x * y, mesh, (a, [S(0), S(0)]), (a * 2, [R, R]), gives=[S(0), S(0)])
refused(lambda: distribute_tensor(a, mesh, [S(0), S(0)]) * distribute_tensor(a, mesh, [R, S(0)]), "expected splits of dim 0 in the order of the mesh")
tp = distribute_tensor(a, mesh["tp"], [S(0)])
refused(lambda: tp + distribute_tensor(a, mesh["dp"], [S(0)]), "DTensor.add: the meshes differ")
assert tp.full_tensor().equal(a)
print("right")
"""


def test_two_axes(tmp_path):
    assert run(4, TWO_AXES, tmp_path) == ["right\n"] * 4


LAYERS = HEAD + """
from pyflame.distributed.tensor.parallel import ColwiseParallel, PrepareModuleInput, PrepareModuleOutput, RowwiseParallel, SequenceParallel, parallelize_module
S = Shard
mesh = init_device_mesh("cpu", (world,), mesh_dim_names=("tp",))

def close_to(g, want, name):  # rows of tiny variance have large gradients, whose rounding is relative to the largest
    scale = max(1.0, want.abs().max().item())
    close(g / scale, want / scale, name)

class Network(pf.nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down, self.norm = pf.nn.Linear(6, 8), pf.nn.Linear(8, 4), pf.nn.LayerNorm(4)

    def forward(self, x):
        return self.norm(self.down(self.up(x).relu()))

x = pf.randn(4, 4, 6)
pf.manual_seed(5)
want = Network()
target = want(x)
weights = pf.arange(1.0, 5.0)  # squares of a normalized row add up to a constant, so their gradient would be rounding alone
(target * weights).square().sum().backward()

def divided(plan):
    pf.manual_seed(5)
    return parallelize_module(Network(), mesh, plan)

seen = []
for up, down in ((ColwiseParallel(use_local_output=False), RowwiseParallel()), (ColwiseParallel(use_local_output=False, output_layouts=Replicate()), RowwiseParallel()),
                 (ColwiseParallel(use_local_output=False, output_layouts=Shard(1)), RowwiseParallel()), (ColwiseParallel(), RowwiseParallel())):
    model = divided({"up": up, "down": down})
    model.up.register_forward_hook(lambda m, a, y: seen.append(y))
    y = model(x)
    close(y, target)
    (y * weights).square().sum().backward()
    for (name, p), (_, q) in zip(model.named_parameters(), want.named_parameters()):
        g = p.grad.full_tensor() if hasattr(p.grad, "full_tensor") else p.grad
        close_to(g, q.grad, name)
    s = seen.pop()
    assert isinstance(s, DTensor) == (not up.use_local_output)
    if isinstance(s, DTensor):
        assert s.shape == (4, 4, 8) and s.device_mesh is mesh and s.placements == (S(2) if up.output == S(-1) else up.output,), s.placements
# Outputs of RowwiseParallel as DTensors, into layers that take them.
model = divided({"up": ColwiseParallel(use_local_output=False), "down": RowwiseParallel(output_layouts=Shard(1), use_local_output=False), "norm": SequenceParallel(), "": PrepareModuleOutput(output_layouts=Shard(1), desired_output_layouts=Shard(0), use_local_output=False)})
y = model(distribute_tensor(x, mesh, [S(2)]))
assert isinstance(y, DTensor) and y.placements == (S(0),) and y.shape == (4, 4, 4)
close(y.full_tensor(), target)
(y.full_tensor() * weights).square().sum().backward()
for (name, p), (_, q) in zip(model.named_parameters(), want.named_parameters()):
    close_to(p.grad.full_tensor() if hasattr(p.grad, "full_tensor") else p.grad, q.grad, name)
whole = DTensor.from_local(x / world, mesh, [P])
close(divided({"up": ColwiseParallel(), "down": RowwiseParallel()})(whole), target)
model = divided({"": PrepareModuleInput(input_layouts=None, input_kwarg_layouts={"x": Shard(0)}, desired_input_kwarg_layouts={"x": Replicate()})})
close(model(x=distribute_tensor(x, mesh, [S(1)])), target)
embedding = pf.nn.Embedding(8, 4)
index = pf.randint(0, 8, (4, 3))
rows = embedding(index)
close(parallelize_module(copy_of(embedding), mesh, RowwiseParallel(use_local_output=False, output_layouts=Shard(0)))(index).full_tensor(), rows)
# A function of pyflame takes no DTensor: nobody computes with a part as if it were the whole.
s = distribute_tensor(x, mesh, [S(0)])
refused(lambda: pf.nn.functional.relu(s), "got (pyflame.distributed.tensor._dtensor.DTensor)", error=TypeError)
print("right")
"""


@pytest.mark.parametrize("n", [2, 4])
def test_layers(n, tmp_path):
    assert run(n, LAYERS.replace("copy_of(", "__import__('copy').deepcopy("), tmp_path) == ["right\n"] * n


@pytest.fixture
def mesh():
    yield dist.init_device_mesh("cpu", (1,))
    dist.destroy_process_group()


def test_one_process(mesh):
    whole = pf.randn(3, 4)
    d = distribute_tensor(whole, mesh, Shard(-1))
    assert d.placements == (Shard(1),) and d.full_tensor().equal(whole) and not d.requires_grad and d.grad is None
    assert (d.size(), d.size(0), d.dim(), d.ndim, d.numel(), len(d), d.dtype, str(d.device)) == ((3, 4), 3, 2, 2, 12, 3, pf.float32, "cpu")
    assert distribute_tensor(whole, mesh).placements == (Replicate(),) and DTensor.from_local(whole, mesh).placements == (Replicate(),)
    assert (d == d).to_local().all() and (d.float().to(pf.float64) + 1).dtype == pf.float64 and bool((distribute_tensor(pf.ones(2), mesh) > 0).sum() == 2)
    assert "placements=(Shard(dim=1),)" in repr(d) and copy.deepcopy(d).full_tensor().equal(whole)
    assert d.clone().detach().contiguous().abs().to_local().equal(whole.abs()) and (-d).to_local().equal(-whole) and (d + pf.tensor(2.0)).to_local().equal(whole + 2)
    assert (np.float32(2) * d).to_local().equal(2 * whole) and (d / np.float64(2)).to_local().equal(whole / 2) and (1 - d).to_local().equal(1 - whole)
    d.requires_grad_()
    (d * d).sum().backward()
    assert d.grad.to_local().equal(2 * whole) and d.grad.placements == d.placements
    d.grad = None
    (d * 2).backward(d.detach())
    assert d.grad.to_local().equal(2 * whole)


WRONG = [
    (TypeError, "DTensor: it is not made by its name", lambda d, m: DTensor(1)),
    (TypeError, "distribute_tensor: tensor is not a tensor; got int", lambda d, m: distribute_tensor(1, m)),
    (TypeError, "distribute_tensor: device_mesh is not a mesh; got NoneType", lambda d, m: distribute_tensor(pf.ones(1))),
    (ValueError, "distribute_tensor: placements do not fit the mesh; got .*expected Shard\\(dim\\), Replicate\\(\\) or Partial\\(\\) for each of 1 axes", lambda d, m: distribute_tensor(pf.ones(1), m, [Shard(0), Shard(0)])),
    (ValueError, "distribute_tensor: there is no such dim; got Shard\\(dim=2\\) for a tensor of 2 dims", lambda d, m: distribute_tensor(pf.ones(1, 1), m, [Shard(2)])),
    (ValueError, "distribute_tensor: a tensor is not divided into a sum", lambda d, m: distribute_tensor(pf.ones(1), m, [Partial()])),
    (TypeError, "DTensor.from_local: local_tensor is not a tensor; got list", lambda d, m: DTensor.from_local([1], m)),
    (ValueError, "DTensor.from_local: the part does not fit; got shape \\(1,\\); expected \\(2,\\)", lambda d, m: DTensor.from_local(pf.ones(1), m, [Shard(0)], shape=(2,))),
    (ValueError, "DTensor.redistribute: placements are not given", lambda d, m: d.redistribute()),
    (ValueError, "DTensor.redistribute: a value does not become a sum; got Shard\\(dim=0\\) to Partial\\(\\)", lambda d, m: d.redistribute(placements=[Partial()])),
    (NotImplementedError, "DTensor.to_local: such a gradient is not available; got Replicate\\(\\) for a value that is Shard", lambda d, m: d.to_local(grad_placements=[Replicate()])),
    (TypeError, "DTensor.add: a DTensor and an ordinary tensor do not go together; got a tensor of shape \\(3, 4\\)", lambda d, m: d + pf.ones(3, 4)),
    (TypeError, "DTensor.radd: a DTensor and an ordinary tensor", lambda d, m: pf.ones(3, 4) + d),
    (TypeError, "DTensor.matmul: a DTensor and an ordinary tensor", lambda d, m: pf.ones(3, 3) @ d),
    (TypeError, "DTensor.clamp: an argument is a tensor", lambda d, m: d.clamp(pf.ones(4))),
    (TypeError, "unsupported operand", lambda d, m: d + "text"),
    (ValueError, "DTensor.mul: the shapes do not fit together; got \\(3, 4\\) and \\(4, 3\\)", lambda d, m: d * d.T),
    (ValueError, "DTensor.matmul: the shapes do not fit together; got \\(3, 4\\) and \\(3, 4\\); expected a second operand of 4 rows", lambda d, m: d @ d),
    (ValueError, "DTensor.matmul: the operands are no matrices; got \\(3,\\) and \\(3, 4\\)", lambda d, m: d.sum(dim=1) @ d),
    (IndexError, "DTensor.sum: there is no such dim; got 2; expected -2 to 1", lambda d, m: d.sum(dim=2)),
    (IndexError, "DTensor.softmax: not one dim; got \\(0, 1\\)", lambda d, m: d.softmax((0, 1))),
    (ValueError, "DTensor.reshape: the shape does not fit; got \\(5, -1\\) for \\(3, 4\\); expected 12 elements", lambda d, m: d.reshape(5, -1)),
    (TypeError, "DTensor.view: not a shape; got \\(2.5,\\)", lambda d, m: d.view(2.5)),
    (ValueError, "DTensor.flatten: the dims are not in order; got 1 and 0", lambda d, m: d.flatten(1, 0)),
    (IndexError, "DTensor.flatten: there is no such dim; got 2", lambda d, m: d.flatten(0, 2)),
    (IndexError, "DTensor.unsqueeze: there is no such dim; got 4", lambda d, m: d.unsqueeze(4)),
    (ValueError, "DTensor.permute: not an order of the dims; got \\(0, 0\\)", lambda d, m: d.permute(0, 0)),
    (TypeError, "DTensor.mean: the values are no floating point numbers", lambda d, m: d.long().mean()),
    (TypeError, "DTensor.to: not a dtype; got 'cpu'", lambda d, m: d.to("cpu")),
    (RuntimeError, "DTensor.backward: the tensor has several elements; got shape \\(3, 4\\)", lambda d, m: d.backward()),
    (ValueError, "DTensor.backward: the gradient does not fit; got shape \\(4, 3\\)", lambda d, m: d.backward(d.T)),
    (TypeError, "DTensor.grad: not a gradient of a DTensor; got Tensor", lambda d, m: setattr(d, "grad", pf.ones(3, 4))),
    (AttributeError, "DTensor.cumsum: not available for a DTensor; .*hint: full_tensor\\(\\), or to_local\\(\\)", lambda d, m: d.cumsum(0)),
    (AttributeError, "'DTensor' object has no attribute 'nothing'", lambda d, m: d.nothing),
    (RuntimeError, "pickle: a DTensor is divided over processes", lambda d, m: pickle.dumps(d)),
    (TypeError, "exp: wrong arguments", lambda d, m: pf.exp(d)),
    (NotImplementedError, "distributed.tensor.zeros: not available", lambda d, m: dist.tensor.zeros(1)),
]


@pytest.mark.parametrize("error, message, call", WRONG, ids=[m[:40] for _, m, _ in WRONG])
def test_arguments(error, message, call, mesh):
    d = distribute_tensor(pf.ones(3, 4), mesh, [Shard(0)])
    with pytest.raises(error, match=message):
        call(d, mesh)
