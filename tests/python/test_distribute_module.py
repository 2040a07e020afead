"""distribute_module, and parameters that are DTensors in optimizers, in several processes: the numbers are those of one process."""
import copy
import pickle

import pytest
from processes import run

import pyflame as pf
import pyflame.distributed as dist
from pyflame.distributed.tensor import DTensor, Replicate, Shard, distribute_module, distribute_tensor

HEAD = """
from pyflame.distributed.device_mesh import init_device_mesh
from pyflame.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_module, distribute_tensor
from pyflame.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

R, S = Replicate(), Shard
pf.manual_seed(3)

def close(a, b, what=""):
    assert tuple(a.shape) == tuple(b.shape) and a.dtype == b.dtype and pf.allclose(a, b, rtol=1e-4, atol=1e-5), (what, a, b)

def whole(p):
    return p.full_tensor() if hasattr(p, "full_tensor") else p.detach()

def refused(call, *texts, error=ValueError):
    try:
        call()
    except error as e:
        for text in texts:
            assert text in str(e), e
        return
    raise AssertionError(("not refused", texts))

class Network(pf.nn.Module):
    def __init__(self):
        super().__init__()
        pf.manual_seed(5)
        self.words = pf.nn.Embedding(5, 6, padding_idx=4)
        self.up, self.act, self.down = pf.nn.Linear(6, 7), pf.nn.GELU(), pf.nn.Linear(7, 6)
        self.norm = pf.nn.LayerNorm(6)
        self.scale = pf.nn.Parameter(pf.full((6,), 0.5))
        self.register_buffer("shift", pf.arange(6.0) / 10)

    def forward(self, index):
        x = self.words(index) * self.scale + self.shift
        if isinstance(x, DTensor):
            x = x.redistribute(placements=self.x if hasattr(self, "x") else [R] * x.device_mesh.ndim)
        h = self.down(self.act(self.up(x)))
        if isinstance(h, DTensor):
            h = h.redistribute(placements=self.h if hasattr(self, "h") else [R] * h.device_mesh.ndim)
        return self.norm(x + h)

index = pf.randint(0, 5, (6, 3))
index[0, 0] = 4  # the padding
target = pf.randn(6, 3, 6)

def split(plan):
    def partition(name, module, mesh):
        for key, placements in plan.items():
            owner, _, last = key.rpartition(".")
            if owner == name:
                module.register_parameter(last, pf.nn.Parameter(distribute_tensor(getattr(module, last), mesh, placements)))
    return partition

def trained(model, make, steps):
    optimizer = make(model.parameters())
    norms = []
    for _ in range(steps):
        optimizer.zero_grad()
        (model(index) - target).square().mean().backward()
        norms.append(pf.nn.utils.clip_grad_norm_(model.parameters(), 0.5).item())
        optimizer.step()
    return norms
"""

