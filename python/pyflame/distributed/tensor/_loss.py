"""loss_parallel: the cross entropy of logits of which each process has some classes. The logits are not gathered: what goes over the processes has the shape of the target."""
from __future__ import annotations

import contextlib
import contextvars

from ... import _C
from ..._C import Tensor
from .._redistribute import Reduce, reduced
from .._state import ReduceOp
from ._dtensor import DTensor, Layout, _made, _moved, _refused
from ._placements import Replicate, Shard

TYPE_CHECKING = False  # type checkers take this name as true
if TYPE_CHECKING:
    from collections.abc import Iterator

_on = contextvars.ContextVar("loss_parallel", default=False)


@contextlib.contextmanager
def loss_parallel() -> Iterator[None]:
    """A context in which nn.functional.cross_entropy and nn.CrossEntropyLoss take a DTensor of logits that is split along the classes, and do not gather it.

    Logits: [N, C, ...], Shard(1), or [C], Shard(0), of a floating dtype, such as what a ColwiseParallel layer with use_local_output=False gives. One axis of the mesh splits the classes;
    along each other axis the logits are whole, or another dim is split, such as the batch along 'data'. Targets: classes
    [N, ...], int64 or int32, a tensor or a Replicate() DTensor, the same on each process, or a DTensor that is split as the logits are; weight [C], whole. The loss has the dtype of the logits, and the value
    and the gradient of the plain one up to rounding. It is a Replicate() DTensor: the mean or the sum is that of all parts. With reduction 'none' it is split as the targets are. backward() may
    be called within the context or after it. All processes of the mesh call both.

    Outside of it such logits are a ValueError. In it: ValueError for other splits and shapes that do not fit, TypeError for targets that are no classes,
    IndexError for a class that is not from 0 to C - 1; the targets are read for that, which is a sync point."""
    token = _on.set(True)
    try:
        yield
    finally:
        _on.reset(token)


def _given(name, t, logits, placements):
    """An argument as a DTensor that is whole, or placed so; a tensor is whole. None: not given."""
    if isinstance(t, DTensor):
        if t.device_mesh != logits.device_mesh:
            raise ValueError(f"cross_entropy: the meshes differ; got a {name} on {t.device_mesh} and logits on {logits.device_mesh}; expected one mesh")
        if any(not isinstance(p, Replicate) and p != q for p, q in zip(t.placements, placements)):
            raise _refused("cross_entropy", [logits, t], f"expected Replicate() for the {name}" + (f", or {list(placements)}" if any(p.is_shard() for p in placements) else ""))
        return t
    if t is not None and not isinstance(t, Tensor):
        raise TypeError(f"cross_entropy: the {name} is not a tensor; got {type(t).__name__}; expected a tensor, or a DTensor")
    return t if t is None else _made(t, logits.device_mesh, (Replicate(),) * logits.device_mesh.ndim, t.shape)


def _of_targets(placements, dim):
    """How targets are placed for logits that are placed so, whose classes are a dim."""
    return tuple(Shard(p.dim - (p.dim > dim)) if p.is_shard() and p.dim != dim else Replicate() for p in placements)


def _whole(t):
    return t if t is None else t._local_tensor


def cross_entropy(logits, target, weight, ignore_index, reduction, label_smoothing):
    """nn.functional.cross_entropy of a DTensor."""
    mesh, dim = logits.device_mesh, 0 if logits.ndim == 1 else 1
    whole, placements = (Replicate(),) * mesh.ndim, _of_targets(logits.placements, dim)
    target, weight = _given("target", target, logits, placements), _given("weight", weight, logits, whole)
    if logits.placements == whole:
        loss = _C.cross_entropy(logits._local_tensor, _whole(target), _whole(weight), ignore_index, reduction, label_smoothing)
        return _made(loss, mesh, whole, loss.shape)
    if [p.is_shard(dim) for p in logits.placements].count(True) != 1 or any(p.is_partial() for p in logits.placements):
        raise _refused("cross_entropy", [logits], "expected Replicate(), or within loss_parallel() the classes split along one axis of the mesh")
    if not _on.get():
        raise _refused("cross_entropy", [logits], "the classes are split; expected a call within distributed.tensor.parallel.loss_parallel()")
    _check(logits, target, weight, reduction, label_smoothing, dim)
    _check_classes(target, logits.shape[dim], ignore_index)
    loss = _of_parts(logits, _moved(target, placements), _whole(weight), ignore_index, reduction, label_smoothing, dim)
    return _made(loss, mesh, placements, target.shape) if reduction == "none" else _made(loss, mesh, whole, ())


