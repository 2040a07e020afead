"""fully_shard along one axis of a mesh of what parallelize_module or distribute_module divided along another: the numbers are those of one process."""
import pytest
from processes import run

import pyflame as pf
import pyflame.distributed as dist
import pyflame.distributed.checkpoint as dcp
from pyflame.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from pyflame.distributed.fsdp import FSDPModule, fully_shard
from pyflame.distributed.tensor import DTensor, Replicate, Shard, distribute_module, distribute_tensor

# The models and their training, for one process and for several.
MODEL = """
import pyflame as pf
import pyflame.distributed as dist
import pyflame.distributed.checkpoint as dcp
from pyflame.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from pyflame.distributed.tensor import DTensor, Replicate, Shard, distribute_module, distribute_tensor

F = pf.nn.functional

def whole(x):  # the sum that a product of parts gives
    return x.redistribute(placements=[Replicate()]) if isinstance(x, DTensor) else x

class Block(pf.nn.Module):
    def __init__(self, n, inner):
        super().__init__()
        self.norm, self.up, self.act, self.down = pf.nn.LayerNorm(n), pf.nn.Linear(n, inner), pf.nn.GELU(), pf.nn.Linear(inner, n)

    def forward(self, x, scale=0.5):
        return {"x": x + whole(self.down(self.act(self.up(self.norm(x))))) * scale}

class Net(pf.nn.Module):
    def __init__(self, inner=8, words=8):
        super().__init__()
        self.words, self.blocks, self.norm, self.head = pf.nn.Embedding(words, 4), pf.nn.ModuleList([Block(4, inner) for _ in range(2)]), pf.nn.LayerNorm(4), pf.nn.Linear(4, words)

    def forward(self, index):
        x = whole(self.words(index))
        for b in self.blocks:
            x = b(x)["x"]
        return self.head(self.norm(x))

# Sizes that the styles divide, and sizes that distribute_module divides in unequal parts, some of which have no rows.
SIZES = {"styles": dict(inner=8, words=8), "dtensors": dict(inner=6, words=5)}

def made(kind, seed=0):
    pf.manual_seed(seed)
    return Net(**SIZES[kind])

def adam(m):
    return pf.optim.AdamW(m.parameters(), lr=0.02, weight_decay=0.1)

def batch(step):
    g = pf.Generator().manual_seed(50 + step)
    return pf.randint(0, 5, (8, 4), generator=g)

def loss_of(m, x):
    return F.cross_entropy(m(x).float().flatten(0, 1), x.roll(-1, 1).flatten())

def train(m, optimizer, part=slice(0, 8), steps=3, begin=0):
    losses, norms = [], []
    for step in range(begin, begin + steps):
        optimizer.zero_grad()
        loss = loss_of(m, batch(step)[part])
        loss.backward()
        norms.append(pf.nn.utils.clip_grad_norm_(m.parameters(), 0.5).item())
        optimizer.step()
        losses.append(loss.detach())
    return losses, norms

def restored(m, folder):
    optimizer = adam(m)
    weights, states = get_state_dict(m, optimizer)
    state = {"model": weights, "optim": states, "step": 0}
    dcp.load(state, checkpoint_id=folder)
    set_state_dict(m, optimizer, model_state_dict=state["model"], optim_state_dict=state["optim"])
    return optimizer, state["step"]
"""

