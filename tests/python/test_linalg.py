"""pyflame.linalg: what the case tables do not say: names, arguments, errors, edge cases, gradients of rarer functions."""
import math

import numpy as np
import pytest

import pyflame as pf

RNG = np.random.default_rng(0)
A = RNG.standard_normal((3, 4, 4)) + 3 * np.eye(4)
S = A @ A.transpose(0, 2, 1)
TALL, WIDE = RNG.standard_normal((6, 3)), RNG.standard_normal((3, 6))
L = pf.linalg


def close(got, want, tolerance=1e-9):
    np.testing.assert_allclose(got.detach().numpy() if isinstance(got, pf.Tensor) else got, want, rtol=tolerance, atol=tolerance)


def leaf(array):
    return pf.tensor(array, requires_grad=True)


SINGULAR = pf.tensor(np.stack([np.eye(2), np.ones((2, 2))]))
NOT_FINITE = pf.full((2, 2), math.nan)


@pytest.mark.parametrize("call, text", [
    (lambda: L.cholesky(pf.tensor(-S)), r"linalg.cholesky: \(Batch element 0\): .* not positive-definite \(the leading minor of order 1 "),
    (lambda: pf.cholesky(pf.tensor([[1.0, 2.0], [2.0, 1.0]])), "linalg.cholesky: The factorization .* minor of order 2 "),
    (lambda: L.cholesky_ex(pf.tensor(-S), check_errors=True), "linalg.cholesky_ex: .*Batch element 0"),
    (lambda: L.inv(SINGULAR), r"linalg.inv: \(Batch element 1\): The diagonal element 2 is zero"),
    (lambda: L.solve(SINGULAR, SINGULAR), "linalg.solve: .*The solver failed because the input matrix is singular"),
    (lambda: L.lu_factor(SINGULAR), r"lu_factor: .*U\[2,2\] is zero"),
    (lambda: L.eig(NOT_FINITE), "linalg.eig: The matrix has NaN or infinity"),
    (lambda: L.svd(NOT_FINITE), "linalg.svd: The algorithm failed to converge because the input matrix contained non-finite values"),
])
def test_matrices_without_a_factorization(call, text):
    with pytest.raises(L.LinAlgError, match=text):
        call()
    assert issubclass(L.LinAlgError, RuntimeError)


@pytest.mark.parametrize("call, error, text", [
    (lambda: L.inv(pf.ones(2, 3)), RuntimeError, "linalg.inv: A must be batches of square matrices, but they are 2 by 3"),
    (lambda: L.det(pf.ones(3)), RuntimeError, "linalg.det: The input tensor A must have at least 2 dimensions"),
    (lambda: L.cholesky(pf.ones(2, 2, dtype=pf.int64)), NotImplementedError, "linalg.cholesky: not implemented for this dtype; got int64"),
    (lambda: L.solve(pf.ones(2, 2), pf.ones(3, 1)), RuntimeError, r"Incompatible shapes of A and B for the equation AX = B; got \(2, 2\) and \(3, 1\)"),
    (lambda: L.solve_triangular(pf.ones(2, 2), pf.ones(3, 1), upper=True), RuntimeError, "Incompatible shapes of A and B"),
    (lambda: L.lu(pf.ones(2, 2), pivot=False), RuntimeError, "LU without pivoting is not available"),
    (lambda: L.qr(pf.ones(2, 2), "full"), RuntimeError, "linalg.qr: no such mode"),
    (lambda: L.eigh(pf.ones(2, 2), "X"), RuntimeError, "Expected UPLO argument to be 'L' or 'U'"),
    (lambda: L.lstsq(pf.ones(2, 2), pf.ones(3)), RuntimeError, "other numbers of rows"),
    (lambda: L.lstsq(pf.ones(2, 2), pf.ones(2), driver="gelx"), RuntimeError, "no such driver"),
    (lambda: L.matrix_norm(pf.ones(2, 2), 3), RuntimeError, "linalg.matrix_norm: no such order; got 3"),
    (lambda: L.matrix_norm(pf.ones(2, 2), 1, dim=(0, 5)), IndexError, "linalg.matrix_norm: dim out of range; got 5; expected -2 <= dim < 2"),
    (lambda: L.matrix_norm(pf.ones(2, 2), "nuc", dim=(0, -5)), IndexError, "linalg.matrix_norm: dim out of range; got -5"),
    (lambda: L.matrix_norm(pf.ones(2, 2), dim=0), RuntimeError, "linalg.matrix_norm: dim must be a 2-tuple"),
    (lambda: L.matrix_norm(pf.ones(2, 2), dtype=pf.int32), RuntimeError, "linalg.matrix_norm: the dtype is not floating or complex; got dtype=.*int32"),
    (lambda: L.vector_norm(pf.ones(2), dtype=pf.int32), RuntimeError, "linalg.vector_norm: the dtype is not floating or complex; got dtype=.*int32"),
    (lambda: L.vector_norm(pf.ones(2, dtype=pf.complex64), dtype=pf.float32), RuntimeError, "linalg.vector_norm: a complex tensor does not fit the dtype"),
    (lambda: L.lu_solve(pf.eye(2), pf.ones(1, dtype=pf.int32), pf.ones(2, 1)), RuntimeError, r"linalg.lu_solve: pivots do not fit; got shape \(1,\) for LU \(2, 2\)"),
    (lambda: L.lu_solve(pf.eye(2), pf.tensor([1, 9], dtype=pf.int32), pf.ones(2, 1)).tolist(), IndexError, "linalg.lu_solve: a pivot is out of range; got 9; expected 1 to 2"),
    (lambda: L.lu_solve(pf.eye(2), pf.tensor([0, 1], dtype=pf.int32), pf.ones(2, 1)).tolist(), IndexError, "linalg.lu_solve: a pivot is out of range; got 0; expected 1 to 2"),
    (lambda: L.ldl_solve(pf.eye(2), pf.tensor([1, 9], dtype=pf.int32), pf.ones(2, 1)).tolist(), IndexError, "linalg.ldl_solve: a pivot is out of range; got 9; expected 1 to 2, or such"),
    (lambda: L.ldl_solve(pf.eye(2), pf.tensor([1, -2], dtype=pf.int32), pf.ones(2, 1)).tolist(), IndexError, "linalg.ldl_solve: a pivot below 0 is alone; got -2 in row 1"),
    (lambda: L.lstsq(3, pf.ones(2)), TypeError, r"^lstsq: an argument is not a tensor; got int"),
    (lambda: L.qr(3), TypeError, r"^qr: an argument is not a tensor; got int"),
    (lambda: L.vector_norm(pf.ones(0), math.inf), RuntimeError, "no identity"),
    (lambda: L.vector_norm(pf.ones(2, 2), 2, 5), IndexError, "linalg.vector_norm: dim out of range; got 5; expected -2 <= dim < 2"),
    (lambda: pf.frobenius_norm(pf.ones(2, 2), (0, -3)), IndexError, "norm: dim out of range; got -3; expected -2 <= dim < 2"),
    (lambda: L.vector_norm(pf.arange(3)), RuntimeError, "linalg.vector_norm: the dtype is not floating or complex; got pyflame.int64"),
    (lambda: L.multi_dot([pf.ones(2, 2)]), RuntimeError, "linalg.multi_dot: too few tensors; got 1"),
    (lambda: L.polar(pf.ones(2, 3)), RuntimeError, "at least as many rows as columns"),
    (lambda: L.tensorinv(pf.ones(2, 2), ind=0), RuntimeError, "tensorinv: ind is not positive; got 0"),
    (lambda: L.vander(pf.ones(3), N=1), RuntimeError, "N must be greater than 1"),
    (lambda: L.cross(pf.ones(3), pf.ones(3), dim=1), IndexError, "linalg.cross: dim out of range; got 1; expected -1 <= dim < 1"),
    (lambda: L.cross(pf.ones(2), pf.ones(2)), RuntimeError, "must have length 3"),
    (lambda: L.householder_product(pf.ones(2, 3), pf.ones(2)), RuntimeError, "fewer rows than columns"),
    (lambda: L.qr(leaf(TALL), "r").R.sum().backward(), RuntimeError, "depends on Q"),
    (lambda: L.qr(leaf(TALL), "complete").R.sum().backward(), RuntimeError, "not differentiable when mode='complete'"),
    (lambda: L.inv(pf.eye(2), out=pf.ones(2, 2, dtype=pf.int64)), RuntimeError, "inv: the result cannot be cast to the dtype of out"),
])
def test_errors(call, error, text):
    with pytest.raises(error, match=text):
        call()


