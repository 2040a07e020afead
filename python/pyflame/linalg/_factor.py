"""Factorizations: Cholesky, LU, QR, LDL'."""
from __future__ import annotations

from .. import _C
from .._C import _linalg
from .._keywords import accepting
from ._common import check, named, raise_for

TYPE_CHECKING = False  # type checkers take this name as true
if TYPE_CHECKING:
    from typing import Literal

    from .._C import Tensor
    from ._annotations import CholeskyEx, LdlFactor, LdlFactorEx, Lu, LuFactor, LuFactorEx, Qr

_CholeskyEx = named("linalg_cholesky_ex", "L info")
_Qr = named("linalg_qr", "Q R")
_Lu = named("linalg_lu", "P L U")
_LuFactor = named("linalg_lu_factor", "LU pivots")
_LuFactorEx = named("linalg_lu_factor_ex", "LU pivots info")
_LdlFactor = named("linalg_ldl_factor", "LD pivots")
_LdlFactorEx = named("linalg_ldl_factor_ex", "LD pivots info")


def _not_positive(n):
    return f"The factorization could not be completed because the input is not positive-definite (the leading minor of order {n} is not positive-definite)."


def _cholesky(A, upper):  # noqa: N803 - PyTorch's name
    if upper and A.ndim >= 2:
        L, info = _linalg.cholesky(A.mH)
        return L.mH, _with_nan(L, info)
    L, info = _linalg.cholesky(A)
    return L, _with_nan(L, info)


def _with_nan(L, info):  # noqa: N803
    """info, which also names the first NaN of L's diagonal: some libraries do not see that such a matrix is not positive-definite."""
    if not L.shape[-1]:
        return info
    nan = _C.isnan(L.detach().diagonal(0, -2, -1).real).to(info.dtype)
    first = (nan.argmax(-1) + 1).to(info.dtype)
    return _C.where(_C.logical_and(info == 0, nan.amax(-1) > 0), first, info)


@accepting
def cholesky(A: Tensor, *, upper: bool = False) -> Tensor:  # noqa: N803
    """The lower triangular L with A = L L', of symmetric (complex: Hermitian) positive-definite matrices [.., N, N]; only A's lower triangle is read. With upper, U with A = U' U.

    LinAlgError where a matrix is not positive-definite. Whether it is, is read: a sync point; cholesky_ex has none.
    """
    L, info = _cholesky(A, upper)
    check("linalg.cholesky", info, _not_positive)
    return L


@accepting
def cholesky_ex(A: Tensor, *, upper: bool = False, check_errors: bool = False) -> CholeskyEx:  # noqa: N803
    """cholesky without its error: (L, info), where info is 0, or the order of the first leading minor that is not positive-definite.

    A: [.., N, N], float32, float64, complex64 or complex128 (NotImplementedError otherwise). L: [.., N, N]. info: int32 [..]. upper: U with A = U' U.
    check_errors: True raises LinAlgError where an info is not 0, and so reads it: a sync point. ArgumentError for no square matrices.
    """
    L, info = _cholesky(A, upper)
    if check_errors:
        check("linalg.cholesky_ex", info, _not_positive)
    return _CholeskyEx(L, info)


@accepting
def qr(A: Tensor, mode: Literal["reduced", "complete", "r"] = "reduced") -> Qr:  # noqa: N803
    """A = Q R of matrices [.., M, N]: Q has orthonormal columns, R is upper triangular. mode: 'reduced' (Q is [.., M, K], K = min(M, N)),
    'complete' (Q is square), or 'r' (Q is empty). By Householder's reflectors.

    A: float32, float64, complex64 or complex128 (NotImplementedError otherwise), which Q and R have. R: [.., K, N], with 'complete' [.., M, N]. RuntimeError for
    another mode; ArgumentError for fewer than 2 dims."""
    raise_for("linalg.qr", mode not in ("reduced", "complete", "r"), f"no such mode; got {mode!r}; expected 'reduced', 'complete' or 'r'")
    return _Qr(*_linalg.qr(A, mode == "complete", mode != "r"))


def _zero_pivot(op):
    def reason(n):
        return (f"U[{n},{n}] is zero and using it on lu_solve would result in a division by zero. If you still want to perform the factorization, consider "
                "calling linalg.lu(A, pivot) or linalg.lu_factor_ex(A, pivot)")

    return op, reason


def _lu_factor(op, A, pivot):  # noqa: N803
    raise_for(op, not pivot, "LU without pivoting is not available; got pivot=False; expected pivot=True")
    return _linalg.lu_factor(A)


@accepting
def lu_factor(A: Tensor, *, pivot: bool = True) -> LuFactor:  # noqa: N803
    """The compact form of P L U: (LU, pivots), with L below LU's diagonal and U above it; pivots (int32) are the rows that changed places, from 1 on.

    LinAlgError where U has a zero on its diagonal: a sync point; lu_factor_ex has none. Gradients of LU, for every shape.
    """
    LU, pivots, info = _lu_factor("linalg.lu_factor", A, pivot)
    check("linalg.lu_factor", info, _zero_pivot("linalg.lu_factor")[1])
    return _LuFactor(LU, pivots)


@accepting
def lu_factor_ex(A: Tensor, *, pivot: bool = True, check_errors: bool = False) -> LuFactorEx:  # noqa: N803
    """lu_factor without its error: (LU, pivots, info), where info is 0, or the place of the first zero on U's diagonal.

    A: [.., M, N], float32, float64, complex64 or complex128. LU: [.., M, N]. pivots: int32 [.., K], K = min(M, N). info: int32 [..]. check_errors: True
    raises LinAlgError where an info is not 0: a sync point. RuntimeError for pivot=False; ArgumentError for fewer than 2 dims.
    """
    LU, pivots, info = _lu_factor("linalg.lu_factor_ex", A, pivot)
    if check_errors:
        check("linalg.lu_factor_ex", info, _zero_pivot("linalg.lu_factor_ex")[1])
    return _LuFactorEx(LU, pivots, info)


