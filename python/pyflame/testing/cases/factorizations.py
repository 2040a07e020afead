"""Functions of pyflame.linalg that are composed of ops, and the older names of factorizations. Signs of vectors are free: their squares, or the matrix that
the factors make, are compared."""

import numpy as np

from . import Spec, away_from_zero
from .layers import composition, size
from .linalg import _factor, _half, _largest, _qr, _squares, conditioned, noise, slight

BOTH = ("float32", "float64")
SQUARES, TALL = ((5, 5), (3, 4, 4)), ((6, 4), (2, 5, 3))


def _t(x):
    return np.swapaxes(x, -1, -2)


def _row(function, inputs, call, reference, dtypes=("float32",), tag="", **settings):
    """The first input is a matrix that is well conditioned, if it is given by its shape alone."""
    first = inputs[0]
    made = (first if isinstance(first, Spec) or callable(first[-1]) else (first, conditioned), *inputs[1:])
    return composition(function, made, call, reference, dtypes, tag, **{"c": 16, "length": 8, "magnitude": _largest, "fused_exact": False, "own_values": True, **settings})


def _rebuilt(pf, lu, pivots):
    p, l, u = pf.lu_unpack(lu, pivots)
    return p @ l @ u


def _zeros(x):
    """What the functions that end in _ex say of matrices that can be factorized."""
    return np.zeros(x.shape[:-2], np.int32)


def _taylor(x):
    """exp of a matrix: the series of its 16th part, squared four times."""
    y = term = np.broadcast_to(np.eye(x.shape[-1]), x.shape)
    for k in range(1, 30):
        term = term @ x / (16 * k)
        y = y + term
    for _ in range(4):
        y = y @ y
    return y


def _reflections(a, tau):
    """The product of the matrices I - tau v v^T, all its columns; a v has its 1 on the diagonal and what is below."""
    m, q = a.shape[-2], np.broadcast_to(np.eye(a.shape[-2]), (*a.shape[:-2], a.shape[-2], a.shape[-2]))
    for i in range(tau.shape[-1]):
        v = np.where(np.arange(m) == i, 1.0, np.where(np.arange(m) > i, a[..., :, i], 0.0))
        q = q - tau[..., i, None, None] * (q @ v[..., None]) * v[..., None, :]
    return q