def _check(logits, target, weight, reduction, label_smoothing, dim):
    op, classes = "cross_entropy", logits.shape[dim]
    places = logits.shape[:dim] + logits.shape[dim + 1 :]
    if not logits.dtype.is_floating_point:
        raise TypeError(f"{op}: the logits are no floating point numbers; got {logits.dtype}; expected such as float32")
    if target is None or target.dtype not in (_C.int64, _C.int32):
        raise TypeError(f"{op}: the targets are no classes; got {'None' if target is None else target.dtype}; expected int64 or int32; hint: probabilities need whole logits")
    if tuple(target.shape) != tuple(places):
        raise ValueError(f"{op}: the shapes do not fit; got logits {logits.shape} and targets {tuple(target.shape)}; expected targets {tuple(places)}")
    if weight is not None and tuple(weight.shape) != (classes,):
        raise ValueError(f"{op}: the weight does not fit; got shape {tuple(weight.shape)}; expected {(classes,)}")
    if reduction not in ("mean", "sum", "none"):
        raise ValueError(f"{op}: unknown reduction; got {reduction!r}; expected 'mean', 'sum' or 'none'")
    if not 0 <= label_smoothing <= 1:
        raise ValueError(f"{op}: label_smoothing is out of range; got {label_smoothing}; expected 0 to 1")


def _check_classes(target, classes, ignore_index):
    """IndexError on all processes where one has a class that is not there."""
    values = target._local_tensor
    wrong = values[(values != ignore_index) & ((values < 0) | (values >= classes))].reshape(-1)
    found = wrong.numel() > 0
    for axis, p in enumerate(target.placements):
        if p.is_shard():
            found = bool(reduced(_C.tensor([float(found)], device=values.device), target.device_mesh.get_group(axis), ReduceOp.MAX).item())
    if found:
        raise IndexError(f"cross_entropy: a class is out of range; got {wrong[0].item() if wrong.numel() else 'one on another process'}; expected 0 to {classes - 1}, or {ignore_index}")


def _of_parts(logits, target, weight, ignore_index, reduction, label_smoothing, dim):
    """The loss of this process's part of the logits and of the targets; a mean or a sum is that of all parts."""
    mesh, classes, counts = logits.device_mesh, logits.shape[dim], target != ignore_index
    group = next(mesh.get_group(axis) for axis, p in enumerate(logits.placements) if p.is_shard(dim))
    others = [mesh.get_group(axis) for axis, p in enumerate(logits.placements) if p.is_shard() and not p.is_shard(dim)]
    x, dtype = logits._local_tensor, logits.dtype
    x = x.float() if dtype in (_C.float16, _C.bfloat16) else x
    begin, n = Layout(logits.device_mesh, logits.placements, logits.shape).offsets[dim], x.shape[dim]
    size = tuple(target.shape)
    top = x.detach().amax(dim) if n else _C.full(size, float("-inf"), dtype=x.dtype, device=x.device)
    top = reduced(top, group, ReduceOp.MAX)
    total = Reduce.apply((x - top.unsqueeze(dim)).exp().sum(dim=dim), group).log() + top
    here = counts & (target >= begin) & (target < begin + n)
    if n:
        at = _C.where(here, target - begin, _C.zeros_like(target)).to(_C.int64).unsqueeze(dim)
        own = x.gather(dim, at).squeeze(dim)
        own = _C.where(here, own, _C.zeros_like(own))
    else:
        own = x.sum(dim=dim)  # zeros, with a gradient
    factor = counts.to(x.dtype)
    if weight is not None:
        factor = factor * weight.to(x.dtype)[_C.where(counts, target, _C.zeros_like(target)).to(_C.int64)]
    loss = _C.where(counts, (total - Reduce.apply(own, group)) * factor, _C.zeros_like(factor))
    if label_smoothing:
        w = _C.ones(classes, dtype=x.dtype, device=x.device) if weight is None else weight.to(x.dtype)
        each = w.narrow(0, begin, n).reshape((-1,) if dim == 0 else (1, -1) + (1,) * (x.ndim - 2))
        spread = total * w.sum() - Reduce.apply((x * each).sum(dim=dim), group)
        loss = (1 - label_smoothing) * loss + label_smoothing / classes * _C.where(counts, spread, _C.zeros_like(spread))
    if reduction == "sum":
        loss = _summed(loss, others)
    elif reduction == "mean":
        loss = _summed(loss, others) / _summed(factor, others)
    return loss.to(dtype)


def _summed(x, groups):
    """The sum of what the processes of these groups have."""
    x = x.sum()
    for group in groups:
        x = Reduce.apply(x, group)
    return x


__all__ = ["cross_entropy", "loss_parallel"]
