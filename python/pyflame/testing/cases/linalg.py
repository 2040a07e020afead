"""Factorizations and solutions: matrices that are well conditioned. Signs and phases of vectors are free, so their squares are compared. Complex
matrices and results are given as their parts, so that the tables know real arrays only."""

import numpy as np

from . import Case, Spec


def conditioned(rng, shape):
    """A random matrix near twice the identity; its singular values and eigenvalues differ."""
    m, n = shape[-2:]
    return 0.3 * rng.standard_normal(shape) + np.eye(m, n) * (2 + np.arange(n))


def noise(rng, shape):
    return rng.standard_normal(shape)


def slight(rng, shape):
    return 0.3 * rng.standard_normal(shape)


def _symmetric(x):
    return (x + np.swapaxes(x, -1, -2)) / 2


def _half(x):
    return (x + x.mT) / 2


def _factor(r):
    return np.linalg.cholesky(_symmetric(r))


def _eigh(x):
    w, v = np.linalg.eigh(_symmetric(x))
    return w, v * v


def _svd(x):
    u, s, v = np.linalg.svd(x, full_matrices=False)
    return u * u, s, v * v


def _qr(x):
    q, r = np.linalg.qr(x)
    return q * q, r * r


def _squares(parts):
    return tuple(p * p for p in parts)


def _traces(w, v):
    """What does not depend on the order of the values: the traces of the matrix and of its square, and the squared lengths of the vectors."""
    return w.real.sum(-1), (w * w).real.sum(-1), (v.real * v.real + v.imag * v.imag).sum(-2)


def _triangle(x, upper):
    return np.triu(x) if upper else np.tril(x)


def _sqrt(x):
    w, v = np.linalg.eigh(_symmetric(x))
    return (v * np.sqrt(w)[..., None, :]) @ np.swapaxes(v, -1, -2)


def _polar(x):
    u, s, v = np.linalg.svd(x, full_matrices=False)
    return u @ v, np.swapaxes(v, -1, -2) @ (s[..., None] * v)


def _largest(*x):
    """Each element depends on all others."""
    return np.asarray(10.0 + max(np.abs(a).max(initial=0) for a in x))


def _one(name, ops, shape, call, reference, dtype, more=(), **kw):
    grad = kw.pop("grad", tuple(range(1 + len(more))))
    inputs = (Spec(shape, dtype, conditioned), *(Spec(s, dtype, noise) for s in more))
    size = "x".join(map(str, shape))
    return Case(f"{name}-{dtype}-{size}", (f"linalg.{name.split('-')[0]}",), ops, inputs, call, reference, grad=grad, c=16, length=max(*shape[-2:], 1), magnitude=_largest, composed=True, fused_exact=False, out=dtype, own_values=True, **kw)