def _older():
    for s in SQUARES:
        rhs = (*s[:-1], 2)
        yield from _row("cholesky", (s,), lambda pf, x: pf.cholesky(_half(x)), _factor, BOTH)
        yield from _row("cholesky", (s,), lambda pf, x: pf.cholesky(_half(x), upper=True), lambda x: _t(_factor(x)), tag="upper")
        yield from _row("cholesky_inverse", (s,), lambda pf, x: pf.cholesky_inverse(pf.tril(x)), lambda x: np.linalg.inv(np.tril(x) @ _t(np.tril(x))), BOTH)
        yield from _row("cholesky_solve", (s, rhs), lambda pf, x, b: pf.cholesky_solve(b, pf.tril(x)), lambda x, b: np.linalg.solve(np.tril(x) @ _t(np.tril(x)), b))
        yield from _row("logdet", (s,), lambda pf, x: pf.logdet(x), lambda x: np.asarray(np.linalg.slogdet(x)[1]), BOTH)
        yield from _row("lu", (s,), lambda pf, x: _rebuilt(pf, *pf.lu(x)), lambda x: x)
        yield from _row("lu_solve", (s, rhs), lambda pf, x, b: pf.lu_solve(b, *pf.linalg.lu_factor(x)), np.linalg.solve)
        yield from _row("triangular_solve", (s, rhs), lambda pf, x, b: tuple(pf.triangular_solve(b, x)), lambda x, b: (np.linalg.solve(np.triu(x), b), x), BOTH)
        yield from _row("triangular_solve", (s, rhs), lambda pf, x, b: pf.triangular_solve(b, x, upper=False, transpose=True)[0], lambda x, b: np.linalg.solve(_t(np.tril(x)), b), tag="lower-transpose")
        yield from _row("matrix_exp", ((s, slight),), lambda pf, x: pf.matrix_exp(x), _taylor, BOTH)
        for n in (0, 3, -2):
            yield from _row("matrix_power", (s,), lambda pf, x, n=n: pf.matrix_power(x, n) / 16, lambda x, n=n: np.linalg.matrix_power(x, n) / 16, BOTH if n == 3 else ("float32",), str(n), magnitude=lambda x: size(x) ** 3)
    for s in (*TALL, (4, 6)):
        k = min(s[-2:])
        yield from _row("lu_unpack", (s,), lambda pf, x: _rebuilt(pf, *pf.linalg.lu_factor(x)), lambda x: x)
        yield from _row("pinverse", (s,), lambda pf, x: pf.pinverse(x), np.linalg.pinv, BOTH)
        yield from _row("qr", (s,), lambda pf, x: _squares(pf.qr(x)), _qr)
        yield from _row("svd", (s,), lambda pf, x: (lambda u, w, v: (u * u, w, v * v))(*pf.svd(x)), lambda x: (lambda u, w, v: (u * u, w, _t(v) ** 2))(*np.linalg.svd(x, full_matrices=False)), BOTH)
        yield from _row("geqrf", (s,), lambda pf, x, k=k: (lambda a, tau: pf.orgqr(a[..., :k], tau) @ pf.triu(a)[..., :k, :])(*pf.geqrf(x)), lambda x: x, grad=())
    for s in TALL:
        reflectors = (s, noise), ((*s[:-2], s[-1]), slight)
        yield from _row("orgqr", reflectors, lambda pf, a, tau: pf.orgqr(a, tau), lambda a, tau: _reflections(a, tau)[..., : a.shape[-1]], BOTH, magnitude=lambda a, tau: size(a) ** 4)
        for left, transpose in ((True, False), (True, True), (False, False)):
            other = (*s[:-2], s[-2], 2) if left else (*s[:-2], 2, s[-2])

            def product(a, tau, b, left=left, transpose=transpose):
                q = _t(_reflections(a, tau)) if transpose else _reflections(a, tau)
                return q @ b if left else b @ q

            yield from _row("ormqr", (*reflectors, other), lambda pf, a, tau, b, w=(left, transpose): pf.ormqr(a, tau, b, *w), product, tag=f"{'left' if left else 'right'}{'-transpose' * transpose}", magnitude=lambda a, tau, b: size(a) ** 4 * size(b))


def _checked():
    with_info = {"out": ("float32", "int32")}
    for s in SQUARES:
        rhs = (*s[:-1], 2)
        yield from _row("linalg.cholesky_ex", (s,), lambda linalg, x: tuple(linalg.cholesky_ex(_half(x))), lambda x: (_factor(x), _zeros(x)), **with_info)
        yield from _row("linalg.inv_ex", (s,), lambda linalg, x: tuple(linalg.inv_ex(x)), lambda x: (np.linalg.inv(x), _zeros(x)), **with_info)
        yield from _row("linalg.solve_ex", (s, rhs), lambda linalg, x, b: tuple(linalg.solve_ex(x, b)), lambda x, b: (np.linalg.solve(x, b), _zeros(x)), **with_info)
        yield from _row("linalg.lu_factor", (s, rhs), lambda linalg, x, b: linalg.lu_solve(*linalg.lu_factor(x), b), np.linalg.solve)
        yield from _row("linalg.lu_factor_ex", (s, rhs), lambda linalg, x, b: (lambda lu, p, info: (linalg.lu_solve(lu, p, b), info))(*linalg.lu_factor_ex(x)), lambda x, b: (np.linalg.solve(x, b), _zeros(x)), **with_info)
        symmetric = lambda x, b: np.linalg.solve((x + _t(x)) / 2, b)  # noqa: E731
        yield from _row("linalg.ldl_factor", (s, rhs), lambda linalg, x, b: linalg.ldl_solve(*linalg.ldl_factor(_half(x)), b), symmetric, grad=())
        yield from _row("linalg.ldl_factor_ex", (s, rhs), lambda linalg, x, b: (lambda ld, p, info: (linalg.ldl_solve(ld, p, b), info))(*linalg.ldl_factor_ex(_half(x))), lambda x, b: (symmetric(x, b), _zeros(x)), grad=(), **with_info)
        yield from _row("linalg.eigvals", (s,), lambda linalg, x: (lambda w: (w.real.sum(-1), (w * w).real.sum(-1)))(linalg.eigvals(x)), lambda x: (np.trace(x, axis1=-2, axis2=-1), np.trace(x @ x, axis1=-2, axis2=-1)), BOTH, magnitude=lambda x: size(x) ** 2)
    for p in (None, 1, -1, 2, -2, np.inf, "fro", "nuc"):
        kind = 2 if p is None else p
        yield from _row("linalg.cond", ((3, 4, 4),), lambda linalg, x, p=p: linalg.cond(x, p), lambda x, p=kind: _norm(x, p) * _norm(np.linalg.inv(x), p), tag=str(p), length=64)
    yield from _row("linalg.matrix_rank", ((3, 4, 6),), lambda linalg, x: linalg.matrix_rank(x), np.linalg.matrix_rank, grad=(), out="int64")
    yield from _row("linalg.matrix_rank", (((5, 2), noise), (2, 7)), lambda linalg, a, b: linalg.matrix_rank(a @ b), lambda a, b: np.asarray(2), tag="product", grad=(), out="int64")


