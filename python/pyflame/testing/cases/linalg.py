"""Factorizations and solutions: matrices that are well conditioned. Signs of vectors are free, so their squares are compared."""

import numpy as np

from . import Case, Spec


def conditioned(rng, shape):
    """A random matrix near twice the identity; its singular values and eigenvalues differ."""
    m, n = shape[-2:]
    return 0.3 * rng.standard_normal(shape) + np.eye(m, n) * (2 + np.arange(n))


def noise(rng, shape):
    return rng.standard_normal(shape)


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


def _one(name, ops, shape, call, reference, dtype, more=(), **kw):
    grad = kw.pop("grad", tuple(range(1 + len(more))))
    inputs = (Spec(shape, dtype, conditioned), *(Spec(s, dtype, noise) for s in more))
    size = "x".join(map(str, shape))
    largest = lambda *x: np.asarray(10.0 + max(np.abs(a).max(initial=0) for a in x))  # noqa: E731 - each element depends on all others
    return Case(f"{name}-{dtype}-{size}", (f"linalg.{name.split('-')[0]}",), ops, inputs, call, reference, grad=grad, c=16, length=max(*shape[-2:], 1), magnitude=largest, composed=True, fused_exact=False, out=dtype, own_values=True, **kw)


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


def cases():
    return [c for dtype in ("float32", "float64") for c in _per_dtype(dtype)]