def test_ex_functions_give_info():
    assert L.cholesky_ex(pf.tensor(-S)).info.tolist() == [1, 1, 1]
    assert L.inv_ex(SINGULAR).info.tolist() == [0, 2]
    assert L.solve_ex(SINGULAR, SINGULAR).info.tolist() == [0, 2]
    assert L.lu_factor_ex(SINGULAR).info.tolist() == [0, 2]
    assert L.eigvalsh(NOT_FINITE).isnan().all().item()


def test_factors():
    a = pf.tensor(A)
    for x in (TALL, WIDE, A):
        P, lower, U = L.lu(pf.tensor(x))
        close(P @ lower @ U, x)
        for mode in ("reduced", "complete"):
            Q, R = L.qr(pf.tensor(x), mode)
            close(Q @ R, x)
            close(Q.mT @ Q, np.broadcast_to(np.eye(Q.shape[-1]), (*x.shape[:-2], Q.shape[-1], Q.shape[-1])))
        for full in (False, True):
            u, s, v = L.svd(pf.tensor(x), full_matrices=full)
            k = s.shape[-1]
            close((u[..., :k] * s.unsqueeze(-2)) @ v[..., :k, :], x)
            close(u.mT @ u, np.broadcast_to(np.eye(u.shape[-1]), (*x.shape[:-2], u.shape[-1], u.shape[-1])))
    upper = L.cholesky(pf.tensor(S), upper=True)
    close(upper.mT @ upper, S)
    close(pf.cholesky_inverse(upper, upper=True), np.linalg.inv(S), 1e-7)
    close(pf.cholesky_solve(a, L.cholesky(pf.tensor(S))), np.linalg.solve(S, A), 1e-7)
    packed, tau = pf.geqrf(pf.tensor(TALL))
    q = L.qr(pf.tensor(TALL), "complete").Q
    close(pf.orgqr(packed, tau), q[:, :3].numpy())
    for transpose in (False, True):
        close(pf.ormqr(packed, tau, pf.tensor(TALL), transpose=transpose), (q.mT if transpose else q).numpy() @ TALL)
        close(pf.ormqr(packed, tau, pf.tensor(WIDE), False, transpose), WIDE @ (q.mT if transpose else q).numpy())
    P, lower, U = pf.lu_unpack(*pf.lu(a))
    close(P @ lower @ U, A)
    X = pf.triangular_solve(a, pf.tensor(S), upper=False, transpose=True).solution
    close(X, np.linalg.solve(np.tril(S).transpose(0, 2, 1), A), 1e-8)


def test_solutions():
    a, b = pf.tensor(A), pf.tensor(RNG.standard_normal((3, 4)))
    close(L.solve(a, b), np.linalg.solve(A, b.numpy()[..., None])[..., 0])
    close(L.solve(a, a, left=False), np.broadcast_to(np.eye(4), A.shape))
    close(L.solve(a, pf.tensor(S[:1])), np.linalg.solve(A, S[:1]))
    LU, pivots = L.lu_factor(a)
    for adjoint in (False, True):
        matrix = A.transpose(0, 2, 1) if adjoint else A
        close(L.lu_solve(LU, pivots, a, adjoint=adjoint), np.linalg.solve(matrix, A))
        close(L.lu_solve(LU, pivots, a, left=False, adjoint=adjoint), A @ np.linalg.inv(matrix))
    for driver in ("gels", "gelsy", "gelsd", "gelss"):
        x = L.lstsq(pf.tensor(TALL), pf.tensor(TALL[:, :2] + 1), driver=driver)
        want, residuals, rank, values = np.linalg.lstsq(TALL, TALL[:, :2] + 1, rcond=None)
        close(x.solution, want)
        if driver != "gelsy":
            close(x.residuals, residuals)
        if driver in ("gelsd", "gelss"):
            close(x.singular_values, values)
        assert driver == "gels" or x.rank.item() == rank
    close(L.lstsq(pf.tensor(WIDE), pf.ones(3, dtype=pf.float64)).solution, np.linalg.pinv(WIDE) @ np.ones(3))
    close(L.tensorinv(pf.tensor(RNG.standard_normal((4, 2, 2)) + 0.0), ind=1).reshape(4, 4).shape, (4, 4))
    t = RNG.standard_normal((2, 3, 6))
    close(L.tensorsolve(pf.tensor(t), pf.ones(2, 3, dtype=pf.float64)), np.linalg.tensorsolve(t, np.ones((2, 3))), 1e-7)
    close(L.tensorinv(pf.tensor(t), ind=2), np.linalg.tensorinv(t, 2), 1e-7)