def _norm(x, p, axes=(-2, -1), keep=False):
    """Norms of the matrices in two dims."""
    x = np.moveaxis(x, axes, (-2, -1))
    if p == "fro":
        y = np.sqrt((x * x).sum((-2, -1)))
    elif p in (1, -1, np.inf, -np.inf):
        sums = np.abs(x).sum(-2 if abs(p) == 1 else -1)
        y = sums.max(-1) if p > 0 else sums.min(-1)
    else:
        w = np.linalg.svd(x, compute_uv=False)
        y = w.sum(-1) if p == "nuc" else w[..., 0] if p == 2 else w[..., -1]
    return np.expand_dims(y, axes) if keep else np.asarray(y)


def _vector_norm(x, p, axes=None, keep=False):
    axes = tuple(range(x.ndim)) if axes is None else axes
    a = np.abs(x)
    if np.isinf(p):
        return np.asarray(a.max(axes, keepdims=keep) if p > 0 else a.min(axes, keepdims=keep))
    return np.asarray((a != 0).sum(axes, keepdims=keep).astype(float) if p == 0 else (a**p).sum(axes, keepdims=keep) ** (1 / p))


HALF_OF_NORMS = ("float32", "bfloat16")


def _norms():
    free = {"own_values": False, "length": 67, "c": 8}
    for p in ("fro", "nuc", 1, -1, 2, -2, np.inf, -np.inf):
        dtypes = BOTH if p in (1, "nuc") else ("float32",)
        yield from _row("linalg.matrix_norm", ((3, 5, 4),), lambda linalg, x, p=p: linalg.matrix_norm(x, p), _norm_of(p), dtypes, str(p))
    yield from _row("linalg.matrix_norm", (((3, 5, 67), noise),), lambda linalg, x: linalg.matrix_norm(x, dim=(0, 2), keepdim=True), lambda x: _norm(x, "fro", (0, 2), True), HALF_OF_NORMS, "dims", **free)
    for p in (0, 1, 2, 3, 0.5, np.inf, -np.inf):
        yield from _row("linalg.vector_norm", (((3, 67), away_from_zero),), lambda linalg, x, p=p: linalg.vector_norm(x, p, -1), lambda x, p=p: _vector_norm(x, p, (-1,)), (*BOTH, "bfloat16") if p == 2 else ("float32",), f"{p:g}", **{**free, "length": 67 if p != 0.5 else 67**2}, **({"grad": ()} if p == 0 else {}))
    yield from _row("linalg.vector_norm", (((3, 4, 5), noise),), lambda linalg, x: linalg.vector_norm(x, 3, (0, 2), True), lambda x: _vector_norm(x, 3, (0, 2), True), tag="dims", **free)
    yield from _row("linalg.norm", (((3, 67), noise),), lambda linalg, x: linalg.norm(x), lambda x: _vector_norm(x, 2), HALF_OF_NORMS, **free)
    yield from _row("linalg.norm", ((5, 4),), lambda linalg, x: linalg.norm(x, "nuc"), _norm_of("nuc"), tag="nuc")
    yield from _row("linalg.norm", (((5, 67), noise),), lambda linalg, x: linalg.norm(x, 1, 1, True), lambda x: _vector_norm(x, 1, (1,), True), tag="dim", **free)


