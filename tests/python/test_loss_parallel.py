"""loss_parallel(): the cross entropy of logits whose classes are split over processes, against the plain one."""
import pytest
from processes import run

import pyflame as pf
import pyflame.distributed as dist
from pyflame.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from pyflame.distributed.tensor.parallel import loss_parallel
from pyflame.nn import functional as F

PROGRAM = """
from pyflame.distributed import _collectives, _redistribute
from pyflame.distributed.device_mesh import init_device_mesh
from pyflame.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from pyflame.distributed.tensor.parallel import ColwiseParallel, loss_parallel, parallelize_module
from pyflame.nn import functional as F

mesh = init_device_mesh("cpu", (world,))
pf.manual_seed(3)

def close(a, b, what, tolerance=1e-5):
    assert tuple(a.shape) == tuple(b.shape) and a.dtype == b.dtype and pf.allclose(a.float(), b.float(), rtol=tolerance, atol=tolerance, equal_nan=True), (what, a, b)

def gathers(*args, **kwargs):
    raise AssertionError("the logits are gathered")

def check(shape, dtype=pf.float32, shift=0.0, what="", targets=None, tolerance=1e-5, mesh=mesh, placed=None, targets_placed=None, **options):
    whole = (pf.randn(*shape) * 3 + shift).to(dtype)
    dim = 0 if len(shape) == 1 else 1
    classes, places = shape[dim], shape[:dim] + shape[dim + 1 :]
    target = pf.randint(0, classes, places) if targets is None else targets
    plain = whole.clone().requires_grad_()
    want = F.cross_entropy(plain, target, **options)
    part = distribute_tensor(whole.requires_grad_(), mesh, placed or [Shard(dim)])
    factor = pf.arange(1.0, want.numel() + 1).reshape(want.shape).to(dtype)
    (want * factor).sum().backward()
    given = distribute_tensor(target, mesh, targets_placed) if targets_placed else target
    before, _redistribute.gathered = _redistribute.gathered, gathers
    all_gather, _collectives.all_gather = _collectives.all_gather, gathers
    try:
        with loss_parallel():
            got = F.cross_entropy(part, given, **options)
        (got * distribute_tensor(factor, mesh, got.placements)).sum().backward()
    finally:
        _redistribute.gathered, _collectives.all_gather = before, all_gather
    split = [p.is_shard() and not p.is_shard(dim) for p in part.placements]
    assert isinstance(got, DTensor) and [p.is_shard() for p in got.placements] == [s and want.ndim > 0 for s in split] and got.device_mesh is mesh
    close(got.full_tensor(), want, (shape, what), tolerance)
    close(part.grad.full_tensor(), plain.grad, ("gradient", shape, what), tolerance)

for classes in (2, 5, 8):  # 2 and 5 are split in unequal parts, some of which are empty
    for reduction in ("mean", "sum", "none"):
        check((6, classes), reduction=reduction)
        check((4, classes, 3), reduction=reduction, label_smoothing=0.2)
        check((4, classes, 3, 2), reduction=reduction, weight=pf.rand(classes), label_smoothing=0.1)
        check((6, classes), reduction=reduction, weight=pf.rand(classes), targets=pf.tensor([0, -100, 1, 1, -100, 0]))
        check((6, classes), reduction=reduction, ignore_index=1, targets=pf.tensor([0, 1, 1, 0, 0, 1], dtype=pf.int32), label_smoothing=0.3)
    check((classes,), what="no batch")
    check((5, classes), shift=1000.0, what="large", tolerance=1e-4)
    check((5, classes), dtype=pf.float64)
    check((5, classes), dtype=pf.bfloat16, tolerance=2e-2)
check((3, 5), targets=pf.tensor([-100, -100, -100]), what="nothing counts")

# Meshes of two axes: the classes are split along one of them, and the batch, other places or nothing along the other one.
if world == 4:
    R, S = Replicate(), Shard
    grid = init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "tensor"))
    for reduction in ("mean", "sum", "none"):
        options = dict(mesh=grid, reduction=reduction, label_smoothing=0.1)
        for placed, of_targets in (([S(0), S(1)], [S(0), R]), ([S(1), S(0)], [R, S(0)]), ([R, S(1)], [R, R]), ([S(2), S(1)], [S(1), R])):
            check((3, 5, 3), placed=placed, weight=pf.rand(5), what=placed, **options)
            check((3, 5, 3), placed=placed, targets_placed=of_targets, what=placed, **options)
        check((6, 5), placed=[S(0), S(1)], targets=pf.tensor([0, -100, 1, -100, -100, -100]), **options)  # the parts count differently
        check((1, 5), placed=[S(0), S(1)], what="an empty part of the batch", **options)

    def told(error, text, placed, target):
        try:
            with loss_parallel():
                F.cross_entropy(distribute_tensor(pf.ones(4, 6), grid, placed), target)
        except error as e:
            assert text in str(e), e
            return
        raise AssertionError(text)

    classes = pf.tensor([0, 1, 2, 3])
    told(ValueError, "got (Shard(dim=0), Replicate()); expected Replicate(), or within loss_parallel() the classes split along one axis of the mesh", [S(0), R], classes)
    told(ValueError, "got (Shard(dim=1), Shard(dim=1)); expected Replicate(), or within loss_parallel() the classes split along one axis", [S(1), S(1)], classes)
    told(ValueError, "expected Replicate() for the target, or [Shard(dim=0), Replicate()]", [S(0), S(1)], distribute_tensor(classes, grid, [R, S(0)]))
    wrong = distribute_tensor(pf.tensor([0, 1, 2, 6]), grid, [S(0), R])  # half of the processes have the wrong class
    told(IndexError, f"cross_entropy: a class is out of range; got {6 if rank > 1 else 'one on another process'}; expected 0 to 5", [S(0), S(1)], wrong)

# A vocabulary-parallel output layer, as programs have it.
pf.manual_seed(4)
x, target = pf.randn(6, 4), pf.randint(0, 8, (6,))
want = pf.nn.Linear(4, 8)
F.cross_entropy(want(x), target).backward()
pf.manual_seed(4)
pf.randn(6, 4), pf.randint(0, 8, (6,))
layer = parallelize_module(pf.nn.Linear(4, 8), mesh, ColwiseParallel(use_local_output=False))
with loss_parallel():
    loss = pf.nn.CrossEntropyLoss()(layer(x), distribute_tensor(target, mesh))
    loss.backward()
close(layer.weight.grad.full_tensor(), want.weight.grad, "layer")
# Sequences: [B, T, classes], flattened as programs do.
layer.weight.grad = layer.bias.grad = None
with loss_parallel():
    F.cross_entropy(layer(x.reshape(2, 3, 4)).flatten(0, 1), target.reshape(2, 3).flatten()).backward()
close(layer.weight.grad.full_tensor(), want.weight.grad, "sequences")
try:
    F.cross_entropy(layer(x), target)
    raise AssertionError("not refused")
except ValueError as e:
    assert "DTensor.cross_entropy: the result cannot be computed from the parts; got Shard(dim=1); the classes are split; expected a call within distributed.tensor.parallel.loss_parallel()" in str(e), e
print("right")
"""


