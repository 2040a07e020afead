"""Linear algebra by its names outside of pyflame.linalg, as functions and methods."""
from __future__ import annotations

from . import _C, linalg
from ._C import Tensor, _linalg
from ._keywords import accepting
from ._public import method
from .linalg._common import named, raise_for
from .linalg._factor import lu_unpack
from .linalg._solve import cholesky_inverse, cholesky_solve, logdet
from .linalg._spectral import pca_lowrank, svd_lowrank

TYPE_CHECKING = False  # type checkers take this name as true
if TYPE_CHECKING:
    from collections.abc import Sequence

    from ._annotations import Dim
    from ._named_tuples import Geqrf, QR, SVD, TriangularSolve

__all__ = ["cholesky", "cholesky_inverse", "cholesky_solve", "det", "geqrf", "inverse", "logdet", "lu", "lu_solve", "lu_unpack", "matrix_exp", "matrix_power", "orgqr", "ormqr",
           "pca_lowrank", "pinverse", "qr", "slogdet", "svd", "svd_lowrank", "triangular_solve", "frobenius_norm", "nuclear_norm"]

_Geqrf = named("geqrf", "a tau")
_Svd = named("svd", "U S V")
_TriangularSolve = named("triangular_solve", "solution cloned_coefficient")

det, slogdet, matrix_exp, matrix_power, inverse, orgqr = linalg.det, linalg.slogdet, linalg.matrix_exp, linalg.matrix_power, linalg.inv, linalg.householder_product


@accepting
def svd(input: Tensor, some: bool = True, compute_uv: bool = True) -> SVD:
    """input = U diag(S) V' of matrices: (U, S, V). some: U and V have K = min(M, N) columns; without compute_uv they are zeros.

    ValueError for fewer than 2 dims, NotImplementedError for integers, linalg.LinAlgError for numbers that are not finite.
    """
    if not compute_uv:
        m, n = input.shape[-2:]
        lead = tuple(input.shape[:-2])
        zeros = [_C.zeros((*lead, size, size), dtype=input.dtype, device=input.device) for size in (m, n)]
        return _Svd(zeros[0], linalg.svdvals(input), zeros[1])
    U, S, Vh = linalg.svd(input, full_matrices=not some)  # noqa: N806
    return _Svd(U, S, Vh.mH)


def cholesky(input: Tensor, upper: bool = False, *, out: Tensor | None = None) -> Tensor:
    """The same as linalg.cholesky: the lower triangular L with A = L L' for A = input [.., N, N]; with upper, its conjugated transpose.

    LinAlgError where a matrix is not positive-definite; ArgumentError unless the matrices are square.
    """
    return linalg.cholesky(input, upper=upper, out=out)


def qr(input: Tensor, some: bool = True, *, out: Sequence[Tensor] | None = None) -> QR:
    """linalg.qr of matrices [.., M, N]: (Q, R), with mode 'reduced' if some is true, otherwise 'complete'.

    ArgumentError for fewer than 2 dims.
    """
    return linalg.qr(input, "reduced" if some else "complete", out=out)


def lu(A: Tensor, pivot: bool = True, get_infos: bool = False) -> tuple[Tensor, ...]:  # noqa: N803
    """linalg.lu_factor_ex of A: (LU, pivots), with get_infos also info. RuntimeError for pivot=False."""
    result = linalg.lu_factor_ex(A, pivot=pivot)
    return tuple(result) if get_infos else tuple(result[:2])


def lu_solve(b: Tensor, LU_data: Tensor, LU_pivots: Tensor, *, out: Tensor | None = None) -> Tensor:  # noqa: N803
    """X with A X = b [.., N, K], where lu_factor of A gave LU_data and LU_pivots: linalg.lu_solve(LU_data, LU_pivots, b).

    ValueError where LU_data is not square or has fewer than 2 dims. RuntimeError where the sizes or the dtypes of b and LU_data differ, and for pivots
    that are not int32.
    """
    return linalg.lu_solve(LU_data, LU_pivots, b, out=out)