HEAD = MODEL + """
import hashlib, math
import numpy as np
from pyflame.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict, set_model_state_dict
from pyflame.distributed.device_mesh import init_device_mesh
from pyflame.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from pyflame.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, SequenceParallel, loss_parallel, parallelize_module
from pyflame.testing import tolerance

PLAN = {
    "words": ColwiseParallel(output_layouts=Shard(1)), "blocks.*.norm": SequenceParallel(), "norm": SequenceParallel(),
    "blocks.*.up": ColwiseParallel(input_layouts=Shard(1)), "blocks.*.down": RowwiseParallel(output_layouts=Shard(1)),
    "head": ColwiseParallel(input_layouts=Shard(1), output_layouts=Replicate()),
}
SPLIT = {"words.weight": Shard(0), "up.weight": Shard(0), "up.bias": Shard(0), "down.weight": Shard(1), "head.weight": Shard(0), "head.bias": Shard(0)}

def partition(name, module, mesh):
    for key, p in list(module.named_parameters(recurse=False)):
        placement = SPLIT.get(f"{name.split('.')[-1]}.{key}")
        if placement:
            module.register_parameter(key, pf.nn.Parameter(distribute_tensor(p, mesh, [placement])))

def divided(kind, tensor, seed=0):
    m = made(kind, seed)
    if kind == "styles":
        return parallelize_module(m, tensor, PLAN)
    return distribute_module(m, tensor, partition, lambda m, i, mesh: (distribute_tensor(i[0], mesh),), lambda m, y, mesh: y.full_tensor())

def sharded(kind, mesh, seed=0, **options):
    m = divided(kind, mesh["tensor"], seed)
    data = mesh["copies", "data"] if mesh.ndim == 3 else mesh["data"]
    for b in m.blocks:
        fully_shard(b, mesh=data, **options)
    return fully_shard(m, mesh=data, **options)

def rows_of(mesh):
    n = 8 // (world // mesh.size("tensor"))
    place = rank // mesh.size("tensor") * n
    return slice(place, place + n)

def averaged(losses, mesh):
    for t in losses:
        for axis in range(mesh.ndim - 1):
            dist.all_reduce(t, dist.ReduceOp.AVG, group=mesh.get_group(axis))
    return [t.item() for t in losses]

def close(got, want, steps=3, size=1.0):
    # Each step adds up 32 positions and passes sums of at most 8 terms through about 8 layers.
    want = np.asarray(want, dtype="float64")
    wrong = tolerance.differences(np.asarray(got, dtype="float64"), want, "float32", 16 * steps, magnitude=np.maximum(abs(want), size), length=32 * 8)
    assert not wrong, wrong

def everything(m, optimizer):
    # the bits of the whole model and of the state of the optimizer
    states = [p._sharding.whole(optimizer.state[p][k]) for p in m.parameters() for k in ("exp_avg", "exp_avg_sq")]
    return b"".join(t.numpy().tobytes() for t in [*(p.full_tensor() for p in m.parameters()), *states])

def told(error, text, call):
    try:
        call()
    except error as e:
        assert text in str(e), e
        return
    raise AssertionError(text)

GRID = ("data", "tensor")
square = init_device_mesh("cpu", (2, 2), mesh_dim_names=GRID) if world == 4 else None
"""