def test_pseudoinverses_ranks_and_conditions():
    low = RNG.standard_normal((5, 2)) @ RNG.standard_normal((2, 4))
    close(L.pinv(pf.tensor(low)), np.linalg.pinv(low))
    close(L.pinv(pf.tensor(S), hermitian=True), np.linalg.pinv(S))
    close(pf.pinverse(pf.tensor(TALL)), np.linalg.pinv(TALL))
    assert L.matrix_rank(pf.tensor(low)).item() == 2 and L.matrix_rank(pf.tensor(S), hermitian=True).tolist() == [4, 4, 4]
    assert L.matrix_rank(pf.tensor(low), atol=1e9).item() == 0 and L.matrix_rank(pf.zeros(0, 3)).item() == 0
    for p in (None, 2, -2, "fro", "nuc", 1, -1, math.inf, -math.inf):
        close(L.cond(pf.tensor(A[0]), p), np.linalg.cond(A[0], p), 1e-8)
    assert L.cond(pf.zeros(2, 2), 1).item() == math.inf


def test_determinants():
    a = pf.tensor(A)
    close(L.det(a), np.linalg.det(A))
    close(a.slogdet().logabsdet, np.linalg.slogdet(A)[1])
    assert L.slogdet(-pf.eye(3)).sign.item() == -1 and pf.logdet(-pf.eye(3)).isnan().item() and pf.det(pf.ones(2, 2)).item() == 0
    x = leaf(np.diag([2.0, 3.0, 0.0]))  # a singular matrix has the gradient of its adjugate
    L.det(x).backward()
    close(x.grad, np.diag([0.0, 0.0, 6.0]), 1e-9)


def test_norms():
    x = RNG.standard_normal((2, 3, 4))
    for p in ("fro", "nuc", 1, -1, 2, -2, math.inf, -math.inf):
        close(L.matrix_norm(pf.tensor(x), p), [np.linalg.norm(m, p) for m in x])
        assert L.matrix_norm(pf.tensor(x), p, dim=(0, 2), keepdim=True).shape == (1, 3, 1)
        close(L.norm(pf.tensor(x[0]), p), np.linalg.norm(x[0], p))
    for p in (0, 0.5, 1, 2, 3, -1, math.inf, -math.inf):
        close(L.vector_norm(pf.tensor(x), p, dim=1), np.linalg.norm(x, p, axis=1))
        close(pf.norm(pf.tensor(x), p, 1), np.linalg.norm(x, p, axis=1))
    close(pf.norm(pf.tensor(x[0]), "nuc"), np.linalg.norm(x[0], "nuc"))
    close(pf.nuclear_norm(pf.tensor(x[0])), np.linalg.norm(x[0], "nuc"))
    close(pf.frobenius_norm(pf.tensor(x)), np.linalg.norm(x.ravel()))
    assert L.matrix_norm(pf.ones(0, 3), math.inf).item() == 0 and L.norm(pf.tensor(x)).item() == pytest.approx(np.linalg.norm(x.ravel()))
    zero = leaf(np.zeros(3))
    for p in (0, 0.5, 1, 2, 3, -1):
        (g,) = pf.autograd.grad(L.vector_norm(zero, p), zero)
        assert g.tolist() == [0, 0, 0]


def _exp(x):
    w, v = np.linalg.eig(x)
    return (v * np.exp(w)[..., None, :] @ np.linalg.inv(v)).real


def test_functions_of_matrices():
    close(L.matrix_exp(pf.tensor(A)), _exp(A), 1e-8)
    close(pf.matrix_exp(pf.tensor(100 * np.eye(2))), np.exp(100) * np.eye(2), 1e-10 * np.exp(100))
    close(L.matrix_exp(pf.zeros(2, 2, dtype=pf.float64)), np.eye(2))
    for n in (-2, -1, 0, 1, 5):
        close(L.matrix_power(pf.tensor(A), n), np.linalg.matrix_power(A, n), 1e-7)
    X = L.matrix_sqrth(pf.tensor(S))
    close(X @ X, S)
    U, H = L.polar(pf.tensor(TALL))
    close(U @ H, TALL)
    close(U.mT @ U, np.eye(3))
    close(L.multi_dot([pf.tensor(TALL[0]), pf.tensor(WIDE), pf.tensor(TALL)]), TALL[0] @ WIDE @ TALL)
    assert L.multi_dot([pf.ones(3), pf.ones(3)]).shape == ()
    close(L.vander(pf.tensor([1.0, 2.0, 3.0])), np.vander([1.0, 2.0, 3.0], increasing=True))
    close(L.vecdot(pf.tensor(TALL), pf.tensor(TALL), dim=0), (TALL * TALL).sum(0))
    close(L.cross(pf.tensor(TALL), pf.tensor(TALL[::-1].copy())), np.cross(TALL, TALL[::-1]))
    close(L.diagonal(pf.tensor(A), offset=1), np.diagonal(A, 1, -2, -1))


def test_low_rank():
    low = RNG.standard_normal((40, 3)) @ RNG.standard_normal((3, 20))
    U, S3, V = pf.svd_lowrank(pf.tensor(low), q=3)
    close((U * S3) @ V.mT, low, 1e-8)
    assert pf.svd_lowrank(pf.tensor(low.T.copy()), q=3)[2].shape == (40, 3)
    with pytest.raises(ValueError, match="^svd_lowrank: niter is negative; got -2"):
        pf.svd_lowrank(pf.tensor(low), niter=-2)
    U, S3, V = pf.pca_lowrank(pf.tensor(low), q=4)
    centred = low - low.mean(0)
    close((U * S3) @ V.mT, centred, 1e-8)
    with pytest.raises(ValueError, match="must be non-negative integer and not greater than"):
        pf.pca_lowrank(pf.ones(3, 3), q=4)


SMALL = RNG.standard_normal((3, 3)) + 2 * np.eye(3)