def _triangles(LU):  # noqa: N803
    m, n = LU.shape[-2:]
    k = min(m, n)
    return _C.tril(LU[..., :k], -1) + _C.eye(m, k, dtype=LU.dtype, device=LU.device), _C.triu(LU[..., :k, :])


def _permutation(pivots, rows, like):
    """P of A = P L U."""
    order = _linalg.row_order(pivots, rows, False)
    return (_C.arange(rows, device=like.device).unsqueeze(-1) == order.unsqueeze(-2)).to(like.dtype)


@accepting
def lu_unpack(LU_data: Tensor, LU_pivots: Tensor, unpack_data: bool = True, unpack_pivots: bool = True) -> Lu:  # noqa: N803
    """P, L and U of what lu_factor gave; those that are not asked for are empty.

    LU_data, LU_pivots: the results of lu_factor. unpack_pivots: P is asked for. unpack_data: L and U are.

    LU_data: [.., M, N]; LU_pivots: int32 vectors [.., K] of K = min(M, N) row numbers from 1 on. RuntimeError for pivots that are not int32. IndexError
    for fewer than 2 dims, and for a pivot out of range when the numbers are computed.
    """
    none = _C.empty(0, dtype=LU_data.dtype, device=LU_data.device)
    P = _permutation(LU_pivots, LU_data.shape[-2], LU_data) if unpack_pivots else none
    L, U = _triangles(LU_data) if unpack_data else (none, none)
    return _Lu(P, L, U)


@accepting
def lu(A: Tensor, *, pivot: bool = True) -> Lu:  # noqa: N803
    """A = P L U of matrices [.., M, N]: a permutation, a lower triangle with ones on its diagonal, an upper triangle.

    A: float32, float64, complex64 or complex128. Returns P [.., M, M], L [.., M, K], U [.., K, N], K = min(M, N). pivot: True; RuntimeError otherwise.
    ArgumentError for fewer than 2 dims. A singular matrix is no error.
    """
    LU, pivots, _ = _lu_factor("linalg.lu", A, pivot)
    return lu_unpack(LU, pivots)


@accepting
def ldl_factor_ex(A: Tensor, *, hermitian: bool = False, check_errors: bool = False) -> LdlFactorEx:  # noqa: N803
    """A = L D L^T of symmetric matrices, or with hermitian L D L' of Hermitian ones, in LAPACK's compact form (sytrf or hetrf, the lower triangle): (LD,
    pivots, info).

    A: [.., N, N], float32, float64, complex64 or complex128. LD: [.., N, N]. pivots: int32 [.., N]. info: int32 [..], 0 or the place of the first zero on
    D's diagonal. check_errors: True raises LinAlgError where an info is not 0: a sync point. hermitian changes nothing for real matrices. ArgumentError
    for no square matrices.
    """
    LD, pivots, info = _linalg.ldl_factor(A, hermitian)
    if check_errors:
        check("linalg.ldl_factor_ex", info, lambda n: f"D[{n},{n}] is zero: a solution would divide by it.")
    return _LdlFactorEx(LD, pivots, info)


@accepting
def ldl_factor(A: Tensor, *, hermitian: bool = False) -> LdlFactor:  # noqa: N803
    """ldl_factor_ex that raises where D has a zero on its diagonal: (LD [.., N, N], pivots [.., N]). LinAlgError there: a sync point.

    A, hermitian and the other errors: as in ldl_factor_ex.
    """
    LD, pivots, info = _linalg.ldl_factor(A, hermitian)
    check("linalg.ldl_factor", info, lambda n: f"D[{n},{n}] is zero: a solution would divide by it.")
    return _LdlFactor(LD, pivots)


@accepting
def ldl_solve(LD: Tensor, pivots: Tensor, B: Tensor, *, hermitian: bool = False) -> Tensor:  # noqa: N803
    """X with A X = B [.., N, K]. LD, pivots: what ldl_factor gave for A; hermitian: as it was given there, whether A is hermitian and not symmetric.

    B: a matrix or more, of LD's dtype; the result has its shape. ArgumentError for vectors and for shapes that do not fit.
    Pivots that ldl_factor does not give are an IndexError when X is computed.
    """
    return _linalg.ldl_solve(LD, pivots, B, hermitian)


@accepting
def householder_product(A: Tensor, tau: Tensor) -> Tensor:  # noqa: N803
    """The first N columns of the product of K reflectors I - tau v v', whose vectors are the columns of A [.., M, N] below its diagonal.

    tau: [.., K], of the dtype of A. ValueError for fewer than 2 dims. RuntimeError for M < N, for K > N, and where tau does not fit. NotImplementedError
    for integers.
    """
    _linalg.check_matrices("linalg.householder_product", A, False)
    m, n, k = A.shape[-2], A.shape[-1], tau.shape[-1]
    raise_for("linalg.householder_product", m < n, f"fewer rows than columns; got shape {tuple(A.shape)}; expected M >= N")
    raise_for("linalg.householder_product", n < k, f"more factors than columns; got {k} for shape {tuple(A.shape)}; expected K <= N")
    raise_for("linalg.householder_product", tuple(tau.shape[:-1]) != tuple(A.shape[:-2]) or tau.dtype != A.dtype, f"tau does not fit; got {tuple(tau.shape)} of {tau.dtype} for {tuple(A.shape)} of {A.dtype}")
    return _linalg.householder_product(A, tau, n)