SAME = HEAD + """
meshes = [square, *(init_device_mesh("cpu", shape, mesh_dim_names=GRID) for shape in ((4, 1), (1, 4))), init_device_mesh("cpu", (2, 1, 2), mesh_dim_names=("copies", *GRID))]
for kind in SIZES:
    alone = made(kind)
    alone_optimizer = adam(alone)
    losses, want_norms = train(alone, alone_optimizer)
    want_losses = [t.item() for t in losses]
    bits = []
    for mesh, reshard in [(m, None) for m in meshes] + [(square, True), (square, False)]:
        m = divided(kind, mesh["tensor"])
        before = dict(m.named_parameters())
        m = sharded(kind, mesh, reshard_after_forward=reshard)
        if reshard:
            m.blocks[0].set_modules_to_forward_prefetch([m.blocks[1]])
            m.blocks[1].set_modules_to_backward_prefetch([m.blocks[0]])
        optimizer = adam(m)
        losses, norms = train(m, optimizer, rows_of(mesh))
        close(averaged(losses, mesh), want_losses)
        close(norms, want_norms)
        for (name, p), q in zip(m.named_parameters(), alone.parameters()):
            assert p.global_shape == tuple(q.shape), name
            close(p.full_tensor().numpy(), q.detach().numpy())
            close(p._sharding.whole(optimizer.state[p]["exp_avg"]).numpy(), alone_optimizer.state[q]["exp_avg"].numpy())
            close(p.grad.full_tensor().numpy(), q.grad.numpy())
        if mesh is square:
            bits.append(everything(m, optimizer))
            # Norms count each element once.
            grads = [p.grad for p in m.parameters()]
            for p in (1.0, 2.0, math.inf, 0.0):
                got, wanted = pf.nn.utils.get_total_norm(grads, p).item(), pf.nn.utils.get_total_norm([g.full_tensor() for g in grads], p).item()
                assert abs(got - wanted) <= 1e-6 * abs(wanted), (p, got, wanted)
    assert len(bits) == 3 and len(set(bits)) == 1, kind  # in each run, given up after the forward pass or not
    everyone = [None] * world
    dist.all_gather_object(everyone, hashlib.sha256(bits[0]).hexdigest())
    assert len(set(everyone)) == 1, kind  # what is whole along an axis is the same on all processes

dist.barrier()
print("same")
"""

