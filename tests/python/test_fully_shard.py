"""fully_shard: parameters, gradients and optimizer states are divided over processes, which train as one process with the whole batch does."""
import pytest
from processes import run

import pyflame as pf
import pyflame.distributed as dist
from pyflame.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard

HEAD = """
import math
from pyflame.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard, register_fsdp_forward_method
from pyflame.testing import tolerance

class Block(pf.nn.Module):
    def __init__(self, n):
        super().__init__()
        self.norm, self.up, self.down = pf.nn.LayerNorm(n), pf.nn.Linear(n, 3 * n), pf.nn.Linear(3 * n, n)

    def forward(self, x, *, scale=1.0):
        return x + scale * self.down(pf.nn.functional.gelu(self.up(self.norm(x))))

class Net(pf.nn.Module):
    def __init__(self, n=6, out=3):
        super().__init__()
        self.first, self.blocks, self.last = pf.nn.Linear(5, n), pf.nn.ModuleList([Block(n) for _ in range(2)]), pf.nn.Linear(n, out)

    def forward(self, x):
        x = self.first(x)
        for b in self.blocks:
            x = b(x, scale=0.5)
        return self.last(x)

def net(seed=0, kind=Net, **sizes):
    pf.manual_seed(seed)
    return kind(**sizes)

def shard(m, **options):
    for b in m.blocks:
        fully_shard(b, **options)
    return fully_shard(m, **options)

def data(step):
    g = pf.Generator()
    g.manual_seed(100 + step)
    return pf.randn(12, 5, generator=g), pf.randn(12, 3, generator=g)

def train(m, optimizer, first, last, steps=3, clip=None):
    losses, norms = [], []
    for step in range(steps):
        x, y = data(step)
        optimizer.zero_grad()
        loss = pf.nn.functional.mse_loss(m(x[first:last]), y[first:last])
        loss.backward()
        if clip:
            norms.append(pf.nn.utils.clip_grad_norm_(m.parameters(), clip).item())
        optimizer.step()
        losses.append(loss.detach())
    return losses, norms

def adam(m):
    return pf.optim.AdamW(m.parameters(), lr=1e-2)

def close(got, want, steps=3, size=None):
    # Each step adds up 12 samples and passes sums of at most 18 terms through four layers.
    import numpy as np
    want = np.asarray(want, dtype="float64")
    wrong = tolerance.differences(np.asarray(got, dtype="float64"), want, "float32", 16 * steps, magnitude=np.maximum(abs(want), 1.0) if size is None else size, length=18 * 12)
    assert not wrong, wrong

dist.init_process_group(timeout=60)
size = 12 // world
first, last = rank * size, (rank + 1) * size
alone = net()
alone_optimizer = adam(alone)
whole_losses, whole_norms = train(alone, alone_optimizer, 0, 12, clip=0.5)
"""

TRAIN = HEAD + """
import hashlib
bits = []
for reshard in (True, False, None):
    for again in range(2 if reshard else 1):
        m = net()
        before = dict(m.named_parameters())
        shard(m, reshard_after_forward=reshard)
        assert type(m).__name__ == "FSDPNet" and isinstance(m, Net) and isinstance(m.blocks[0], FSDPModule) and not isinstance(m.first, FSDPModule)
        assert all(p is before[name] for name, p in m.named_parameters())  # an optimizer that was made before has the parts
        optimizer = adam(m)
        losses, norms = train(m, optimizer, first, last, clip=0.5)
        for mine in losses:
            dist.all_reduce(mine, dist.ReduceOp.AVG)
        close([t.item() for t in losses], [t.item() for t in whole_losses])
        close(norms, whole_norms)
        h = hashlib.sha256(b"".join(t.numpy().tobytes() for t in losses))
        for p, q in zip(m.parameters(), alone.parameters()):
            full = p.full_tensor()
            close(full.numpy(), q.detach().numpy(), size=1.0)
            h.update(full.numpy().tobytes())
            got = optimizer.state[p]["exp_avg"]
            close(p._sharding.whole(got).numpy(), alone_optimizer.state[q]["exp_avg"].numpy(), size=1.0)
        bits.append(h.hexdigest())
assert len(set(bits)) == 1, bits  # in each run, given up after the forward pass or not
everyone = [None] * world
dist.all_gather_object(everyone, bits[0])
assert set(everyone) == {bits[0]}

# What each process holds: parts of ceil(rows / ranks) rows.
def held(m, optimizer):
    return sum(t.nbytes for p in m.parameters() for t in (p, p.grad, *(v for v in optimizer.state[p].values() if isinstance(v, pf.Tensor))))

even = net(n=8, out=4)
want = sum(4 * p.nbytes for p in even.parameters())
shard(even)
optimizer = adam(even)
even(data(0)[0]).sum().backward()
optimizer.step()
assert held(even, optimizer) * world == want, (held(even, optimizer), want)
assert [tuple(p.shape) for p in m.last.parameters()] == [(min(-(-3 // world), max(0, 3 - rank * -(-3 // world))), 6), (min(-(-3 // world), max(0, 3 - rank * -(-3 // world))),)]
assert m.last.weight.global_shape == (3, 6) and type(m.last.weight.grad).__name__ == "ShardedTensor" and m.last.weight.grad.full_tensor().shape == (3, 6)
print(bits[0])
"""


