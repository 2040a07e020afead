"""DistributedDataParallel and DistributedSampler: several processes train as one process with the whole batch does."""
import pytest
from processes import run

import pyflame as pf
from pyflame.nn.parallel import DistributedDataParallel
from pyflame.utils.data import DataLoader, DistributedSampler, TensorDataset

TRAIN = """
from pyflame.nn.parallel import DistributedDataParallel as DDP

def model(seed):
    pf.manual_seed(seed)
    return pf.nn.Sequential(pf.nn.Linear(6, 32), pf.nn.LayerNorm(32), pf.nn.GELU(), pf.nn.Linear(32, 32), pf.nn.Tanh(), pf.nn.Linear(32, 2))

def data(step):
    g = pf.Generator()
    g.manual_seed(100 + step)
    return pf.randn(12, 6, generator=g), pf.randn(12, 2, generator=g)

def train(m, optimizer, first, last, steps=6):
    losses = []
    for step in range(steps):
        x, y = data(step)
        optimizer.zero_grad()
        loss = pf.nn.functional.mse_loss(m(x[first:last]), y[first:last])
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return losses

dist.init_process_group(timeout=60)
size = 12 // world
for cap in (25, 0.002):
    ddp = DDP(model(rank), bucket_cap_mb=cap)
    assert (len(ddp._buckets) > 1) == (cap < 1) and list(ddp.state_dict())[0] == "module.0.weight"
    losses = train(ddp, pf.optim.AdamW(ddp.parameters(), lr=1e-2), rank * size, (rank + 1) * size)
    alone = model(0)
    whole = train(alone, pf.optim.AdamW(alone.parameters(), lr=1e-2), 0, 12)
    for mine, want in zip(losses, whole):
        dist.all_reduce(mine, dist.ReduceOp.AVG)
        assert abs(mine.item() - want.item()) < 1e-5 * abs(want.item()) + 1e-6, (mine.item(), want.item())
    for p, q in zip(ddp.parameters(), alone.parameters()):
        assert (p - q).abs().max().item() < 1e-4
        bits = [pf.zeros_like(p) for _ in range(world)]
        dist.all_gather(bits, p)
        assert all(b.equal(p) for b in bits)  # the same on every rank

# Gradients add up without a word to the others, until the first backward outside of no_sync.
ddp = DDP(model(7))
x, y = data(0)
with ddp.no_sync():
    ddp(x[rank : rank + 1]).sum().backward()
local = ddp.module[0].weight.grad.clone()
everyone = [pf.zeros_like(local) for _ in range(world)]
dist.all_gather(everyone, local)
assert not everyone[0].equal(everyone[1])
ddp(x[rank + 4 : rank + 5]).sum().backward()
want = model(7)
want.load_state_dict(ddp.module.state_dict())
sum(want(x[r : r + 1]).sum() + want(x[r + 4 : r + 5]).sum() for r in range(world)).backward()
for p, q in zip(ddp.parameters(), want.parameters()):
    assert (p.grad - q.grad / world).abs().max().item() < 1e-5

# Buffers are those of rank 0 before each forward in training.
ddp = DDP(pf.nn.Sequential(pf.nn.BatchNorm1d(6), pf.nn.Linear(6, 1)))
ddp(data(rank)[0]).sum().backward()
means = [pf.zeros(6) for _ in range(world)]
dist.all_gather(means, ddp.module[0].running_mean)
assert not means[0].equal(means[1])
ddp(data(3)[0])
dist.all_gather(means, ddp.module[0].running_mean)
assert means[0].equal(means[1]) and ddp.module[0].num_batches_tracked.item() == 2

# Half precision, parameters of two dtypes, and one that is frozen.
mixed = pf.nn.Sequential(pf.nn.Linear(4, 4), pf.nn.Linear(4, 4, dtype=pf.float64), pf.nn.Linear(4, 4))
mixed[2].requires_grad_(False)
ddp = DDP(mixed)
(mixed[0](pf.ones(1, 4)).sum() * (rank + 1) + mixed[1](pf.ones(1, 4, dtype=pf.float64)).sum().float()).backward()
assert mixed[0].bias.grad.tolist() == [(world + 1) / 2] * 4 and mixed[1].bias.grad.tolist() == [1.0] * 4 and mixed[2].weight.grad is None and len(ddp._buckets) == 2

# A copy reduces its own gradients, and those of a copy of the module are its own.
import copy
ddp = DDP(pf.nn.Linear(3, 1), process_group=dist.group.WORLD)
double = copy.deepcopy(ddp)
for m, want in ((ddp, (world + 1) / 2), (double, (world + 1) / 2), (copy.deepcopy(ddp.module), rank + 1)):
    m(pf.full((1, 3), rank + 1.0)).sum().backward()
    assert next(m.parameters()).grad.tolist() == [[want] * 3], (rank, next(m.parameters()).grad)
assert double.process_group is dist.group.WORLD and double.module.weight is not ddp.module.weight

# Complex parameters.
class Turn(pf.nn.Module):
    def __init__(self):
        super().__init__()
        self.by = pf.nn.Parameter(pf.complex(pf.ones(3), pf.zeros(3)))

    def forward(self, x):
        return (self.by * x).real.sum()

ddp = DDP(Turn())
ddp(rank + 1.0).backward()
assert ddp.module.by.grad.tolist() == [complex((world + 1) / 2)] * 3
print("same")
"""