MORE = HEAD + """
# What a process holds of an even layer: a quarter, of the parameter, its gradient and both moments.
for kind in SIZES:
    m = sharded(kind, square)
    optimizer = adam(m)
    train(m, optimizer, rows_of(square), steps=1)
    p, size = m.blocks[0].down.weight, 4 * SIZES[kind]["inner"]
    assert p.shape[0] == 2 and [t.numel() for t in (p, p.grad, *(optimizer.state[p][k] for k in ("exp_avg", "exp_avg_sq")))] == [size // 4] * 4
    assert p._sharding.groups == (square.get_group("tensor"), square.get_group("data")) and m.norm.weight._sharding.groups[-1] is square.get_group("data")
    # By hand, the module has the part of its layer, which knows the whole.
    m.blocks[0].unshard()
    shown = m.blocks[0].down.weight
    assert tuple(shown.shape) == (4, SIZES[kind]["inner"] // 2) and shown.full_tensor().equal(p.full_tensor())
    m.blocks[0].reshard()
    assert m.blocks[0].down.weight is p

# Gradients add up without communication along the data axis, until it is asked for again.
for kind in SIZES:
    for reshard in (True, False):
        m, want = sharded(kind, square, reshard_after_forward=reshard), made(kind)
        first, second = rows_of(square), batch(1)[rows_of(square)]
        m.set_requires_gradient_sync(False)
        loss_of(m, batch(0)[first]).backward()
        assert all(p.grad is None for p in m.parameters())
        m.set_requires_gradient_sync(True)
        loss_of(m, second).backward()
        (loss_of(want, batch(0)) + loss_of(want, batch(1))).backward()
        for p, q in zip(m.parameters(), want.parameters()):
            close(p.grad.full_tensor().numpy(), q.grad.numpy())

# Lower precision: the parameters that compute, what goes between blocks, the averages and the output.
for kind in SIZES:
    policy = dict(param_dtype=pf.bfloat16, reduce_dtype=pf.float32)
    m = divided(kind, square["tensor"])
    for b in m.blocks:
        fully_shard(b, mesh=square["data"], mp_policy=MixedPrecisionPolicy(**policy))
    fully_shard(m, mesh=square["data"], mp_policy=MixedPrecisionPolicy(**policy, output_dtype=pf.float32))
    seen = []
    m.blocks[0].up.register_forward_hook(lambda layer, args, out: seen.append((args[0].dtype, out.dtype, layer.weight.dtype)))
    optimizer = adam(m)
    losses, _ = train(m, optimizer, rows_of(square), steps=2)
    want = made(kind)
    want_losses, _ = train(want, adam(want), steps=2)
    assert set(seen) == {(pf.bfloat16,) * 3} and all(p.dtype == p.grad.dtype == optimizer.state[p]["exp_avg"].dtype == pf.float32 for p in m.parameters()), seen
    assert m(batch(0)).dtype == pf.float32 and all(abs(a - b.item()) < 0.03 for a, b in zip(averaged(losses, square), want_losses))

# Logits whose classes are divided along the one axis, of a batch that is divided along the other one.
want = made("styles")
loss_of(want, batch(0)).backward()
for reshard in (True, False):
    m = parallelize_module(made("styles"), square["tensor"], {**PLAN, "head": ColwiseParallel(input_layouts=Shard(1), use_local_output=False)})
    for b in m.blocks:
        fully_shard(b, mesh=square["data"], reshard_after_forward=reshard)
    fully_shard(m, mesh=square["data"], reshard_after_forward=reshard)
    with loss_parallel():
        loss_of(m, batch(0)[rows_of(square)]).backward()
    for p, q in zip(m.parameters(), want.parameters()):
        close(p.grad.full_tensor().numpy(), q.grad.numpy())

# Made without memory, then filled with parts of whole tensors.
for kind in SIZES:
    with pf.device("meta"):
        m = sharded(kind, square)
    m.to_empty(device="cpu")
    set_model_state_dict(m, made(kind, 4).state_dict())
    full = get_model_state_dict(m, options=StateDictOptions(full_state_dict=True))
    assert all(full[k].equal(t) for k, t in made(kind, 4).state_dict().items()), kind
    close(m(batch(0)).detach().numpy(), made(kind, 4)(batch(0)).detach().numpy())

# A gradient that is not finite in one part makes all processes leave out the step.
m = sharded("styles", square)
scaler, optimizer = pf.amp.GradScaler(init_scale=4.0), adam(m)
for bad in (False, True):
    optimizer.zero_grad()
    scaler.scale(loss_of(m, batch(0)[rows_of(square)])).backward()
    if bad and rank == 2:
        m.blocks[1].up.weight.grad[0, 0] = math.inf
    before = [p.detach().clone() for p in m.parameters()]
    scaler.step(optimizer)
    scaler.update()
    assert all(p.equal(q) for p, q in zip(m.parameters(), before) if p.numel()) == bad and scaler.get_scale() == (2.0 if bad else 4.0), (rank, bad)

# What does not go together.
tensor, data = square["tensor"], square["data"]
flat = init_device_mesh("cpu", (4,))
split = lambda *placements: (lambda name, m, mesh: m.register_parameter("weight", pf.nn.Parameter(distribute_tensor(m.weight, mesh, placements))))
linear = lambda: pf.nn.Linear(4, 4)
told(ValueError, "fully_shard: a parameter is divided over these ranks already; got weight", lambda: fully_shard(distribute_module(linear(), tensor, split(Shard(0))), mesh=tensor))
told(ValueError, "fully_shard: a parameter is divided over these ranks already; got weight", lambda: fully_shard(distribute_module(linear(), flat, split(Shard(0))), mesh=data))
told(ValueError, "fully_shard: a parameter lies on a mesh that has these ranks already; got weight on DeviceMesh(data=2, tensor=2", lambda: fully_shard(distribute_module(linear(), square, split(Replicate(), Shard(0))), mesh=data))
told(ValueError, "fully_shard: a parameter lies on a mesh that has these ranks already; got weight on", lambda: fully_shard(distribute_module(linear(), tensor), mesh=tensor))
told(ValueError, "distribute_module: a parameter is divided already; got weight; expected a module before fully_shard()", lambda: distribute_module(fully_shard(linear(), mesh=data), tensor))
told(ValueError, "parallelize_module: a parameter is divided already; got weight of FSDPLinear", lambda: parallelize_module(fully_shard(linear(), mesh=data), tensor, ColwiseParallel()))
dist.barrier()
print("right")
"""