MORE = """
# Gradients add up without communication, until the first backward pass after it is asked for again.
for reshard in (True, False):
    m = shard(net(), reshard_after_forward=reshard)
    x, y = data(0)
    m.set_requires_gradient_sync(False)
    m(x[rank : rank + 1]).sum().backward()
    assert all(p.grad is None for p in m.parameters())
    m.set_requires_gradient_sync(True)
    m(x[rank + 4 : rank + 5]).sum().backward()
    want = net()
    sum(want(x[r : r + 1]).sum() + want(x[r + 4 : r + 5]).sum() for r in range(world)).backward()
    for p, q in zip(m.parameters(), want.parameters()):
        close(p.grad.full_tensor().numpy(), (q.grad / world).numpy(), size=4.0)
    once = [p.grad.to_local().clone() for p in m.parameters()]
    m(x[rank : rank + 1]).sum().backward()  # with communication, gradients of parts add up
    assert all(not g.equal(p.grad) for g, p in zip(once, m.parameters()) if g.numel())

# Norms over parts.
total = {}
for p in (1.0, 2.0, 3.0, math.inf, -math.inf):
    grads = [q.grad for q in m.parameters()]
    wholes = [g.full_tensor() for g in grads]
    got, wanted = pf.nn.utils.get_total_norm(grads, p).item(), pf.nn.utils.get_total_norm(wholes, p).item()
    assert abs(got - wanted) <= 1e-6 * abs(wanted), (p, got, wanted)

# A parameter that only some ranks used counts with zeros there; one that none used has no gradient.
class Two(pf.nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.never = pf.nn.Linear(2, 3), pf.nn.Linear(2, 3), pf.nn.Linear(2, 3)

    def forward(self, x, which):
        return self.a(x) if which == 0 else self.b(x)

m = fully_shard(Two())
m(pf.ones(1, 2), min(rank, 1)).sum().backward()
assert m.a.bias.grad.full_tensor().tolist() == [1 / world] * 3 and m.b.bias.grad.full_tensor().tolist() == [(world - 1) / world] * 3 and m.never.bias.grad is None

# Frozen parameters, tied ones, other factors, parameters that are ignored, two dtypes in one module.
class Tied(pf.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.head, self.plain, self.wide = pf.nn.Embedding(7, 4), pf.nn.Linear(4, 7, bias=False), pf.nn.Linear(4, 4), pf.nn.Linear(4, 4, dtype=pf.float64)
        self.head.weight = self.embed.weight
        self.plain.bias.requires_grad_(False)

    def forward(self, i):
        return self.head(self.wide(self.plain(self.embed(i)).to(pf.float64)).to(pf.float32))

index = pf.tensor([[1, 2, 6]])
for factor in (None, 2.0):
    m, want = net(3, Tied), net(3, Tied)
    fully_shard(m, ignored_params={m.plain.weight})
    assert m.head.weight is m.embed.weight and tuple(m.plain.weight.shape) == (4, 4)
    if factor:
        m.set_gradient_divide_factor(factor)
    m(index).sum().backward()
    want(index).sum().backward()
    for (name, p), q in zip(m.named_parameters(), want.parameters()):
        scale = 1.0 if factor is None or name == "plain.weight" else world / factor
        got = p.grad if name == "plain.weight" or p.grad is None else p.grad.full_tensor()
        assert (got is None) == (q.grad is None) == (name == "plain.bias"), name
        assert got is None or (got - q.grad * scale).abs().max().item() < 1e-5, name

# Random numbers and buffers are those of the first time where a forward pass is computed again.
class Noisy(pf.nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.norm, self.drop, self.b = pf.nn.Linear(5, 8), pf.nn.BatchNorm1d(8), pf.nn.Dropout(0.5), pf.nn.utils.parametrizations.spectral_norm(pf.nn.Linear(8, 3))

    def forward(self, x):
        return {"out": [self.b(self.drop(self.norm(self.a(x))))], "kind": "noisy"}

states = []
for reshard in (True, False):
    m = net(5, Noisy)
    fully_shard(m, reshard_after_forward=reshard)
    for step in range(2):
        m(data(step)[0])["out"][0].square().sum().backward()
    states.append([t.to_local() if hasattr(t, "to_local") else t for t in (*m.state_dict().values(), *(p.grad for p in m.parameters()))])
assert m.norm.num_batches_tracked.item() == 2
assert all(a.equal(b) for a, b in zip(*states))

# Lower precision: the parameters that compute, the reduction and the output.
m = net()
for b in m.blocks:
    fully_shard(b, mp_policy=MixedPrecisionPolicy(param_dtype=pf.bfloat16, reduce_dtype=pf.float32))
fully_shard(m, mp_policy=MixedPrecisionPolicy(param_dtype=pf.bfloat16, reduce_dtype=pf.float32, output_dtype=pf.float32))
seen = []
m.blocks[0].up.register_forward_hook(lambda layer, args, out: seen.append((layer.weight.dtype, args[0].dtype, out.dtype, tuple(layer.weight.shape))))
out = m(data(0)[0])
out.sum().backward()
assert out.dtype == pf.float32 and set(seen) == {(pf.bfloat16, pf.bfloat16, pf.bfloat16, (18, 6))} and m.first.weight.dtype == m.first.weight.grad.dtype == pf.float32
want = net()
want(data(0)[0]).sum().backward()
assert (m.last.weight.grad.full_tensor() - want.last.weight.grad).abs().max().item() < 0.2

# By hand: whole until the next reshard() or the end of a forward pass. Prefetching, other methods, evaluation.
m = shard(net())
m.unshard()
assert tuple(m.first.weight.shape) == (6, 5) and tuple(m.blocks[0].up.weight.shape) != (18, 6)
m.reshard()
assert m.first.weight.shape[0] < 6
handle = m.blocks[0].unshard(async_op=True)
handle.wait()
assert tuple(m.blocks[0].up.weight.shape) == (18, 6)
m.blocks[0].reshard()
m.set_modules_to_forward_prefetch([m.blocks[0]])
m.blocks[0].set_modules_to_forward_prefetch([m.blocks[1]])
m.blocks[1].set_modules_to_backward_prefetch([m.blocks[0]])
optimizer = adam(m)
losses, _ = train(m, optimizer, first, last, clip=0.5)
for mine in losses:
    dist.all_reduce(mine, dist.ReduceOp.AVG)
close([t.item() for t in losses], [t.item() for t in whole_losses])
Net.logits = lambda self, x: self.last(self.first(x))
register_fsdp_forward_method(m, "logits")
with pf.no_grad():
    x = data(0)[0]
    same = alone.last(alone.first(x))
    assert m.logits(x).shape == same.shape and m.eval()(x).shape == (12, 3)

# Made without memory, then filled: each process has memory for its parts alone.
with pf.device("meta"):
    m = Net()
shard(m)
m.to_empty(device="cpu")
assert m.first.weight.device.type == "cpu" and m.first.weight.global_shape == (6, 5)
for t, q in zip(m.parameters(), alone.parameters()):
    t.detach().copy_(t._sharding.own_of_whole(q.detach()))
assert m.first.weight.full_tensor().equal(alone.first.weight)
close(m(x).detach().numpy(), alone(x).detach().numpy())

# Groups of copies of groups of parts.
if world == 4:
    mesh = dist.init_device_mesh("cpu", (2, 2), mesh_dim_names=("copies", "parts"))
    m = shard(net(), mesh=mesh)
    assert m.first.weight.shape[0] == 3
    losses, norms = train(m, adam(m), first, last, clip=0.5)
    for mine in losses:
        dist.all_reduce(mine, dist.ReduceOp.AVG)
    close([t.item() for t in losses], [t.item() for t in whole_losses])
    close(norms, whole_norms)

# The states alone are divided: steps have the bits of the optimizer over all parameters, and state dicts are its own.
from pyflame.distributed.optim import ZeroRedundancyOptimizer
from pyflame.nn.parallel import DistributedDataParallel as DDP
plain = DDP(net())
plain_optimizer = adam(plain)
m = DDP(net())
zero = ZeroRedundancyOptimizer(m.parameters(), pf.optim.AdamW, lr=1e-2)
schedules = [pf.optim.lr_scheduler.StepLR(o, 1, 0.5) for o in (plain_optimizer, zero)]
for step in range(3):
    for model, optimizer, schedule in ((plain, plain_optimizer, schedules[0]), (m, zero, schedules[1])):
        train(model, optimizer, first, last, steps=1)
        schedule.step()
assert all(p.equal(q) for p, q in zip(m.parameters(), plain.parameters()))
sizes = [None] * world
dist.all_gather_object(sizes, sum(v.nbytes for entry in zero.optim.state.values() for v in entry.values() if isinstance(v, pf.Tensor)))
assert sum(sizes) == 2 * sum(p.nbytes for p in m.parameters()) and max(sizes) < 1.3 * sum(sizes) / world, sizes
zero.consolidate_state_dict(to=1)
box = [zero.state_dict() if rank == 1 else None]
dist.broadcast_object_list(box, src=1)
want = plain_optimizer.state_dict()
assert box[0]["param_groups"][0]["params"] == want["param_groups"][0]["params"] and box[0]["param_groups"][0]["lr"] == want["param_groups"][0]["lr"]
assert all(box[0]["state"][i][k].equal(want["state"][i][k]) for i in want["state"] for k in ("exp_avg", "exp_avg_sq")) and box[0]["state"][0]["step"] == 3
other = DDP(net(9))
other.load_state_dict(m.state_dict())
again = ZeroRedundancyOptimizer(other.parameters(), pf.optim.AdamW, lr=1.0)
again.load_state_dict(box[0])
train(other, again, first, last)
train(m, zero, first, last)
assert all(p.equal(q) for p, q in zip(m.parameters(), other.parameters()))
zero.add_param_group({"params": [pf.nn.Parameter(pf.ones(2))], "lr": 0.5})
m = shard(net())

# A gradient that is not finite in one part makes all ranks leave out the step, and scale less.
scaler = pf.amp.GradScaler(init_scale=4.0)
optimizer = adam(m)
for bad in (False, True):
    optimizer.zero_grad()
    scaler.scale(m(data(0)[0]).sum()).backward()
    if bad and rank == 2:
        m.blocks[1].up.weight.grad[0, 0] = math.inf
    before = [p.detach().clone() for p in m.parameters()]
    scaler.step(optimizer)
    scaler.update()
    assert all(p.equal(q) for p, q in zip(m.parameters(), before) if p.numel()) == bad and scaler.get_scale() == (2.0 if bad else 4.0), (rank, bad)

# What is wrong is said on every rank.
import copy, os, pickle, tempfile
def told(error, text, call):
    try:
        call()
    except error as e:
        assert text in str(e), e
        return
    raise AssertionError(text)

told(ValueError, f"fully_shard: the modules of the ranks differ; got ('weight', (2, 2), 'pyflame.float32') on rank 0 and ('weight', (3, 2), 'pyflame.float32') on rank {world - 1}", lambda: fully_shard(pf.nn.Linear(2, 3 if rank == world - 1 else 2)))
for optimizer in (pf.optim.Adafactor(m.parameters()), pf.optim.Muon([m.blocks[0].up.weight]), pf.optim.LBFGS(m.parameters())):
    for p in m.parameters():
        p.grad = pf.zeros_like(p.detach())
    name = type(optimizer).__name__
    told(NotImplementedError, f"{name}.step: the update of a parameter depends on all of it; got a part of a parameter of shape (", lambda: optimizer.step(lambda: 1 / 0) if name == "LBFGS" else optimizer.step())
told(ValueError, "DistributedDataParallel: a parameter is divided over these ranks already; got first.weight; expected parameters that each of them has as a whole", lambda: DDP(m))
told(ValueError, "ZeroRedundancyOptimizer: a parameter is divided over these ranks already; got one of shape (6, 5); expected", lambda: ZeroRedundancyOptimizer(m.parameters(), pf.optim.SGD, lr=0.1))
told(RuntimeError, "ZeroRedundancyOptimizer.state_dict: the state is divided over ranks; got no whole state on this rank; expected consolidate_state_dict(to=rank) before it", zero.state_dict)
told(ValueError, f"ZeroRedundancyOptimizer: there are more ranks than parameters; got 1 parameters for {world} ranks", lambda: ZeroRedundancyOptimizer([pf.nn.Parameter(pf.ones(1))], pf.optim.SGD, lr=0.1))
told(RuntimeError, "deepcopy: a sharded module cannot be copied; got FSDPNet", lambda: copy.deepcopy(m))
told(RuntimeError, "pickle: a sharded module cannot be pickled; got FSDPNet", lambda: pickle.dumps(m))
told(RuntimeError, "pickle: the tensor is a part of a larger one", lambda: pickle.dumps(m.first.weight))
folder = tempfile.mkdtemp()
told(RuntimeError, "save: the tensor is a part of a larger one; got a part on each rank; expected a whole tensor; hint: full_tensor(), or distributed.checkpoint.save", lambda: pf.save(m.state_dict(), os.path.join(folder, "never")))
told(RuntimeError, "save: the tensor is a part of a larger one", lambda: pf.save(m.state_dict(), os.path.join(folder, "never"), format="pt"))
assert not os.listdir(folder)
os.rmdir(folder)
print("told")
"""


