"""Reductions and statistics that are composed of others."""
from __future__ import annotations

import collections
import math

from . import _C
from ._error_names import check_dim
from ._keywords import write_out
from ._public import floating, method
from .linalg._norms import matrix_norm, power_sum

TYPE_CHECKING = False  # type checkers take this name as true
if TYPE_CHECKING:
    from ._C import Tensor
    from ._annotations import DType, Dim
    from ._named_tuples import MinMax

__all__ = ["aminmax", "cdist", "corrcoef", "count_nonzero", "cov", "cumulative_trapezoid", "diff", "dist", "nanmean", "nansum", "norm", "pdist", "trapezoid", "trapz"]

_MinMax = collections.namedtuple("aminmax", ["min", "max"])


@method
def aminmax(input: Tensor, *, dim: int | None = None, keepdim: bool = False) -> MinMax:
    """The smallest and the largest element, of all or along a dim, as a named tuple (min, max). NaN wins.

    input: of a real dtype, which both have. TypeError for complex; IndexError for a dim out of range and for no elements.
    """
    dims = () if dim is None else (dim,)
    return _MinMax(_C.amin(input, *dims, keepdim=keepdim), _C.amax(input, *dims, keepdim=keepdim))


@method
def count_nonzero(input: Tensor, dim: Dim | None = None) -> Tensor:
    """The number of elements that are not zero, of all or along one dim or several, as int64.

    input: of any shape and dtype. IndexError for a dim out of range.
    """
    nonzero = input if input.dtype == _C.bool_ else input != 0
    return nonzero.sum() if dim is None else nonzero.sum(dim)


@method
def nansum(input: Tensor, dim: Dim | None = None, keepdim: bool = False, *, dtype: DType | None = None) -> Tensor:
    """The sum in which NaN counts as 0.

    input: of any dtype; it is cast to dtype, if given, before it is summed. dim: a number or several; None: all. keepdim: the dims stay, with size 1.

    IndexError for a dim that is not there, ValueError for one that appears twice, TypeError for what is no dtype.
    """
    if input.is_floating_point() or input.is_complex():
        input = _C.where(_C.isnan(input), 0.0, input)
    return _C.sum(input, dim, keepdim, dtype=dtype)


@method
def nanmean(input: Tensor, dim: Dim | None = None, keepdim: bool = False, *, dtype: DType | None = None) -> Tensor:
    """The mean of the elements that are not NaN; NaN where there are none. The arguments are those of nansum.

    IndexError for a dim that is not there, ValueError for one that appears twice.
    """
    count = _C.logical_not(_C.isnan(input)).sum(dim, keepdim)
    return nansum(input, dim, keepdim, dtype=dtype) / count


@method
def diff(input: Tensor, n: int = 1, dim: int = -1, prepend: Tensor | None = None, append: Tensor | None = None) -> Tensor:
    """The differences of neighbours along a dim, taken n times: x[i + 1] - x[i]; of bool whether they differ. prepend and append are joined to the input first.

    The result has n elements less along dim, at least 0, and the dtype of all that is joined. RuntimeError for n < 0 and for a single number; IndexError for
    a dim out of range.
    """
    if not input.ndim:
        raise RuntimeError("diff: a single number has no neighbours; got shape (); expected at least one dim")
    check_dim("diff", dim, input.ndim)
    if n < 0:
        raise RuntimeError(f"diff: a negative order; got {n}; expected 0 or more")
    if n == 0:
        return input.clone()
    if prepend is not None or append is not None:
        input = _C.cat([t for t in (prepend, input, append) if t is not None], dim)
    for _ in range(min(n, input.shape[dim])):
        size = input.shape[dim] - 1
        later, earlier = input.narrow(dim, 1, size), input.narrow(dim, 0, size)
        input = _C.ne(later, earlier) if input.dtype == _C.bool_ else later - earlier
    return input


def _areas(op, y, x, dx, dim):
    """The areas between neighbours, and the dim along which they lie."""
    if not y.ndim:
        raise RuntimeError(f"{op}: a single number has no neighbours; got shape (); expected at least one dim")
    check_dim(op, dim, y.ndim)
    n = y.shape[dim]
    left, right = y.narrow(dim, 0, max(n - 1, 0)), y.narrow(dim, 1 if n else 0, max(n - 1, 0))
    if x is None:
        return (left + right) * (dx / 2)
    if x.ndim == 1 and y.ndim > 1:
        x = x.reshape(*[-1 if d == dim % y.ndim else 1 for d in range(y.ndim)])
    return (left + right) * diff(x, dim=dim if x.ndim == y.ndim else -1) / 2


def trapezoid(y: Tensor, x: Tensor | None = None, *, dx: Tensor | float | None = None, dim: int = -1) -> Tensor:
    """The integral of y along a dim by the trapezoidal rule: the sum of (y[i] + y[i + 1]) / 2 times the distance of both points.

    y: of any shape; the result has no dim. Integers become float32. x: the places, a vector or of the shape of y. dx: their distance, default 1; it does not
    count where there is an x. RuntimeError for a single number; IndexError for a dim out of range.
    """
    return _areas("trapezoid", y, x, 1 if dx is None else dx, dim).sum(dim)