def test_four_processes(tmp_path):
    """Meshes of 2 x 2, 4 x 1, 1 x 4 and 2 x 1 x 2 processes train as one process does; 2 x 2 has the same bits in each run."""
    assert run(4, SAME, tmp_path) == ["same\n"] * 4


def test_what_a_sharded_module_does(tmp_path):
    """Parts, accumulation, mixed precision, divided logits, models without memory, skipped steps and errors on 2 x 2 processes."""
    assert run(4, MORE, tmp_path) == ["right\n"] * 4


WRITE = HEAD + """
folder = os.environ["FOLDER"]
others = [init_device_mesh("cpu", shape, mesh_dim_names=GRID) for shape in ((4, 1), (1, 4))]
for kind in SIZES:
    m = sharded(kind, square)
    optimizer = adam(m)
    train(m, optimizer, rows_of(square), steps=2)
    weights, states = get_state_dict(m, optimizer)
    dcp.save({"model": weights, "optim": states, "step": 2}, checkpoint_id=f"{folder}-{kind}")
    saved = everything(m, optimizer)
    losses, _ = train(m, optimizer, rows_of(square), steps=2, begin=2)
    last, want = everything(m, optimizer), averaged(losses, square)
    # The same mesh goes on with the same bits.
    again = sharded(kind, square, seed=9)
    optimizer, step = restored(again, f"{folder}-{kind}")
    assert step == 2 and everything(again, optimizer) == saved
    losses, _ = train(again, optimizer, rows_of(square), steps=2, begin=2)
    assert everything(again, optimizer) == last and averaged(losses, square) == want
    # Others have the same bits, and go on with the same numbers.
    for mesh in others:
        m = sharded(kind, mesh, seed=9)
        optimizer, step = restored(m, f"{folder}-{kind}")
        assert step == 2 and everything(m, optimizer) == saved, (kind, mesh)
        weights, states = get_state_dict(m, optimizer)
        dcp.save({"model": weights, "optim": states, "step": 2}, checkpoint_id=f"{folder}-back")
        back = sharded(kind, square, seed=9)
        assert everything(back, restored(back, f"{folder}-back")[0]) == saved, (kind, mesh)
        losses, _ = train(m, optimizer, rows_of(mesh), steps=2, begin=2)
        close(averaged(losses, mesh), want)
        dist.barrier()
    print(kind, *want)
"""

READ = HEAD + """
for kind in SIZES:
    for shape in ((2, 1), (1, 2)):
        mesh = init_device_mesh("cpu", shape, mesh_dim_names=GRID)
        m = sharded(kind, mesh, seed=9)
        optimizer, step = restored(m, f"{os.environ['FOLDER']}-{kind}")
        found = dcp.load_whole(f"{os.environ['FOLDER']}-{kind}")
        assert all(p.full_tensor().equal(found[f"model.{name}"]) for name, p in m.named_parameters())
        losses, _ = train(m, optimizer, rows_of(mesh), steps=2, begin=2)
        print(kind, *averaged(losses, mesh))
"""


def test_checkpoints(tmp_path):
    """What 2 x 2 processes wrote goes on with the same bits there, and with the same numbers in 4 x 1, 1 x 4, 2 x 1, 1 x 2 and one process."""
    folder = str(tmp_path / "checkpoint")
    outputs = run(4, WRITE, tmp_path, FOLDER=folder)
    assert len(set(outputs)) == 1
    want = {line.split()[0]: [float(x) for x in line.split()[1:]] for line in outputs[0].splitlines()}
    for line in run(2, READ, tmp_path, FOLDER=folder)[0].splitlines():
        kind, *losses = line.split()
        assert [float(x) for x in losses] == pytest.approx(want[kind], rel=1e-4), line
    names = {}
    exec(MODEL, names)
    for kind in ("styles", "dtensors"):
        m = names["made"](kind, 9)
        optimizer, step = names["restored"](m, f"{folder}-{kind}")
        found = dcp.load_whole(f"{folder}-{kind}")
        assert step == 2 and all(p.equal(found[f"model.{name}"]) and optimizer.state[p]["exp_avg"].equal(found[f"optim.state.{name}.exp_avg"]) for name, p in m.named_parameters())
        losses, _ = names["train"](m, optimizer, steps=2, begin=2)
        assert [t.item() for t in losses] == pytest.approx(want[kind], rel=1e-4)


