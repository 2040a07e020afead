"""Look-ups in tables of vectors with all of their options, and sums over bags of them. nn.functional has their names."""
from __future__ import annotations

from .. import _C
from .._error_names import rename
from ..autograd import Function
from .._grad_mode import no_grad

TYPE_CHECKING = False  # type checkers take this name as true
if TYPE_CHECKING:
    from typing import Literal

    from .._C import Tensor


class _ScaledGradient(Function):
    """The input, whose gradient is multiplied by factors."""

    @staticmethod
    def forward(ctx, x, factors):
        ctx.save_for_backward(factors)
        return x

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.saved_tensors[0], None


def _counts(index, rows, dtype):
    """How often each row of the table is looked up."""
    return _C.zeros(rows, dtype=dtype, device=index.device).scatter_add(0, index, _C.ones(index.shape, dtype=dtype, device=index.device))


def _limit_norms(index, weight, max_norm, norm_type):
    """Rows that are looked up and longer than max_norm get that norm, in place."""
    with no_grad():
        table = weight.detach()
        norms = table.norm(norm_type, 1, True)
        used = _counts(index, table.shape[0], table.dtype).unsqueeze(1) > 0
        table.copy_(_C.where(_C.logical_and(used, norms > max_norm), table * (max_norm / (norms + 1e-7)), table))


def _by_frequency(rows, index, table):
    """The rows, whose gradients are divided by how often each was looked up."""
    times = _counts(index, table.shape[0], table.dtype).index_select(0, index)
    return _ScaledGradient.apply(rows, (1 / times).unsqueeze(1))


def _flat(index):
    return index.reshape(-1).to(_C.int64)


def embedding(input: Tensor, weight: Tensor, padding_idx: int | None = None, max_norm: float | None = None, norm_type: float = 2.0,
              scale_grad_by_freq: bool = False, sparse: bool = False) -> Tensor:
    """Rows of a table [V, D] by integer index: [..] -> [.., D]. The row padding_idx gets no gradient. max_norm shortens the rows that are looked up to that
    norm, in place. scale_grad_by_freq divides gradients by how often the row was looked up. sparse: the gradient is dense all the same.

    input: the indices. weight: the table. norm_type: the p of max_norm's norm.

    Raises TypeError for indices that are not int64 or int32; ValueError for a weight that is no matrix; IndexError for a
    padding_idx that is no row, and for an index below 0 or beyond the rows, at the latest when the result is computed.
    """
    if max_norm is not None:
        try:
            _limit_norms(_flat(input), weight, max_norm, norm_type)
        except Exception as error:
            rename("embedding", error, (input, weight, max_norm, norm_type))
            raise
    rows = _C.embedding(input, weight, padding_idx)
    if not scale_grad_by_freq:
        return rows
    return _by_frequency(rows.reshape(-1, rows.shape[-1]), _flat(input), weight).reshape(rows.shape)


def _bags(offsets, count):
    """Of each of `count` elements the number of its bag."""
    return _C.cumsum(_counts(offsets, count + 1, _C.int64), 0).narrow(0, 0, count) - 1


def _check_bag(input, weight, offsets, mode, per_sample_weights, include_last_offset):
    op = "embedding_bag"
    if mode not in ("sum", "mean", "max"):
        raise ValueError(f"{op}: unknown mode; got '{mode}'; expected 'sum', 'mean' or 'max'")
    for name, indices in (("input", input), ("offsets", offsets)):
        if indices is not None and indices.dtype not in (_C.int64, _C.int32):
            raise TypeError(f"{op}: {name} has the wrong dtype; got {str(indices.dtype).rpartition('.')[2]}; expected int64 or int32")
    if input.ndim == 2 and offsets is not None:
        raise ValueError(f"{op}: offsets with an input of 2 dimensions; expected None, because each row is a bag")
    if input.ndim == 1 and (offsets is None or offsets.ndim != 1):
        raise ValueError(f"{op}: an input of 1 dimension needs offsets of 1 dimension; got {None if offsets is None else tuple(offsets.shape)}")
    if input.ndim not in (1, 2):
        raise ValueError(f"{op}: the input has {input.ndim} dimensions; expected 1 or 2")
    if include_last_offset and offsets is not None and offsets.shape[0] < 1:
        raise ValueError(f"{op}: include_last_offset needs at least one offset; got none")
    if per_sample_weights is not None:
        if mode != "sum":
            raise NotImplementedError(f"{op}: per_sample_weights need mode 'sum'; got '{mode}'")
        if tuple(per_sample_weights.shape) != tuple(input.shape):
            raise ValueError(f"{op}: per_sample_weights do not fit; got shape {tuple(per_sample_weights.shape)}; expected {tuple(input.shape)}")


