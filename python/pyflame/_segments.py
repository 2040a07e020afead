"""Reductions of segments: parts of an axis that follow each other."""
from __future__ import annotations

import math

from . import _C
from ._keywords import naming
from ._scatters import index_reduce
from ._shapes import repeat_interleave

TYPE_CHECKING = False  # type checkers take this name as true
if TYPE_CHECKING:
    from ._C import Tensor

__all__ = ["segment_reduce"]


def _lengths(data, lengths, offsets, axis):
    """The lengths of the segments, of the shape data.shape[:axis] and then their number. They are read."""
    op = "segment_reduce"
    if (lengths is None) == (offsets is None):
        raise RuntimeError(f"{op}: neither or both of lengths and offsets; got " + ("none" if lengths is None else "both") + "; expected one")
    given = offsets if lengths is None else lengths
    if given.dtype not in (_C.int64, _C.int32):
        raise TypeError(f"{op}: the segments have the wrong dtype; got {given.dtype}; expected int64 or int32")
    if not -data.ndim <= axis < data.ndim:
        raise IndexError(f"{op}: axis out of range; got {axis}; expected {-data.ndim} <= axis < {data.ndim}")
    axis %= data.ndim
    sizes = given if offsets is None else given.diff(dim=-1)
    fits = given.ndim == axis + 1 and tuple(given.shape[:-1]) == tuple(data.shape[:axis]) and (offsets is None or given.shape[-1] > 0)
    if fits and sizes.numel():
        fits = bool((sizes >= 0).all()) and bool((sizes.sum(-1) == data.shape[axis]).all()) and (offsets is None or bool((given.select(-1, 0) == 0).all()))
    elif fits:
        fits = data.shape[axis] == 0
    if not fits:
        raise RuntimeError(f"{op}: the lengths do not fit; got {sizes.tolist()} for shape {tuple(data.shape)} and axis {axis}; expected lengths from 0 on, of shape "
                           f"{(*data.shape[:axis], 'segments')}, whose sums are {data.shape[axis]}")
    return sizes.to(_C.int64), axis


def segment_reduce(data: Tensor, reduce: str, *, lengths: Tensor | None = None, indices: None = None, offsets: Tensor | None = None, axis: int = 0,
                   unsafe: bool = False, initial: float | None = None) -> Tensor:
    """The sum, mean, maximum, minimum or product of each segment of an axis.

    data: of a floating dtype. reduce: 'sum', 'mean', 'max', 'min' or 'prod'. lengths: how many entries each segment has, integers of the shape data.shape[:axis] and then
    the number of segments; or offsets: where each begins, and at the end the size of the axis. The segments fill the axis. initial: where each reduction begins, a number;
    None: 0, 1 or an infinity, and NaN for the mean of an empty segment. The result has the number of segments in the place of the axis, and later dims as they are. Equal
    extremes share the gradient.

    The lengths are read, also with unsafe=True. RuntimeError where they do not fit; TypeError for integers. indices is a NotImplementedError, as in PyTorch.

        >>> pf.segment_reduce(pf.tensor([1.0, 2.0, 3.0]), "sum", lengths=pf.tensor([2, 1])).tolist()
        [3.0, 3.0]
    """
    op = "segment_reduce"
    if reduce not in ("sum", "mean", "max", "min", "prod"):
        raise RuntimeError(f"{op}: unknown reduction; got {reduce!r}; expected 'sum', 'mean', 'max', 'min' or 'prod'")
    if indices is not None:
        raise NotImplementedError(f"{op}: indices is not available; expected lengths or offsets")
    if not data.is_floating_point():
        raise TypeError(f"{op}: not a floating dtype; got {data.dtype}; expected a float; hint: cast the data")
    sizes, axis = _lengths(data, lengths, offsets, axis)
    inner = tuple(data.shape[axis + 1:])
    counts = sizes.reshape(-1)
    rows = data.reshape(math.prod(data.shape[: axis + 1]), *inner)
    places = repeat_interleave(_C.arange(counts.shape[0], device=data.device), counts)
    result = _combined(rows, places, counts, reduce, initial)
    return result.reshape(*sizes.shape, *inner)


def _combined(rows, places, counts, reduce, initial):
    def filled(value):
        return _C.full((counts.shape[0], *rows.shape[1:]), value, dtype=rows.dtype, device=rows.device)

    if reduce in ("sum", "mean"):
        total = filled(0.0 if initial is None else float(initial)).index_add(0, places, rows)
        if reduce == "sum":
            return total
        number = counts.reshape(-1, *(1,) * (rows.ndim - 1)).to(rows.dtype)
        return total / number if initial is None else _C.where(number == 0, total, total / _C.clamp(number, min=1))
    if reduce == "prod":
        result = index_reduce(filled(1.0), 0, places, rows, "prod")
        return result if initial is None else result * initial
    result = index_reduce(filled(-math.inf if reduce == "max" else math.inf), 0, places, rows, f"a{reduce}")
    if initial is None:
        return result
    first = filled(float(initial))
    return _C.where(result < first if reduce == "max" else result > first, first, result)


naming(globals(), __name__)
