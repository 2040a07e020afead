"""Every collective on GPUs, in several processes with one GPU each. Arguments: the type of the devices. It prints 'right' on each rank.

tests/faults/test_collectives.py runs it over the wave emulator; `pyflame run --nproc gpu tests/faults/collectives_program.py cuda` over NCCL."""
import copy
import os
import sys

import pyflame as pf
import pyflame.distributed as dist

kind = sys.argv[1]
dist.init_process_group(timeout=60, device=kind)
rank, world = dist.get_rank(), dist.get_world_size()
device = pf.get_device()
assert device == f"{kind}:{os.environ['LOCAL_RANK']}" and dist.get_backend() == "nccl" and dist.is_nccl_available() and dist.group.WORLD.name() == {"cuda": "nccl", "rocm": "rccl"}[kind]
ranks = range(world)


def value(r, n, dtype):
    return (pf.arange(0, n, device="cpu") * (r + 2) % 7 + r).to(dtype)  # small integers: each dtype has them and their sums exactly


# Reductions: each dtype, in odd sizes, and on a tensor that is not contiguous.
for dtype in (pf.float32, pf.float64, pf.float16, pf.bfloat16, pf.int64, pf.int32, pf.int8, pf.uint8):
    for op, combine in (("SUM", lambda a, b: a + b), ("PRODUCT", lambda a, b: a * b), ("MIN", pf.minimum), ("MAX", pf.maximum), ("AVG", lambda a, b: a + b)):
        if op == "AVG" and not dtype.is_floating_point:
            continue
        want = value(0, 1003, dtype)
        for r in ranks[1:]:
            want = combine(want, value(r, 1003, dtype))
        if op == "AVG":
            want = want / world
        x = value(rank, 1003, dtype).to(device)
        dist.all_reduce(x, getattr(dist.ReduceOp, op))
        assert x.device == pf.device(device) and x.cpu().equal(want), (dtype, op)
x = (pf.arange(0, 6, device="cpu").reshape(2, 3) + rank).to(pf.float32).to(device).t()
dist.all_reduce(x)
assert x.tolist() == [[world * (3 * j + i) + sum(ranks) for j in range(2)] for i in range(3)]
x = pf.tensor([rank == 0, False, True], device=device)
dist.all_reduce(x)
assert x.tolist() == [True, False, True]
z = pf.complex(pf.full((3,), 1.0 + rank), pf.full((3,), 2.0))
dist.all_reduce(z)
assert z.tolist() == [complex(sum(range(1, world + 1)), 2 * world)] * 3

# What was recorded before a collective comes before it, and what is recorded afterwards comes after it.
x = pf.full((300, 40), 1.0 + rank, device=device)
for step in range(20):
    x = x * 2
    dist.all_reduce(x, dist.ReduceOp.AVG)
    x = x / 2 + 1
mean = 1.0 + sum(ranks) / world
for step in range(20):
    mean = mean + 1
assert x.min().item() == x.max().item() == mean, (x.min().item(), mean)

x = pf.full((5,), float(rank))
dist.broadcast(x, world - 1)
assert x.tolist() == [world - 1] * 5
x = pf.full((3,), float(rank))
dist.reduce(x, 1)
assert x.tolist() == [sum(ranks) if rank == 1 else rank] * 3
whole = pf.zeros(2 * world, 3)
dist.all_gather_into_tensor(whole, pf.full((2, 3), float(rank)))
assert whole[:, 0].tolist() == [float(r) for r in ranks for _ in range(2)]
parts = [pf.zeros(3, 2).t() for _ in ranks]
dist.all_gather(parts, pf.arange(6.0).reshape(2, 3) + rank)
assert [p.tolist() for p in parts] == [[[r + 0.0, r + 1, r + 2], [r + 3, r + 4, r + 5]] for r in ranks]
out = pf.zeros(1001)
dist.reduce_scatter_tensor(out, pf.cat([pf.full((1001,), float(10 * part + rank)) for part in ranks]))
assert out[0].item() == out[-1].item() == 10 * rank * world + sum(ranks)
dist.reduce_scatter(out, [pf.full((1001,), float(part)) for part in ranks], op=dist.ReduceOp.MAX)
assert out[7].item() == rank
got = [pf.zeros(2) for _ in ranks] if rank == 1 else None
dist.gather(pf.full((2,), float(rank)), got, dst=1)
assert got is None or [g[0].item() for g in got] == list(ranks)
x = pf.zeros(2)
dist.scatter(x, [pf.full((2,), float(r)) for r in ranks] if rank == 0 else None, src=0)
assert x.tolist() == [rank, rank]
outs = [pf.zeros(r + 1) for r in ranks]
dist.all_to_all(outs, [pf.full((rank + 1,), float(10 * rank + r)) for r in ranks])
assert [o.tolist() for o in outs] == [[10.0 * r + rank] * (r + 1) for r in ranks]
x = pf.zeros(world)
dist.all_to_all_single(x, pf.arange(float(world)) + 10 * rank)
assert x.tolist() == [10.0 * r + rank for r in ranks]

