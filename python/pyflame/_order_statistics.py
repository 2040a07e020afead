"""Statistics by sorting: median, quantile, mode, k-th value; searches in sorted sequences, and histograms."""
from __future__ import annotations

import builtins
import collections
import functools

from . import _C
from ._C import Tensor
from ._error_names import named
from ._generator import drawing_from
from ._public import method
from ._reductions import OneOfAll
from ._shapes import movedim
from .linalg._norms import power_sum

TYPE_CHECKING = False  # type checkers take this name as true
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import overload

    from ._annotations import TensorLike
    from ._generator import Generator
    from ._named_tuples import Histogram, HistogramOfPoints, ValuesIndices
else:
    from ._public import overload

__all__ = ["bucketize", "histc", "histogram", "histogramdd", "kthvalue", "median", "mode", "multinomial", "nanmedian", "nanquantile", "quantile", "renorm", "searchsorted"]


def _pair(name):
    return collections.namedtuple(name, ["values", "indices"])


_Median, _NanMedian, _Mode, _Kth = _pair("median"), _pair("nanmedian"), _pair("mode"), _pair("kthvalue")
_Histogram = collections.namedtuple("histogram", ["hist", "bin_edges"])


def _dim_of(op, input, dim):
    if not -max(input.ndim, 1) <= dim < max(input.ndim, 1):
        raise IndexError(f"{op}: no such dim; got {dim}; expected {-max(input.ndim, 1)} to {max(input.ndim, 1) - 1}")
    return dim % max(input.ndim, 1)


def _picked(kind, input, indices, dim, keepdim):
    """The elements at indices (with the dim kept) and the indices, as a named pair. The gradient goes to these elements."""
    if input.ndim == 0:
        return kind(input.clone(), indices.reshape(()))
    values = _C.gather(input, dim, indices)
    return kind(values, indices) if keepdim else kind(values.squeeze(dim), indices.squeeze(dim))


def _last(sorted_values, dim):
    return sorted_values.narrow(dim, sorted_values.shape[dim] - 1, 1)


# ---- one element of a sorted line