MODULE = HEAD + """
mesh = init_device_mesh("cpu", (world,))
want = Network()
first = want(index)
(first - target).square().mean().backward()
PLANS = {
    "nothing": {},
    "columns, then rows": {"up.weight": [S(0)], "up.bias": [S(0)], "down.weight": [S(1)]},
    "rows of the table": {"words.weight": [S(0)], "up.weight": [S(0)]},
    "columns of the table": {"words.weight": [S(1)], "norm.weight": [R]},
}
for name, plan in PLANS.items():
    model = Network()
    if name.startswith("rows"):  # the sum is computed before what is not linear
        model.words.register_forward_hook(lambda m, i, y: y.redistribute(placements=[R]))
    if rank:
        with pf.no_grad():
            model.norm.bias.add_(5.0)  # what nobody divides has the values of the first process
    made = distribute_module(model, mesh, split(plan), lambda m, i, mesh: tuple(distribute_tensor(x, mesh) for x in i), lambda m, y, mesh: y.to_local())
    assert made is model and isinstance(model.up, pf.nn.Linear)
    for key, placements in plan.items():
        p = model.get_parameter(key)
        assert p.placements == tuple(placements) and p.device_mesh == mesh and p.global_shape == tuple(want.get_parameter(key).shape) and isinstance(p, pf.nn.Parameter)
    y = model(index)
    close(y, first, name)
    (y - target).square().mean().backward()
    for (key, p), (_, q) in zip(model.named_parameters(), want.named_parameters()):
        close(p.full_tensor(), q, (name, key))
        close(p.grad.full_tensor(), q.grad, (name, "gradient", key))
    assert not isinstance(model.up.weight, DTensor)
    refused(lambda: distribute_module(model, mesh), "distribute_module: the module was distributed before", error=RuntimeError)
# Parts of the batch: gradients are summed over the processes.
model = distribute_module(Network(), mesh, None, lambda m, i, mesh: tuple(distribute_tensor(x, mesh, [S(0)]) for x in i), lambda m, y, mesh: y.full_tensor())
model.x = model.h = [S(0)]
y = model(index)
close(y, first)
(y - target).square().mean().backward()
for (key, p), (_, q) in zip(model.named_parameters(), want.named_parameters()):
    close(p.grad.full_tensor(), q.grad, key)
refused(lambda: distribute_module(parallelize_module(pf.nn.Linear(4, 4), mesh, ColwiseParallel()), mesh), "distribute_module: a parameter is divided already; got weight")
dropout = distribute_module(pf.nn.Sequential(pf.nn.Dropout(0.5), pf.nn.Softmax(-1)), mesh)
x = pf.ones(8, 4)
refused(lambda: dropout(distribute_tensor(x, mesh)), "each process draws numbers of its own")
assert dropout(distribute_tensor(x, mesh, [S(0)])).placements == (S(0),)
close(dropout.eval()(distribute_tensor(x, mesh)).to_local(), x / 4)
print("right")
"""


@pytest.mark.parametrize("n", [2, 4])
def test_modules(n, tmp_path):
    assert run(n, MODULE, tmp_path) == ["right\n"] * n


OPTIMIZERS = HEAD + """
mesh = init_device_mesh("cpu", (world,))
grid = init_device_mesh("cpu", (2, world // 2))
divided = {"words.weight": [S(1)], "up.weight": [S(0)], "up.bias": [S(0)], "down.weight": [S(1)]}
MAKE = {
    "AdamW": lambda p: pf.optim.AdamW(p, lr=0.02, weight_decay=0.1),
    "SGD": lambda p: pf.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.01),
}
inputs = lambda m, i, mesh: tuple(distribute_tensor(x, mesh) for x in i)
batch = lambda m, i, mesh: tuple(distribute_tensor(x, mesh, [S(0), R]) for x in i)
for name, make in MAKE.items():
    want = Network()
    norms = trained(want, make, 20)
    assert max(norms) > 0.5 > 0  # clipping takes part
    model = distribute_module(Network(), mesh, split(divided), inputs, lambda m, y, mesh: y.to_local())
    two = distribute_module(Network(), grid, split({k: [R, *v] for k, v in divided.items()}), batch, lambda m, y, mesh: y.full_tensor())
    two.x = two.h = [S(0), R]
    for m in (model, two):
        got = trained(m, make, 20)
        assert all(abs(a - b) < 1e-4 * b for a, b in zip(got, norms)), (got, norms)
        for (key, p), (_, q) in zip(m.named_parameters(), want.named_parameters()):
            close(p.full_tensor(), q.detach(), (name, key))
    # Styles of parallelize_module, which have ordinary tensors between the layers.
    def mlp():
        pf.manual_seed(7)
        return pf.nn.Sequential(pf.nn.Linear(6, 8), pf.nn.Tanh(), pf.nn.Linear(8, 6))
    index_before, index = index, pf.randn(6, 3, 6)
    want = mlp()
    norms = trained(want, make, 20)
    model = parallelize_module(mlp(), mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    got = trained(model, make, 20)
    assert all(abs(a - b) < 1e-4 * b for a, b in zip(got, norms)), (got, norms)
    for (key, p), (_, q) in zip(model.named_parameters(), want.named_parameters()):
        close(whole(p), q.detach(), (name, key))
    index = index_before
    # DTensors without a module.
    w, v, x, y = pf.randn(6, 5), pf.randn(5, 3), pf.randn(4, 6), pf.randn(4, 3)
    plain = [w.clone().requires_grad_(), v.clone().requires_grad_()]
    parts = [distribute_tensor(w.requires_grad_(), mesh, [S(1)]), distribute_tensor(v.requires_grad_(), mesh, [S(0)])]
    dx, dy = distribute_tensor(x, mesh), distribute_tensor(y, mesh)
    a, b = make(plain), make([{"params": parts[0]}, {"params": [parts[1]], "lr": 0.02}])
    a.param_groups[0]["lr"] = b.param_groups[0]["lr"] = 0.02
    for step in range(20):
        a.zero_grad(), b.zero_grad()
        ((x @ plain[0]).tanh() @ plain[1] - y).square().mean().backward()
        (((dx @ parts[0]).tanh() @ parts[1]).redistribute(placements=[R]) - dy).square().mean().backward()
        n, m = pf.nn.utils.clip_grad_norm_(plain, 0.5), pf.nn.utils.clip_grad_norm_(parts, 0.5)
        assert abs(n.item() - m.item()) < 1e-4 * n.item(), (n, m)
        norm = pf.nn.utils.get_total_norm([p.grad for p in parts])
        assert abs(norm.item() - min(0.5, n.item())) < 1e-4
        a.step(), b.step()
    for p, q in zip(parts, plain):
        close(p.full_tensor(), q, name)
    assert pf.nn.utils.get_total_norm([p.grad for p in parts], float("inf")).item() == max(p.grad.full_tensor().abs().max().item() for p in parts)
pf.nn.utils.clip_grad_value_(parts, 0.001)
assert all(p.grad.full_tensor().abs().max().item() <= 0.0011 for p in parts)
refused(lambda: pf.optim.SGD([DTensor.from_local(pf.ones(2, requires_grad=True), mesh, [Partial()])], lr=0.1), "optimizer: the value is a sum that is not computed yet; got placements [Partial()]")
refused(lambda: pf.nn.Parameter(DTensor.from_local(pf.ones(2), mesh, [Partial()])), "Parameter: the value is a sum that is not computed yet")
refused(lambda: pf.optim.Muon([distribute_tensor(pf.ones(4, 4, requires_grad=True), mesh, [S(0)])], lr=0.1).step(), "the update of a parameter depends on all of it", error=NotImplementedError)
print("right")
"""