def embedding_bag(input: Tensor, weight: Tensor, offsets: Tensor | None = None, max_norm: float | None = None, norm_type: float = 2,
                  scale_grad_by_freq: bool = False, mode: Literal["sum", "mean", "max"] = "mean", sparse: bool = False,
                  per_sample_weights: Tensor | None = None, include_last_offset: bool = False, padding_idx: int | None = None) -> Tensor:
    """The sum, mean or maximum of the rows of each bag: bags [B, N] of indices, or all indices [n] with the offsets [B] at which bags begin -> [B, D]. Empty
    bags give 0. With include_last_offset, the last offset says where the last bag ends. Indices equal to padding_idx do not count. per_sample_weights of the
    input's shape multiply the rows, for mode 'sum'. max_norm, norm_type, scale_grad_by_freq and sparse as for embedding.

    weight: the table [V, D] of a floating dtype, which the result has; Indices and offsets are int64 or int32. TypeError for other dtypes. ValueError for another mode and for
    offsets, per_sample_weights or a padding_idx that do not fit; NotImplementedError for per_sample_weights with another mode than 'sum'. IndexError when
    the result is read for indices and offsets out of range.
    """
    _check_bag(input, weight, offsets, mode, per_sample_weights, include_last_offset)
    index = _flat(input)
    if padding_idx is not None and not -weight.shape[0] <= padding_idx < weight.shape[0]:
        raise ValueError(f"embedding_bag: padding_idx is out of range; got {padding_idx} for {weight.shape[0]} rows")
    padding = None if padding_idx is None else padding_idx % weight.shape[0]
    if max_norm is not None:
        _limit_norms(index, weight, max_norm, norm_type)
    if mode != "max" and not scale_grad_by_freq and per_sample_weights is None and padding is None:
        return _sums_of_bags(input, index, weight, offsets, mode, include_last_offset)
    rows = _C.embedding(index, weight, padding)
    if scale_grad_by_freq:
        rows = _by_frequency(rows, index, weight)
    if per_sample_weights is not None:
        rows = rows * per_sample_weights.reshape(-1, 1)
    counted = None if padding is None else (index != padding)
    if input.ndim == 2:
        return _of_rows(rows.reshape(*input.shape, weight.shape[1]), None if counted is None else counted.reshape(input.shape), mode)
    starts = offsets.to(_C.int64)
    bags = starts.shape[0] - bool(include_last_offset)
    if mode == "max":
        return _largest(rows, counted, starts.tolist() + ([] if include_last_offset else [index.shape[0]]))
    with_rest = _sums(rows, counted, _bags(starts, index.shape[0]), starts.shape[0], mode)  # the rest is what is behind the last offset
    return with_rest.narrow(0, 0, bags)


def _sums_of_bags(input, index, weight, offsets, mode, include_last_offset):
    """Sums or means by the op for them, which writes no rows."""
    if input.ndim == 2:
        bags, each = input.shape
        starts = _C.arange(bags, dtype=_C.int64, device=input.device) * each
        total = _C._embedding_bag(index, weight, starts)
        return total / max(each, 1) if mode == "mean" else total
    starts = offsets.to(_C.int64)
    bags = starts.shape[0] - bool(include_last_offset)
    total = _C._embedding_bag(index, weight, starts).narrow(0, 0, bags)
    if mode == "sum" or bags == 0:
        return total
    count = _C.full((1,), index.shape[0], dtype=_C.int64, device=index.device)
    ends = _C.cat([starts.narrow(0, 1, starts.shape[0] - 1), count])
    return total / _C.clamp(ends - starts, min=1).narrow(0, 0, bags).unsqueeze(1).to(total.dtype)


def _of_rows(rows, counted, mode):
    """rows [B, N, D], counted [B, N] or None."""
    if rows.shape[1] == 0:
        return rows.sum(1)
    if mode == "max":
        return _max_of(rows, counted)
    if counted is None:
        return rows.sum(1) if mode == "sum" else rows.sum(1) / rows.shape[1]
    total = (rows * counted.unsqueeze(2).to(rows.dtype)).sum(1)
    return total if mode == "sum" else total / _C.clamp(counted.sum(1, keepdim=True), min=1).to(rows.dtype)


def _max_of(rows, counted):
    """The maxima over dim 1; 0 where nothing counts. Each gradient goes to the first maximum."""
    if counted is None:
        return rows.gather(1, rows.detach().argmax(1).unsqueeze(1)).squeeze(1)
    hidden = rows.masked_fill(_C.logical_not(counted).unsqueeze(2), float("-inf"))
    best = hidden.gather(1, hidden.detach().argmax(1).unsqueeze(1)).squeeze(1)
    return _C.where(counted.any(1).unsqueeze(1), best, _C.zeros((), dtype=best.dtype, device=best.device))


def _sums(rows, counted, bag, bags, mode):
    if counted is not None:
        rows = rows * counted.unsqueeze(1).to(rows.dtype)
    total = _C.zeros(bags, rows.shape[1], dtype=rows.dtype, device=rows.device).index_add(0, bag, rows)
    if mode == "sum":
        return total
    ones = _C.ones(bag.shape, dtype=rows.dtype, device=rows.device) if counted is None else counted.to(rows.dtype)
    return total / _C.clamp(_C.zeros(bags, dtype=rows.dtype, device=rows.device).scatter_add(0, bag, ones), min=1).unsqueeze(1)


def _largest(rows, counted, bounds):
    """Maxima of bags of any length: as a table of as many columns as the longest has. bounds: where each bag begins, and where the last one ends."""
    import numpy as np

    bounds = np.asarray(bounds, np.int64)
    begins, lengths = bounds[:-1], np.diff(bounds)
    bags = len(lengths)
    longest = int(lengths.max()) if bags else 0
    if longest == 0:
        return _C.zeros(bags, rows.shape[1], dtype=rows.dtype, device=rows.device) + rows.sum() * 0
    columns = np.arange(longest)
    inside = columns < lengths[:, None]
    at = _C.tensor(np.where(inside, begins[:, None] + columns, 0).reshape(-1), device=rows.device)
    there = _C.tensor(inside, device=rows.device)
    if counted is not None:
        there = _C.logical_and(there, counted.index_select(0, at).reshape(bags, longest))
    return _max_of(rows.index_select(0, at).reshape(bags, longest, rows.shape[1]), there)
