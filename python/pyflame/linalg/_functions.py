"""Functions and products of matrices that are composed of matmul."""
from __future__ import annotations

import math

from .. import _C, _products
from .._C import _linalg
from .._error_names import check_dim
from .._keywords import accepting
from ._common import identity, raise_for, real_dtype
from ._solve import inv

TYPE_CHECKING = False  # type checkers take this name as true
if TYPE_CHECKING:
    from collections.abc import Sequence

    from .._C import Tensor

# Of the Taylor polynomial of exp: the size up to which its remainder is below the precision, and the powers that are made.
_EXPONENTIAL = {_C.float32: (2.8, 4, 16), _C.float64: (0.8, 4, 16)}


def _taylor(X, step, degree, like):  # noqa: N803
    """The Taylor polynomial of exp, as a polynomial in X^step whose coefficients are polynomials in X (Paterson and Stockmeyer, 1973)."""
    powers = [like, X]
    while len(powers) <= step:
        powers.append(_C.matmul(powers[len(powers) // 2], powers[len(powers) - len(powers) // 2]))
    result = None
    for first in range(degree // step * step, -1, -step):
        part = None
        for k in range(min(step, degree - first + 1)):
            term = powers[k] * (1 / math.factorial(first + k))
            part = term if part is None else part + term
        result = part if result is None else _C.matmul(result, powers[step]) + part
    return result


def matrix_exp(A: Tensor) -> Tensor:  # noqa: N803
    """The exponential of square matrices [.., N, N]: each is divided by a power of 2, its Taylor polynomial computed, and that squared as often.

    The largest norm is read: a sync point.

    ValueError where they are not square, and for fewer than 2 dims. NotImplementedError for integers and for half types.
    """
    _linalg.check_matrices("linalg.matrix_exp", A, True)
    n = A.shape[-1]
    if A.numel() == 0:
        return A.clone()
    bound, step, degree = _EXPONENTIAL[real_dtype(A.dtype)]
    size = _C.amax(A.detach().abs().sum(-2), -1)
    halvings = _C.clamp(_C.ceil(_C.log2(size / bound)), min=0)
    halvings = _C.where(_C.isnan(halvings) | _C.isinf(halvings), 0.0, halvings)
    most = 0 if A.device.type == "null" else int(halvings.max().item())
    halvings = halvings.unsqueeze(-1).unsqueeze(-1)
    X = _taylor(A * _C.exp2(-halvings) if most else A, step, degree, identity(n, A).expand(*A.shape))
    for k in range(most):
        square = _C.matmul(X, X)
        X = square if A.ndim == 2 else _C.where(halvings > k, square, X)
    return X


@accepting
def matrix_power(A: Tensor, n: int) -> Tensor:  # noqa: N803
    """Square matrices [.., N, N] to a whole power, by squaring; a negative power is that of the inverse, and power 0 is the identity.

    A: any numeric dtype, which the result has; for n < 0 one of inv. n: an int. RuntimeError for no square matrices; LinAlgError where n < 0 and a matrix
    is singular.
    """
    return _products.natural_power(inv(A) if n < 0 else A, abs(n))


@accepting
def multi_dot(tensors: Sequence[Tensor]) -> Tensor:
    """The product of two matrices or more, in the order that needs the fewest multiplications. The first and the last may be vectors.

    tensors: a list of [M, K], [K, L], .. [P, N] of one dtype -> [M, N]; a vector first or last leaves that dim out. RuntimeError for fewer than 2 tensors
    and for tensors of other dims; ArgumentError for sizes that do not fit.
    """
    tensors = list(tensors)
    raise_for("linalg.multi_dot", len(tensors) < 2, f"too few tensors; got {len(tensors)}; expected at least 2")
    first, last = tensors[0].ndim == 1, tensors[-1].ndim == 1
    if first:
        tensors[0] = tensors[0].unsqueeze(0)
    if last:
        tensors[-1] = tensors[-1].unsqueeze(1)
    for i, t in enumerate(tensors):
        raise_for("linalg.multi_dot", t.ndim != 2, f"tensor {i} is no matrix; got shape {tuple(t.shape)}; expected 2 dims, or 1 of the first and the last")
    result = _products.chain_matmul(*tensors)
    if first and last:
        return result.reshape(())
    return result.squeeze(0) if first else result.squeeze(1) if last else result


@accepting
def matmul(input: Tensor, other: Tensor) -> Tensor:
    """The matrix product, the same as pyflame.matmul: [.., M, K] and [.., K, N] -> [.., M, N]; vectors are a row on the left, a column on the right.

    input, other: of one dtype, a TypeError otherwise. The dims before the last two broadcast. ArgumentError for sizes that do not fit.
    """
    return _C.matmul(input, other)


@accepting
def cross(input: Tensor, other: Tensor, *, dim: int = -1) -> Tensor:
    """The cross product of vectors of three elements along a dim; both broadcast: (a1 b2 - a2 b1, a2 b0 - a0 b2, a0 b1 - a1 b0).

    input, other: as many dims each, of size 3 along dim, integer, floating or complex. The result has the common shape. RuntimeError for another number
    of dims and another size; IndexError for a dim out of range.
    """
    raise_for("linalg.cross", input.ndim != other.ndim, f"inputs must have the same number of dimensions; got {input.ndim} and {other.ndim}")
    check_dim("linalg.cross", dim, input.ndim)
    raise_for("linalg.cross", input.shape[dim] != 3 or other.shape[dim] != 3, f"inputs dimension {dim} must have length 3; got {input.shape[dim]} and {other.shape[dim]}")
    return _products.cross(input, other, dim)


@accepting
def vecdot(x: Tensor, y: Tensor, *, dim: int = -1) -> Tensor:
    """The sums of products along a dim; both broadcast, and the first is conjugated where it is complex: sum of conj(x) y.

    x, y: integer, floating or complex. The result has the common shape without dim. ArgumentError for shapes that do not broadcast.
    """
    return (x.conj() * y).sum(dim)


def diagonal(A: Tensor, *, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:  # noqa: N803
    """The elements of A whose places in dim1 and dim2 differ by offset, as Tensor.diagonal, of the last two dims unless given. Positive offsets lie above
    the diagonal.

    A: any shape with these dims and any dtype. The result has the other dims and then the diagonal's size, 0 for an offset outside. IndexError for a dim
    out of range.
    """
    return A.diagonal(offset, dim1, dim2)


def vander(x: Tensor, *, N: int | None = None) -> Tensor:  # noqa: N803
    """The powers of vectors as columns: 1, x, x^2, .. of N columns (default: as many as elements). Vectors [.., M] -> [.., M, N] (Vandermonde).

    x: of any dtype; integers and bool become int64. N: an int from 2; RuntimeError otherwise, also where a vector of 1 element leaves it out.
    """
    x = x if x.ndim else x.reshape(1)
    n = x.shape[-1] if N is None else N
    raise_for("linalg.vander", n <= 1, f"N must be greater than 1; got {n}")
    x = x if x.is_floating_point() or x.is_complex() else x.to(_C.int64)
    columns = [_C.ones_like(x)]
    while len(columns) < n:
        columns.append(columns[-1] * x)
    return _C.stack(columns, -1)