@pytest.mark.parametrize("n", [2, 4])
def test_values_and_gradients(n, tmp_path):
    assert run(n, PROGRAM, tmp_path) == ["right\n"] * n


@pytest.fixture
def mesh():
    yield dist.init_device_mesh("cpu", (1,))
    dist.destroy_process_group()


def _loss(mesh, logits=None, target=None, placements=(Shard(1),), **options):
    logits = distribute_tensor(pf.ones(2, 3) if logits is None else logits, mesh, placements)
    with loss_parallel():
        return F.cross_entropy(logits, pf.tensor([0, 1]) if target is None else target, **options)


def test_whole_logits(mesh):
    x = pf.randn(2, 3)
    want = F.cross_entropy(x, pf.tensor([0, 1]))
    assert pf.allclose(_loss(mesh, x).to_local(), want) and _loss(mesh, x, placements=[Replicate()]).to_local().equal(want)
    assert F.cross_entropy(distribute_tensor(x, mesh), pf.tensor([0, 1])).to_local().equal(want)
    for bad in (float("inf"), float("nan")):
        y = x.clone()
        y[0, 1] = bad
        assert bool(F.cross_entropy(y, pf.tensor([0, 1])).isnan()) == bool(_loss(mesh, y).to_local().isnan())


def test_context(mesh):
    """The context ends with the block, also where it raised, and may be within itself."""
    x, target = distribute_tensor(pf.ones(2, 3), mesh, [Shard(1)]), pf.tensor([0, 1])
    with loss_parallel():
        with pytest.raises(KeyError), loss_parallel():
            raise KeyError
        assert F.cross_entropy(x, target).item() == pytest.approx(1.0986, abs=1e-4)
    with pytest.raises(ValueError, match="expected a call within distributed.tensor.parallel.loss_parallel"):
        F.cross_entropy(x, target)


def _other(m, ones):
    return distribute_tensor(ones, dist.device_mesh.DeviceMesh("cpu", [0], mesh_dim_names=("other",)))


WRONG = [
    (ValueError, "expected Replicate\\(\\), or within loss_parallel\\(\\) the classes split along one axis of the mesh", lambda m: _loss(m, placements=[Shard(0)])),
    (ValueError, "got Partial\\(\\); expected Replicate\\(\\), or", lambda m: F.cross_entropy(DTensor.from_local(pf.ones(2, 3), m, [Partial()]), pf.tensor([0, 1]))),
    (TypeError, "cross_entropy: the targets are no classes; got .*float32; expected int64 or int32; hint: probabilities", lambda m: _loss(m, target=pf.ones(2, 3))),
    (TypeError, "cross_entropy: the target is not a tensor; got list", lambda m: _loss(m, target=[0, 1])),
    (ValueError, "cross_entropy: the shapes do not fit; got logits \\(2, 3\\) and targets \\(3,\\); expected targets \\(2,\\)", lambda m: _loss(m, target=pf.tensor([0, 1, 2]))),
    (ValueError, "cross_entropy: the weight does not fit; got shape \\(2,\\); expected \\(3,\\)", lambda m: _loss(m, weight=pf.ones(2))),
    (ValueError, "cross_entropy: unknown reduction; got 'max'", lambda m: _loss(m, reduction="max")),
    (ValueError, "cross_entropy: label_smoothing is out of range; got 2", lambda m: _loss(m, label_smoothing=2)),
    (IndexError, "cross_entropy: a class is out of range; got 3; expected 0 to 2, or -100", lambda m: _loss(m, target=pf.tensor([0, 3]))),
    (TypeError, "cross_entropy: the logits are no floating point numbers; got .*int64", lambda m: _loss(m, pf.ones(2, 3).long())),
    (ValueError, "cross_entropy: the meshes differ; got a target on", lambda m: _loss(m, target=_other(m, pf.tensor([0, 1])))),
    (ValueError, "DTensor.cross_entropy: .*expected Replicate\\(\\) for the target", lambda m: _loss(m, target=distribute_tensor(pf.tensor([0, 1]), m, [Shard(0)]))),
]


@pytest.mark.parametrize("error, message, call", WRONG, ids=[m[:50] for _, m, _ in WRONG])
def test_arguments(error, message, call, mesh):
    with pytest.raises(error, match=message):
        call(mesh)
