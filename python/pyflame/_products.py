"""Products of vectors and matrices that are composed of matmul."""
from __future__ import annotations

from . import _C
from ._C import Tensor
from ._error_names import check_dim
from ._keywords import write_out
from ._public import beside, method

TYPE_CHECKING = False  # type checkers take this name as true
if TYPE_CHECKING:
    from collections.abc import Sequence

    from ._annotations import Dim, Number

__all__ = ["addbmm", "addmm", "addmv", "addr", "baddbmm", "chain_matmul", "cross", "inner", "mv", "tensordot", "vander", "vdot"]


def _sum_of(input, product, beta, alpha):
    """beta * input + alpha * product; a beta of 0 leaves the input out, also where it is NaN."""
    if not product.is_floating_point() and not product.is_complex():
        beta, alpha = int(beta), int(alpha)
    product = product if alpha == 1 else product * alpha
    if beta == 0:
        return beside(product, input)
    return (input if beta == 1 else input * beta) + product


@method
def mv(input: Tensor, vec: Tensor) -> Tensor:
    """A matrix times a vector of its dtype, [N, M], [M] -> [N]. RuntimeError for other dims, ArgumentError for sizes that differ, TypeError for dtypes that differ."""
    if input.ndim != 2 or vec.ndim != 1:
        raise RuntimeError(f"mv: not a matrix and a vector; got shapes {tuple(input.shape)} and {tuple(vec.shape)}; expected [N, M] and [M]")
    return _C.matmul(input, vec)


@method
def addmm(input: Tensor, mat1: Tensor, mat2: Tensor, *, beta: Number = 1, alpha: Number = 1) -> Tensor:
    """beta * input + alpha * (mat1 @ mat2): mat1 [N, K], mat2 [K, M] -> [N, M]. input has that shape, or broadcasts with it. With beta=0 the input's values do not count, not even NaN.

    mat1, mat2: of one number dtype, TypeError otherwise; with input the usual promotion holds. ArgumentError for other numbers of dims and sizes that do not fit.
    """
    return _sum_of(input, _C.mm(mat1, mat2), beta, alpha)


@method
def addmv(input: Tensor, mat: Tensor, vec: Tensor, *, beta: Number = 1, alpha: Number = 1) -> Tensor:
    """beta * input + alpha * (mat @ vec): input [N], or what broadcasts to it, mat [N, M], vec [M] -> [N].

    mat, vec: of one dtype, a TypeError otherwise. RuntimeError for other numbers of dims; ArgumentError for sizes that do not fit.
    """
    return _sum_of(input, mv(mat, vec), beta, alpha)


@method
def addr(input: Tensor, vec1: Tensor, vec2: Tensor, *, beta: Number = 1, alpha: Number = 1) -> Tensor:
    """beta * input + alpha * (the outer product of two vectors).

    vec1 [N], vec2 [M]. input broadcasts to [N, M]. With beta=0 the input's values do not count, not even NaN.
    The dtype is the promoted one of all three. RuntimeError unless both are vectors; ArgumentError for an input that does not broadcast.
    """
    if vec1.ndim != 1 or vec2.ndim != 1:
        raise RuntimeError(f"addr: not two vectors; got shapes {tuple(vec1.shape)} and {tuple(vec2.shape)}; expected [N] and [M]")
    result = _sum_of(input, vec1.unsqueeze(1) * vec2, beta, alpha)
    return result.bool() if input.dtype == vec1.dtype == vec2.dtype == _C.bool_ else result


@method
def baddbmm(input: Tensor, batch1: Tensor, batch2: Tensor, *, beta: Number = 1, alpha: Number = 1) -> Tensor:
    """beta * input + alpha * (batch1 @ batch2): batch1 [B, N, K], batch2 [B, K, M] -> [B, N, M]. input has that shape, or broadcasts with it. With beta=0 the input's values do not count, not even NaN.

    batch1, batch2: of one number dtype, TypeError otherwise; with input the usual promotion holds. ArgumentError for other numbers of dims and sizes that do
    not fit.
    """
    return _sum_of(input, _C.bmm(batch1, batch2), beta, alpha)