def _middle(kind, op, input, dim, keepdim, ignore_nan):
    if dim is None:
        return OneOfAll.apply(input.reshape(-1), functools.partial(_middle_value, ignore_nan=ignore_nan))
    dim = _dim_of(op, input, dim)
    wide = input.reshape(1) if input.ndim == 0 else input
    if wide.shape[dim] == 0:
        raise IndexError(f"{op}: no elements along the dim; got shape {tuple(input.shape)} and dim {dim}")
    ordered, order = _C.sort(wide.detach(), dim)
    n = wide.shape[dim]
    if not input.is_floating_point():
        return _picked(kind, input, order.narrow(dim, (n - 1) // 2, 1), dim, keepdim)
    if ignore_nan:
        count = _C.logical_not(_C.isnan(wide)).sum(dim, keepdim=True)
        at = _C.gather(order, dim, _C.clamp(_C.floor_divide(count - 1, 2), min=0))
    else:
        first_nan = _C.argmax(wide.detach(), dim, keepdim=True)
        at = _C.where(_C.isnan(_last(ordered, dim)), first_nan, order.narrow(dim, (n - 1) // 2, 1))
    return _picked(kind, input, at, dim, keepdim)


def _middle_value(flat, ignore_nan):
    n = flat.shape[0]
    if n == 0:
        nan = float("nan") if flat.is_floating_point() else -2**63 if flat.dtype == _C.int64 else 0
        return _C.full((), nan, dtype=flat.dtype, device=flat.device)
    ordered = _C._sorted_values(flat, 0, False)
    if not flat.is_floating_point():
        return ordered.select(0, (n - 1) // 2).clone()
    if ignore_nan:
        count = _C.logical_not(_C.isnan(flat)).sum()
        return ordered.index_select(0, _C.clamp(_C.floor_divide(count - 1, 2), min=0).reshape(1)).reshape(())
    last = ordered.select(0, n - 1)
    return _C.where(_C.isnan(last), last, ordered.select(0, (n - 1) // 2))


@overload
def median(input: Tensor, dim: None = None, keepdim: bool = False) -> Tensor: ...


@overload
def median(input: Tensor, dim: int, keepdim: bool = False) -> ValuesIndices: ...


@method
def median(input: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor | ValuesIndices:
    """The element in the middle of the sorted elements of input, the lower one of two; NaN if there is one. Along a dim: a named pair (values, indices). keepdim: the dim stays, with size 1.

    TypeError for complex numbers. IndexError for a dim that is not there, and for one of size 0; without dim, no elements give NaN.
    """
    return _middle(_Median, "median", input, dim, keepdim, False)


@overload
def nanmedian(input: Tensor, dim: None = None, keepdim: bool = False) -> Tensor: ...


@overload
def nanmedian(input: Tensor, dim: int, keepdim: bool = False) -> ValuesIndices: ...


@method
def nanmedian(input: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor | ValuesIndices:
    """The median of the elements that are not NaN; NaN where there are none. Along a dim: a named pair (values, indices). The arguments are those of median.

    TypeError for complex numbers. IndexError for a dim that is not there, and for one of size 0.
    """
    return _middle(_NanMedian, "nanmedian", input, dim, keepdim, True)


@method
def kthvalue(input: Tensor, k: int, dim: int = -1, keepdim: bool = False) -> ValuesIndices:
    """The k-th smallest element along a dim (the smallest is the first; NaN is the largest): a named pair (values, indices).

    input: of a real dtype. k: from 1 to the size of dim (RuntimeError otherwise). keepdim: the dim stays, with size 1.
    """
    dim = _dim_of("kthvalue", input, dim)
    n = input.shape[dim] if input.ndim else 1
    if not 1 <= k <= n:
        raise RuntimeError(f"kthvalue: k is out of range; got {k} for {n} elements; expected 1 to {n}")
    if input.ndim == 0:
        return _Kth(input.clone(), _C.zeros((), dtype=_C.int64, device=input.device))
    wide = input.detach()
    order = _C.topk(wide, k, dim, False)[1] if 8 * k < n and input.dtype != _C.bool_ else _C.sort(wide, dim)[1]
    return _picked(_Kth, input, order.narrow(dim, k - 1, 1), dim, keepdim)


@method
def mode(input: Tensor, dim: int = -1, keepdim: bool = False) -> ValuesIndices:
    """The most frequent element of input along a dim, the smallest of several, and the last place where it is: a named pair (values, indices).
    NaN equals nothing, itself included, and is the largest. keepdim: the dim stays, with size 1.
    IndexError for a dim out of range and for no elements; TypeError for complex."""
    dim = _dim_of("mode", input, dim)
    if input.ndim == 0:
        return _Mode(input.clone(), _C.zeros((), dtype=_C.int64, device=input.device))
    if input.shape[dim] == 0:
        raise IndexError(f"mode: no elements along the dim; got shape {tuple(input.shape)} and dim {dim}")
    ordered, order = _C.sort(input.detach().transpose(dim, -1).contiguous(), -1)
    begin = _C._searchsorted(ordered, ordered, False)  # of the elements that are equal to each; of NaN the number of all elements
    before = _C.clamp(_C.arange(ordered.shape[-1], device=input.device) - begin, min=0)
    best = _C.argmax(before, -1, keepdim=True)  # the last one of the largest group; of several groups, of the first
    at = _C.gather(order, -1, best)
    return _picked(_Mode, input, at.transpose(dim, -1), dim, keepdim)


# ---- quantiles

_INTERPOLATIONS = ("linear", "lower", "higher", "midpoint", "nearest")


def _quantile(op, input, q, dim, keepdim, interpolation, ignore_nan):
    if input.dtype not in (_C.float32, _C.float64):
        raise RuntimeError(f"{op}: not float32 or float64; got {input.dtype}")
    if interpolation not in _INTERPOLATIONS:
        raise RuntimeError(f"{op}: unknown interpolation; got '{interpolation}'; expected one of {', '.join(_INTERPOLATIONS)}")
    if input.numel() == 0:
        raise RuntimeError(f"{op}: no elements; got shape {tuple(input.shape)}")
    if isinstance(q, Tensor):
        if q.ndim > 1 or q.dtype != input.dtype:
            raise RuntimeError(f"{op}: q does not fit; got shape {tuple(q.shape)} of {q.dtype}; expected a number or a vector of {input.dtype}")
    else:
        q = _C.tensor(q, dtype=input.dtype, device=input.device)
    wrong = _C.logical_not(_C.logical_and(q >= 0, q <= 1))
    if q.numel() and wrong.any().item():
        raise RuntimeError(f"{op}: q is out of range; got {q.tolist()}; expected 0 <= q <= 1")
    at = None if dim is None else _dim_of(op, input, dim)
    lines = input.reshape(-1) if at is None or input.ndim == 0 else movedim(input, at, -1)
    result = _between(lines, q.reshape(-1), interpolation, ignore_nan)  # [.., number of q]
    result = movedim(result, -1, 0)
    if keepdim:
        shape = tuple(1 if at in (None, d) else n for d, n in enumerate(input.shape))
    else:
        shape = tuple(result.shape[1:])
    return result.reshape(*q.shape, *shape)


def _between(lines, q, interpolation, ignore_nan):
    """The quantiles of each line along the last dim."""
    ordered = _C.sort(lines, -1)[0] if lines.requires_grad else _C._sorted_values(lines, -1, False)
    ordered = ordered.contiguous()
    n = ordered.shape[-1]
    wide = (*ordered.shape[:-1], q.shape[0])
    if ignore_nan:
        count = _C.logical_not(_C.isnan(ordered)).sum(-1, keepdim=True)
        rank = q * _C.clamp(count - 1, min=0).to(q.dtype)
    else:
        rank = (q * (n - 1)).expand(*wide)
        rank = _C.where(_C.isnan(ordered.detach().narrow(-1, n - 1, 1)), float(n - 1), rank)
    if interpolation == "lower":
        rank = _C.floor(rank)
    elif interpolation == "higher":
        rank = _C.ceil(rank)
    elif interpolation == "nearest":
        rank = _C.round(rank)
    low = _C.floor(rank)
    below = _C.gather(ordered, -1, low.to(_C.int64))
    if interpolation not in ("linear", "midpoint"):
        return below
    above = _C.gather(ordered, -1, _C.ceil(rank).to(_C.int64))
    weight = rank - low if interpolation == "linear" else _C.where(rank == low, 0.0, 0.5).to(rank.dtype)
    # From the nearer end, and without inf - inf where both ends are the same.
    step = _C.where(below == above, 0.0, above - below)
    return _C.where(weight < 0.5, below + weight * step, above - (1 - weight) * step)


@method
def quantile(input: Tensor, q: Tensor | float | Sequence[float], dim: int | None = None, keepdim: bool = False, *, interpolation: str = "linear") -> Tensor:
    """The q-th quantile, of all or along a dim; q is a number or a vector, whose size is then in front. NaN where a line has one.

    input: float32 or float64. q: from 0 to 1; a vector has the input's dtype. keepdim: the dim stays, with size 1; all of them without dim.
    interpolation between two elements: linear, lower, higher, midpoint or nearest. q is read: a sync point. RuntimeError for other
    dtypes, a q out of range and another interpolation.
    """
    return _quantile("quantile", input, q, dim, keepdim, interpolation, False)


@method
def nanquantile(input: Tensor, q: Tensor | float | Sequence[float], dim: int | None = None, keepdim: bool = False, *, interpolation: str = "linear") -> Tensor:
    """The same as quantile of the elements that are not NaN. The arguments are those of quantile.

    RuntimeError for other dtypes than float32 and float64, for a q outside of 0 to 1 or of another dtype, for an unknown interpolation, and for no
    elements. IndexError for a dim that is not there.
    """
    return _quantile("nanquantile", input, q, dim, keepdim, interpolation, True)


# ---- search in sorted sequences, histograms


def searchsorted(sorted_sequence: Tensor, input: TensorLike, *, out_int32: bool = False, right: bool = False, side: str | None = None,
                 sorter: Tensor | None = None) -> Tensor:
    """Where values belong in a sorted sequence: how many of its elements are less (right, or side='right': less or equal), as int64.

    Shapes of sorted_sequence and input: a vector and any values, or [.., N] and [.., M]. input may be a number. sorter holds the indices that sort the sequence, int64
    of its shape; it need not be sorted then. out_int32: the result is int32. Two dtypes are promoted. TypeError for complex numbers; ArgumentError for rows that do not fit; RuntimeError for
    another side, and for right=True with side='left'.
    """
    if side not in (None, "left", "right") or (side == "left" and right):
        raise RuntimeError(f"searchsorted: side does not fit; got side={side!r} and right={right}; expected 'left' or 'right'")
    if not isinstance(input, Tensor):
        if isinstance(input, float) and not sorted_sequence.is_floating_point():
            sorted_sequence = sorted_sequence.double()
        input = _C.tensor(input, dtype=sorted_sequence.dtype, device=sorted_sequence.device)
    if sorter is not None:
        if sorter.shape != sorted_sequence.shape or sorter.dtype != _C.int64:
            raise RuntimeError(f"searchsorted: the sorter does not fit; got shape {tuple(sorter.shape)} of {sorter.dtype}; expected {tuple(sorted_sequence.shape)} of int64")
        sorted_sequence = _C.gather(sorted_sequence, -1, sorter)
    if input.dtype != sorted_sequence.dtype:
        dtype = _C.promote_types(sorted_sequence.dtype, input.dtype)
        sorted_sequence, input = sorted_sequence.to(dtype), input.to(dtype)
    found = _C._searchsorted(sorted_sequence, input, right or side == "right")
    return found.to(_C.int32) if out_int32 else found


def bucketize(input: TensorLike, boundaries: Tensor, *, out_int32: bool = False, right: bool = False) -> Tensor:
    """The bucket of each value: the number of sorted boundaries that are less (right: less or equal), as int64.

    input: a number or a tensor; boundaries: a vector. Two dtypes are promoted. out_int32: as int32 instead. The result has
    input's shape. TypeError for complex numbers; RuntimeError for boundaries that are not a vector."""
    if boundaries.ndim != 1:
        raise RuntimeError(f"bucketize: the boundaries are not a vector; got shape {tuple(boundaries.shape)}")
    with named("bucketize", "searchsorted"):
        return searchsorted(boundaries, input, out_int32=out_int32, right=right)


def _range_of(op, input, low, high, around):
    """The range of a histogram: that of the data where none is given, which is read. A range of one value is widened by `around`."""
    if low == high == 0 and input.numel() == 0:
        return 0, 1
    if low == high == 0:
        low, high = _C.stack([_C.amin(input), _C.amax(input)]).tolist()
    if low == high:
        low, high = low - around, high + around
    if not (abs(low) < float("inf") and abs(high) < float("inf")):
        raise RuntimeError(f"{op}: the range is not finite; got [{low}, {high}]")
    if low > high:
        raise RuntimeError(f"{op}: max is less than min; got [{low}, {high}]")
    return low, high


def _count(at, bins, weight, dtype):
    """How many elements, or which sum of weights, each of the bins has; `bins` is the bin of those outside."""
    zeros = _C.zeros(bins + 1, dtype=_C.int64 if weight is None else weight.dtype, device=at.device)
    counts = _C._scatter(zeros, 0, at, 1 if weight is None else weight.reshape(-1), 1, True)
    return counts.narrow(0, 0, bins).to(dtype)


@method
def histc(input: Tensor, bins: int = 100, min: float = 0, max: float = 0) -> Tensor:
    """How many elements are in each of `bins` equal parts of [min, max], of the dtype of input. Without a range, and with one of a single number, that of the data, which is read: a sync point.

    input: of any shape and an integer or floating dtype, TypeError otherwise; the result is [bins]. Elements outside of the range do not count. RuntimeError for bins < 1, max < min, and a range of data that is not finite.
    """
    if bins < 1:
        raise RuntimeError(f"histc: no bins; got {bins}; expected 1 or more")
    if input.dtype == _C.bool_ or input.is_complex():
        raise TypeError(f"histc: not real numbers; got {input.dtype}; expected a floating or an integer dtype")
    x = input.detach().reshape(-1)
    low, high = _range_of("histc", x, *((0, 0) if min == max else (min, max)), 1)
    inside = _C.logical_and(x >= low, x <= high)
    number = x if x.is_floating_point() else x.double()
    place = (number - low) * bins / (high - low)
    at = _C.clamp(_C.where(inside, place, 0).to(_C.int64), 0, bins - 1)
    return _count(_C.where(inside, at, bins), bins, None, input.dtype)


def _check_histogram(op, input, number, bins, weight):
    """The arguments of a histogram of this number of points, with one entry of bins for each dim."""
    if not input.is_floating_point():
        raise TypeError(f"{op}: not a floating dtype; got {input.dtype}; expected float32 or float64; hint: float()")
    for entry in bins:
        if not isinstance(entry, Tensor):
            if entry < 1:
                raise RuntimeError(f"{op}: no bins; got {entry}; expected 1 or more")
        elif entry.ndim != 1 or entry.shape[0] < 2 or entry.dtype != input.dtype:
            raise RuntimeError(f"{op}: the edges do not fit; got shape {tuple(entry.shape)} of {entry.dtype}; expected a vector of at least 2 of {input.dtype}")
        elif entry.device.type != "null" and not bool((entry.narrow(0, 1, entry.shape[0] - 1) >= entry.narrow(0, 0, entry.shape[0] - 1)).all()):
            raise _C.ArgumentError(f"{op}: the edges do not ascend; got {entry.tolist() if entry.shape[0] <= 8 else f'{entry.shape[0]} edges'}; expected each edge at least as large as the one before")
    if weight is not None and weight.numel() != number:
        raise RuntimeError(f"{op}: not one weight for each point; got {weight.numel()} for {number}; expected as many")


def _bin_of(x, edges):
    """The bin of each element; the last edge belongs to the last bin. Those outside get the number of bins."""
    bins = edges.shape[0] - 1
    at = _C._searchsorted(edges, x, True) - 1
    at = _C.where(x == edges.select(0, bins), bins - 1, at)
    return _C.where(_C.logical_and(at >= 0, at < bins), at, bins)


def _edges(op, bins, low, high, input):
    return _C.linspace(float(low), float(high), bins + 1, dtype=input.dtype, device=input.device)


@method
def histogram(input: Tensor, bins: Tensor | int, *, range: Sequence[float] | None = None, weight: Tensor | None = None, density: bool = False) -> Histogram:
    """How many elements, or which sum of weights, are in each bin: a named pair (hist, bin_edges). bins is a number of equal bins of a range
    (that of the data unless given, which is read), or a sorted vector of edges. density: the integral is 1.

    input: of any shape and a floating dtype, which hist and bin_edges have, too. Elements outside of the edges do not count. range: (lowest, highest).
    weight: of as many elements as the input has, what each counts.

    TypeError for other dtypes. RuntimeError for fewer than 1 bin, for edges that are no vector of at least 2 of the dtype of input, for a range that is
    not finite or whose highest number is the lower one, and for another number of weights. ValueError for edges that do not ascend: they are read, a sync
    point.
    """
    x = input.detach().reshape(-1)
    _check_histogram("histogram", x, x.shape[0], (bins,), weight)
    if isinstance(bins, int):
        edges = _edges("histogram", bins, *_range_of("histogram", x, *(range or (0, 0)), 0.5), x)
    else:
        edges = bins
    hist = _count(_bin_of(x, edges), edges.shape[0] - 1, weight, input.dtype)
    if density:
        hist = hist / hist.sum() / (edges.narrow(0, 1, edges.shape[0] - 1) - edges.narrow(0, 0, edges.shape[0] - 1))
    return _Histogram(hist, edges)


def histogramdd(input: Tensor, bins: int | Sequence[Tensor | int], *, range: Sequence[float] | None = None, weight: Tensor | None = None,
                density: bool = False) -> HistogramOfPoints:
    """histogram of points [.., D] in D dims: a named pair (hist, bin_edges); bins is a number, one for each dim, or edges for each dim.

    input: the points, of a floating dtype. range: the lowest and the highest of each dim one after the other, 2 D numbers; that of the data unless given, which is read.
    weight: what each point counts. density: the integral over all dims is 1.

    TypeError for other dtypes. RuntimeError for an input without dims, for fewer than 1 bin, where bins or range do not fit D, and for another number of
    weights. ValueError for edges that do not ascend.
    """
    if input.ndim < 2:
        raise RuntimeError(f"histogramdd: no points; got shape {tuple(input.shape)}; expected [.., D]")
    points = input.detach().reshape(-1, input.shape[-1])
    dims = points.shape[1]
    bins = [bins] * dims if isinstance(bins, int) else list(bins)
    if len(bins) != dims:
        raise RuntimeError(f"histogramdd: not one entry of bins for each dim; got {len(bins)} for {dims} dims")
    _check_histogram("histogramdd", points, points.shape[0], bins, weight)
    if range is not None and len(range) != 2 * dims:
        raise RuntimeError(f"histogramdd: the range does not fit; got {len(range)} numbers; expected the lowest and the highest of each of {dims} dims")
    edges = []
    for d, n in enumerate(bins):
        column = points.select(1, d).contiguous()
        low_high = (0, 0) if range is None else range[2 * d:2 * d + 2]
        edges.append(_edges("histogramdd", n, *_range_of("histogramdd", column, *low_high, 0.5), column) if isinstance(n, int) else n)
    at, outside, total = None, None, 1
    for d, e in enumerate(edges):
        size = e.shape[0] - 1
        here = _bin_of(points.select(1, d).contiguous(), e)
        out = here == size
        outside = out if outside is None else _C.logical_or(outside, out)
        at = here if at is None else at * size + here
        total *= size
    hist = _count(_C.where(outside, total, at), total, weight, input.dtype).reshape(*[e.shape[0] - 1 for e in edges])
    if density:
        hist = hist / hist.sum()
        for d, e in enumerate(edges):
            width = e.narrow(0, 1, e.shape[0] - 1) - e.narrow(0, 0, e.shape[0] - 1)
            hist = hist / width.reshape(*[-1 if k == d else 1 for k in builtins.range(dims)])
    return _Histogram(hist, tuple(edges))


# ---- sampling and norms of slices


@method
def multinomial(input: Tensor, num_samples: int, replacement: bool = False, *, generator: Generator | None = None) -> Tensor:
    """Indices drawn with probabilities in proportion to the weights of a row: [N] or [rows, N] -> [num_samples] or [rows, num_samples], int64.

    input: the weights, of a floating dtype; they need not sum to 1. replacement: an index may be drawn again; without it, num_samples is at most N.
    The weights are checked: a sync point. RuntimeError for a negative weight, inf, NaN, or a row that sums to 0.
    """
    if not input.is_floating_point() or input.ndim not in (1, 2):
        raise RuntimeError(f"multinomial: not rows of weights; got shape {tuple(input.shape)} of {input.dtype}; expected floats, one or two dims")
    n = input.shape[-1]
    if num_samples < 1 or (not replacement and num_samples > n):
        raise RuntimeError(f"multinomial: a wrong number of samples; got {num_samples} of {n}; expected 1 or more, at most {n} without replacement")
    weights = input.detach().double()
    totals = weights.sum(-1)
    fine = _C.logical_and((weights >= 0).all(), _C.logical_and(totals > 0, totals < float("inf")).all())
    if input.numel() and not fine.item():
        raise RuntimeError("multinomial: a weight is negative, inf or NaN, or a row sums to 0; expected finite weights >= 0 and a positive sum")
    with drawing_from(generator):
        if replacement:
            upper = _C.cumsum(weights, -1)
            where = _C.rand(*input.shape[:-1], num_samples, dtype=_C.float64, device=input.device) * totals.unsqueeze(-1)
            return _C.clamp(_C._searchsorted(upper, where, True), max=n - 1)
        # The first of n clocks that ring at these rates.
        clocks = _C.log(1 - _C.rand(*input.shape, dtype=_C.float64, device=input.device))
        rings = _C.where(weights > 0, clocks / weights, float("-inf"))
    if num_samples == 1:
        return _C.argmax(rings, -1, keepdim=True)
    return _C.topk(rings, num_samples)[1]


@method
def renorm(input: Tensor, p: float, dim: int, maxnorm: float) -> Tensor:
    """The slices of input along dim with a p-norm of at most maxnorm: longer ones are scaled. RuntimeError for fewer than two dims, and unless p > 0 and maxnorm >= 0."""
    dim = _dim_of("renorm", input, dim)
    others = tuple(d for d in builtins.range(input.ndim) if d != dim)
    if not others:
        raise RuntimeError(f"renorm: fewer than two dims; got shape {tuple(input.shape)}")
    if p <= 0 or maxnorm < 0:
        raise RuntimeError(f"renorm: not a norm; got p={p} and maxnorm={maxnorm}; expected p > 0 and maxnorm >= 0")
    norms = power_sum(input, p, others, True)
    return input * _C.where(norms > maxnorm, maxnorm / (norms + 1e-7), 1.0).to(input.dtype)
