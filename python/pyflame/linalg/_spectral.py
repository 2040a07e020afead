"""Eigenvalues of symmetric matrices, singular values, and what is made of them."""
from __future__ import annotations

import math

from .. import _C
from .._C import _linalg
from .._grad_mode import no_grad
from .._keywords import accepting
from ..autograd.function import Function
from ._common import check, named, raise_for, real_dtype
from ._norms import matrix_norm
from ._solve import cutoff, inv_ex

TYPE_CHECKING = False  # type checkers take this name as true
if TYPE_CHECKING:
    from typing import Literal

    from .._C import Tensor
    from ._annotations import Eig, Eigh, Polar, Svd

_Eig = named("linalg_eig", "eigenvalues eigenvectors")
_Eigh = named("linalg_eigh", "eigenvalues eigenvectors")
_Svd = named("linalg_svd", "U S Vh")
_Polar = named("linalg_polar", "U H")


def _diverged(n):
    return f"The algorithm failed to converge because the input matrix is ill-conditioned or has too many repeated eigenvalues (error code: {n})."


def _eigh(op, A, UPLO, vectors):  # noqa: N803
    raise_for(op, UPLO.upper() not in ("L", "U"), f"Expected UPLO argument to be 'L' or 'U', but got {UPLO}")
    if A.requires_grad and A.ndim >= 2 and A.shape[-1] == A.shape[-2]:
        # Only one triangle is read, but the gradient is that of a symmetric matrix: G becomes (G + G') / 2, without a change of A's values.
        symmetric = (A + A.mH) / 2
        A = A.detach() + (symmetric - symmetric.detach())  # noqa: N806
    values, V, info = _linalg.eigh(A, UPLO.upper() == "U", vectors)
    check(op, info, _diverged)
    return values, V


@accepting
def eigh(A: Tensor, UPLO: Literal["L", "U"] = "L") -> Eigh:  # noqa: N803
    """The eigenvalues, ascending, and the eigenvectors (columns) of symmetric (complex: Hermitian) matrices [.., N, N]; only the triangle UPLO is read.

    A matrix with NaN or infinity gives NaN. Whether LAPACK converged is read: a sync point. The gradient is a symmetric (complex: Hermitian) matrix. That of the vectors is infinite where values repeat. The phase
    of a complex vector is arbitrary: the gradient of a result that depends on it is an error.
    """
    return _Eigh(*_eigh("linalg.eigh", A, UPLO, True))


@accepting
def eigvalsh(A: Tensor, UPLO: Literal["L", "U"] = "L") -> Tensor:  # noqa: N803
    """The eigenvalues [.., N] of symmetric (complex: Hermitian) matrices [.., N, N], real, ascending.

    A: float32, float64, complex64 or complex128 (NotImplementedError otherwise). UPLO: 'L' or 'U', the triangle that is read; RuntimeError otherwise.
    Returns float32, or float64 for 64 bits. NaN for matrices with NaN or infinity. ArgumentError for no square matrices; LinAlgError where LAPACK did not
    converge: a sync point.
    """
    return _eigh("linalg.eigvalsh", A, UPLO, False)[0]


class _EigOf(Function):
    """The complex values and vectors of matrices. With V' the conjugate transpose of the vectors V and w the values, the gradient of A
    is V'^-1 (diag(gw) + (V' gV - V' V diag(Re(V' gV))) / E) V', where E[i, j] = conj(w[j] - w[i]) beside the diagonal; its real part if A is real
    (C. Boeddeker et al., On the computation of complex-valued gradients with application to statistically optimum beamforming, 2019, 4.77)."""

    @staticmethod
    def forward(ctx, A, vectors):  # noqa: N803
        w, V, info = _linalg.eig(A, vectors)  # noqa: N806
        ctx.save_for_backward(w, V)
        ctx.mark_non_differentiable(info)
        ctx.set_materialize_grads(False)
        ctx.real = not A.is_complex()
        return w, V, info

    @staticmethod
    def backward(ctx, gw, gV, _):  # noqa: N803
        if gw is None and gV is None:
            return None, None
        w, V = ctx.saved_tensors  # noqa: N806
        Vh = V.mH  # noqa: N806
        if gV is None:
            middle = gw.unsqueeze(-1) * Vh
        else:
            inner = Vh @ gV
            along = inner.diagonal(0, -2, -1)
            raise_for("linalg.eig", bool((along.imag.abs() > 1e-2 * along.abs().clamp(1)).any()),
                      "the result depends on the phase of the eigenvectors, which is arbitrary, so that it has no gradient; got a gradient with such a part; expected none")
            gaps = w.conj().unsqueeze(-2) - w.conj().unsqueeze(-1)
            one = _C.eye(w.shape[-1], dtype=_C.bool_, device=w.device)
            inner = (inner - (Vh @ V) * along.real.unsqueeze(-2)) / _C.where(one, _C.ones_like(gaps), gaps)
            inner = _C.where(one, _C.zeros_like(inner) if gw is None else gw.unsqueeze(-1).expand(inner.shape), inner)
            middle = inner @ Vh
        result = _linalg.solve(Vh, middle)[0]
        return result.real if ctx.real else result, None