@pytest.fixture
def mesh():
    yield dist.init_device_mesh("cpu", (1, 1), mesh_dim_names=("data", "tensor"))
    dist.destroy_process_group()


def test_one_process(mesh):
    """Nothing is divided, and the numbers are those of the module."""
    linear = pf.nn.Linear(3, 2)
    want = linear(pf.ones(4, 3)).detach()
    distribute_module(linear, mesh["tensor"], None, lambda m, i, mesh: (distribute_tensor(i[0], mesh),), lambda m, y, mesh: y.full_tensor())
    assert fully_shard(linear, mesh=mesh["data"]) is linear and isinstance(linear, FSDPModule)
    y = linear(pf.ones(4, 3))
    y.sum().backward()
    assert y.equal(want) and linear.weight.grad.tolist() == [[4.0] * 3] * 2 and linear.weight.full_tensor().shape == (2, 3)


@pytest.mark.parametrize("again", [False, True])
def test_dtensors_through_recomputed_modules(mesh, again):
    """Gradients pass through a module whose forward pass is computed again, and whose inputs and outputs are DTensors."""
    pf.manual_seed(0)
    m = distribute_module(pf.nn.Sequential(pf.nn.Sequential(pf.nn.Linear(3, 3), pf.nn.Tanh()), pf.nn.Linear(3, 1)), mesh["tensor"])
    if again:
        m.enable_gradient_checkpointing(["0"])
    x = distribute_tensor(pf.ones(2, 3).requires_grad_(), mesh["tensor"], [Shard(0)])
    y = m(x)
    assert isinstance(y, DTensor) and y.placements == (Shard(0),)
    y.sum().redistribute(placements=[Replicate()]).backward()
    plain = pf.nn.Sequential(pf.nn.Sequential(pf.nn.Linear(3, 3), pf.nn.Tanh()), pf.nn.Linear(3, 1))
    plain.load_state_dict({k: p.full_tensor() for k, p in m.named_parameters()})
    z = pf.ones(2, 3).requires_grad_()
    plain(z).sum().backward()
    assert x.grad.full_tensor().allclose(z.grad) and all(p.grad.full_tensor().allclose(q.grad) for p, q in zip(m.parameters(), plain.parameters()))


def test_state_of_one_process(mesh, tmp_path):
    """A checkpoint of a model of both kinds of division in one process."""
    m = distribute_module(pf.nn.Linear(3, 2), mesh["tensor"], lambda name, m, mesh: m.register_parameter("weight", pf.nn.Parameter(distribute_tensor(m.weight, mesh, [Shard(0)]))))
    optimizer = pf.optim.AdamW(fully_shard(m, mesh=mesh["data"]).parameters())
    weights, states = get_state_dict(m, optimizer)
    dcp.save({"model": weights, "optim": states}, checkpoint_id=tmp_path / "c")
    plain = pf.nn.Linear(3, 2)
    plain_optimizer = pf.optim.AdamW(plain.parameters())
    weights, states = get_state_dict(plain, plain_optimizer)
    state = {"model": weights, "optim": states}
    dcp.load(state, checkpoint_id=tmp_path / "c")
    set_state_dict(plain, plain_optimizer, model_state_dict=state["model"], optim_state_dict=state["optim"])
    assert plain.weight.equal(m.weight.full_tensor()) and plain.bias.equal(m.bias.full_tensor())
