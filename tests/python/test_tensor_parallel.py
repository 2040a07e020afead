"""Meshes, layers of which each process computes a part, collectives with gradients, and data x tensor parallel training."""
import pytest
from processes import run

import pyflame as pf
import pyflame.distributed as dist
from pyflame.distributed.tensor import Replicate, Shard
from pyflame.distributed.tensor.parallel import ColwiseParallel, ParallelStyle, PrepareModuleInput, PrepareModuleOutput, RowwiseParallel, SequenceParallel, parallelize_module

PROGRAM = """
import numpy as np
import pyflame.distributed.checkpoint as dcp
import pyflame.distributed.nn.functional as df
from pyflame.distributed.device_mesh import DeviceMesh, init_device_mesh
from pyflame.distributed.fsdp import fully_shard
from pyflame.distributed.tensor import Replicate, Shard
from pyflame.distributed.tensor.parallel import ColwiseParallel, PrepareModuleInput, PrepareModuleOutput, RowwiseParallel, SequenceParallel, parallelize_module
from pyflame.nn.parallel import DistributedDataParallel as DDP
from pyflame.testing import tolerance

F = pf.nn.functional
mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))  # connects the processes
dp, tp = mesh["dp"], mesh["tp"]
assert dist.is_initialized() and mesh.shape == (2, 2) and mesh.size() == 4 and mesh.size("tp") == 2 and mesh.get_coordinate() == [rank // 2, rank % 2]
assert mesh.get_local_rank("tp") == tp.get_local_rank() == rank % 2 and dp.get_local_rank() == rank // 2 and mesh["dp", "tp"] is mesh and mesh["tp"] is tp
assert dist.get_process_group_ranks(tp.get_group()) == [rank // 2 * 2, rank // 2 * 2 + 1] and dist.get_process_group_ranks(mesh.get_group("dp")) == [rank % 2, rank % 2 + 2]
assert tp.mesh.tolist() == [rank // 2 * 2, rank // 2 * 2 + 1] and DeviceMesh("cpu", range(4)).get_group() is dist.group.WORLD and repr(mesh) == "DeviceMesh(dp=2, tp=2; ranks [[0, 1], [2, 3]])"

class Attention(pf.nn.Module):
    def __init__(self, n=8, head=4):
        super().__init__()
        self.head = head
        self.q, self.k, self.v, self.out = (pf.nn.Linear(n, n) for _ in range(4))

    def forward(self, x):
        q, k, v = (t.unflatten(-1, (-1, self.head)).transpose(1, 2) for t in (self.q(x), self.k(x), self.v(x)))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).flatten(2))

class Block(pf.nn.Module):
    def __init__(self, n=8):
        super().__init__()
        self.norm1, self.attention, self.norm2, self.up, self.down = pf.nn.LayerNorm(n), Attention(n), pf.nn.LayerNorm(n), pf.nn.Linear(n, 2 * n), pf.nn.Linear(2 * n, n)

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.down(F.gelu(self.up(self.norm2(x))))

class Model(pf.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.blocks, self.norm, self.head = pf.nn.Embedding(10, 8), pf.nn.ModuleList([Block(), Block()]), pf.nn.LayerNorm(8), pf.nn.Linear(8, 10)

    def forward(self, i):
        x = self.embed(i)
        for b in self.blocks:
            x = b(x)
        return self.head(self.norm(x))

def made(seed=0):
    pf.manual_seed(seed)
    return Model()

rows = {"blocks.*.attention.out": RowwiseParallel(), "blocks.*.down": RowwiseParallel()}
columns = {f"blocks.*.{name}": ColwiseParallel() for name in ("attention.[qkv]", "up")}
plain = {"embed": RowwiseParallel(), **columns, **rows, "head": ColwiseParallel(output_layouts=Replicate())}
sequence = {
    "embed": ColwiseParallel(output_layouts=Shard(1)),
    "blocks.*.norm1": SequenceParallel(), "blocks.*.norm2": SequenceParallel(), "norm": SequenceParallel(),
    "blocks.*.attention": PrepareModuleInput(input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),)),
    "blocks.*.attention.[qkv]": ColwiseParallel(), "blocks.*.attention.out": RowwiseParallel(output_layouts=Shard(1)),
    "blocks.*.up": ColwiseParallel(input_layouts=Shard(1)), "blocks.*.down": RowwiseParallel(output_layouts=Shard(1)),
    "head": ColwiseParallel(input_layouts=Shard(1), output_layouts=Replicate()),
}

def batch(step):
    g = pf.Generator()
    g.manual_seed(50 + step)
    return pf.randint(0, 10, (8, 6), generator=g)

def train(m, part, steps=2, clip=0.5):
    optimizer = pf.optim.SGD(m.parameters(), lr=0.2, momentum=0.9)  # the gradient of k.bias is 0 up to rounding, which Adam would scale up
    losses, norms = [], []
    for step in range(steps):
        x = batch(step)[part]
        optimizer.zero_grad()
        loss = F.cross_entropy(m(x[:, :-1] if x.shape[1] % 2 else x).flatten(0, 1), x.roll(-1, 1).flatten())
        loss.backward()
        norms.append(pf.nn.utils.clip_grad_norm_(m.parameters(), clip).item())
        optimizer.step()
        losses.append(loss.detach())
    return losses, norms, optimizer

def close(got, want, c=16, size=1.0):
    # Two steps of two blocks: sums of at most 48 positions and 16 features, each of them passes about 12 layers.
    want = np.asarray(want, dtype="float64")
    wrong = tolerance.differences(np.asarray(got, dtype="float64"), want, "float32", c, magnitude=np.maximum(abs(want), size), length=48 * 16)
    assert not wrong, wrong

def whole(t):
    return (t.full_tensor() if hasattr(t, "full_tensor") else t).detach()

alone = made()
want_losses, want_norms, _ = train(alone, slice(0, 8))
part = slice(4 * dp.get_local_rank(), 4 * dp.get_local_rank() + 4)
bits = []
for plan, kinds in ((plain, ("fully_shard", "ddp")), (sequence, ("fully_shard", "again"))):
    for kind in kinds:
        m = parallelize_module(made(), tp, plan)
        assert type(m.head).__name__ == "ColwiseParallelLinear" and tuple(m.head.weight.shape) == (5, 8) and m.head.weight.global_shape == (10, 8)
        if kind == "ddp":
            trained = DDP(m, process_group=dp.get_group())
        else:
            for b in m.blocks:
                fully_shard(b, mesh=dp, reshard_after_forward=kind == "again")
            trained = fully_shard(m, mesh=dp)
            assert tuple(m.head.weight.shape) == (3 - dp.get_local_rank(), 8) and m.head.weight._sharding.offsets[0] == 5 * tp.get_local_rank() + 3 * dp.get_local_rank()
        losses, norms, optimizer = train(trained, part)
        for t in losses:
            dist.all_reduce(t, dist.ReduceOp.AVG, group=dp.get_group())
        close([t.item() for t in losses], [t.item() for t in want_losses])
        close(norms, want_norms)
        for (name, p), q in zip(m.named_parameters(), alone.parameters()):
            close(whole(p).numpy(), q.detach().numpy())
        if kind != "ddp":
            bits.append(b"".join(whole(p).numpy().tobytes() for p in m.parameters()))
        held = sum(p.nbytes for p in m.blocks[0].up.parameters()) * (4 if kind != "ddp" else 2)
        assert held == sum(p.nbytes for p in alone.blocks[0].up.parameters())
assert bits[1] == bits[2]  # the same in each run, given up after the forward pass or not

# A checkpoint of both divisions, read without any.
m = parallelize_module(made(3), tp, plain)
fully_shard(m, mesh=dp)
folder = os.environ["FOLDER"]
dcp.save({"model": m.state_dict()}, checkpoint_id=folder)
state = {"model": made(4).state_dict()}
dcp.load(state, checkpoint_id=folder)
assert all(t.equal(u) for t, u in zip(state["model"].values(), made(3).state_dict().values()))
m = parallelize_module(made(5), tp, sequence)
state = {"model": m.state_dict()}
dcp.load(state, checkpoint_id=folder)
assert all(whole(t).equal(u) for t, u in zip(m.state_dict().values(), made(3).state_dict().values()))

# Weights are those of the first process of the group.
pf.manual_seed(rank)
own = pf.nn.Linear(2, 4)
first_weight = own.weight.detach().clone()
dist.broadcast(first_weight, group=tp.get_group(), group_src=0)
assert whole(parallelize_module(own, tp, ColwiseParallel()).weight).equal(first_weight)

# Other layouts, each against the module alone: outputs, and gradients of inputs and weights.
def compared(make, plan, x, given=lambda x: x, taken=lambda y: y):
    pf.manual_seed(1)
    one = make()
    pf.manual_seed(1)
    several = parallelize_module(make(), tp, plan)
    a, b = x.clone().requires_grad_(), x.clone().requires_grad_()
    want, got = one(a), taken(several(given(b)))
    weight = pf.randn(*want.shape, generator=pf.Generator().manual_seed(2))
    (want * weight).sum().backward()
    (got * weight).sum().backward()
    close(got.detach().numpy(), want.detach().numpy())
    for p, q in zip(several.parameters(), one.parameters()):
        close(whole(p.grad).numpy(), q.grad.numpy(), size=8.0)
    return a, b

from pyflame.distributed._redistribute import Gather, Split
group = tp.get_group()
x = pf.randn(4, 6, 8, generator=pf.Generator().manual_seed(3))
for given, layout in ((lambda x: x, Replicate()), (lambda x: Split.apply(x, group, 1), Shard(1)), (lambda x: Split.apply(x, group, 2), Shard(-1))):
    for taken, out in ((lambda y: y, Replicate()), (lambda y: Gather.apply(y, group, 1), Shard(1)), (lambda y: Gather.apply(y, group, 2), Shard(-1))):
        for style in (ColwiseParallel, RowwiseParallel) if Replicate() in (layout, out) else ():
            a, b = compared(lambda: pf.nn.Linear(8, 6), style(input_layouts=layout, output_layouts=out), x, given, taken)
            close(b.grad.numpy(), a.grad.numpy(), size=8.0)

class Pair(pf.nn.Module):
    def forward(self, x, *, y):
        return x * 2, y + x.sum()

m = parallelize_module(Pair(), tp, PrepareModuleInput(input_layouts=(Shard(0),), desired_input_layouts=(Replicate(),), input_kwarg_layouts={"y": Replicate()}, desired_input_kwarg_layouts={"y": Shard(0)}))
parallelize_module(m, tp, PrepareModuleOutput(output_layouts=(Replicate(), None), desired_output_layouts=(Shard(0), None)))
first, second = m(pf.full((1,), 1.0 + tp.get_local_rank()), y=pf.arange(4.0))
assert first.tolist() == [2.0 * (1 + tp.get_local_rank())] and second.tolist() == [3.0 + 2 * tp.get_local_rank(), 4.0 + 2 * tp.get_local_rank()]

# Collectives with gradients: those of the sum of what all ranks call backward() on.
x = pf.full((2,), rank + 1.0, requires_grad=True)
y = df.all_reduce(x)
(y * (rank + 1)).sum().backward()
assert y.tolist() == [10, 10] and x.grad.tolist() == [10, 10]
x.grad = None
df.all_reduce(x, dist.ReduceOp.AVG).square().sum().backward()
assert x.grad.tolist() == [5, 5]
x.grad = None
parts = df.all_gather(x)
sum((rank + 1) * (r + 1) * t.sum() for r, t in enumerate(parts)).backward()
assert [t.tolist() for t in parts] == [[r + 1.0] * 2 for r in range(4)] and x.grad.tolist() == [10.0 * (rank + 1)] * 2
ins = [pf.full((2,), 10.0 * r + rank, requires_grad=True) for r in range(4)]
out = df.reduce_scatter(pf.zeros(2), ins)
(out * (rank + 1)).sum().backward()
assert out.tolist() == [40.0 * rank + 6] * 2 and [t.grad.tolist() for t in ins] == [[r + 1.0] * 2 for r in range(4)]
x = (pf.arange(4.0) + 10 * rank).requires_grad_()
out = df.all_to_all_single(pf.zeros(4), x)
(out * (rank + 1)).sum().backward()
assert out.tolist() == [10.0 * r + rank for r in range(4)] and x.grad.tolist() == [1.0, 2.0, 3.0, 4.0]
(g,) = pf.autograd.grad(df.all_reduce(x).square().sum(), x, create_graph=True)  # a second time
g.sum().backward()
assert x.grad.tolist() == [1.0 + 32, 2.0 + 32, 3.0 + 32, 4.0 + 32], x.grad

def told(error, text, call):
    try:
        call()
    except error as e:
        assert text in str(e), e
        return
    raise AssertionError(text)

told(ValueError, "init_device_mesh: mesh_shape does not fit; got (3, 2), which is 6 processes; expected 4 processes", lambda: init_device_mesh("cpu", (3, 2)))
told(ValueError, "parallelize_module: a weight cannot be split in equal parts; got weight of Linear of shape (3, 2) along dim 0; expected a multiple of 2", lambda: parallelize_module(pf.nn.Linear(2, 3), tp, ColwiseParallel()))
told(ValueError, "parallelize_module: the mesh has several axes", lambda: parallelize_module(pf.nn.Linear(2, 2), mesh, ColwiseParallel()))
told(ValueError, "parallelize_module: a parameter is divided already; got weight of FSDPLinear", lambda: parallelize_module(fully_shard(pf.nn.Linear(2, 2)), tp, ColwiseParallel()))
told(ValueError, "fully_shard: a parameter is divided over these ranks already; got weight; expected", lambda: fully_shard(parallelize_module(pf.nn.Linear(2, 2), tp, ColwiseParallel()), mesh=tp))
told(ValueError, "split: the dim cannot be split in equal parts; got shape (1, 3, 8) along dim 1; expected a multiple of 2, the number of ranks", lambda: parallelize_module(made(), tp, sequence)(pf.zeros(1, 3, dtype=pf.int64)))
told(RuntimeError, "DeviceMesh.get_group: the mesh has several axes; got no mesh_dim; expected one of ['dp', 'tp']", mesh.get_group)
told(KeyError, "DeviceMesh.[]: there is no axis of this name; got 'pp'; expected one of ['dp', 'tp']", lambda: mesh["pp"])
told(KeyError, "DeviceMesh.[]: the axes are not in the order of the mesh; got ['tp', 'dp']", lambda: mesh["tp", "dp"])
other = DeviceMesh("cpu", [0, 1])
if rank > 1:
    assert other.get_coordinate() is None and other.get_group() is dist.GroupMember.NON_GROUP_MEMBER
    told(RuntimeError, "DeviceMesh.get_local_rank: this process is not in the mesh; got rank", other.get_local_rank)
    told(ValueError, "parallelize_module: this process is not in the mesh; got rank", lambda: parallelize_module(pf.nn.Linear(2, 2), other, ColwiseParallel()))
    told(ValueError, "fully_shard: this process is not in the mesh; got rank", lambda: fully_shard(pf.nn.Linear(2, 2), mesh=other))
told(ValueError, "fully_shard: the mesh has too many axes; got 3; expected one, or two", lambda: fully_shard(pf.nn.Linear(2, 2), mesh=init_device_mesh("cpu", (1, 2, 2))))
dist.barrier()  # rank 0 has the store that others make their groups with
print("same")
"""