def _eig(op, A, vectors):  # noqa: N803
    w, V, info = _EigOf.apply(A, vectors or A.requires_grad)  # noqa: N806
    check(op, info, lambda n: "The matrix has NaN or infinity." if n < 0 else _diverged(n))
    return w, V


@accepting
def eig(A: Tensor) -> Eig:  # noqa: N803
    """The eigenvalues [.., N] and the eigenvectors (columns) of square matrices [.., N, N], both complex. A = V diag(w) V^-1.

    The values have no order. A vector has length 1, and its phase is arbitrary: the gradient of a result that depends on it is an error. Whether LAPACK
    converged is read: a sync point. LinAlgError if it did not, or for NaN and infinity. The gradient is infinite where values repeat.
    """
    return _Eig(*_eig("linalg.eig", A, True))


@accepting
def eigvals(A: Tensor) -> Tensor:  # noqa: N803
    """The eigenvalues [.., N] of square matrices [.., N, N], complex, in no order: the roots of det(A - w I), repeated where they are multiple.

    A: float32, float64, complex64 or complex128 (NotImplementedError otherwise). Returns complex64, or complex128 for 64 bits. ArgumentError for no
    square matrices; LinAlgError for NaN or infinity and where LAPACK did not converge: a sync point.
    """
    return _eig("linalg.eigvals", A, False)[0]


def _svd(A, full, vectors):  # noqa: N803
    U, S, Vh, info = _linalg.svd(A, full, vectors)  # noqa: N806
    few = min(A.shape[-2:])
    check("linalg.svd", info, lambda n: "The algorithm failed to converge because the input matrix contained non-finite values." if n == few + 1 else _diverged(n))
    return U, S, Vh


@accepting
def svd(A: Tensor, full_matrices: bool = True, *, driver: None = None) -> Svd:  # noqa: N803
    """A = U diag(S) Vh of matrices [.., M, N], with S descending. Without full_matrices U is [.., M, K] and Vh [.., K, N], K = min(M, N).

    LinAlgError for a matrix with NaN or infinity: a sync point. driver: None; a name of PyTorch's GPU routines is a RuntimeError. The gradient of U and Vh is
    infinite where singular values repeat. The common phase of complex vectors is arbitrary: the gradient of a result that depends on it is an error.
    """
    raise_for("linalg.svd", driver is not None, f"keyword argument `driver=` is only supported on CUDA inputs with cuSOLVER backend; got {driver!r}")
    return _Svd(*_svd(A, full_matrices, True))


@accepting
def svdvals(A: Tensor, *, driver: str | None = None) -> Tensor:  # noqa: N803
    """The singular values [.., K] of matrices [.., M, N], K = min(M, N), descending: the square roots of the eigenvalues of A' A.

    A: float32, float64, complex64 or complex128 (NotImplementedError otherwise). driver changes nothing. Returns float32, or float64 for 64 bits.
    ArgumentError for fewer than 2 dims; LinAlgError for NaN or infinity: a sync point.
    """
    return _svd(A, False, False)[1]


@accepting
def matrix_rank(A: Tensor, tol: Tensor | float | None = None, hermitian: bool = False, *, atol: Tensor | float | None = None,  # noqa: N803
                rtol: Tensor | float | None = None) -> Tensor:
    """The rank of matrices A [.., M, N]: the number of singular values (hermitian: of eigenvalues' sizes) above max(atol, rtol * the largest), as int64; rtol is max(M, N) times the
    precision unless given. tol is the old name of atol, with rtol 0.

    A: float32, float64, complex64 or complex128 (NotImplementedError otherwise). Returns [..], or with tensors as atol and rtol what they and [..] broadcast to.
    ArgumentError for fewer than 2 dims and, with hermitian, for matrices that are not square; LinAlgError for infinite values and NaN."""
    _linalg.check_matrices("linalg.matrix_rank", A, hermitian)
    atol = tol if atol is None else atol
    with no_grad():
        if A.numel() == 0:
            return _C.zeros(tuple(A.shape[:-2]), dtype=_C.int64, device=A.device)
        values = _C.abs(eigvalsh(A)) if hermitian else svdvals(A)
        return (values > cutoff(values, A.shape, atol, rtol)).sum(-1)