def _norm_of(p):
    return lambda x: _norm(x, p)


def _products():
    free = {"own_values": False, "c": 8, "length": 67}
    exact = {"own_values": False, "c": 0, "composed": False, "magnitude": None, "fused_exact": True}
    of_two = {**free, "magnitude": lambda *x: size(x[0]) * size(x[1])}
    yield from _row("linalg.matmul", (((3, 67), noise), (67, 5)), lambda linalg, a, b: linalg.matmul(a, b), np.matmul, ("float32", "float16"), **of_two)
    yield from _row("linalg.vecdot", (((3, 67), noise), (3, 67)), lambda linalg, a, b: linalg.vecdot(a, b), lambda a, b: (a * b).sum(-1), (*BOTH, "bfloat16"), **of_two)
    yield from _row("linalg.vecdot", (((4, 3, 5), noise), (4, 1, 5)), lambda linalg, a, b: linalg.vecdot(a, b, dim=0), lambda a, b: (a * b).sum(0), tag="dim", **of_two)
    yield from _row("linalg.multi_dot", (((3, 7), noise), (7, 2), (2, 5), (5, 4)), lambda linalg, *x: linalg.multi_dot(x), lambda a, b, c, d: a @ b @ c @ d, BOTH, **{**free, "magnitude": lambda *x: size(*x) ** 4})
    yield from _row("linalg.multi_dot", (((7,), noise), (7, 2), (2,)), lambda linalg, *x: linalg.multi_dot(x), lambda a, b, c: np.asarray(a @ b @ c), tag="vectors", **{**free, "magnitude": lambda *x: size(*x) ** 3})
    cross = lambda a, b, d=-1: np.stack([np.take(a, i, d) * np.take(b, j, d) - np.take(a, j, d) * np.take(b, i, d) for i, j in ((1, 2), (2, 0), (0, 1))], d)  # noqa: E731
    yield from _row("linalg.cross", (((67, 3), noise), (67, 3)), lambda linalg, a, b: linalg.cross(a, b), cross, (*BOTH, "bfloat16"), **of_two)
    yield from _row("linalg.cross", (((3, 4, 5), noise), (3, 1, 5)), lambda linalg, a, b: linalg.cross(a, b, dim=0), lambda a, b: cross(a, np.broadcast_to(b, a.shape), 0), tag="dim", **of_two)
    yield from _row("linalg.diagonal", (((5, 7), noise),), lambda linalg, x: linalg.diagonal(x, offset=2), lambda x: np.diagonal(x, 2), (*BOTH, "float16"), **exact)
    yield from _row("linalg.diagonal", (Spec((3, 4, 5), "int64"),), lambda linalg, x: linalg.diagonal(x, offset=-1, dim1=0, dim2=2), lambda x: np.diagonal(x, -1, 0, 2), ("int64",), **exact)
    yield from _row("linalg.vander", (((3, 5), slight),), lambda linalg, x: linalg.vander(x), lambda x: x[..., None] ** np.arange(x.shape[-1]), BOTH, **free)
    yield from _row("linalg.vander", (((5,), slight),), lambda linalg, x: linalg.vander(x, N=3), lambda x: x[..., None] ** np.arange(3), tag="3", **free)
    square = lambda rng, shape: conditioned(rng, (6, 6)).reshape(shape)  # noqa: E731
    yield from _row("linalg.tensorinv", (((6, 2, 3), square),), lambda linalg, x: linalg.tensorinv(x, 1), lambda x: np.linalg.tensorinv(x, 1), tag="1")
    yield from _row("linalg.tensorinv", (((2, 3, 3, 2), square),), lambda linalg, x: linalg.tensorinv(x), np.linalg.tensorinv, BOTH)
    yield from _row("linalg.tensorsolve", (((2, 3, 6), square), (2, 3)), lambda linalg, x, b: linalg.tensorsolve(x, b), np.linalg.tensorsolve, BOTH)


def cases():
    return [c for part in (_older, _checked, _norms, _products) for c in part()]
