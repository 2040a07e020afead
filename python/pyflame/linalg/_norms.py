"""Norms of vectors and matrices."""
from __future__ import annotations

import math

from .. import _C
from .._error_names import check_dim
from .._keywords import accepting
from ._common import raise_for

TYPE_CHECKING = False  # type checkers take this name as true
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Literal

    from .._C import Tensor
    from .._annotations import DType, Dim


def _floating(op, x):
    raise_for(op, not x.is_floating_point() and not x.is_complex(), f"the dtype is not floating or complex; got {x.dtype}")


def _cast(op, x, dtype):
    """x in the dtype that the caller asks for: a floating or complex one, and complex for complex x."""
    if dtype is None:
        return x
    y = _C.empty(0, dtype=dtype, device=x.device)
    raise_for(op, not y.is_floating_point() and not y.is_complex(), f"the dtype is not floating or complex; got dtype={y.dtype}")
    raise_for(op, x.is_complex() and not y.is_complex(), f"a complex tensor does not fit the dtype; got dtype={y.dtype} for {x.dtype}; expected a complex dtype")
    return x.to(y.dtype)


def count(x):
    """1 where x is not zero, in its dtype; the gradient is zero."""
    return _C.where(x != 0, 1.0, _C.where(x == 0, 0.0, x))


def _largest(x, dim, keepdim=False):
    return _C.amax(x, dim, keepdim) if x.shape[dim] else x.sum(dim, keepdim)  # no elements: 0


def power_sum(x, p, dims, keepdim):
    """(sum of |x|^p)^(1/p) over dims, with a gradient of 0 where the norm is 0."""
    size = _C.abs(x)
    if p == math.inf:
        return _C.amax(size, dims, keepdim)
    if p == -math.inf:
        return _C.amin(size, dims, keepdim)
    if p == 0:
        return count(size).sum(dims, keepdim)
    if p == 1:
        return size.sum(dims, keepdim)
    if p == 2:
        squares = ((x * x.conj()).real if x.is_complex() else x * x).sum(dims, keepdim)
        zero = squares == 0
        return _C.where(zero, 0.0, _C.sqrt(_C.where(zero, 1.0, squares)))
    if p < 1:  # a slope at 0 that is infinite counts as 0
        powers = _C.where(x == 0, 0.0 if p > 0 else math.inf, _C.pow(_C.where(x == 0, 1.0, size), p)).sum(dims, keepdim)
    else:
        powers = _C.pow(size, p).sum(dims, keepdim)
    none = powers == (0.0 if p > 0 else math.inf)
    return _C.where(none, 0.0, _C.pow(_C.where(none, 1.0, powers), 1 / p))


def _dims(x, dim):
    if dim is None or (not isinstance(dim, int) and not len(dim)):
        return tuple(range(x.ndim))
    dims = (dim,) if isinstance(dim, int) else tuple(dim)
    for d in dims:
        check_dim("linalg.vector_norm", d, x.ndim)
    return dims


@accepting
def vector_norm(x: Tensor, ord: float = 2, dim: Dim | None = None, keepdim: bool = False, *, dtype: DType | None = None) -> Tensor:
    """(sum of |x|^ord)^(1/ord) over dims, or of all elements; inf and -inf are the largest and the smallest |x|, 0 counts what is not zero.

    x: floating or complex. dim: a number or a tuple; keepdim: these dims stay, with size 1. dtype: what x is cast to first.

    The result has x's dtype, or the real one of a complex dtype. RuntimeError for other dtypes of x and for a dtype that cannot hold it, for an ord that is
    text, and for inf and a negative ord of no elements; IndexError for a dim out of range.
    """
    _floating("linalg.vector_norm", x)
    raise_for("linalg.vector_norm", isinstance(ord, str), f"the order is not a number; got {ord!r}; hint: use linalg.norm or linalg.matrix_norm")
    x = _cast("linalg.vector_norm", x, dtype)
    dims = _dims(x, dim)
    empty = x.ndim and any(x.shape[d] == 0 for d in dims)
    raise_for("linalg.vector_norm", empty and (ord < 0 or ord == math.inf),
              f"cannot compute the {ord} norm of an empty tensor, because that has no identity; got shape {tuple(x.shape)}")
    if not dims:
        return x.abs() if ord != 0 else count(x.abs())
    return power_sum(x, ord, dims, keepdim)