@accepting
def cond(A: Tensor, p: float | Literal["fro", "nuc"] | None = None) -> Tensor:  # noqa: N803
    """The condition number: the norm of A times that of its inverse, for p as of matrix_norm. None and 2: the largest singular value by the
    smallest; -2 the inverse of it. NaN for zeros.

    A: [.., N, N], for None, 2 and -2 also [.., M, N]; float32, float64, complex64 or complex128 (NotImplementedError otherwise). Returns [..] of A's real
    dtype. A singular matrix gives infinity (-2: 0), or a very large number (-2: a very small one) where rounding keeps its smallest singular value from 0.
    ArgumentError for fewer than 2 dims and for matrices that are not square; RuntimeError for another p.
    """
    _linalg.check_matrices("linalg.cond", A, p not in (None, 2, -2))
    if p in (None, 2, -2):
        if A.numel() == 0:
            return _C.zeros(tuple(A.shape[:-2]), dtype=real_dtype(A.dtype), device=A.device)
        values = svdvals(A)
        largest, smallest = values[..., 0], values[..., -1]
        return smallest / largest if p == -2 else largest / smallest
    inverse, info = inv_ex(A)
    result = matrix_norm(A, p) * matrix_norm(inverse, p)
    return _C.where(info != 0, math.inf, result) if A.shape[-1] else result


@accepting
def polar(A: Tensor) -> Polar:  # noqa: N803
    """A = U H of matrices [.., M, N] with M >= N: U has orthonormal columns, H is symmetric and not negative. By the singular values.

    A: float32, float64, complex64 or complex128 (NotImplementedError otherwise). Returns U [.., M, N] and H [.., N, N] of A's dtype. ArgumentError for M
    < N. LinAlgError where LAPACK did not converge: a sync point.
    """
    U, H, info = _linalg.polar(A)
    check("linalg.polar", info, _diverged)
    return _Polar(U, H)


def matrix_sqrth(A: Tensor) -> Tensor:  # noqa: N803
    """The symmetric square root of symmetric positive-definite matrices: X with X X = A, both [.., N, N]; only the lower triangle of A is read.

    A: float32, float64, complex64 or complex128 (NotImplementedError otherwise); X has its dtype. NaN where an eigenvalue is negative. ArgumentError for
    no square matrices; LinAlgError where LAPACK did not converge: a sync point.
    """
    X, info = _linalg.matrix_sqrth(A)
    check("linalg.matrix_sqrth", info, _diverged)
    return X


def _range_of(A, q, niter, M):  # noqa: N803
    """Orthonormal columns that about span the range of A - M: products with random vectors (Halko, Martinsson and Tropp, 2011, algorithm 4.4)."""
    from ._factor import qr

    def times(X, transposed):  # noqa: N803
        a, m = (A.mH, M) if transposed else (A, M)
        y = _C.matmul(a, X)
        return y if m is None else y - _C.matmul(m.mH if transposed else m, X)

    Q = qr(times(_C.randn(A.shape[-1], q, dtype=A.dtype, device=A.device), False)).Q
    for _ in range(niter):
        Q = qr(times(qr(times(Q, True)).Q, False)).Q
    return Q


@accepting
def svd_lowrank(A: Tensor, q: int | None = 6, niter: int = 2, M: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:  # noqa: N803
    """About the q largest singular values and their vectors, (U, S, V), of A - M, by random products and niter iterations of subspaces.

    q: at most min(M, N) count. A: [.., M, N]. TypeError for integers, ValueError for a negative q or niter and for an M that does not broadcast to A, IndexError
    for fewer than 2 dims.
    """
    q = 6 if q is None else q
    if niter < 0:
        raise ValueError(f"svd_lowrank: niter is negative; got {niter}; expected 0 or more")
    M = None if M is None else M.expand(*A.shape)  # noqa: N806
    turned = A.shape[-2] < A.shape[-1]
    if turned:
        A, M = A.mH, None if M is None else M.mH  # noqa: N806
    Q = _range_of(A, q, niter, M)
    B = _C.matmul(Q.mH, A if M is None else A - M)
    U, S, Vh = svd(B, full_matrices=False)
    U, V = _C.matmul(Q, U), Vh.mH
    return (V, S, U) if turned else (U, S, V)


@accepting
def pca_lowrank(A: Tensor, q: int | None = None, center: bool = True, niter: int = 2) -> tuple[Tensor, Tensor, Tensor]:  # noqa: N803
    """The principal components of rows: svd_lowrank of A without the mean of its columns (center).

    A [.., m, n], of a floating dtype. q: how many components; None: 6, or m or n where that is less. niter: iterations of subspaces. ValueError for q above m or n, and for
    negative numbers.
    """
    m, n = A.shape[-2:]
    q = min(6, m, n) if q is None else q
    if not 0 <= q <= min(m, n):
        raise ValueError(f"pca_lowrank: q(={q}) must be non-negative integer and not greater than min(m, n)={min(m, n)}")
    if niter < 0:
        raise ValueError(f"pca_lowrank: niter(={niter}) must be non-negative integer")
    return svd_lowrank(A - A.mean(-2, keepdim=True) if center else A, q, niter)