@pytest.mark.parametrize("n", [2, 4])
def test_optimizers(n, tmp_path):
    assert run(n, OPTIMIZERS, tmp_path) == ["right\n"] * n


@pytest.fixture
def mesh():
    yield dist.init_device_mesh("cpu", (1,))
    dist.destroy_process_group()


def test_one_process(mesh):
    linear = pf.nn.Linear(3, 2)
    want = linear(pf.ones(4, 3))
    p = linear.weight
    optimizer = pf.optim.SGD(linear.parameters(), lr=0.5)  # made before: the parameters stay the same objects
    distribute_module(linear, mesh, None, lambda m, i, mesh: (distribute_tensor(i[0], mesh),))
    y = linear(pf.ones(4, 3))
    assert isinstance(y, DTensor) and y.full_tensor().equal(want) and linear.weight is p and p.placements == (Replicate(),)
    before = p.full_tensor().clone()
    y.sum().backward()
    optimizer.step()
    assert pf.allclose(p.full_tensor(), before - 0.5 * 4)
    twin = copy.deepcopy(linear)
    assert twin.weight is not p and twin.weight.full_tensor().equal(p.full_tensor()) and twin.weight.placements == p.placements
    assert twin(pf.ones(4, 3)).full_tensor().equal(linear(pf.ones(4, 3)).full_tensor())
    for kind in (pf.nn.ReLU, pf.nn.GELU, pf.nn.Mish, pf.nn.ELU, pf.nn.Hardtanh, pf.nn.LogSigmoid, pf.nn.Softsign, pf.nn.ReLU6):
        m = kind()
        x = pf.randn(3, 4)
        expected = m(x)
        assert distribute_module(m, mesh)(distribute_tensor(x, mesh, [Shard(0)])).full_tensor().equal(expected), kind