def _per_dtype(dtype):
    square, batch, tall, wide = (5, 5), (3, 4, 4), (6, 4), (4, 6)
    for s in (square, batch, (0, 3, 3), (1, 1)):
        rhs = (*s[:-1], 2)
        yield _one("cholesky", ("cholesky",), s, lambda pf, x: pf.linalg.cholesky(_half(x)), _factor, dtype)
        yield _one("solve", ("lu_factor", "lu_solve"), s, lambda pf, x, b: pf.linalg.solve(x, b), np.linalg.solve, dtype, (rhs,))
        yield _one("inv", ("lu_factor", "lu_solve"), s, lambda pf, x: pf.linalg.inv(x), np.linalg.inv, dtype)
        yield _one("det", ("lu_factor",), s, lambda pf, x: pf.linalg.det(x) / 64, lambda x: np.asarray(np.linalg.det(x) / 64), dtype)
        yield _one("slogdet", ("lu_factor",), s, lambda pf, x: pf.linalg.slogdet(x)[1], lambda x: np.asarray(np.linalg.slogdet(x)[1]), dtype)
        yield _one("eigh", ("eigh",), s, lambda pf, x: (lambda w, v: (w, v * v))(*pf.linalg.eigh(_half(x))), _eigh, dtype)
        yield _one("eig", ("eig",), s, lambda pf, x: _traces(*pf.linalg.eig(x)), lambda x: (np.trace(x, axis1=-2, axis2=-1), np.trace(x @ x, axis1=-2, axis2=-1), np.ones(x.shape[:-1])), dtype)
        yield _one("svd", ("svd",), s, lambda pf, x: (lambda u, s, v: (u * u, s, v * v))(*pf.linalg.svd(x, full_matrices=False)), _svd, dtype)
        yield _one("matrix_sqrth", ("eigh",), s, lambda pf, x: pf.linalg.matrix_sqrth(_half(x)), _sqrt, dtype)
        yield _one("ldl_solve", ("ldl_factor", "ldl_solve"), s, lambda pf, x, b: pf.linalg.ldl_solve(*pf.linalg.ldl_factor(_half(x)), b), lambda x, b: np.linalg.solve(_symmetric(x), b), dtype, (rhs,), grad=())
        for upper in (False, True):
            yield _one(f"solve_triangular-{'upper' if upper else 'lower'}", ("triangular_solve",), s, lambda pf, x, b, u=upper: pf.linalg.solve_triangular(x, b, upper=u),
                       lambda x, b, u=upper: np.linalg.solve(_triangle(x, u), b), dtype, (rhs,))
        yield _one("solve_triangular-right", ("triangular_solve",), s, lambda pf, x, b: pf.linalg.solve_triangular(x, b, upper=True, left=False, unitriangular=True),
                   lambda x, b: b @ np.linalg.inv(np.triu(x, 1) + np.eye(x.shape[-1])), dtype, ((*s[:-2], 2, s[-1]),))
        yield _one("lu_solve", ("lu_factor", "lu_solve"), s, lambda pf, x, b: pf.linalg.lu_solve(*pf.linalg.lu_factor(x.detach()), b, adjoint=True), lambda x, b: np.linalg.solve(np.swapaxes(x, -1, -2), b), dtype,
                   (rhs,), grad=(1,))
        yield _one("lu_solve-factors", ("lu_factor",), s, lambda pf, x, b: pf.linalg.lu_solve(*pf.linalg.lu_factor(x), b), np.linalg.solve, dtype, (rhs,))
    for s in (square, tall, wide, (2, 5, 3), (2, 3, 5)):
        yield _one("lu", ("lu_factor", "row_order"), s, lambda pf, x: (lambda p, l, u: (p @ l @ u, p))(*pf.linalg.lu(x + 0.0)), lambda x: (x, np.broadcast_to(np.eye(x.shape[-2]), (*x.shape[:-1], x.shape[-2]))), dtype)
        yield _one("qr", ("geqrf", "orgqr", "triangular_solve"), s, lambda pf, x: _squares(pf.linalg.qr(x)), _qr, dtype)
        yield _one("svd-values", ("svd",), s, lambda pf, x: pf.linalg.svdvals(x), lambda x: np.linalg.svd(x, compute_uv=False), dtype)
        yield _one("svd-vectors", ("svd",), s, lambda pf, x: _squares(pf.linalg.svd(x, full_matrices=False)), lambda x: _squares(np.linalg.svd(x, full_matrices=False)), dtype)
        yield _one("pinv", ("svd",), s, lambda pf, x: pf.linalg.pinv(x), np.linalg.pinv, dtype)
        yield _one("lstsq", ("lstsq",), s, lambda pf, x, b: pf.linalg.lstsq(x, b).solution, lambda x, b: np.linalg.pinv(x) @ b, dtype, ((*s[:-1], 2),))
        if s[-2] >= s[-1]:
            yield _one("polar", ("svd",), s, lambda pf, x: tuple(pf.linalg.polar(x)), _polar, dtype)


def _hermitian(x):
    return (x + np.swapaxes(x, -1, -2).conj()) / 2


def _sizes(parts):
    """|x|^2 of each."""
    return tuple(x.real * x.real + x.imag * x.imag for x in parts)


def _results(parts, is_complex, pairs):
    """Real results, and pairs of complex ones."""
    parts = parts if isinstance(parts, tuple) else (parts,)
    made = tuple(pairs(x) if is_complex(x) else x for x in parts)
    return made if len(made) > 1 else made[0]


def _of_parts(name, ops, shape, call, reference, dtype, more=(), grad=True):
    pair = lambda values, s: (Spec(s, dtype, values), Spec(s, dtype, slight))  # noqa: E731
    inputs = (*pair(conditioned, shape), *(x for s in more for x in pair(noise, s)))
    joined = lambda make, x: [make(a, b) for a, b in zip(x[::2], x[1::2])]  # noqa: E731
    size = "x".join(map(str, shape))
    return Case(f"complex-{name}-{dtype}-{size}", (f"linalg.{name.split('-')[0]}",), ops, inputs,
                lambda pf, *x: _results(call(pf, *joined(pf.complex, x)), lambda y: y.is_complex(), pf.view_as_real),
                lambda *x: _results(reference(*joined(lambda a, b: a + 1j * b, x)), np.iscomplexobj, lambda z: np.stack([z.real, z.imag], -1)),
                grad=tuple(range(len(inputs))) if grad else (), c=32, length=max(*shape[-2:], 1), magnitude=_largest, composed=True, fused_exact=False, out=dtype, own_values=True)


def _traces_of(w):
    return w.sum(-1), (w * w).sum(-1)