@method
def addbmm(input: Tensor, batch1: Tensor, batch2: Tensor, *, beta: Number = 1, alpha: Number = 1) -> Tensor:
    """beta * input + alpha * (the sum of the products of two batches of matrices).

    batch1 [B, N, K], batch2 [B, K, M]. input broadcasts to [N, M]. With beta=0 the input's values do not count, not even NaN.
    batch1, batch2: of one number dtype, TypeError otherwise. ArgumentError for sizes that do not fit.
    """
    return _sum_of(input, _C.bmm(batch1, batch2).sum(0, dtype=batch1.dtype), beta, alpha)


@method
def vdot(input: Tensor, other: Tensor) -> Tensor:
    """The dot product of two vectors, the first of which is conjugated where it is complex.

    Both [N], of one dtype; the result has no dims. ValueError where they are no vectors of one length. TypeError where the dtypes differ.
    """
    return _C.dot(input.conj(), other)


@method
def inner(input: Tensor, other: Tensor) -> Tensor:
    """The sums of products over the last dims: [.., K], [.., K] -> [.., ..]. A scalar multiplies.

    RuntimeError where the last dims differ. TypeError where the dtypes differ, for bools, and where one of them is not a tensor.
    """
    if input.ndim == 0 or other.ndim == 0:
        return input * other
    if input.shape[-1] != other.shape[-1]:
        raise RuntimeError(f"inner: the last dims differ; got {tuple(input.shape)} and {tuple(other.shape)}; expected equal ones")
    return tensordot(input, other, ([-1], [-1]))


@method
def cross(input: Tensor, other: Tensor, dim: int | None = None) -> Tensor:
    """The cross product of vectors of three elements along a dim: (a1 b2 - a2 b1, a2 b0 - a0 b2, a0 b1 - a1 b0). By default dim is input's first one of size 3.

    input, other: number dtypes; they broadcast to the shape of the result, whose dtype is that of input * other. RuntimeError for another size than 3; IndexError for a
    dim out of range; ArgumentError for shapes that do not broadcast; TypeError for two bool tensors.
    """
    if dim is None:
        dim = next((d for d in range(input.ndim) if input.shape[d] == 3), -1)
    rank = max(input.ndim, other.ndim)
    a, b = (t.reshape(*(1,) * (rank - t.ndim), *t.shape) for t in (input, other))
    if not rank:
        raise RuntimeError("cross: not vectors of three; got two single numbers; expected a size of 3")
    check_dim("cross", dim, rank)
    if a.shape[dim] != 3 or b.shape[dim] != 3:
        raise RuntimeError(f"cross: not vectors of three; got shapes {tuple(input.shape)} and {tuple(other.shape)} along dim {dim}; expected a size of 3")
    a, b = _C.broadcast_tensors(a, b)

    def turned(t, by):
        return _C.cat([t.narrow(dim, by, 3 - by), t.narrow(dim, 0, by)], dim)

    return turned(a, 1) * turned(b, 2) - turned(a, 2) * turned(b, 1)


def _summed(t, dims):
    return t.sum(dims, keepdim=True) if dims else t