def test_made_without_memory(mesh):
    """A module of the device 'meta' gets memory for the parts only."""
    with pf.device("meta"):
        linear = pf.nn.Linear(3, 4)
    distribute_module(linear, mesh, lambda name, m, mesh: m.register_parameter("weight", pf.nn.Parameter(distribute_tensor(m.weight, mesh, [Shard(0)]))))
    linear.to_empty(device="cpu")
    assert linear.weight.placements == (Shard(0),) and linear.bias.placements == (Replicate(),) and linear.weight.global_shape == (4, 3)
    with pf.no_grad():
        linear.weight.fill_(1.0), linear.bias.fill_(2.0)
    assert linear(distribute_tensor(pf.ones(1, 3), mesh)).full_tensor().tolist() == [[5.0] * 4]


class _Twice(pf.nn.Module):
    """Calls itself, with the same parameter."""

    def __init__(self):
        super().__init__()
        self.weight = pf.nn.Parameter(pf.full((3,), 2.0))

    def forward(self, x, again=True):
        return self(x * self.weight, again=False) * self.weight if again else x * self.weight


def test_a_module_that_calls_itself(mesh):
    m = distribute_module(_Twice(), mesh)
    assert m(distribute_tensor(pf.ones(3), mesh)).full_tensor().tolist() == [8.0] * 3
    with pytest.raises(TypeError, match="DTensor.rmul: a DTensor and an ordinary tensor do not go together"):
        m(pf.ones(3))
    assert isinstance(m.weight, pf.nn.Parameter)  # also after an error


def _linear(mesh, **functions):
    return distribute_module(pf.nn.Linear(3, 2), mesh, **functions)


def _inner_of_sharded(mesh):
    """A layer whose parameters are gathered by the module that has it, and not by a call of itself."""
    m = pf.nn.Sequential(_linear(mesh))
    return dist.fsdp.fully_shard(m, mesh=mesh)[0]


WRONG = [
    (TypeError, "distribute_module: not a Module; got int", lambda m: distribute_module(1, m)),
    (TypeError, "distribute_module: device_mesh is not a mesh; got NoneType", lambda m: distribute_module(pf.nn.Linear(1, 1))),
    (TypeError, "distribute_module: partition_fn is not a function; got int", lambda m: _linear(m, partition_fn=1)),
    (RuntimeError, "distribute_module: the module was distributed before; got DistributedLinear", lambda m: distribute_module(_linear(m), m)),
    (RuntimeError, "distribute_module: the module was distributed before; got 0", lambda m: distribute_module(pf.nn.Sequential(_linear(m)), m)),
    (ValueError, "distribute_module: a parameter has no shape yet; got weight", lambda m: distribute_module(pf.nn.LazyLinear(2), m)),
    (TypeError, "Linear: the input is an ordinary tensor, and the parameters are DTensors; got a tensor of shape \\(4, 3\\)", lambda m: _linear(m)(pf.ones(4, 3))),
    (ValueError, "Softmax: dim is not given", lambda m: distribute_module(pf.nn.Softmax(), m)(distribute_tensor(pf.ones(2, 2), m))),
    (NotImplementedError, "Embedding: not available for DTensors; got max_norm=1.0", lambda m: distribute_module(pf.nn.Embedding(3, 2, max_norm=1.0), m)(distribute_tensor(pf.tensor([1]), m))),
    (TypeError, "Embedding: the input is an ordinary tensor", lambda m: distribute_module(pf.nn.Embedding(3, 2), m)(pf.tensor([1]))),
    (ValueError, "distribute_module: a parameter is on no mesh; got weight of Linear", lambda m: _inner_of_sharded(m)(distribute_tensor(pf.ones(4, 3), m))),
    (AttributeError, "ShardedParameter.placements: not known", lambda m: dist.tensor.parallel.parallelize_module(pf.nn.Linear(2, 2), m, dist.tensor.parallel.ColwiseParallel()).weight.placements),
    (RuntimeError, "pickle: the tensor is a part of a larger one", lambda m: pickle.dumps(_linear(m).weight)),
]


@pytest.mark.parametrize("error, message, call", WRONG, ids=[m[:50] for _, m, _ in WRONG])
def test_arguments(error, message, call, mesh):
    with pytest.raises(error, match=message):
        call(mesh)