@pytest.mark.parametrize("world", [2, 3])
def test_same_as_one_process(world, tmp_path):
    assert run(world, TRAIN, tmp_path) == ["same\n"] * world


UNUSED = """
from pyflame.nn.parallel import DistributedDataParallel as DDP
dist.init_process_group(timeout=60)

class Two(pf.nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.never = pf.nn.Linear(2, 1), pf.nn.Linear(2, 1), pf.nn.Linear(2, 1)

    def forward(self, x, which):
        return self.a(x) if which == 0 else self.b(x)

ddp = DDP(Two())
try:
    ddp(pf.ones(1, 2), rank).sum().backward()
    raise AssertionError(f"rank {rank} was not told")
except RuntimeError as e:
    own = "a" if rank else "b"
    for text in ("parameters got no gradient on every rank; got a.bias, a.weight, b.bias, b.weight, never.bias, never.weight", f"(on this rank {own}.bias, {own}.weight, never.bias, never.weight)", "find_unused_parameters=True", "requires_grad_(False) for those that are not trained, before DistributedDataParallel is made"):
        assert text in str(e), e
ddp = DDP(Two(), find_unused_parameters=True)
ddp(pf.ones(1, 2), rank).sum().backward()
assert ddp.module.a.bias.grad.tolist() == ddp.module.b.bias.grad.tolist() == [1 / world] and ddp.module.never.bias.grad is None

# Gradients that are there already belong to the average, also on a rank that does not use the parameter in this pass.
ddp.zero_grad()
with ddp.no_sync():
    ddp(pf.ones(1, 2), 0).sum().backward()
    ddp(pf.ones(1, 2), 0).sum().backward()
ddp(pf.ones(1, 2), 1 - rank).sum().backward()
assert ddp.module.a.bias.grad.tolist() == [2 + 1 / world] and ddp.module.b.bias.grad.tolist() == [1 / world], (ddp.module.a.bias.grad, ddp.module.b.bias.grad)
ddp(pf.ones(1, 2), 1).sum().backward()
assert ddp.module.a.bias.grad.tolist() == [2 + 1 / world] and ddp.module.b.bias.grad.tolist() == [1 + 1 / world]
ddp.zero_grad()
with ddp.no_sync():
    (ddp(pf.ones(1, 2), 0).sum() * (rank + 1)).backward()
ddp(pf.ones(1, 2), 1).sum().backward()  # a is used by no rank in this pass
assert ddp.module.a.bias.grad.tolist() == [(world + 1) / 2] and ddp.module.never.bias.grad is None, ddp.module.a.bias.grad
try:
    DDP(pf.nn.Linear(2, 1 + rank))
    raise AssertionError(f"rank {rank} was not told")
except ValueError as e:
    assert "DistributedDataParallel: the modules of the ranks differ; got ('weight', (1, 2), 'pyflame.float32') on rank 0 and ('weight', (2, 2), 'pyflame.float32') on rank 1" in str(e), e
print("told")
"""