# Messages.
if rank == 0:
    dist.send(pf.arange(0, 4, dtype=pf.int16), 1)
elif rank == 1:
    x = pf.zeros(4, dtype=pf.int16)
    assert dist.recv(x, 0) == 0 and x.tolist() == [0, 1, 2, 3]
after, before = (rank + 1) % world, (rank - 1) % world
x = pf.zeros(5000)
works = dist.batch_isend_irecv([dist.P2POp(dist.isend, pf.full((5000,), float(rank)), after), dist.P2POp(dist.irecv, x, before)])
for w in works:
    assert w.wait()
assert x[0].item() == x[-1].item() == before

# Asynchronous calls keep their order; their tensors live until wait(), and a call that nobody waits for disturbs nothing.
xs = [pf.full((1000,), float(i + rank)) for i in range(20)]
works = [dist.all_reduce(x, async_op=True) for x in xs]
dist.all_reduce(pf.ones(100), async_op=True)
filled = [pf.full((1000,), -1.0) for _ in range(5)]
for i, (x, w) in enumerate(zip(xs, works)):
    assert w.wait() and x[0].item() == world * i + sum(ranks) and w.is_completed() and w.is_success() and w.exception() is None and w.result() == [x]
assert works[0].wait(5) and all(f.min().item() == -1 for f in filled)

# Objects and barriers go through the host. So does int16, which the library does not reduce, and that is in the ledger.
objects = [None] * world
dist.all_gather_object(objects, {"rank": rank})
assert [o["rank"] for o in objects] == list(ranks)
dist.barrier()
assert not [f for f in pf.fallbacks() if "distributed" in str(f)], pf.fallbacks()
x = pf.full((3,), rank + 1, dtype=pf.int16)
dist.all_reduce(x)
assert x.tolist() == [sum(r + 1 for r in ranks)] * 3 and "the library does not reduce this dtype" in str(pf.fallbacks())

# Another group has a communicator of its own. A tensor on the CPU goes through the host.
other = dist.new_group(list(ranks))
x = pf.full((2,), float(rank))
dist.all_reduce(x, group=other)
y = pf.full((2,), float(rank), device="cpu")
dist.all_reduce(y, group=other)
assert x.tolist() == y.tolist() == [sum(ranks)] * 2
dist.destroy_process_group(other)

# Gradients: the average of the ranks, from buckets that start in the backward pass; with accumulation, and with gradients that are there already.
from pyflame.nn.parallel import DistributedDataParallel as DDP

pf.manual_seed(3)
model = pf.nn.Sequential(pf.nn.Linear(8, 16), pf.nn.Tanh(), pf.nn.Linear(16, 16), pf.nn.Tanh(), pf.nn.Linear(16, 1))
alone = pf.nn.Sequential(pf.nn.Linear(8, 16), pf.nn.Tanh(), pf.nn.Linear(16, 16), pf.nn.Tanh(), pf.nn.Linear(16, 1))
alone.load_state_dict(model.state_dict())
ddp = DDP(model, bucket_cap_mb=0.0005)
assert len(ddp._buckets) > 2
started = []  # at the end of each backward pass, how many buckets were started before it
finish = ddp._finish
ddp._finish = lambda: (started.append(len(ddp._works)), finish())[1]
optimizers = [pf.optim.Adam(m.parameters(), lr=0.01) for m in (model, alone)]
data = (pf.arange(0, 4 * world * 8, device="cpu").to(pf.float32) * 0.37).sin().reshape(4 * world, 8).to(device)
for step in range(4):
    with ddp.no_sync():
        (ddp(data[rank::world] * 0.5) ** 2).mean().backward()
    (ddp(data[rank::world]) ** 2).mean().backward()
    for part in (data * 0.5, data):
        (alone(part) ** 2).mean().backward()
    for p, q in zip(model.parameters(), alone.parameters()):
        error = (p.grad - q.grad).abs().max().item()
        assert error < 1e-5, (step, error)
    for o in optimizers:
        o.step()
        o.zero_grad()
