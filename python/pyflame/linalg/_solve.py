"""Solutions of linear systems, inverses, determinants, least squares."""
from __future__ import annotations

import math

from .. import _C
from .._C import _linalg
from .._grad_mode import no_grad
from .._keywords import accepting
from ._common import check, common_batch, epsilon, identity, named, raise_for, real_dtype

TYPE_CHECKING = False  # type checkers take this name as true
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Literal

    from .._C import Tensor
    from ._annotations import InvEx, Lstsq, Slogdet, SolveEx

_SolveEx = named("linalg_solve_ex", "result info")
_InvEx = named("linalg_inv_ex", "inverse info")
_Slogdet = named("linalg_slogdet", "sign logabsdet")
_Lstsq = named("linalg_lstsq", "solution residuals rank singular_values")


def _is_vector(A, B):  # noqa: N803
    return B.ndim == 1 or (A.ndim == B.ndim + 1 and tuple(B.shape) == tuple(A.shape[:-1]))


def _singular(_):
    return "The solver failed because the input matrix is singular."


def _solve(op, A, B, left):  # noqa: N803
    _linalg.check_matrices(op, A, True)
    vector = _is_vector(A, B)
    raise_for(op, vector and not left, "B is a vector; got left=False; expected left=True")
    X = B.unsqueeze(-1) if vector else B
    raise_for(op, X.ndim < 2, f"B has no dims; got shape {tuple(B.shape)}")
    A, X = (A, X) if left else (A.mT, X.mT)
    raise_for(op, A.shape[-1] != X.shape[-2], f"Incompatible shapes of A and B for the equation {'AX' if left else 'XA'} = B; got {tuple(A.shape)} and {tuple(B.shape)}")
    X, *_, info = _linalg.solve(A, X)
    X = X if left else X.mT
    return (X.squeeze(-1) if vector else X), info


@accepting
def solve(A: Tensor, B: Tensor, *, left: bool = True) -> Tensor:  # noqa: N803
    """X with A X = B (or X A = B), by LU. A [.., N, N]; B [.., N, K] or [.., N]; batches broadcast.

    LinAlgError where a matrix is singular. Whether it is, is read: a sync point; solve_ex has none.
    """
    X, info = _solve("linalg.solve", A, B, left)
    check("linalg.solve", info, _singular)
    return X


@accepting
def solve_ex(A: Tensor, B: Tensor, *, left: bool = True, check_errors: bool = False) -> SolveEx:  # noqa: N803
    """solve without its error: (result, info), where info is 0, or the place of the first zero on U's diagonal.

    A, B and left: as in linalg.solve. check_errors: True raises LinAlgError where an info is not 0, and so reads it: a sync point.
    """
    X, info = _solve("linalg.solve_ex", A, B, left)
    if check_errors:
        check("linalg.solve_ex", info, _singular)
    return _SolveEx(X, info)


@accepting
def solve_triangular(A: Tensor, B: Tensor, *, upper: bool, left: bool = True, unitriangular: bool = False) -> Tensor:  # noqa: N803
    """X with A X = B for triangular A [.., N, N] and B [.., N, K]; batches broadcast.

    upper: whether A is upper triangular; the other triangle is not read. left=False: X A = B. unitriangular: the diagonal counts as ones and is
    not read. A zero on a diagonal that is read gives inf or NaN.

    A and B: of one dtype, float32, float64, complex64 or complex128 (NotImplementedError otherwise), which X has. ArgumentError for matrices of fewer than 2
    dims, an A that is not square, and sizes that do not fit; TypeError for different dtypes."""
    if left:
        return _linalg.triangular_solve(A, B, upper, unitriangular)
    return _linalg.triangular_solve(A.mT, B.mT, not upper, unitriangular).mT