def test_two_processes(tmp_path):
    """Losses, norms, parameters and states are those of one process up to rounding, and have the same bits in each run."""
    outputs = run(2, TRAIN, tmp_path)
    assert len(set(outputs)) == 1 and len(outputs[0]) == 65


def test_four_processes(tmp_path):
    """The same, with parts of different sizes, and everything else that a sharded module does."""
    outputs = [out.split() for out in run(4, TRAIN + MORE, tmp_path)]
    assert all(out == outputs[0] and len(out[0]) == 64 and out[1:] == ["told"] for out in outputs)


def test_one_process():
    """Nothing is divided, and the numbers are those of the module."""
    pf.manual_seed(0)
    m = pf.nn.Sequential(pf.nn.Linear(3, 4), pf.nn.Tanh(), pf.nn.Linear(4, 2))
    x = pf.randn(5, 3)
    m(x).sum().backward()
    want = [p.grad.clone() for p in m.parameters()]
    m.zero_grad()
    assert fully_shard(m[0]) is m[0] and isinstance(fully_shard(m), FSDPModule) and list(m.state_dict())[0] == "0.weight"
    m(x).sum().backward()
    assert all(p.grad.equal(g) for p, g in zip(m.parameters(), want)) and not dist.is_initialized()
    assert m[0].weight.full_tensor().shape == (4, 3)