losses = [(m(data) ** 2).mean().item() for m in (model, alone)]
assert abs(losses[0] - losses[1]) < 1e-5, losses
assert started == [len(ddp._buckets)] * 4, started
(ddp(data[rank::world]) ** 2).mean().backward()
first = [p.grad.tolist() for p in model.parameters()]
ddp.zero_grad()
(ddp(data[rank::world]) ** 2).mean().backward()
assert first == [p.grad.tolist() for p in model.parameters()]  # the same bits


class Scale(pf.nn.Module):
    """Two large parameters, of which one is transposed, and a small one."""

    def __init__(self):
        super().__init__()
        self.large, self.turned, self.small = (pf.nn.Parameter(pf.ones(*shape)) for shape in ((600, 500), (500, 600), (3,)))

    def forward(self, x):
        return (self.large * x + self.turned.t() * x.sum()).sum() * self.small.sum()


for most in (0, DDP.in_order_bytes):  # beside the backward pass, and in order behind it
    DDP.in_order_bytes = most
    ddp = DDP(Scale())
    assert ddp._in_order == (most > 0) and len(ddp._buckets) == (1 if most else 2)
    for repeat in range(2):
        for p in ddp.parameters():
            p.grad = None
        ddp(pf.full((600, 500), rank + 1.0)).backward()
        mean = sum(r + 1.0 for r in range(world)) / world
        for p, want in zip(ddp.parameters(), (3.0 * mean, 3.0 * 300000 * mean, (300000 + 300000.0**2) * mean)):
            assert p.grad.is_contiguous() and (p.grad / want - 1).abs().max().item() < 1e-5, (tuple(p.shape), p.grad.flatten()[0].item(), want)

# Small gradients are averaged in order: between collectives on their own stream that nobody has waited for, with gradients that add up, with parameters of two
# dtypes, and where .grad of two parameters has the same memory or is transposed.
model = copy.deepcopy(alone)
ddp = DDP(model)
assert ddp._in_order and len(ddp._buckets) == 1
optimizers = [pf.optim.Adam(m.parameters(), lr=0.01) for m in (model, alone)]
for step in range(10):
    x = pf.full((1000,), rank + step + 1.0)
    before = dist.all_reduce(x, async_op=True)
    with ddp.no_sync():
        (ddp(data[rank::world] * 0.5) ** 2).mean().backward()
    (ddp(data[rank::world]) ** 2).mean().backward()
    y = pf.full((3,), rank + step + 2.0)
    after = dist.all_reduce(y, async_op=True)
    for part in (data * 0.5, data):
        (alone(part) ** 2).mean().backward()
    for p, q in zip(model.parameters(), alone.parameters()):
        assert (p.grad - q.grad).abs().max().item() < 1e-5, step
    before.wait(), after.wait()
    assert x.tolist() == [sum(ranks) + world * (step + 1.0)] * 1000 and y.tolist() == [sum(ranks) + world * (step + 2.0)] * 3
    for o in optimizers:
        o.step()
        o.zero_grad()
losses = [(m(data) ** 2).mean().item() for m in (model, alone)]
assert abs(losses[0] - losses[1]) < 1e-5, losses


class Several(pf.nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = (pf.nn.Parameter(pf.ones(2, 3)) for _ in range(3))
        self.d = pf.nn.Parameter(pf.ones(4, dtype=pf.float64))

    def forward(self, x):
        return ((self.a + 2 * self.b + 3 * self.c) * x).sum() + (self.d.sum() * x).to(pf.float32)


ddp = DDP(Several())
m = ddp.module
assert ddp._in_order and len(ddp._buckets) == 2
m.a.grad = m.b.grad = pf.zeros(2, 3)
m.c.grad = pf.arange(0, 6).to(pf.float32).reshape(3, 2).t()
ddp(rank + 1.0).backward()
mean = sum(ranks) / world + 1
assert m.a.grad.tolist() == m.b.grad.tolist() == [[3 * mean] * 3] * 2 and m.d.grad.tolist() == [mean] * 4, (m.a.grad, m.b.grad, m.d.grad)
assert m.c.grad.tolist() == [[0 + 3 * mean, 2 + 3 * mean, 4 + 3 * mean], [1 + 3 * mean, 3 + 3 * mean, 5 + 3 * mean]], m.c.grad
dist.barrier()
dist.destroy_process_group()
assert dist.get_backend() == "host"
print("right")