@accepting
def lu_solve(LU: Tensor, pivots: Tensor, B: Tensor, *, left: bool = True, adjoint: bool = False) -> Tensor:  # noqa: N803
    """X with A X = B, where LU and pivots are what lu_factor gave for A. B: [.., N, K]; batches broadcast.

    left=False: X A = B. adjoint: A' in place of A. The matrices are float32, float64, complex64 or complex128 (NotImplementedError otherwise), pivots int32.

    ArgumentError for an LU that is not square and a B of fewer than 2 dims. RuntimeError for another dtype of pivots, for different dtypes of LU and B, and for
    sizes and batch dims that do not fit. A pivot that is no row, from 1 to N, is an IndexError when X is computed."""
    op = "linalg.lu_solve"
    _linalg.check_matrices(op, LU, True)
    _linalg.check_matrices(op, B, False)
    raise_for(op, pivots.dtype != _C.int32, f"pivots are not int32; got {pivots.dtype}")
    raise_for(op, not pivots.ndim or pivots.shape[-1] != LU.shape[-1], f"pivots do not fit; got shape {tuple(pivots.shape)} for LU {tuple(LU.shape)}; expected [.., {LU.shape[-1]}]")
    raise_for(op, LU.dtype != B.dtype, f"dtypes differ; got {LU.dtype} and {B.dtype}")
    if not left:
        return lu_solve(LU, pivots, B.mH, adjoint=not adjoint).mH
    raise_for(op, LU.shape[-1] != B.shape[-2], f"Incompatible shapes of A and B for the equation AX = B; got {tuple(LU.shape)} and {tuple(B.shape)}")
    both = common_batch(op, LU, B)
    n = LU.shape[-1]
    LU, pivots, B = LU.expand(*both, n, n), pivots.expand(*both, n), B.expand(*both, *B.shape[-2:])  # noqa: N806
    if not LU.requires_grad:
        return _linalg.lu_solve(LU, pivots, B, adjoint)

    def rows(x, inverse):
        return x.gather(-2, _linalg.row_order(pivots, n, inverse).unsqueeze(-1).expand(*x.shape))

    if adjoint:
        return rows(_linalg.triangular_solve(LU.mH, _linalg.triangular_solve(LU.mH, B, False, False), True, True), True)
    return _linalg.triangular_solve(LU, _linalg.triangular_solve(LU, rows(B, False), False, True), True, False)


def _no_inverse(n):
    return f"The diagonal element {n} is zero, the inversion could not be completed because the input matrix is singular."


@accepting
def inv(A: Tensor) -> Tensor:  # noqa: N803
    """The inverse of square matrices [.., N, N]: X with A X = I, by LU. LinAlgError where one is singular: a sync point; inv_ex has none.

    A: float32, float64, complex64 or complex128 (NotImplementedError otherwise); the result has its shape and dtype. ArgumentError for no square
    matrices.
    """
    X, info = _linalg.inv(A)
    check("linalg.inv", info, _no_inverse)
    return X


@accepting
def inv_ex(A: Tensor, *, check_errors: bool = False) -> InvEx:  # noqa: N803
    """inv without its error: (inverse [.., N, N], info [..]). info is int32: 0, or the place of the first zero on U's diagonal, from 1 on; the inverse is
    then NaN or infinite in places.

    A: [.., N, N], float32, float64, complex64 or complex128 (NotImplementedError otherwise). check_errors: True raises LinAlgError where an info is not
    0, and so reads it: a sync point. ArgumentError for no square matrices.
    """
    X, info = _linalg.inv(A)
    if check_errors:
        check("linalg.inv_ex", info, _no_inverse)
    return _InvEx(X, info)


@accepting
def det(A: Tensor) -> Tensor:  # noqa: N803
    """The determinants [..] of square matrices [.., N, N], by LU: the product of U's diagonal, times -1 for each exchange of rows. 0 for a singular one.

    A: float32, float64, complex64 or complex128 (NotImplementedError otherwise); the result has its dtype. ArgumentError for no square matrices.
    """
    return _linalg.det(A)[0]


@accepting
def slogdet(A: Tensor) -> Slogdet:  # noqa: N803
    """The sign of the determinant (of a complex one: the determinant by its size) and the logarithm of its size: (sign [..], logabsdet [..]). A singular
    matrix has (0, -inf).

    A: [.., N, N], float32, float64, complex64 or complex128 (NotImplementedError otherwise). ArgumentError for no square matrices.
    """
    return _Slogdet(*_linalg.slogdet(A)[:2])


@accepting
def logdet(A: Tensor) -> Tensor:  # noqa: N803
    """The logarithm of the determinant; -inf where that is 0, and NaN where it is negative, of real matrices. Complex ones have a complex logarithm.

    ValueError where they are not square, and for fewer than 2 dims. NotImplementedError for integers.
    """
    sign, logs = slogdet(A)
    if A.is_complex():
        return _C.log(sign) + logs
    return _C.where(sign < 0, math.nan, logs)