def _complex(dtype):
    for s in ((4, 4), (3, 3, 3), (0, 3, 3), (1, 1)):
        rhs = (*s[:-1], 2)
        yield _of_parts("cholesky", ("cholesky",), s, lambda pf, x: pf.linalg.cholesky((x + x.mH) / 2), lambda x: np.linalg.cholesky(_hermitian(x)), dtype)
        yield _of_parts("cholesky-upper", ("cholesky",), s, lambda pf, x: pf.linalg.cholesky((x + x.mH) / 2, upper=True), lambda x: np.swapaxes(np.linalg.cholesky(_hermitian(x)), -1, -2).conj(), dtype)
        yield _of_parts("solve", ("lu_factor", "lu_solve"), s, lambda pf, x, b: pf.linalg.solve(x, b), np.linalg.solve, dtype, (rhs,))
        yield _of_parts("inv", ("lu_factor", "lu_solve"), s, lambda pf, x: pf.linalg.inv(x), np.linalg.inv, dtype)
        yield _of_parts("det", ("lu_factor",), s, lambda pf, x: pf.linalg.det(x) / 64, lambda x: np.asarray(np.linalg.det(x) / 64), dtype)
        yield _of_parts("slogdet", ("lu_factor",), s, lambda pf, x: tuple(pf.linalg.slogdet(x)), lambda x: tuple(map(np.asarray, np.linalg.slogdet(x))), dtype)
        yield _of_parts("eigh", ("eigh",), s, lambda pf, x: (lambda w, v: (w, *_sizes((v,))))(*pf.linalg.eigh((x + x.mH) / 2)), lambda x: (lambda w, v: (w, *_sizes((v,))))(*np.linalg.eigh(_hermitian(x))), dtype)
        yield _of_parts("eigvalsh", ("eigh",), s, lambda pf, x: pf.linalg.eigvalsh((x + x.mH) / 2, UPLO="U"), lambda x: np.linalg.eigvalsh(_hermitian(x)), dtype)
        yield _of_parts("eig", ("eig",), s, lambda pf, x: _traces_of(pf.linalg.eigvals(x)), lambda x: (np.trace(x, axis1=-2, axis2=-1), np.trace(x @ x, axis1=-2, axis2=-1)), dtype)
        yield _of_parts("solve_triangular", ("triangular_solve",), s, lambda pf, x, b: pf.linalg.solve_triangular(x, b, upper=True), lambda x, b: np.linalg.solve(np.triu(x), b), dtype, (rhs,))
        yield _of_parts("solve_triangular-right", ("triangular_solve",), s, lambda pf, x, b: pf.linalg.solve_triangular(x, b, upper=False, left=False), lambda x, b: b @ np.linalg.inv(np.tril(x)), dtype,
                        ((*s[:-2], 2, s[-1]),))
        yield _of_parts("lu_solve", ("lu_factor", "lu_solve"), s, lambda pf, x, b: pf.linalg.lu_solve(*pf.linalg.lu_factor(x), b, adjoint=True),
                        lambda x, b: np.linalg.solve(np.swapaxes(x, -1, -2).conj(), b), dtype, (rhs,))
        yield _of_parts("ldl_solve", ("ldl_factor", "ldl_solve"), s, lambda pf, x, b: pf.linalg.ldl_solve(*pf.linalg.ldl_factor(_half(x)), b), lambda x, b: np.linalg.solve(_symmetric(x), b), dtype, (rhs,), grad=False)
        yield _of_parts("ldl_solve-hermitian", ("ldl_factor", "ldl_solve"), s, lambda pf, x, b: pf.linalg.ldl_solve(*pf.linalg.ldl_factor((x + x.mH) / 2, hermitian=True), b, hermitian=True),
                        lambda x, b: np.linalg.solve(_hermitian(x), b), dtype, (rhs,), grad=False)
        yield _of_parts("matrix_sqrth", ("eigh",), s, lambda pf, x: pf.linalg.matrix_sqrth((x + x.mH) / 2), _sqrt_of_hermitian, dtype)
    for s in ((4, 4), (5, 3), (3, 5), (2, 4, 3)):
        yield _of_parts("lu", ("lu_factor", "row_order"), s, lambda pf, x: (lambda p, l, u: p @ l @ u)(*pf.linalg.lu(x)), lambda x: x, dtype)
        yield _of_parts("qr", ("geqrf", "orgqr", "triangular_solve"), s, lambda pf, x: _sizes(pf.linalg.qr(x)), lambda x: _sizes(np.linalg.qr(x)), dtype)
        yield _of_parts("svd", ("svd",), s, lambda pf, x: (lambda u, w, v: (w, *_sizes((u, v))))(*pf.linalg.svd(x, full_matrices=False)),
                        lambda x: (lambda u, w, v: (w, *_sizes((u, v))))(*np.linalg.svd(x, full_matrices=False)), dtype)
        yield _of_parts("svdvals", ("svd",), s, lambda pf, x: pf.linalg.svdvals(x), lambda x: np.linalg.svd(x, compute_uv=False), dtype)
        yield _of_parts("pinv", ("svd",), s, lambda pf, x: pf.linalg.pinv(x), np.linalg.pinv, dtype)
        yield _of_parts("lstsq", ("lstsq",), s, lambda pf, x, b: pf.linalg.lstsq(x, b).solution, lambda x, b: np.linalg.pinv(x) @ b, dtype, ((*s[:-1], 2),))


def _sqrt_of_hermitian(x):
    w, v = np.linalg.eigh(_hermitian(x))
    return (v * np.sqrt(w)[..., None, :]) @ np.swapaxes(v, -1, -2).conj()


def cases():
    return [c for dtype in ("float32", "float64") for part in (_per_dtype, _complex) for c in part(dtype)]