@accepting
def triangular_solve(b: Tensor, A: Tensor, upper: bool = True, transpose: bool = False, unitriangular: bool = False) -> TriangularSolve:  # noqa: N803
    """X with A X = b for triangular A (with transpose: A' X = b), and a copy of A.

    b [.., N, K], A [.., N, N]. upper: the upper triangle of A counts, otherwise the lower one. unitriangular: its diagonal counts as ones.

    ValueError where A is not square, where the sizes do not fit, and for fewer than 2 dims. TypeError where the dtypes differ, NotImplementedError for
    dtypes of integers.
    """
    X = linalg.solve_triangular(A.mT if transpose else A, b, upper=upper != transpose, unitriangular=unitriangular)
    return _TriangularSolve(X, A.clone())


@accepting
def geqrf(input: Tensor) -> Geqrf:
    """LAPACK's compact QR of matrices [.., M, N]: (a, tau), with R in the upper triangle of a and the vectors of the reflectors below it.

    a: [.., M, N], tau, the factors of the reflectors: [.., min(M, N)]. orgqr and ormqr take both. Dtypes: float32, float64, complex64 and complex128, which
    the results have; NotImplementedError for others. ArgumentError for fewer than 2 dims. There is no gradient: RuntimeError for an input that requires one.
    """
    raise_for("geqrf", input.requires_grad and _C.is_grad_enabled(), "the derivative is not implemented; hint: use linalg.qr")
    return _Geqrf(*_linalg.geqrf(input))


@accepting
def ormqr(input: Tensor, tau: Tensor, other: Tensor, left: bool = True, transpose: bool = False) -> Tensor:
    """The product Q @ other (left=False: other @ Q; with transpose Q' for Q) of the reflectors that geqrf gave, without making Q.

    input [.., M, N], tau [.., N]: the results of geqrf. other: [.., M, K], or [.., K, M] with left=False.

    Floating or complex dtypes of 32 or 64 bits a number; NotImplementedError for integers. RuntimeError for fewer than 2 dims and where the sizes of other
    do not fit; ValueError for more reflectors than columns; TypeError where the dtypes differ.
    """
    raise_for("ormqr", input.ndim < 2 or other.ndim < 2, f"Expected at least 2 dimensions; got shapes {tuple(input.shape)} and {tuple(other.shape)}")
    side = other.shape[-2 if left else -1]
    raise_for("ormqr", side != input.shape[-2], f"other.shape[{-2 if left else -1}] must be equal to input.shape[-2]; got {side} and {input.shape[-2]}")
    if left:
        return _linalg.apply_reflectors(input, tau, other, transpose)
    return _linalg.apply_reflectors(input, tau, other.mH, not transpose).mH


def pinverse(input: Tensor, rcond: Tensor | float = 1e-15) -> Tensor:
    """The pseudoinverse of matrices [.., M, N], as [.., N, M]: linalg.pinv with rtol=rcond. Singular values up to rcond times the largest count as zero.

    ValueError for fewer than 2 dims. NotImplementedError for dtypes of integers and for half types.
    """
    return linalg.pinv(input, rtol=rcond)


def frobenius_norm(input: Tensor, dim: Dim = (), keepdim: bool = False) -> Tensor:
    """sqrt(sum of |x|^2) over dim, a number or a tuple, or over all elements: linalg.vector_norm with ord 2.

    keepdim: these dims stay, with size 1. The result has input's dtype, or the real one of a complex dtype. RuntimeError for other dtypes; IndexError for a dim
    out of range.
    """
    return linalg.vector_norm(input, 2, dim, keepdim)


def nuclear_norm(input: Tensor, dim: Sequence[int] = (-2, -1), keepdim: bool = False) -> Tensor:
    """The sum of the singular values of the matrices in two dims: linalg.matrix_norm with ord 'nuc'.

    keepdim: both dims stay, with size 1. RuntimeError for fewer than 2 dims, and unless input is floating or complex.
    """
    return linalg.matrix_norm(input, "nuc", dim, keepdim)


def _lu_method(self: Tensor, pivot: bool = True, get_infos: bool = False) -> tuple[Tensor, ...]:
    """The LU factors of matrices [.., M, N] as linalg.lu_factor_ex gives them: (LU, pivots), with get_infos (LU, pivots, info). RuntimeError for
    pivot=False.
    """
    return lu(self, pivot, get_infos)


for _function in (cholesky, cholesky_inverse, cholesky_solve, det, geqrf, logdet, lu_solve, matrix_exp, matrix_power, ormqr, pinverse, qr, slogdet, triangular_solve):
    method(_function)
Tensor.inverse, Tensor.orgqr, Tensor.svd, Tensor.lu = inverse, orgqr, svd, _lu_method