def test_unused_parameters(tmp_path):
    assert run(2, UNUSED, tmp_path) == ["told\n"] * 2


def test_one_process():
    model = pf.nn.Linear(2, 1)
    ddp = DistributedDataParallel(model, device_ids=[0])
    with ddp.no_sync():
        ddp(pf.ones(1, 2)).sum().backward()
    assert model.weight.grad.tolist() == [[1.0, 1.0]] and list(ddp.state_dict()) == ["module.weight", "module.bias"]


def test_arguments():
    with pytest.raises(RuntimeError, match="DistributedDataParallel: there is nothing to train; got a module without a parameter"):
        DistributedDataParallel(pf.nn.ReLU())
    with pytest.raises(ValueError, match="DistributedDataParallel: bucket_cap_mb is not a size; got 0"):
        DistributedDataParallel(pf.nn.Linear(1, 1), bucket_cap_mb=0)
    with pytest.raises(TypeError, match="DistributedDataParallel: not a module; got int; expected a Module"):
        DistributedDataParallel(3)
    with pytest.raises(ValueError, match=r"DistributedDataParallel: device_ids is not a list of one device; got \[0, 1\]; expected None or such as \[0\]; hint: one process for each GPU"):
        DistributedDataParallel(pf.nn.Linear(1, 1), device_ids=[0, 1])
    with pytest.raises(ValueError, match="DistributedDataParallel: device_ids is not a list of one device; got 0"):
        DistributedDataParallel(pf.nn.Linear(1, 1), device_ids=0)
    with pytest.raises(NotImplementedError, match="DistributedDataParallel: device_mesh is not available"):
        DistributedDataParallel(pf.nn.Linear(1, 1), device_mesh=1)