def tensordot(a: Tensor, b: Tensor, dims: Tensor | int | Sequence[Dim] = 2, out: Tensor | None = None) -> Tensor:
    """Sums of products over dims of both: over the last `dims` of a and the first of b, or over two lists of dims. out: gets the result.

    a, b: of one number dtype, TypeError otherwise. The result has a's other dims, then b's. RuntimeError for dims whose sizes differ, and for too many.
    """
    if isinstance(dims, Tensor):
        dims = dims.tolist()
    if isinstance(dims, int):
        if dims < 0 or dims > min(a.ndim, b.ndim):
            raise RuntimeError(f"tensordot: no such number of dims; got {dims}; expected 0 to {min(a.ndim, b.ndim)}")
        dims = (list(range(a.ndim - dims, a.ndim)), list(range(dims)))
    left, right = ([d] if isinstance(d, int) else list(d) for d in dims)
    left, right = [d % a.ndim for d in left], [d % b.ndim for d in right]
    if len(left) == len(right):  # a size of 1 broadcasts
        a = _summed(a, [i for i, j in zip(left, right) if b.shape[j] == 1])
        b = _summed(b, [j for i, j in zip(left, right) if a.shape[i] == 1])
    if len(left) != len(right) or any(a.shape[i] != b.shape[j] for i, j in zip(left, right)):
        raise RuntimeError(f"tensordot: the dims do not fit; got {left} of {tuple(a.shape)} and {right} of {tuple(b.shape)}; expected equal sizes")
    kept_a, kept_b = [d for d in range(a.ndim) if d not in left], [d for d in range(b.ndim) if d not in right]
    depth = 1
    for d in left:
        depth *= a.shape[d]
    rows, columns = [a.shape[d] for d in kept_a], [b.shape[d] for d in kept_b]

    def count(sizes):
        n = 1
        for s in sizes:
            n *= s
        return n

    product = _C.mm(a.permute(*kept_a, *left).reshape(count(rows), depth) if a.ndim else a.reshape(1, 1),
                    b.permute(*right, *kept_b).reshape(depth, count(columns)) if b.ndim else b.reshape(1, 1))
    product = product.reshape(*rows, *columns) if rows or columns else product.reshape(())
    return product if out is None else write_out("tensordot", product, out)


def chain_matmul(*matrices: Tensor | Sequence[Tensor]) -> Tensor:
    """The product of several matrices, in the order that needs the fewest multiplications (dynamic programming).

    matrices: of one dtype, each [M, K] with as many rows as the one before has columns; ValueError otherwise, and for none. TypeError where the dtypes
    differ.
    """
    matrices = list(matrices[0]) if len(matrices) == 1 and not isinstance(matrices[0], Tensor) else list(matrices)
    if not matrices:
        raise ValueError("chain_matmul: no matrices; got none; expected one or more")
    for m in matrices:
        if m.ndim != 2:
            raise ValueError(f"chain_matmul: not a matrix; got shape {tuple(m.shape)}; expected [M, K]")
    sizes = [m.shape[0] for m in matrices] + [matrices[-1].shape[1]]
    n = len(matrices)
    cost, cut = {(i, i): 0 for i in range(n)}, {}
    for length in range(1, n):
        for i in range(n - length):
            j = i + length
            cost[i, j], cut[i, j] = min((cost[i, k] + cost[k + 1, j] + sizes[i] * sizes[k + 1] * sizes[j + 1], k) for k in range(i, j))

    def product(i, j):
        return matrices[i] if i == j else _C.mm(product(i, cut[i, j]), product(cut[i, j] + 1, j))

    return product(0, n - 1)


def natural_power(input: Tensor, n: int) -> Tensor:
    """Square matrices to a whole power n >= 0, by squaring: [.., N, N]."""
    if input.ndim < 2 or input.shape[-1] != input.shape[-2]:
        raise RuntimeError(f"matrix_power: not square matrices; got shape {tuple(input.shape)}; expected [.., N, N]")
    if n == 0:
        return beside(_C.eye(input.shape[-1], dtype=input.dtype, device=input.device).expand(*input.shape).clone(), input)
    result, base = None, input
    while n:
        if n & 1:
            result = base if result is None else _C.matmul(result, base)
        n >>= 1
        if n:
            base = _C.matmul(base, base)
    return result.clone() if result is input else result


def vander(x: Tensor, N: int | None = None, increasing: bool = False) -> Tensor:  # noqa: N803 - NumPy's name
    """The powers of a vector as columns, of N columns (default: square): from the highest power, or with increasing from the power 0.

    x: [M], of an integer, floating or complex dtype; the result is [M, N]. RuntimeError unless x is a vector, and for N < 0.
    """
    if x.ndim != 1:
        raise RuntimeError(f"vander: not a vector; got shape {tuple(x.shape)}; expected one dim")
    n = x.shape[-1] if N is None else N
    if n < 0:
        raise RuntimeError(f"vander: a negative number of columns; got {n}; expected 0 or more")
    powers = _C.arange(n, device=x.device)
    columns = x.unsqueeze(-1).to(_C.promote_types(x.dtype, _C.int64)) ** (powers if increasing else n - 1 - powers)
    return columns