def test_four_processes(tmp_path):
    assert run(4, PROGRAM, tmp_path, FOLDER=str(tmp_path / "checkpoint")) == ["same\n"] * 4


@pytest.fixture
def mesh():
    yield dist.init_device_mesh("cpu", (1,), mesh_dim_names=("tp",))
    dist.destroy_process_group()


def test_one_process(mesh):
    """Whole layers, with the numbers of the module."""
    pf.manual_seed(0)
    m = pf.nn.Sequential(pf.nn.Linear(2, 3), pf.nn.ReLU(), pf.nn.Linear(3, 1), pf.nn.LayerNorm(1))
    x = pf.randn(4, 2)
    want = m(x)
    parallelize_module(m, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel(output_layouts=Shard(0)), "3": SequenceParallel(sequence_dim=0)})
    assert m(x).equal(want) and Shard(0) == Shard(0) != Shard(1) and Shard(1).is_shard(1) and Replicate().is_replicate() and repr(Shard(1)) == "Shard(dim=1)"


WRONG = [
    (TypeError, "parallelize_module: device_mesh is not a mesh; got NoneType", lambda m: parallelize_module(pf.nn.Linear(1, 1), None, ColwiseParallel())),
    (TypeError, "parallelize_module: not a Module; got int", lambda m: parallelize_module(3, m, ColwiseParallel())),
    (TypeError, "parallelize_module: parallelize_plan is not a plan; got NoneType", lambda m: parallelize_module(pf.nn.Linear(1, 1), m)),
    (TypeError, "parallelize_module: not a style; got 'columns' for 'a'", lambda m: parallelize_module(pf.nn.Linear(1, 1), m, {"a": "columns"})),
    (ValueError, "parallelize_module: a name fits no module; got 'a.b'; expected a name below Linear", lambda m: parallelize_module(pf.nn.Linear(1, 1), m, {"a.b": ColwiseParallel()})),
    (NotImplementedError, "ColwiseParallel: this kind of module cannot be divided; got ReLU; expected Linear or Embedding", lambda m: parallelize_module(pf.nn.ReLU(), m, ColwiseParallel())),
    (NotImplementedError, "RowwiseParallel: rows with a meaning of their own cannot be divided; got an Embedding with max_norm=None, padding_idx=0", lambda m: parallelize_module(pf.nn.Embedding(2, 2, padding_idx=0), m, RowwiseParallel())),
    (TypeError, "ColwiseParallel: input_layouts is not a layout; got 1; expected Shard\\(dim\\) or Replicate\\(\\)", lambda m: ColwiseParallel(input_layouts=1)),
    (TypeError, "PrepareModuleInput: input_layouts is not a layout; got 'x'", lambda m: PrepareModuleInput(input_layouts="x")),
    (ValueError, "PrepareModuleInput: the layouts do not belong together", lambda m: PrepareModuleInput(input_layouts=Shard(0), desired_input_layouts=(None, None))),
    (ValueError, "PrepareModuleInput: desired_input_layouts without input_layouts", lambda m: PrepareModuleInput(desired_input_layouts=Replicate())),
    (ValueError, "PrepareModuleOutput: the layouts do not belong together", lambda m: PrepareModuleOutput(output_layouts=Shard(0), desired_output_layouts=(None, None))),
    (ValueError, "PrepareModuleInput: the number of layouts does not fit; got 2 values and 1 layouts", lambda m: parallelize_module(pf.nn.Linear(1, 1), m, PrepareModuleInput(input_layouts=Shard(0), desired_input_layouts=Shard(0)))(1, 2)),
    (NotImplementedError, "ParallelStyle: _apply is not implemented", lambda m: parallelize_module(pf.nn.Linear(1, 1), m, ParallelStyle())),
    (TypeError, "Shard: dim is not a number; got 'a'", lambda m: Shard("a")),
    (ValueError, "tensor.parallel: there is no such dim; got Shard\\(dim=3\\) for shape \\(1, 1\\)", lambda m: parallelize_module(pf.nn.Linear(1, 1), m, ColwiseParallel(output_layouts=Shard(3)))(pf.ones(1, 1))),
    (ValueError, "init_device_mesh: mesh_shape is not a shape; got \\(0,\\)", lambda m: dist.init_device_mesh("cpu", (0,))),
    (ValueError, "init_device_mesh: mesh_dim_names do not fit; got \\['a', 'a'\\]; expected 2 different names", lambda m: dist.init_device_mesh("cpu", (1, 1), mesh_dim_names=("a", "a"))),
    (ValueError, "DeviceMesh: the mesh does not consist of ranks of this job; got \\[1\\]; expected different numbers from 0 to 0", lambda m: dist.DeviceMesh("cpu", [1])),
    (TypeError, "DeviceMesh: device_type is not a name; got int", lambda m: dist.DeviceMesh(3, [0])),
    (IndexError, "DeviceMesh.size: there is no such axis; got 2; expected 0 to 0", lambda m: m.size(2)),
    (NotImplementedError, "nn.functional.all_reduce: this reduction has no gradient here; got max; expected ReduceOp.SUM or AVG", lambda m: dist.nn.functional.all_reduce(pf.ones(1), dist.ReduceOp.MAX)),
    (ValueError, "nn.functional.reduce_scatter: input_list does not fit; got shapes \\[\\(1,\\), \\(1,\\)\\]; expected 1 tensors of shape \\(1,\\)", lambda m: dist.nn.functional.reduce_scatter(pf.ones(1), [pf.ones(1)] * 2)),
]