def cutoff(values, shape, atol, rtol):
    """The size below which singular values count as zero: max(atol, rtol * the largest)."""
    if rtol is None:
        rtol = max(shape[-2:]) * epsilon(values.dtype) if atol is None else 0.0

    def each(t):
        return t.unsqueeze(-1) if isinstance(t, _C.Tensor) else t

    atol, rtol = each(0.0 if atol is None else atol), each(rtol)
    if isinstance(atol, _C.Tensor) or isinstance(rtol, _C.Tensor):
        default = max(shape[-2:]) * epsilon(values.dtype)
        if isinstance(atol, _C.Tensor) and not isinstance(rtol, _C.Tensor) and rtol == 0.0:
            rtol = _C.where(atol > 0, 0.0, default).to(values.dtype)
    limit = _C.amax(values, -1, True) * rtol
    return _C.maximum(limit, atol if isinstance(atol, _C.Tensor) else _C.full_like(limit, atol))


@accepting
def pinv(A: Tensor, rcond: Tensor | float | None = None, hermitian: bool = False, *, atol: Tensor | float | None = None,  # noqa: N803
         rtol: Tensor | float | None = None) -> Tensor:
    """The pseudoinverse of matrices A [.., M, N]: [.., N, M]. Singular values up to max(atol, rtol * the largest) count as zero; rtol is max(M, N) times the
    precision unless given, rcond is its old name. hermitian: by eigenvalues of the lower triangle.

    A: float32, float64, complex64 or complex128 (NotImplementedError otherwise); the result has its dtype. atol, rtol: numbers, or tensors of the batch's shape.
    ArgumentError for fewer than 2 dims and, with hermitian, for matrices that are not square; LinAlgError for infinite values and NaN."""
    from ._spectral import eigh, svd

    _linalg.check_matrices("linalg.pinv", A, hermitian)
    rtol = rcond if rtol is None else rtol
    if A.numel() == 0:
        return A.mT.clone()
    with no_grad():
        if hermitian:
            values, V = eigh(A)
            size, U = _C.abs(values), V.mH
        else:
            U, values, Vh = svd(A, full_matrices=False)
            size, U, V = values, U.mH, Vh.mH
        kept = size > cutoff(size, A.shape, atol, rtol)
        P = _C.matmul(V * _C.where(kept, 1 / _C.where(kept, values, 1.0), 0.0).unsqueeze(-2), U)
    return _linalg.pinv_of(A, P)


def _squares(x):
    """|x|^2."""
    return (x * x.conj()).real if x.is_complex() else x**2


_DRIVERS = {"gels": 0, "gelsy": 1, "gelsd": 2, "gelss": 3}


@accepting
def lstsq(A: Tensor, B: Tensor, rcond: float | None = None, *, driver: Literal["gels", "gelsy", "gelsd", "gelss"] | None = None) -> Lstsq:  # noqa: N803
    """Least squares: X that makes |A X - B| smallest, (solution, residuals, rank, singular_values). A [.., M, N], B [.., M, K] or [.., M].

    driver: LAPACK's 'gelsy' (default), 'gels' (full rank), 'gelsd' or 'gelss'. The residuals are empty for gelsy, for M <= N, and where the rank is
    not full: then the rank is read, a sync point. rcond: singular values below rcond times the largest count as 0; default max(M, N) times the dtype's epsilon; gels does not use
    it, and gelsy estimates them. singular_values are those of gelsd and gelss. The gradient is that of pinv(A) @ B.

    A and B: of one dtype, float32, float64, complex64 or complex128 (NotImplementedError for others of A). solution: [.., N, K] or [.., N], of that dtype.
    ArgumentError for an A of fewer than 2 dims. RuntimeError for another driver, for different dtypes and numbers of rows, and for batch dims that do not
    broadcast. LinAlgError for NaN in A or B, where gels finds a rank that is not full, up to rounding, and where gelsd and gelss do not converge.
    """
    op = "linalg.lstsq"
    _linalg.check_matrices(op, A, False)
    raise_for(op, driver not in (None, *_DRIVERS), f"no such driver; got {driver!r}; expected one of {', '.join(_DRIVERS)}")
    driver = driver or "gelsy"
    vector = _is_vector(A, B)
    rhs = B.unsqueeze(-1) if vector else B
    raise_for(op, rhs.ndim < 2 or rhs.shape[-2] != A.shape[-2], f"A and B have other numbers of rows; got shapes {tuple(A.shape)} and {tuple(B.shape)}")
    raise_for(op, A.dtype != B.dtype, f"dtypes differ; got {A.dtype} and {B.dtype}")
    m, n = A.shape[-2:]
    both = common_batch(op, A, rhs)
    A, rhs = A.expand(*both, m, n), rhs.expand(*both, m, rhs.shape[-1])  # noqa: N806
    with no_grad():
        solution, rank, values, info = _linalg.lstsq(A, rhs, float(max(m, n) * epsilon(A.dtype) if rcond is None else rcond), _DRIVERS[driver])
    check(op, info, lambda i: "A or B has a NaN." if i == -1 else f"The least squares solution could not be computed because the input matrix does not have full rank (error code: {i})." if driver == "gels" else f"The solver did not converge (error code: {i}).")
    none = _C.empty(0, dtype=real_dtype(A.dtype), device=A.device)
    residuals = none
    if driver != "gelsy" and m > n and (driver == "gels" or A.device.type == "null" or bool((rank == n).all().item())):
        residuals = _squares(solution[..., n:, :]).sum(-2)
    if A.requires_grad or B.requires_grad:
        X = _C.matmul(pinv(A), rhs)
        if residuals.ndim and residuals.numel():
            residuals = _squares(rhs - _C.matmul(A, X)).sum(-2)
    else:
        X = solution[..., :n, :]
    rank = rank.to(_C.int64) if driver != "gels" else _C.empty(0, dtype=_C.int64, device=A.device)
    return _Lstsq(X.squeeze(-1) if vector else X, residuals, rank, values if driver in ("gelsd", "gelss") else none)