WRONG = [
    (TypeError, "fully_shard: not a Module; got list; expected a module", lambda: fully_shard([])),
    (ValueError, "fully_shard: the module is sharded already; got a second call for FSDPLinear", lambda: fully_shard(fully_shard(pf.nn.Linear(1, 1)))),
    (ValueError, "fully_shard: the module has no forward; got ModuleList; expected a module that is called", lambda: fully_shard(pf.nn.ModuleList([pf.nn.Linear(1, 1)]))),
    (TypeError, "fully_shard: mesh is not a mesh; got str; expected what init_device_mesh", lambda: fully_shard(pf.nn.Linear(1, 1), mesh="dp")),
    (TypeError, "fully_shard: mp_policy is not a policy; got dtype; expected MixedPrecisionPolicy", lambda: fully_shard(pf.nn.Linear(1, 1), mp_policy=pf.float16)),
    (NotImplementedError, "fully_shard: shard_placement_fn is not available", lambda: fully_shard(pf.nn.Linear(1, 1), shard_placement_fn=abs)),
    (NotImplementedError, "fully_shard: reshard_after_forward is not a bool; got 2; expected True, False or None", lambda: fully_shard(pf.nn.Linear(1, 1), reshard_after_forward=2)),
    (ValueError, "fully_shard: a parameter has no shape yet; got weight; .*hint: call the lazy module", lambda: fully_shard(pf.nn.LazyLinear(3))),
    (TypeError, "MixedPrecisionPolicy: param_dtype is not a floating dtype; got pyflame.int64", lambda: MixedPrecisionPolicy(param_dtype=pf.int64)),
    (ValueError, "set_gradient_divide_factor: not a factor; got 0; expected a number above 0", lambda: fully_shard(pf.nn.Linear(1, 1)).set_gradient_divide_factor(0)),
    (ValueError, "set_modules_to_forward_prefetch: a module is not sharded; got Linear; expected modules after", lambda: fully_shard(pf.nn.Linear(1, 1)).set_modules_to_forward_prefetch([pf.nn.Linear(1, 1)])),
    (ValueError, "fully_shard: a parameter has no dim that could be split; got scale of shape \\(\\)", lambda: fully_shard(_scalar())),
    (ValueError, "fully_shard: a parameter belongs to another sharded module already; got 1.weight", lambda: fully_shard(_tied())),
    (ValueError, "fully_shard: forward was replaced on the object; got Linear; expected a method of its class", lambda: fully_shard(_replaced())),
    (NotImplementedError, "ZeroRedundancyOptimizer: steps do not overlap with the backward pass", lambda: dist.optim.ZeroRedundancyOptimizer([], pf.optim.SGD, overlap_with_ddp=True)),
    (TypeError, "ZeroRedundancyOptimizer: optimizer_class is not a class of optimizers; got 3", lambda: dist.optim.ZeroRedundancyOptimizer([], 3)),
    (NotImplementedError, "distributed.fsdp.FullyShardedDataParallel: not available", lambda: dist.fsdp.FullyShardedDataParallel(pf.nn.Linear(1, 1))),
]