def test_post_hooks_and_the_end_of_backward():
    """What a hook asks for runs once, after the hooks of all leaves; it is forgotten when a hook raises."""
    from pyflame import _C

    said = []
    a, b = pf.ones(1, requires_grad=True), pf.ones(1, requires_grad=True)
    a.register_post_accumulate_grad_hook(lambda t: (said.append("a"), _C._run_at_end_of_backward(lambda: said.append("end"))))
    handle = b.register_post_accumulate_grad_hook(lambda t: said.append("b"))
    (a * b).sum().backward()
    assert sorted(said[:2]) == ["a", "b"] and said[2:] == ["end"]
    handle.remove()
    b.register_post_accumulate_grad_hook(lambda t: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        (a * b).sum().backward()
    said.clear()
    (a * 2).sum().backward()
    assert said == ["a", "end"]


def test_post_hooks_copy_nothing():
    """A leaf with such a hook gets its gradient as it is, not a copy of it."""
    recorded = []
    for hooked in (False, True):
        x, w = pf.ones(3, 4), pf.ones(4, 5, requires_grad=True)
        if hooked:
            w.register_post_accumulate_grad_hook(lambda p: None)

        def step():
            w.grad = None
            (x @ w).sum().backward()

        step()
        recorded.append([line for line in str(pf.explain(step)).splitlines() if " ops in " in line and line.startswith("  ")])
    assert len(recorded[0]) == 1 and recorded[0][0].split(";")[0] == recorded[1][0].split(";")[0], recorded


def test_gradients_that_are_ready():
    """A hook gets the whole gradient of a leaf while others are still to come; not where that is not known."""
    from pyflame import _C

    said = []
    a, b, c = (pf.full((2,), value, requires_grad=True) for value in (2.0, 3.0, 5.0))
    for name, leaf in (("a", a), ("b", b), ("c", c)):
        _C._register_ready_hook(leaf, lambda g, name=name, leaf=leaf: said.append((name, g.tolist(), leaf.grad is None)))
    first = a * b  # computed last
    second = first + c
    (second * c + a).sum().backward()
    assert [name for name, _, _ in said] == ["c", "a", "b"] or [name for name, _, _ in said] == ["c", "b", "a"]
    assert sorted(said) == [("a", [16.0, 16.0], True), ("b", [10.0, 10.0], True), ("c", [16.0, 16.0], True)]
    assert a.grad.tolist() == [16.0, 16.0] and c.grad.tolist() == [16.0, 16.0]
    said.clear()
    handle = b.register_hook(lambda g: g * 2)
    (a * b).sum().backward()
    assert [name for name, _, _ in said] == ["a"]  # b's gradient is what the hook makes of it
    handle.remove()
    said.clear()
    pf.utils.checkpoint.checkpoint(lambda x: x * b, a).sum().backward()
    (a * b).sum().backward(create_graph=True)
    pf.autograd.grad((a * b).sum(), [a])
    assert said == []


def test_a_hook_that_starts_a_backward_pass():
    """The inner pass leaves what the outer one runs at its end."""
    from pyflame import _C

    said = []
    a, b = pf.ones(1, requires_grad=True), pf.ones(1, requires_grad=True)
    b.register_post_accumulate_grad_hook(lambda t: _C._run_at_end_of_backward(lambda: said.append("inner")))

    def hook(t):
        _C._run_at_end_of_backward(lambda: said.append("outer"))
        with pf.enable_grad():
            (b * 2).sum().backward()

    a.register_post_accumulate_grad_hook(hook)
    (a * 3).sum().backward()
    assert said == ["inner", "outer"]


def test_sampler():
    data = TensorDataset(pf.arange(10))
    parts = [DistributedSampler(data, 3, r, seed=5) for r in range(3)]
    epochs = [[list(p) for p in parts] for _ in range(3)]
    for epoch in epochs:
        assert sorted(set(sum(epoch, []))) == list(range(10)) and [len(p) for p in epoch] == [4, 4, 4]
    assert epochs[0] != epochs[1] != epochs[2]  # nobody called set_epoch
    for p in parts:
        p.set_epoch(1)
    assert [list(p) for p in parts] == epochs[1] and [list(p) for p in parts] == epochs[1]  # from now on, who calls it decides


def test_sampler_in_a_loader():
    """The epoch is the loader's, so that a loader that goes on in the middle of an epoch gives what is left of it."""
    data = TensorDataset(pf.arange(12))

    def loader():
        return DataLoader(data, batch_size=2, sampler=DistributedSampler(data, 2, 0))

    first = loader()
    epochs = [[b[0].tolist() for b in first] for _ in range(2)]
    assert epochs[0] != epochs[1]
    other = loader()
    list(other)
    batches = iter(other)
    assert next(batches)[0].tolist() == epochs[1][0]
    resumed = loader()
    resumed.load_state_dict(other.state_dict())
    assert [b[0].tolist() for b in resumed] == epochs[1][1:]


SYNCHRONIZED = """
dist.init_process_group(timeout=60)
layer = pf.nn.SyncBatchNorm(2)
try:
    layer(pf.randn(3, 2))
    raise AssertionError("the statistics of one process were taken")
except NotImplementedError as e:
    assert "SyncBatchNorm: statistics over several processes are not available; got 2 processes; expected one; hint: BatchNorm" in str(e), e
assert layer.num_batches_tracked.item() == 0 and layer.eval()(pf.ones(3, 2)).shape == (3, 2)
print("told")
"""


def test_batch_norm_of_several_processes(tmp_path):
    assert run(2, SYNCHRONIZED, tmp_path) == ["told\n"] * 2


BROKEN = """
from pyflame.nn.parallel import DistributedDataParallel as DDP
dist.init_process_group(timeout=60)
ddp = DDP(pf.nn.Linear(2, 1))
handle = ddp.module.bias.register_post_accumulate_grad_hook(lambda p: 1 / 0)
try:
    ddp(pf.ones(1, 2)).sum().backward()
    raise AssertionError("the hook did not raise")
except ZeroDivisionError:
    handle.remove()
ddp.zero_grad()
(ddp(pf.ones(1, 2)).sum() * (rank + 1)).backward()  # reduced again
assert ddp.module.bias.grad.tolist() == [(world + 1) / 2], ddp.module.bias.grad
print("same")
"""


def test_after_a_backward_pass_that_raised(tmp_path):
    assert run(2, BROKEN, tmp_path) == ["same\n"] * 2
