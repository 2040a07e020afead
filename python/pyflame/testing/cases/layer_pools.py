"""Pools of pyflame.nn.functional in 1 to 3 dims that are composed of ops: means, maxima and norms over explicit windows."""

import numpy as np

from . import Spec, any_of, distinct
from .layers import HALVES, MOST, layer
from .volumes import ceiled

SHAPES = {1: (2, 3, 67), 2: (2, 3, 9, 7), 3: (1, 2, 5, 6, 7)}


# ---- windows: for each spatial dim, the places that each of them has
def plain(n, k, s, p=0, d=1, ceil=False):
    if min(n, n + 2 * p - d * (k - 1)) < 1:
        raise ValueError("no window")
    count = ceiled(n, k, s, p, d) if ceil else (n + 2 * p - d * (k - 1) - 1) // s + 1
    return [[j for j in range(i * s - p, i * s - p + d * (k - 1) + 1, d) if 0 <= j < n] for i in range(count)]


def adaptive(n, out):
    return [list(range(i * n // out, -(-(i + 1) * n // out))) for i in range(out)]


def fractional(n, k, out, u):
    step = (n - k) / (out - 1)
    starts = [int((i + u) * step) - int(u * step) for i in range(out - 1)] + [n - k]
    return [list(range(a, a + k)) for a in starts]


def pooled(x, spans, reduce):
    """reduce(a window [.., places], the places' numbers in the whole) for each window."""
    whole, outer = x.shape[-len(spans) :], x.shape[: -len(spans)]
    places = np.arange(int(np.prod(whole))).reshape(whole)
    flat, out = x.reshape(*outer, -1), []
    for at in np.ndindex(*(len(s) for s in spans)):
        inside = places[np.ix_(*(s[i] for s, i in zip(spans, at)))].ravel()
        out.append(reduce(flat[..., inside], inside))
    return np.stack(out, -1).reshape(*outer, *(len(s) for s in spans))


def maxima(x, spans):
    """(values, indices)."""
    return pooled(x, spans, lambda w, at: w.max(-1)), pooled(x, spans, lambda w, at: at[w.argmax(-1)])


def averages(x, spans, divisors=None):
    """The divisors of each dim's windows are how many places they have, unless given."""
    y = pooled(x, spans, lambda w, at: w.sum(-1))
    for d, span in enumerate(spans):
        y = y / np.reshape([len(s) for s in span] if divisors is None else divisors[d], (-1, *(1,) * (len(spans) - 1 - d)))
    return y


def reaching(n, k, s, p, ceil):
    """How many elements each window has with the padding."""
    return [min(i * s - p + k, n + p) - (i * s - p) for i in range(len(plain(n, k, s, p, ceil=ceil)))]


def norms(x, spans, p):
    return pooled(x, spans, lambda w, at: (np.abs(w) ** p).sum(-1) ** (1 / p))


def unpooled(x, at, sizes):
    y = np.zeros((*x.shape[: x.ndim - len(sizes)], int(np.prod(sizes))))
    np.put_along_axis(y, at.reshape(*y.shape[:-1], -1), x.reshape(*y.shape[:-1], -1), -1)
    return y.reshape(*y.shape[:-1], *sizes)


def _spatial(x, dims):
    return x.shape[x.ndim - dims :]


# ---- cases
OUT = {1: (5,), 2: (4, 3), 3: (2, 3, 5)}
TWO = ("float32", "int64")
EXACT = {"c": 0, "composed": False, "magnitude": None}


def _adaptive():
    for dims, shape in SHAPES.items():
        out = OUT[dims]
        spans = lambda x, out=out, dims=dims: [adaptive(n, m) for n, m in zip(_spatial(x, dims), out)]  # noqa: E731
        if dims != 2:
            yield from layer(f"adaptive_avg_pool{dims}d", (shape,), lambda F, x, d=dims, out=out: getattr(F, f"adaptive_avg_pool{d}d")(x, out), lambda x, spans=spans: averages(x, spans(x)), MOST if dims == 1 else HALVES, length=60, fused_exact=False)
        yield from layer(f"adaptive_max_pool{dims}d", ((shape, distinct),), lambda F, x, d=dims, out=out: getattr(F, f"adaptive_max_pool{d}d")(x, out), lambda x, spans=spans: maxima(x, spans(x))[0], HALVES if dims == 2 else ("float32",), **EXACT)
        yield from layer(f"adaptive_max_pool{dims}d_with_indices", ((shape, distinct),), lambda F, x, d=dims, out=out: getattr(F, f"adaptive_max_pool{d}d_with_indices")(x, out), lambda x, spans=spans: maxima(x, spans(x)), out=TWO, **EXACT)
    yield from layer("adaptive_avg_pool3d", ((3, 5, 4, 6),), lambda F, x: F.adaptive_avg_pool3d(x, (None, 2, 1)), lambda x: averages(x, [adaptive(n, m) for n, m in zip(x.shape[1:], (x.shape[1], 2, 1))]), tag="none", length=60, fused_exact=False)


def _means():
    for dims in (1, 3):
        for tag, (k, s, p, ceil, include), dtypes in (("", (3, 2, 1, False, True), MOST), ("ceil", (3, 2, 1, True, True), ("float32",)), ("without_padding", (3, 2, 1, False, False), ("float32",))):
            def reference(x, dims=dims, k=k, s=s, p=p, ceil=ceil, include=include):
                sizes = _spatial(x, dims)
                return averages(x, [plain(n, k, s, p, ceil=ceil) for n in sizes], [reaching(n, k, s, p, ceil) for n in sizes] if include else None)

            yield from layer(f"avg_pool{dims}d", (SHAPES[dims],), lambda F, x, d=dims, a=(k, s, p, ceil, include): getattr(F, f"avg_pool{d}d")(x, *a), reference, dtypes, tag, length=27, fused_exact=False)
    yield from layer("avg_pool3d", (SHAPES[3],), lambda F, x: F.avg_pool3d(x, 2, divisor_override=3), lambda x: pooled(x, [plain(n, 2, 2) for n in _spatial(x, 3)], lambda w, at: w.sum(-1) / 3), tag="divisor", length=8, fused_exact=False)


def _maxima():
    for dims, shape in SHAPES.items():
        for tag, (k, s, p, d, ceil), dtypes in (("", (3, 2, 1, 1, False), HALVES if dims == 1 else ("float32",)), ("ceil", (2, 3, 0, 2, True), ("float32",))):
            spans = lambda x, dims=dims, a=(k, s, p, d, ceil): [plain(n, *a) for n in _spatial(x, dims)]  # noqa: E731
            if dims == 1:
                yield from layer("max_pool1d", ((shape, distinct),), lambda F, x, a=(k, s, p, d, ceil): F.max_pool1d(x, *a), lambda x, spans=spans: maxima(x, spans(x))[0], dtypes, tag, **EXACT)
            if dims != 2:
                yield from layer(f"max_pool{dims}d_with_indices", ((shape, distinct),), lambda F, x, n=dims, a=(k, s, p, d, ceil): getattr(F, f"max_pool{n}d_with_indices")(x, *a), lambda x, spans=spans: maxima(x, spans(x)), tag=tag, out=TWO, **EXACT)


def _norms():
    for dims, shape in SHAPES.items():
        for p in (2.0, 4.0):
            # The fourth powers' range is that of half types only for small numbers.
            yield from layer(f"lp_pool{dims}d", (shape,), lambda F, x, d=dims, p=p: getattr(F, f"lp_pool{d}d")(x, p, 3, 2), lambda x, d=dims, p=p: norms(x, [plain(n, 3, 2) for n in _spatial(x, d)], p), MOST if dims == 1 and p == 2 else ("float32",), f"p{p:g}",
                             length=27, fused_exact=False)


def _fractional():
    settings = {**EXACT, "own_values": True}
    for dims, shape, out in ((2, (2, 3, 9, 7), (4, 3)), (3, (1, 2, 6, 7, 8), (3, 3, 4))):
        samples = Spec((*shape[:2], dims), "float32", any_of((0.125, 0.25, 0.375, 0.625, 0.875)))

        def reference(x, u, dims=dims, out=out):
            parts = []
            for n, c in np.ndindex(*x.shape[:2]):
                order = u[n, c][::-1] if dims == 2 else u[n, c]
                parts.append(maxima(x[n, c], [fractional(a, 2, b, v) for a, b, v in zip(x.shape[2:], out, order)]))
            return tuple(np.stack([p[i] for p in parts]).reshape(*x.shape[:2], *out) for i in range(2))

        yield from layer(f"fractional_max_pool{dims}d", ((shape, distinct), samples), lambda F, x, u, d=dims, out=out: getattr(F, f"fractional_max_pool{d}d")(x, 2, out, _random_samples=u), lambda x, u, r=reference: r(x, u)[0], **settings)
        yield from layer(f"fractional_max_pool{dims}d_with_indices", ((shape, distinct), samples), lambda F, x, u, d=dims, out=out: getattr(F, f"fractional_max_pool{d}d_with_indices")(x, 2, out, _random_samples=u), reference, out=TWO, **settings)


def _places(sizes):
    """Places of [N, C, ..] in planes of these sizes, each once."""

    def make(rng, shape):
        planes = int(np.prod(shape[:2]))
        rows = [rng.permutation(int(np.prod(sizes)))[: int(np.prod(shape[2:]))] for _ in range(planes)]
        return np.reshape(rows, shape)

    return make


def _unpooled():
    for dims, shape in ((1, (2, 3, 11)), (2, (2, 3, 3, 4)), (3, (1, 2, 2, 3, 2))):
        sizes = tuple(2 * n for n in shape[2:])
        yield from layer(f"max_unpool{dims}d", (shape, Spec(shape, "int64", _places(sizes))), lambda F, x, at, d=dims: getattr(F, f"max_unpool{d}d")(x, at, 2), lambda x, at, sizes=sizes: unpooled(x, at, sizes), MOST if dims == 1 else ("float32",), own_values=True, **EXACT)
    larger = (7, 8)
    yield from layer("max_unpool2d", ((2, 3, 3, 4), Spec((2, 3, 3, 4), "int64", _places(larger))), lambda F, x, at: F.max_unpool2d(x, at, 2, output_size=larger), lambda x, at: unpooled(x, at, larger), tag="output_size", own_values=True, **EXACT)


def cases():
    return [c for part in (_adaptive, _means, _maxima, _norms, _fractional, _unpooled) for c in part()]