@pytest.mark.parametrize("m, n, mode", [(200, 200, "reduced"), (301, 225, "reduced"), (210, 301, "reduced"), (250, 130, "complete"), (230, 0, "complete"), (70, 40, "complete"), (40, 70, "reduced")])
def test_qr_in_blocks(m, n, mode):
    """Panels of 32 reflectors and tiles of 64 columns, also where neither divides the size."""
    a = np.random.default_rng(m).standard_normal((m, n))
    q, r = (x.numpy() for x in L.qr(pf.tensor(a), mode=mode))
    columns = m if mode == "complete" else min(m, n)
    assert q.shape == (m, columns) and r.shape == (columns, n)
    np.testing.assert_allclose(q.T @ q, np.eye(columns), atol=1e-12)
    np.testing.assert_allclose(q @ r, a, atol=1e-12)
    np.testing.assert_array_equal(np.tril(r, -1), 0)


@pytest.mark.parametrize("m, n, k", [(5, 3, 3), (6, 4, 2), (4, 4, 0), (90, 70, 70), (100, 80, 33)])
def test_householder_product(m, n, k):
    """The product of the reflectors one by one, for factors that make no reflector orthogonal, too; what is on and above the diagonal is not read."""
    rng = np.random.default_rng(m)
    a, tau = rng.standard_normal((2, m, n)) / np.sqrt(m), rng.uniform(0.2, 1.0, (2, k))
    want = np.broadcast_to(np.eye(m), (2, m, m)).copy()
    for j in range(k):
        v = np.tril(a, -1)[:, :, j].copy()
        v[:, j] = 1
        want = want - tau[:, j, None, None] * (want @ v[:, :, None]) * v[:, None, :]
    np.testing.assert_allclose(L.householder_product(pf.tensor(a), pf.tensor(tau)).numpy(), want[:, :, :n], atol=1e-12)


@pytest.mark.parametrize("m, n, k", [(5, 3, 3), (4, 4, 4), (6, 4, 2)])
def test_gradients_of_householder_product(m, n, k):
    rng = np.random.default_rng(7)
    a, tau = leaf(rng.standard_normal((2, m, n))), leaf(rng.standard_normal((2, k)))
    assert pf.autograd.gradcheck(L.householder_product, (a, tau))
    assert pf.autograd.gradgradcheck(L.householder_product, (a, tau))


@pytest.mark.parametrize("name, f, x", [
    ("matrix_exp", L.matrix_exp, SMALL), ("pinv", L.pinv, TALL), ("pinv of low rank", L.pinv, np.outer([1.0, 2], [3.0, 1, 2]) * 0 + np.eye(2, 3)), ("lstsq", lambda x: L.lstsq(x, x * x).solution, TALL),
    ("lu wide", lambda x: L.lu_factor(x).LU, WIDE), ("lu tall", lambda x: L.lu_factor(x).LU, TALL), ("qr wide", lambda x: pf.cat([*L.qr(x)], 1), WIDE), ("qr tall", lambda x: pf.cat([*L.qr(x)], 0), TALL),
    ("householder", lambda x: L.householder_product(x, x[0] * 0.5), TALL), ("ormqr", lambda x: pf.ormqr(x, x[0], x * 2, transpose=True), TALL), ("nuc", lambda x: L.matrix_norm(x, "nuc"), WIDE), ("slogdet", lambda x: L.slogdet(x)[1], SMALL),
    ("cond", lambda x: L.cond(x), SMALL), ("cond 1", lambda x: L.cond(x, 1), SMALL), ("norm 3", lambda x: L.vector_norm(x, 3, 1), SMALL), ("power", lambda x: L.matrix_power(x, -3), SMALL),
    ("cholesky_solve", lambda x: pf.cholesky_solve(x * x, x.tril()), SMALL), ("polar", lambda x: pf.cat([*L.polar(x)], 0), TALL),
])
def test_gradients(name, f, x):
    free = leaf(x)
    assert pf.autograd.gradcheck(f, (free,), atol=1e-5, rtol=1e-4)
    (g,) = pf.autograd.grad((f(free) ** 2).sum(), free, create_graph=True)  # the gradient has a gradient
    direction = pf.tensor(RNG.standard_normal(x.shape))
    (second,) = pf.autograd.grad((g * direction).sum(), free)

    def slope(at):
        y = leaf(at)
        (h,) = pf.autograd.grad((f(y) ** 2).sum(), y)
        return h.numpy()

    step = 1e-5 * direction.numpy()
    along = (slope(x + step) - slope(x - step)) / 2e-5
    np.testing.assert_allclose((second.numpy() * direction.numpy()).sum(), (along * direction.numpy()).sum(), rtol=1e-4, atol=1e-4 * (1 + np.abs(along).max()))


def test_out_and_methods():
    a = pf.tensor(S)
    out = pf.empty(3, 4, 4, dtype=pf.float64)
    assert L.inv(a, out=out) is out
    close(out, np.linalg.inv(S), 1e-7)
    q, r = pf.empty(3, 4, 4, dtype=pf.float64), pf.empty(3, 4, 4, dtype=pf.float64)
    L.qr(a, out=(q, r))
    close(q @ r, S)
    close(a.inverse(), np.linalg.inv(S), 1e-7)
    close(a.cholesky() @ a.cholesky().mT, S)
    close(a.det(), np.linalg.det(S), 1e-6)
    assert a.svd().V.shape == (3, 4, 4) and a.qr().Q.shape == (3, 4, 4) and len(a.lu(get_infos=True)) == 3 and pf.svd(a, compute_uv=False).U.abs().sum().item() == 0
    with pytest.raises(RuntimeError, match="geqrf: the derivative is not implemented"):
        pf.geqrf(leaf(S))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_eigenvalues_of_any_matrix(dtype):
    a = np.random.default_rng(3).standard_normal((2, 5, 5)).astype(dtype)  # with complex pairs
    w, v = L.eig(pf.tensor(a))
    assert w.dtype == v.dtype == (pf.complex64 if dtype == np.float32 else pf.complex128) and np.abs(w.imag.numpy()).max() > 0.1
    close(pf.view_as_real(pf.tensor(a).to(v.dtype) @ v), pf.view_as_real(v * w.unsqueeze(-2)).numpy(), 1e-4 if dtype == np.float32 else 1e-12)
    both = [np.sort_complex(x) for x in (L.eigvals(pf.tensor(a)).numpy(), np.linalg.eigvals(a))]
    np.testing.assert_allclose(*both, rtol=1e-3 if dtype == np.float32 else 1e-10)