@pytest.mark.parametrize("error, message, call", WRONG, ids=[m[:40] for _, m, _ in WRONG])
def test_arguments(error, message, call, mesh):
    with pytest.raises(error, match=message):
        call(mesh)


def test_names_of_pytorch():
    """Where programs import them from."""
    import pyflame.torch.distributed.checkpoint as dcp
    from pyflame.torch.distributed.checkpoint.state_dict import get_state_dict
    from pyflame.torch.distributed.checkpoint.stateful import Stateful
    from pyflame.torch.distributed.device_mesh import init_device_mesh
    from pyflame.torch.distributed.fsdp import fully_shard
    from pyflame.torch.distributed.optim import ZeroRedundancyOptimizer
    from pyflame.torch.distributed.tensor.parallel import parallelize_module as same

    for call in (Stateful().state_dict, lambda: Stateful().load_state_dict({})):
        with pytest.raises(NotImplementedError, match="Stateful: .* is not implemented; expected a method that"):
            call()
    assert dcp.save is dist.checkpoint.save and get_state_dict is dist.checkpoint.state_dict.get_state_dict and init_device_mesh is dist.init_device_mesh
    assert fully_shard is dist.fsdp.fully_shard and ZeroRedundancyOptimizer is dist.optim.ZeroRedundancyOptimizer and same is parallelize_module