def _check_order(ord, dims):
    known = ("fro", "nuc") if isinstance(ord, str) else (2, -2, 1, -1, math.inf, -math.inf)
    raise_for("linalg.matrix_norm", ord not in known, f"no such order; got {ord!r}; expected 'fro', 'nuc', 1, -1, 2, -2, inf or -inf")
    raise_for("linalg.matrix_norm", len(dims) != 2, f"dim must be a 2-tuple; got {dims}")


@accepting
def matrix_norm(A: Tensor, ord: float | Literal["fro", "nuc"] = "fro", dim: Sequence[int] = (-2, -1), keepdim: bool = False, *,  # noqa: N803
                dtype: DType | None = None) -> Tensor:
    """The norm of matrices in two dims: 'fro' (of all elements), 'nuc' (the sum of the singular values), 2 and -2 (the largest and the smallest of
    them), 1 and -1 (the largest and the smallest sum of |x| of a column), inf and -inf (of a row).

    A: [.., M, N], floating or complex. ord: which norm. dim: the dims of rows and columns. keepdim: they stay, with size 1. dtype: what A is cast to first.

    The result has A's dtype, or the real one of a complex dtype. RuntimeError for other dtypes of A and for a dtype that cannot hold it, for fewer than 2 dims,
    for another ord, and for a dim that does not name two different dims; IndexError for a dim out of range, and for the smallest of no rows, columns or singular
    values. NotImplementedError for 'nuc', 2 and -2 of float16 and bfloat16."""
    _floating("linalg.matrix_norm", A)
    raise_for("linalg.matrix_norm", A.ndim < 2, f"no matrix; got shape {tuple(A.shape)}; expected at least 2 dims")
    dims = (dim,) if isinstance(dim, int) else tuple(dim)
    _check_order(ord, dims)
    for d in dims:
        check_dim("linalg.matrix_norm", d, A.ndim)
    A = _cast("linalg.matrix_norm", A, dtype)  # noqa: N806
    rows, columns = (d + A.ndim if d < 0 else d for d in dims)
    raise_for("linalg.matrix_norm", rows == columns, f"the two dims are the same; got ({dims[0]}, {dims[1]})")
    if ord == "fro":
        return power_sum(A, 2, (rows, columns), keepdim)
    if ord in ("nuc", 2, -2):
        from ._spectral import svdvals

        values = svdvals(A.permute(*[d for d in range(A.ndim) if d not in (rows, columns)], rows, columns))
        result = values.sum(-1) if ord == "nuc" else _largest(values, -1) if ord == 2 else _C.amin(values, -1)
        return result.unsqueeze(min(rows, columns)).unsqueeze(max(rows, columns)) if keepdim else result
    if ord in (math.inf, -math.inf):
        rows, columns = columns, rows
    sums = A.abs().sum(rows, keepdim=True)
    result = _largest(sums, columns, True) if ord > 0 else _C.amin(sums, columns, True)
    return result if keepdim else result.squeeze((rows, columns))


@accepting
def norm(A: Tensor, ord: float | Literal["fro", "nuc"] | None = None, dim: Dim | None = None, keepdim: bool = False, *, dtype: DType | None = None) -> Tensor:  # noqa: N803
    """vector_norm or matrix_norm: of matrices if ord is text, or if there are two dims and an order; of all elements as a vector without both.

    A: floating or complex. dim: one dim of vectors, or two of matrices. keepdim: they stay, with size 1. dtype: what A is cast to first. The result has the
    dtype, and the errors are those, of vector_norm and matrix_norm. RuntimeError also for a dim of no or more than two dims, and for a number as ord of all
    elements where A has more than two dims."""
    if dim is not None or ord is not None:
        dims = None if dim is None else (dim,) if isinstance(dim, int) else tuple(dim)
        count = A.ndim if dims is None else len(dims)
        raise_for("linalg.norm", dims is None and isinstance(ord, (str, int, float)) and A.ndim not in (1, 2), f"an order without dim is that of a vector or a matrix; got shape {tuple(A.shape)}; expected 1 or 2 dims")
        raise_for("linalg.norm", dims is not None and count not in (1, 2), f"not one or two dims; got dim={dims}")
        if isinstance(ord, str) or (ord is not None and count == 2):
            return matrix_norm(A, ord, (0, 1) if dims is None else dims, keepdim, dtype=dtype)
    return vector_norm(A, 2 if ord is None else ord, dim, keepdim, dtype=dtype)