def test_gradients_of_eigenvalues_of_any_matrix():
    a = leaf(np.random.default_rng(4).standard_normal((4, 4)))
    f = lambda x: (lambda w, v: (w.abs() ** 2).sum() + (v.abs() ** 3).sum())(*L.eig(x))  # noqa: E731
    assert pf.autograd.gradcheck(f, (a,)) and pf.autograd.gradgradcheck(f, (a,)) and pf.autograd.gradcheck(lambda x: L.eigvals(x).abs().sum(), (a,))
    with pytest.raises(RuntimeError, match="linalg.eig: the result depends on the phase of the eigenvectors"):
        L.eig(a)[1].real.sum().backward()


def complex_normal(*shape):
    return RNG.standard_normal(shape) + 1j * RNG.standard_normal(shape)


Z = complex_normal(3, 4, 4) + 3 * np.eye(4)
HERMITIAN = Z @ Z.conj().transpose(0, 2, 1)
ZTALL = complex_normal(6, 3)


def test_complex_matrices():
    z, h, tall = pf.tensor(Z), pf.tensor(HERMITIAN), pf.tensor(ZTALL)
    for upper in (False, True):
        factor = L.cholesky(h, upper=upper)
        close(factor.mH @ factor if upper else factor @ factor.mH, HERMITIAN)
        w, v = L.eigh(h, UPLO="U" if upper else "L")
        assert w.dtype == pf.float64 and v.dtype == pf.complex128
        close((v * w.unsqueeze(-2)) @ v.mH, HERMITIAN)
        b = complex_normal(3, 2, 4)
        close(pf.cholesky_solve(pf.tensor(b).mT, factor, upper=upper), np.linalg.solve(HERMITIAN, b.swapaxes(-1, -2)))
    w, v = L.eig(z)
    close((v * w.unsqueeze(-2)) @ L.inv(v), Z)
    U, s, Vh = L.svd(tall, full_matrices=True)
    assert s.dtype == pf.float64 and U.shape == (6, 6)
    close((U[:, :3] * s) @ Vh, ZTALL)
    U, s, V = pf.svd(tall)
    close((U * s) @ V.mH, ZTALL)
    Q, R = L.qr(tall, mode="complete")
    close(Q @ R, ZTALL)
    close(Q.mH @ Q, np.eye(6))
    reflectors, tau = pf.geqrf(tall)
    close(pf.ormqr(reflectors, tau, tall, transpose=True)[:3], R[:3].numpy())
    close(L.matrix_exp(z), (lambda w, v: (v * np.exp(w)[..., None, :]) @ np.linalg.inv(v))(*np.linalg.eig(Z)), 1e-8)
    close(L.matrix_power(z, -2), np.linalg.matrix_power(Z, -2))
    close(L.multi_dot([tall, tall.mH, tall]), ZTALL @ ZTALL.conj().T @ ZTALL)
    close(L.polar(tall).H, (lambda u, s, v: (v.conj().T * s) @ v)(*np.linalg.svd(ZTALL, full_matrices=False)))
    assert L.matrix_rank(pf.tensor(ZTALL[:, :1] @ ZTALL[:, :1].conj().T)).item() == 1
    close(L.cond(z), np.linalg.cond(Z), 1e-8)
    close(L.matrix_norm(tall, "nuc"), np.linalg.norm(ZTALL, "nuc"))
    close(L.norm(tall), np.linalg.norm(ZTALL))
    sign, logs = L.slogdet(z)
    assert logs.dtype == pf.float64
    close(sign * logs.exp(), np.linalg.det(Z), 1e-8)
    close(pf.logdet(z).exp(), np.linalg.det(Z), 1e-8)
    for left, adjoint in ((True, False), (True, True), (False, False), (False, True)):
        a, b = Z.swapaxes(-1, -2).conj() if adjoint else Z, complex_normal(3, 4, 4)
        X = L.lu_solve(*L.lu_factor(z), pf.tensor(b), left=left, adjoint=adjoint).numpy()
        close(a @ X if left else X @ a, b)
    for hermitian in (False, True):
        a = (Z + Z.swapaxes(-1, -2).conj()) if hermitian else Z + Z.swapaxes(-1, -2)
        close(a @ L.ldl_solve(*L.ldl_factor(pf.tensor(a), hermitian=hermitian), z, hermitian=hermitian).numpy(), Z)
    low = pf.svd_lowrank(pf.tensor(ZTALL @ ZTALL.conj().T), q=3)
    close((low[0] * low[1]) @ low[2].mH, ZTALL @ ZTALL.conj().T, 1e-7)


@pytest.mark.parametrize("driver", ["gels", "gelsy", "gelsd", "gelss"])
def test_least_squares_of_complex_matrices(driver):
    b = complex_normal(6, 2)
    X, residuals, rank, values = L.lstsq(pf.tensor(ZTALL), pf.tensor(b), driver=driver)
    want = np.linalg.lstsq(ZTALL, b, rcond=None)
    close(X, want[0])
    assert residuals.dtype == values.dtype == pf.float64
    if driver != "gelsy":
        close(residuals, want[1])
    if driver in ("gelsd", "gelss"):
        close(values, want[3])


@pytest.mark.parametrize("call, text", [
    (lambda: L.cholesky(pf.tensor(-HERMITIAN)), r"linalg.cholesky: \(Batch element 0\): .* minor of order 1 "),
    (lambda: L.inv(pf.ones(2, 2, dtype=pf.complex64)), "linalg.inv: The diagonal element 2 is zero"),
    (lambda: L.svd(NOT_FINITE.to(pf.complex64)), "linalg.svd: .*contained non-finite values"),
    (lambda: L.eig(NOT_FINITE.to(pf.complex64)), "linalg.eig: The matrix has NaN or infinity"),
    (lambda: L.eigh(leaf(HERMITIAN))[1].real.sum().backward(), "linalg.eigh: the result depends on the phase of the vectors"),
    (lambda: L.svd(leaf(ZTALL), full_matrices=False)[0].imag.sum().backward(), "linalg.svd: the result depends on the phase of the vectors"),
    (lambda: L.eig(leaf(Z))[1].real.sum().backward(), "linalg.eig: the result depends on the phase of the eigenvectors"),
])
def test_complex_matrices_without_a_result(call, text):
    with pytest.raises(RuntimeError, match=text):
        call()


@pytest.mark.parametrize("shape", [(0, 0), (2, 0, 0), (0, 3, 3)])
@pytest.mark.parametrize("dtype", ["float32", "complex64"])
def test_empty(shape, dtype):
    a = pf.ones(*shape, dtype=getattr(pf, dtype))
    assert L.inv(a).shape == shape and L.cholesky(a).shape == shape and L.det(a).shape == shape[:-2] and L.matrix_exp(a).shape == shape
    assert L.eig(a).eigenvectors.shape == shape and L.eigh(a).eigenvalues.shape == shape[:-1] and L.svd(a).U.shape == shape and L.qr(a).Q.shape == shape and L.lu(a)[0].shape == shape
    assert L.det(pf.ones(0, 0)).item() == 1