def _scalar():
    m = pf.nn.Linear(1, 1)
    m.scale = pf.nn.Parameter(pf.tensor(1.0))
    return m


def _tied():
    m = pf.nn.Sequential(pf.nn.Linear(2, 2), pf.nn.Linear(2, 2))
    m[1].weight = m[0].weight
    fully_shard(m[0])
    return m


def _replaced():
    m = pf.nn.Linear(1, 1)
    m.forward = lambda x: x
    return m


@pytest.mark.parametrize("error, message, call", WRONG, ids=[m[:40] for _, m, _ in WRONG])
def test_arguments(error, message, call):
    with pytest.raises(error, match=message):
        call()


def test_gathered_by_hand():
    """What was gathered without a tape, or before a step, is gathered again; a parameter that was replaced is an error."""
    m = fully_shard(pf.nn.Linear(2, 1))
    with pf.no_grad():
        m.unshard()
    m(pf.ones(1, 2)).sum().backward()
    assert m.weight.grad.tolist() == [[1.0, 1.0]]
    m.unshard()
    part = m._fsdp.managed[0].part
    part.detach().fill_(3.0)
    assert (m(pf.ones(1, 2)) - m._fsdp.managed[1].part).item() == 6.0
    m.enable_gradient_checkpointing([""])
    m(pf.ones(1, 2)).sum().backward()
    assert m.weight.grad.tolist() == [[2.0, 2.0]]
    m.load_state_dict({"weight": pf.zeros(1, 2), "bias": pf.zeros(1)}, assign=True)
    with pytest.raises(RuntimeError, match="fully_shard: a parameter was replaced after the module was sharded; got another object as weight; expected the part"):
        m(pf.ones(1, 2))


def test_a_second_gradient():
    """The gradient of gathered parameters cannot be differentiated again."""
    m = fully_shard(pf.nn.Linear(2, 1))
    x = pf.ones(1, 2, requires_grad=True)
    (g,) = pf.autograd.grad(m(x).square().sum(), m.weight, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        g.sum().backward()