trapz = trapezoid


def cumulative_trapezoid(y: Tensor, x: Tensor | None = None, *, dx: Tensor | float | None = None, dim: int = -1) -> Tensor:
    """The integrals along a dim up to each point, by the trapezoidal rule. The result has one element less along dim.

    y: the values. x: their places, a vector or of the shape of y; dx: the distance of neighbours where there is no x, 1 unless given.
    RuntimeError for a single number; IndexError for a dim out of range.
    """
    return _C.cumsum(_areas("cumulative_trapezoid", y, x, 1 if dx is None else dx, dim), dim)


def cdist(x1: Tensor, x2: Tensor, p: float = 2.0, compute_mode: str | None = None) -> Tensor:
    """The distances of all pairs of rows in the p-norm: [.., P, M], [.., R, M] -> [.., P, R]. Euclidean distances of more than 25 rows
    are computed by a matrix product, unless compute_mode forbids it.

    x1, x2: rows of one length M; the dims in front broadcast. p: 0 or more; inf is the largest difference, 0 counts those that are not 0. compute_mode:
    'use_mm_for_euclid_dist' for products always, 'donot_use_mm_for_euclid_dist' for never.

    The dtypes promote; integers become the default dtype. RuntimeError for rows of two lengths, for fewer than 2 dims, and for a negative p. ValueError
    where the dims in front do not broadcast, and for another compute_mode.
    """
    if compute_mode not in (None, "use_mm_for_euclid_dist_if_necessary", "use_mm_for_euclid_dist", "donot_use_mm_for_euclid_dist"):
        raise ValueError(f"cdist: no such compute_mode; got {compute_mode!r}; expected 'use_mm_for_euclid_dist_if_necessary', 'use_mm_for_euclid_dist' or 'donot_use_mm_for_euclid_dist'")
    if x1.ndim < 2 or x2.ndim < 2 or x1.shape[-1] != x2.shape[-1]:
        raise RuntimeError(f"cdist: no rows of one length; got shapes {tuple(x1.shape)} and {tuple(x2.shape)}; expected [.., P, M] and [.., R, M]")
    if p < 0:
        raise RuntimeError(f"cdist: a negative norm; got {p}; expected p >= 0")
    if 0 in (*x1.shape, *x2.shape):
        rows = _C.broadcast_tensors(0.0 * x1.sum(-1).unsqueeze(-1), 0.0 * x2.sum(-1).unsqueeze(-2))
        return rows[0] + rows[1]
    if p == 2 and compute_mode != "donot_use_mm_for_euclid_dist" and (compute_mode == "use_mm_for_euclid_dist" or max(x1.shape[-2], x2.shape[-2]) > 25):
        return _distances_by_product(x1, x2)
    return power_sum(x1.unsqueeze(-2) - x2.unsqueeze(-3), p, (-1,), False)


def _distances_by_product(x1, x2):
    """|a - b| by |a|^2 + |b|^2 - 2 a b, of centred rows, because differences of large numbers lose digits."""
    centre = x1.detach().reshape(-1, x1.shape[-1]).mean(0)
    x1, x2 = x1 - centre, x2 - centre
    squares = (x1 * x1).sum(-1).unsqueeze(-1) + (x2 * x2).sum(-1).unsqueeze(-2) - 2 * _C.matmul(x1, x2.mT)
    zero = squares <= 0
    return _C.where(zero, 0.0, _C.sqrt(_C.where(zero, 1.0, squares)))


def pdist(input: Tensor, p: float = 2.0) -> Tensor:
    """The distances of all pairs of rows i < j in the p-norm: [N, M] -> [N (N - 1) / 2].

    input: of any dtype; integers become float32. Raises RuntimeError for what is no matrix and for a negative p; TypeError for what is
    no tensor, and a p that is no number.
    """
    if not isinstance(input, _C.Tensor):
        raise TypeError(f"pdist: not a tensor; got {type(input).__name__}; expected a tensor [N, M]")
    if isinstance(p, (str, bytes)) or not hasattr(p, "__float__"):
        raise TypeError(f"pdist: p is not a number; got {p!r}; expected a number, 0 or more")
    if input.ndim != 2:
        raise RuntimeError(f"pdist: not a matrix; got shape {tuple(input.shape)}; expected [N, M]")
    if p < 0:
        raise RuntimeError(f"pdist: a negative norm; got {p}; expected p >= 0")
    if p == 2 and input.is_floating_point():
        return _C._pdist(input)
    from ._shapes import triu_indices

    n = input.shape[0]
    pairs = triu_indices(n, n, 1, device=input.device)
    return power_sum(input.index_select(0, pairs[0]) - input.index_select(0, pairs[1]), p, (1,), False)


@method
def dist(input: Tensor, other: Tensor, p: float = 2) -> Tensor:
    """The p-norm of input - other, of all elements: (sum |input - other|^p)^(1/p), a scalar.

    input, other: tensors that broadcast, an ArgumentError otherwise; integers become float32. p: a number, also infinity.
    """
    return power_sum(input - other, p, tuple(range(max(input.ndim, other.ndim))), False)