@accepting
def tensorinv(A: Tensor, ind: int = 2) -> Tensor:  # noqa: N803
    """The inverse of A as a map from its last dims to its first `ind`: tensordot(tensorinv(A), B, ind) solves A X = B.

    A: [*rows, *columns], rows being ind sizes, with one product, and the dtypes of inv. Returns [*columns, *rows]. RuntimeError for other products and
    ind < 1; LinAlgError where the map is singular: a sync point.
    """
    raise_for("tensorinv", ind <= 0, f"ind is not positive; got {ind}; expected at least 1")
    rows, columns = tuple(A.shape[:ind]), tuple(A.shape[ind:])
    n = math.prod(columns)
    raise_for("tensorinv", math.prod(rows) != n, f"the products of the dims before and after 'ind' differ; got {rows} and {columns}")
    return inv(A.reshape(n, n)).reshape(*columns, *rows)


@accepting
def tensorsolve(A: Tensor, B: Tensor, dims: Sequence[int] | None = None) -> Tensor:  # noqa: N803
    """X with tensordot(A, X, X.ndim) = B. dims are moved to A's end first.

    A: [*B's shape, *X's shape], with one product of sizes on both sides, a RuntimeError otherwise, and the dtypes of solve. B: any shape. Returns X.
    LinAlgError where the map is singular: a sync point.
    """
    if dims is not None:
        dims = [d % A.ndim for d in dims]
        A = A.permute(*[d for d in range(A.ndim) if d not in dims], *dims)  # noqa: N806
    shape = tuple(A.shape[B.ndim :])
    n = math.prod(shape)
    raise_for("tensorsolve", n != math.prod(A.shape[: B.ndim]), f"A is not a square map; got shapes {tuple(A.shape)} and {tuple(B.shape)}")
    return solve(A.reshape(n, n), B.reshape(n)).reshape(*shape)


def _differentiable(value, formula):
    """The value with the gradient of a formula that gives the same."""
    return value + (formula - formula.detach())


@accepting
def cholesky_solve(B: Tensor, L: Tensor, upper: bool = False) -> Tensor:  # noqa: N803
    """X with A X = B, of the factor L with A = L L' (or with upper U with A = U' U).

    B: [.., N, K], L: [.., N, N], of one dtype. ValueError where they do not fit, TypeError where the dtypes differ, NotImplementedError for integers.
    """
    first, second = (L.mH, L) if upper else (L, L.mH)
    if not L.requires_grad:
        return _linalg.triangular_solve(second, _linalg.triangular_solve(first, B, False, False), True, False)
    # As in PyTorch, the gradient of L is that of its product, whole: also above the diagonal.
    return _differentiable(cholesky_solve(B.detach(), L.detach(), upper), solve(_C.matmul(first, second), B))


@accepting
def cholesky_inverse(L: Tensor, upper: bool = False) -> Tensor:  # noqa: N803
    """The inverse of A, of the factor L with A = L L' (or with upper U with A = U' U).

    ValueError where the factor is not square, and for fewer than 2 dims. NotImplementedError for integers. A zero on the diagonal gives NaN.
    """
    _linalg.check_matrices("cholesky_inverse", L, True)
    return cholesky_solve(identity(L.shape[-1], L).expand(*L.shape), L, upper)