def test_einsum_of_diagonals_and_lists():
    x, y = SMALL, TALL.T.copy()
    for equation in ("ii", "ii->i", "...ii->...i", "iij->ij"):
        z = RNG.standard_normal((3, 3, 2)) if equation == "iij->ij" else x
        close(pf.einsum(equation, pf.tensor(z)), np.einsum(equation, z))
    close(pf.einsum("ij,ii->j", pf.tensor(x), pf.tensor(x)), np.einsum("ij,ii->j", x, x))
    close(pf.einsum(pf.tensor(x), [0, 1], pf.tensor(y), [1, 2], [0, 2]), x @ y)
    close(pf.einsum(pf.tensor(A), [..., 0, 1], pf.tensor(A), [..., 1, 2], [..., 0, 2]), A @ A)
    close(pf.einsum(pf.tensor(x), [0, 0]), np.trace(x))


@pytest.mark.parametrize("shape", [(300, 300), (420, 260), (260, 420)])
@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
def test_large_matrices(shape, dtype):
    """Matrices that several threads factorize; the number of threads changes no bit."""
    x = (complex_normal(*shape) if dtype.startswith("complex") else RNG.standard_normal(shape)).astype(dtype)
    a, eps = pf.tensor(x), np.finfo(dtype).eps
    tolerance = 200 * eps * max(shape)

    def factors():
        P, lower, U = L.lu(a)
        Q, R = L.qr(a)
        square = a @ a.mH + shape[0] * pf.eye(shape[0], dtype=a.dtype)
        return P, lower, U, Q, R, square, L.cholesky(square), L.solve(square, a)

    P, lower, U, Q, R, square, factor, X = found = factors()
    close(P @ lower @ U, x, tolerance)
    close(Q @ R, x, tolerance)
    close(Q.mH @ Q, np.eye(min(shape)), tolerance)
    close(factor @ factor.mH, square.numpy(), tolerance * shape[0])
    close(square @ X, x, tolerance * 10)
    assert lower.abs().max().item() < (1.5 if lower.is_complex() else 1.0001)  # rows were exchanged
    threads = pf.get_num_threads()
    try:
        pf.set_num_threads(1)
        again = factors()
    finally:
        pf.set_num_threads(threads)
    for one, two in zip(found, again):
        assert pf.equal(one, two)


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
@pytest.mark.parametrize("width", [8, 150])
def test_large_triangular_systems(dtype, width):
    """Both triangles, stored by rows and by columns, with and without the diagonal; lu_solve with A and its adjoint; inv. The number of threads changes no bit."""
    n, normal = 203, (complex_normal if dtype.startswith("complex") else lambda *shape: RNG.standard_normal(shape))
    full, b = (normal(n, n) / n + 2 * np.eye(n)).astype(dtype), pf.tensor(normal(n, width).astype(dtype))
    tolerance = 200 * np.finfo(dtype).eps * n
    a = pf.tensor(full)
    cases = [(x, upper, unit) for x in (a, a.mT, a.mH, pf.tensor(np.repeat(full, 2, 1))[:, ::2]) for upper in (False, True) for unit in (False, True)]

    def solutions():
        LU, pivots = L.lu_factor(a)
        some = [L.solve_triangular(x, b, upper=upper, unitriangular=unit) for x, upper, unit in cases]
        return [*some, L.solve_triangular(a, b.mT, upper=True, left=False), *(L.lu_solve(LU, pivots, b, adjoint=adjoint) for adjoint in (False, True)), L.inv(a)]

    found = solutions()
    for (x, upper, unit), X in zip(cases, found):
        triangle = (np.triu if upper else np.tril)(x.numpy())
        if unit:
            np.fill_diagonal(triangle, 1)
        close(pf.tensor(triangle) @ X, b.numpy(), tolerance)
    right, plain, adjoint, inverse = found[len(cases) :]
    close(right @ pf.triu(a), b.mT.numpy(), tolerance)
    close(a @ plain, b.numpy(), tolerance)
    close(a.mH @ adjoint, b.numpy(), tolerance)
    close(a @ inverse, np.eye(n), tolerance)
    threads = pf.get_num_threads()
    try:
        pf.set_num_threads(1)
        again = solutions()
    finally:
        pf.set_num_threads(threads)
    assert all(pf.equal(one, two) for one, two in zip(found, again))


def test_large_singular_matrices():
    """A zero pivot is reported where LAPACK reports it; later columns are still factorized. A failed Cholesky leaves the upper triangle zero."""
    rng = np.random.default_rng(3)
    x = rng.standard_normal((300, 300))
    x[:, 100] = 0
    LU, pivots, info = L.lu_factor_ex(pf.tensor(x))
    assert info.item() == 101
    P, lower, U = pf.lu_unpack(LU, pivots)
    close(P @ lower @ U, x, 1e-10)
    with pytest.raises(L.LinAlgError):
        L.solve(pf.tensor(x), pf.tensor(x))
    factor, info = L.cholesky_ex(pf.tensor(np.diag(np.where(np.arange(300) == 200, -1.0, 4.0)) + 0.001))
    assert info.item() == 201 and factor.triu(1).abs().max().item() == 0


def test_qr_of_columns_of_any_size():
    """float32 columns whose squares vanish or overflow in float32 keep their relative precision."""
    rng = np.random.default_rng(4)
    x = (rng.standard_normal((300, 256)) * 10.0 ** rng.integers(-28, 28, 256)).astype(np.float32)
    x[:, 7] = 0
    Q, R = L.qr(pf.tensor(x))
    size = np.linalg.norm(x.astype(np.float64), axis=0)
    size[7] = 1
    error = Q.numpy().astype(np.float64) @ R.numpy().astype(np.float64) - x
    assert (np.linalg.norm(error, axis=0) < 1e-5 * size).all()