def _check_weights(name, weights, integers, number):
    """The weights of cov: one for each observation, none negative or NaN. They are read."""
    if weights.ndim > 1 or weights.numel() != number:
        raise RuntimeError(f"cov: {name} is not a vector with a weight for each observation; got shape {tuple(weights.shape)}; expected ({number},)")
    if weights.is_complex() or weights.dtype == _C.bool_ or weights.is_floating_point() == integers:
        raise RuntimeError(f"cov: wrong dtype of {name}; got {weights.dtype}; expected {'integers' if integers else 'a floating dtype'}")
    if not (weights >= 0).all().item():
        raise RuntimeError(f"cov: a negative weight; got {name} = {weights.tolist()}; expected 0 or more")


@method
def cov(input: Tensor, *, correction: float = 1, fweights: Tensor | None = None, aweights: Tensor | None = None) -> Tensor:
    """The covariance of variables: rows are variables, columns observations. fweights: how often each was seen; aweights: how much each counts;
    both are read.

    input: a matrix, or a vector of one variable. Without weights the sums of products are divided by the number of observations minus correction.

    RuntimeError for more than two dims, and for weights that are negative, of another length, or of a wrong dtype: fweights are integers, aweights
    floating.
    """
    if input.ndim > 2:
        raise RuntimeError(f"cov: more than two dims; got shape {tuple(input.shape)}; expected [variables, observations]")
    x = floating(input).reshape(1, -1) if input.ndim < 2 else floating(input)
    for name, weights, integers in (("fweights", fweights, True), ("aweights", aweights, False)):
        if weights is not None:
            _check_weights(name, weights, integers, x.shape[1])
    weights = fweights
    if aweights is not None:
        weights = aweights if weights is None else weights * aweights
    if weights is None:
        total, centred = x.shape[1], x - x.mean(1, keepdim=True)
        scaled, norm = centred, max(total - correction, 0)
    else:
        total = weights.sum()
        if total.item() == 0:
            raise RuntimeError("cov: the weights sum to zero; expected a sum that is not")
        centred = x - (x * weights).sum(1, keepdim=True) / total
        scaled = centred * weights
        loss = correction if aweights is None else correction * (weights * aweights).sum() / total
        norm = _C.clamp(total - loss, min=0)
    result = _C.matmul(scaled, centred.transpose(0, 1).conj()) / norm
    return result.reshape(()) if x.shape[0] == 1 else result


@method
def corrcoef(input: Tensor) -> Tensor:
    """The correlation coefficients of variables: rows are variables, columns observations: [N, K] -> [N, N], [K] -> a scalar.

    Element i, j is cov(i, j) / sqrt(cov(i, i) cov(j, j)). Floating or complex; integers become float32. NaN for a variable without variance. RuntimeError for more than 2 dims.
    """
    c = cov(input)
    if c.ndim == 0:
        return c / c
    deviation = _C.sqrt(c.diagonal().real)
    ratio = c / deviation.unsqueeze(0) / deviation.unsqueeze(1)
    return _C.complex(_C.clamp(ratio.real, -1, 1), _C.clamp(ratio.imag, -1, 1)) if ratio.is_complex() else _C.clamp(ratio, -1, 1)


_norm_of_all = _C.norm


@method
def norm(input: Tensor, p: float | str | None = "fro", dim: Dim | None = None, keepdim: bool = False, out: Tensor | None = None,
         dtype: DType | None = None) -> Tensor:
    """The p-norm over dims (of all elements without dim): (sum of |x|^p)^(1/p); inf and -inf are the largest and the smallest |x|, 0 counts.

    'fro' is the 2-norm; 'nuc' is the sum of the singular values of the matrices in two dims. Floating dtypes.
    input: of a floating or complex dtype; it is cast to dtype first. keepdim: the dims stay, with size 1.

    TypeError for integers and bools without a dtype, and for another name. IndexError for a dim that is not there, ValueError for one that appears twice,
    RuntimeError for 'nuc' of fewer than 2 dims, and for a negative p of no elements.
    """
    if out is not None:
        return write_out("norm", norm(input, p, dim, keepdim, dtype=dtype), out)
    if dtype is not None:
        input = input.to(dtype)
    if p == "nuc":
        return matrix_norm(input, "nuc", (-2, -1) if dim is None else dim, keepdim)
    p = 2 if p in ("fro", None) else p
    if dim is None and not keepdim and p == 2:
        return _norm_of_all(input)
    dims = tuple(range(input.ndim)) if dim is None else (dim,) if isinstance(dim, int) else tuple(dim) or tuple(range(input.ndim))
    if p < 0 and input.ndim and any(-input.ndim <= d < input.ndim and input.shape[d] == 0 for d in dims):
        raise _C.ArgumentError(f"norm: no elements; got shape {tuple(input.shape)} and p={p}; expected elements for a negative p")
    return power_sum(input, p, dims, keepdim)