def symmetric(kind, n):
    """Any numbers; the same eigenvalue n times, and two of them; a diagonal; rank 3; numbers whose squares vanish."""
    a = RNG.standard_normal((n, n))
    q, _ = np.linalg.qr(a)
    few = a[:, :3] @ a[:, :3].T
    return {"any": a + a.T, "unit": 2 * np.eye(n), "two": (q * np.where(np.arange(n) < n // 2, 1.0, 3.0)) @ q.T, "diagonal": np.diag(a[0]), "few": few, "tiny": (a + a.T) * 1e-30}[kind]


@pytest.mark.parametrize("kind", ["any", "unit", "two", "diagonal", "few", "tiny"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_eigh_of_large_matrices(kind, dtype):
    """From 192 rows on, halves of the tridiagonal matrix are computed apart; the number of threads changes no bit."""
    eps, threads = np.finfo(dtype).eps, pf.get_num_threads()
    for n in (191, 192, 257):
        x = symmetric(kind, n).astype(dtype)
        x = np.tril(x) + np.tril(x, -1).T
        want = np.linalg.eigvalsh(x.astype(np.float64))
        size = np.abs(want).max()
        for triangle in ("L", "U"):
            values, vectors = found = L.eigh(pf.tensor(x), UPLO=triangle)
            v = vectors.numpy().astype(np.float64)
            assert (np.diff(values.numpy()) >= 0).all()
            for error, unit in ((values.numpy() - want, size), (v.T @ v - np.eye(n), 1), (x @ v - v * values.numpy(), size)):
                assert np.abs(error).max() < 100 * eps * unit
            try:
                pf.set_num_threads(1)
                again = L.eigh(pf.tensor(x), UPLO=triangle)
            finally:
                pf.set_num_threads(threads)
            assert all(pf.equal(one, two) for one, two in zip(found, again))


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
def test_eigenvalues_ascend_where_many_are_equal(dtype):
    """Also those that are equal but for rounding, and the vectors belong to them. A block diagonal matrix whose blocks have equal values is in the merges of divide and conquer."""
    n, rng = 256, np.random.default_rng(5)
    eps = np.finfo(dtype).eps
    q, _ = np.linalg.qr(complex_normal(n, n) if dtype.startswith("complex") else rng.standard_normal((n, n)))
    block = rng.standard_normal((n // 4, n // 4))
    few = np.repeat([-2.0, 1.0, 1.0 + 1e-7, 3.0], n // 4)
    for x in ((q * few) @ q.conj().T, (q * (1 + eps * rng.integers(0, 3, n))) @ q.conj().T, np.kron(np.eye(4), block + block.T), np.ones((n, n))):
        x = x.astype(dtype)
        size = np.abs(x).sum(-1).max()
        values, vectors = L.eigh(pf.tensor(x))
        assert (np.diff(values.numpy()) >= 0).all() and (np.diff(L.eigvalsh(pf.tensor(x)).numpy()) >= 0).all()
        v = vectors.numpy()
        assert np.abs(x @ v - v * values.numpy()).max() < 100 * eps * size
        assert np.abs(v.conj().T @ v - np.eye(n)).max() < 100 * eps


def test_large_matrices_that_fail():
    a = np.eye(400)
    a[250, 250] = -1
    assert L.cholesky_ex(pf.tensor(a)).info.item() == 251
    a[250, 250] = 0
    assert L.lu_factor_ex(pf.tensor(a)).info.item() == 251 and L.inv_ex(pf.tensor(a)).info.item() == 251


def test_distances():
    x, y = RNG.standard_normal((2, 40, 5)) + 100, RNG.standard_normal((2, 30, 5)) + 100
    want = np.sqrt(((x[:, :, None] - y[:, None]) ** 2).sum(-1))
    for mode in (None, "use_mm_for_euclid_dist", "donot_use_mm_for_euclid_dist"):
        close(pf.cdist(pf.tensor(x), pf.tensor(y), compute_mode=mode), want, 1e-6)
    same = leaf(x[0])
    distances = pf.cdist(same, same)
    distances.sum().backward()
    assert same.grad.isfinite().all().item()
    rows, columns = np.triu_indices(40, 1)
    for p in (1.0, 2.0, 3.0, math.inf):
        close(pf.nn.functional.pdist(same.detach(), p), np.linalg.norm(x[0][rows] - x[0][columns], p, axis=1))
    few = leaf(RNG.standard_normal((5, 3)))
    for p in (1.0, 2.0, 3.0):
        assert pf.autograd.gradgradcheck(lambda a, p=p: pf.pdist(a, p), few)
    alike = leaf(np.ones((4, 3)))
    pf.pdist(alike).sum().backward()
    assert alike.grad.abs().sum().item() == 0  # the slope of a distance of zero
    with pytest.raises(RuntimeError, match="pdist: not a matrix"):
        pf.pdist(pf.ones(3))


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("weighted", [False, True])
def test_linear_cross_entropy_in_chunks(reduction, weighted):
    from pyflame.nn.functional_linear_loss import LinearCrossEntropyOptions

    F = pf.nn.functional
    x, w, b = RNG.standard_normal((10, 6)), RNG.standard_normal((7, 6)), RNG.standard_normal(7)
    target = pf.tensor(np.array([0, 3, 6, 2, -100, 1, 5, 4, 0, 2]))
    more = {"weight": pf.tensor(np.arange(1.0, 8.0))} if weighted else {}

    def losses(f):
        leaves = [leaf(a) for a in (x, w, b)]
        loss = f(*leaves)
        (loss * loss).sum().backward()
        return [loss] + [a.grad for a in leaves]

    whole = losses(lambda x, w, b: F.cross_entropy(F.linear(x, w, b), target, reduction=reduction, label_smoothing=0.1, **more))
    for rows in (1, 4, 100):
        options = LinearCrossEntropyOptions(batch_chunk_size=rows)
        parts = losses(lambda x, w, b: F.linear_cross_entropy(x, w, target, linear_bias=b, reduction=reduction, label_smoothing=0.1, options=options, **more))  # noqa: B023
        for got, want in zip(parts, whole):
            close(got, want.detach().numpy(), 1e-10)


def test_linear_cross_entropy_arguments():
    F = pf.nn.functional
    x, w = pf.tensor(TALL), pf.tensor(RNG.standard_normal((5, 3)))
    close(F.linear_cross_entropy(x[0], w, pf.tensor(2)), F.cross_entropy(F.linear(x[0], w), pf.tensor(2)).numpy())
    with pytest.raises(ValueError, match="linear_cross_entropy: unknown reduction"):
        F.linear_cross_entropy(x, w, pf.zeros(6, dtype=pf.int64), reduction="max")
    with pytest.raises(RuntimeError, match="linear_cross_entropy: input and weight do not fit"):
        F.linear_cross_entropy(x, pf.ones(5, 4, dtype=pf.float64), pf.zeros(6, dtype=pf.int64))


@pytest.mark.parametrize("dtype", [pf.float32, pf.float64, pf.complex64, pf.complex128])
def test_lstsq_by_gels_refuses_a_rank_that_is_not_full(dtype):
    b = pf.tensor([[1.0], [2.0], [3.0]]).to(dtype)
    for A in (pf.ones(3, 2), pf.tensor([[1.0, 2.0], [0.1, 0.2], [0.7, 1.4]]), pf.zeros(3, 2)):
        for matrix, rhs in ((A.to(dtype), b), (A.to(dtype).mT, b[:2])):
            with pytest.raises(L.LinAlgError, match=r"^linalg.lstsq: .*does not have full rank"):
                L.lstsq(matrix, rhs, driver="gels").solution.tolist()
    graded = pf.diag(pf.tensor([1.0, 1e-9, 1e9], dtype=pf.float64)).to(dtype)  # each column has a part of its own
    close(L.lstsq(graded, b, driver="gels").solution[:, 0].abs(), [1, 2e9, 3e-9], 1e-6)


@pytest.mark.parametrize("driver", ["gels", "gelsy", "gelsd", "gelss"])
def test_lstsq_of_nan(driver, capfd):
    nan = pf.tensor([[1.0, 2.0], [3.0, float("nan")], [5.0, 6.0]])
    for A, B in ((nan, pf.ones(3)), (pf.ones(3, 2) + pf.eye(3, 2), nan[:, 1])):
        with pytest.raises(L.LinAlgError, match="^linalg.lstsq: A or B has a NaN"):
            L.lstsq(A, B, driver=driver)
    assert "On entry to" not in "".join(capfd.readouterr())


def test_matrix_norms_of_empty_matrices():
    """0 for sums and largest ones, as in PyTorch; there is no smallest one of none."""
    for ord, refused in (("fro", ()), ("nuc", ()), (2, ()), (1, ()), (math.inf, ()), (-2, ((0, 3), (3, 0), (0, 0))), (-1, ((3, 0), (0, 0))), (-math.inf, ((0, 3), (0, 0)))):
        for shape in ((0, 3), (3, 0), (0, 0), (2, 0, 3), (0, 2, 3)):
            A = pf.ones(*shape)
            if shape[-2:] in refused:
                with pytest.raises(IndexError, match="^matrix_norm: "):
                    L.matrix_norm(A, ord).tolist()
            else:
                assert not pf.any(L.matrix_norm(A, ord) != 0) and L.matrix_norm(A, ord).shape == A.shape[:-2], (ord, shape)


@pytest.mark.parametrize("dtype", [pf.float64, pf.complex128])
def test_gradients_of_eigh_are_those_of_symmetric_matrices(dtype):
    a = pf.tensor([[2.0, 0.3, 0.1], [0.3, 1.0, 0.2], [0.1, 0.2, 3.0]], dtype=dtype)
    weights = pf.arange(9.0, dtype=pf.float64).reshape(3, 3).to(dtype)
    a.requires_grad_()
    values, vectors = pf.linalg.eigh(a)
    (vectors * values.to(dtype) ** 3 @ vectors.mH * weights).real.sum().backward()
    cube = a.detach().requires_grad_()
    (pf.linalg.matrix_power(cube, 3) * weights).real.sum().backward()
    want = (cube.grad + cube.grad.mH) / 2
    assert pf.allclose(a.grad, want, rtol=1e-9, atol=1e-9)
    (slope,) = pf.autograd.grad((pf.linalg.eigvalsh(a) ** 3).sum(), a, create_graph=True)  # 3 A^2
    (second,) = pf.autograd.grad((slope * weights).real.sum(), a)
    g = 3 * (weights @ a.detach() + a.detach() @ weights)
    assert pf.allclose(second, (g + g.mH) / 2, rtol=1e-9, atol=1e-9)


def test_a_matrix_with_nan_is_not_positive_definite():
    nan = float("nan")
    late = pf.eye(3)
    late[1, 0] = nan
    assert pf.linalg.cholesky_ex(late).info.item() == 2 and pf.linalg.cholesky_ex(late.mT, upper=True).info.item() == 2
    assert pf.linalg.cholesky_ex(pf.stack([pf.eye(2), pf.eye(2) * nan, -pf.eye(2)])).info.tolist() == [0, 1, 1]
    with pytest.raises(pf.linalg.LinAlgError, match="minor of order 1"):
        pf.linalg.cholesky(pf.eye(2) * nan)
    assert pf.linalg.cholesky_ex(pf.zeros(0, 0)).info.item() == 0 and pf.linalg.cholesky_ex(pf.zeros(0, 2, 2)).info.shape == (0,)


def test_words_of_linalg():
    eye, ones = pf.eye(2), pf.ones(2, 1)
    assert pf.linalg.cholesky(input=eye).tolist() == pf.linalg.pinv(input=eye, rcond=0.1).tolist() == eye.tolist()
    assert pf.linalg.lstsq(input=eye, b=ones).solution.tolist() == ones.tolist() and pf.linalg.matrix_rank(input=eye).item() == 2
    with pytest.raises(TypeError, match="multiple values"):
        pf.linalg.cholesky(eye, input=eye)


def test_a_negative_norm_of_nothing_is_refused():
    with pytest.raises(RuntimeError, match="norm: no elements; got"):
        pf.norm(pf.ones(0, 3), -1)
    assert pf.norm(pf.ones(0, 3), -1, 1).shape == (0,)


def test_annotated_results_have_the_fields_of_real_ones():
    from pyflame.linalg import _annotations

    eye, one = pf.eye(2), pf.ones(2, 1)
    results = [L.cholesky_ex(eye), L.qr(eye), L.lu(eye), L.lu_factor(eye), L.lu_factor_ex(eye), L.ldl_factor(eye), L.ldl_factor_ex(eye), L.solve_ex(eye, one), L.inv_ex(eye), L.slogdet(eye),
               L.lstsq(eye, one), L.eig(eye), L.eigh(eye), L.svd(eye), L.polar(eye)]
    annotated = {"linalg_" + name: value._fields for name, value in vars(_annotations).items() if hasattr(value, "_fields")}
    real = {type(r).__name__: r._fields for r in results}
    assert {name.replace("_", ""): fields for name, fields in real.items()} == {name.replace("_", "").lower(): fields for name, fields in annotated.items()}
