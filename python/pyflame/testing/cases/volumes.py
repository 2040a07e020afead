"""Convolutions of signals and volumes, transposed ones, windows as columns, and pools with a cut-off last window: sums over explicit windows."""

import numpy as np

from . import FLOATS, Case, Spec, distinct


def _sizes(value, dims):
    return (value,) * dims if isinstance(value, int) else tuple(value)


def windows(x, kernel, stride, padding, dilation, value=0.0, count=None):
    """[N, C, .., kernel ..]; `count`: how many windows along each dim, if other than fit."""
    dims = len(kernel)
    x = np.pad(x, [(0, 0), (0, 0), *((p, p + (99 if count else 0)) for p in padding)], constant_values=value)
    for d, (k, s, dil) in enumerate(zip(kernel, stride, dilation)):
        axis = 2 + 2 * d
        n = count[d] if count else (x.shape[axis] - dil * (k - 1) - 1) // s + 1
        x = np.take(x, np.arange(n)[:, None] * s + np.arange(k) * dil, axis=axis)
    return x.transpose(0, 1, *(2 + 2 * d for d in range(dims)), *(3 + 2 * d for d in range(dims)))


def convolved(x, w, b=None, stride=1, padding=0, dilation=1, groups=1):
    dims = w.ndim - 2
    if x.ndim == dims + 1:
        return convolved(x[None], w, b, stride, padding, dilation, groups)[0]
    v = windows(x, w.shape[2:], *(_sizes(s, dims) for s in (stride, padding, dilation)))
    n, o, out = x.shape[0], w.shape[0], v.shape[2 : 2 + dims]
    taps = int(np.prod(w.shape[2:]))
    v = v.reshape(n, groups, w.shape[1], int(np.prod(out)), taps)
    y = np.einsum("ngcpk,gock->ngop", v, w.reshape(groups, o // groups, w.shape[1], taps)).reshape(n, o, *out)
    return y if b is None else y + b.reshape(-1, *(1,) * dims)


def transposed(x, w, b=None, stride=1, padding=0, output_padding=0, groups=1, dilation=1):
    """Each element of x adds its multiple of the weight to the result."""
    dims = w.ndim - 2
    if x.ndim == dims + 1:
        return transposed(x[None], w, b, stride, padding, output_padding, groups, dilation)[0]
    stride, padding, output_padding, dilation = (_sizes(s, dims) for s in (stride, padding, output_padding, dilation))
    n, c, *old = x.shape
    whole = [(i - 1) * s + d * (k - 1) + 1 + more for i, s, d, k, more in zip(old, stride, dilation, w.shape[2:], output_padding)]
    y = np.zeros((n, groups, w.shape[1], *whole))
    x, w = x.reshape(n, groups, c // groups, *old), w.reshape(groups, c // groups, *w.shape[1:])
    for tap in np.ndindex(*w.shape[3:]):
        at = tuple(slice(t * d, t * d + (i - 1) * s + 1, s) for t, d, i, s in zip(tap, dilation, old, stride))
        y[(slice(None), slice(None), slice(None), *at)] += np.einsum("ngc...,gco->ngo...", x, w[(slice(None), slice(None), slice(None), *tap)])
    y = y.reshape(n, -1, *whole)[(slice(None), slice(None), *(slice(p, i - p) for p, i in zip(padding, whole)))]
    return y if b is None else y + b.reshape(-1, *(1,) * dims)


def columns(x, kernel, dilation=1, padding=0, stride=1):
    v = windows(x, *(_sizes(s, 2) for s in (kernel, stride, padding, dilation)))
    return v.transpose(0, 1, 4, 5, 2, 3).reshape(x.shape[0], -1, v.shape[2] * v.shape[3])


def images(x, size, kernel, dilation=1, padding=0, stride=1):
    """The adjoint of columns: each entry is added to the element that it was read from."""
    n, taps = x.shape[0], int(np.prod(_sizes(kernel, 2)))
    places = columns(np.arange(1, int(np.prod(size)) + 1).reshape(1, 1, *size), kernel, dilation, padding, stride)[0]
    y = np.zeros((n, x.shape[1] // taps, int(np.prod(size)) + 1))
    np.add.at(y, (slice(None), slice(None), places), x.reshape(n, -1, *places.shape))
    return y[..., 1:].reshape(n, -1, *size)


def ceiled(n, k, s, p, d=1):
    """How many windows there are where the last one may be cut off."""
    count = -(-(n + 2 * p - d * (k - 1) - 1) // s) + 1
    return count - 1 if (count - 1) * s >= n + p else count


def largest(x, kernel, stride, padding, ceil):
    dims = len(kernel)
    count = [ceiled(n, k, s, p) for n, k, s, p in zip(x.shape[2:], kernel, stride, padding)] if ceil else None
    v = windows(x, kernel, stride, padding, (1,) * dims, -np.inf, count)
    return v.max(tuple(range(2 + dims, 2 + 2 * dims)))


CONVS = {
    "conv3d": (
        ((2, 3, 5, 6, 4), (4, 3, 3, 3, 3), {"padding": 1}),
        ((1, 4, 7, 6, 7), (6, 2, 2, 3, 2), {"stride": (2, 1, 2), "padding": (1, 0, 1), "dilation": (2, 1, 1), "groups": 2}),
        ((2, 3, 4, 3, 5), (2, 3, 1, 1, 3), {"padding": (0, 0, 1)}),
        ((2, 3, 4, 3, 2), (2, 3, 2, 1, 1), {"stride": (2, 1, 1)}),
        ((3, 4, 4, 4), (2, 3, 3, 2, 2), {}),
        ((0, 3, 4, 4, 4), (2, 3, 3, 2, 2), {"padding": 1}),
    ),
    "conv_transpose1d": (
        ((2, 3, 5), (3, 4, 3), {}),
        ((2, 4, 6), (4, 2, 3), {"stride": 2, "padding": 1, "output_padding": 1, "groups": 2}),
        ((1, 2, 5), (2, 3, 2), {"dilation": 3, "output_padding": 2, "padding": 2}),
    ),
    "conv_transpose2d": (((2, 2, 3, 4), (2, 3, 3, 2), {"stride": (3, 2), "dilation": (1, 4), "padding": (0, 1), "output_padding": (1, 3)}),),
    "conv_transpose3d": (
        ((2, 3, 3, 4, 2), (3, 2, 2, 3, 2), {"padding": (1, 1, 0)}),
        ((1, 4, 3, 2, 3), (4, 2, 3, 2, 3), {"stride": (2, 1, 2), "padding": 1, "output_padding": (1, 0, 1), "groups": 2}),
        ((2, 2, 2, 3), (2, 3, 2, 2, 2), {"dilation": (1, 3, 1), "output_padding": (0, 2, 0), "padding": (0, 1, 0)}),
    ),
}


def _convolutions(dtype):
    for name, calls in CONVS.items():
        reference = transposed if "transpose" in name else convolved
        for i, (s, t, kw) in enumerate(calls if dtype in ("float32", "float64") else calls[:1]):
            out = t[1] * kw.get("groups", 1) if "transpose" in name else t[0]
            yield Case(f"{name}-{dtype}-{label_of(name)}{i}", (name,), ("conv2d", "conv2d_grad_input", "conv2d_grad_weight"), (Spec(s, dtype), Spec(t, dtype), Spec((out,), dtype)),
                       lambda pf, x, w, b, f=name, k=kw: getattr(pf, f)(x, w, b, **k), lambda x, w, b, f=reference, k=kw: f(x, w, b, **k), grad=(0, 1, 2), c=4,
                       length=int(np.prod(t[1:])) * max(1, t[0] // t[1]) + 1, composed=True, fused_exact=False,
                       magnitude=lambda x, w, b, f=reference, k=kw: f(np.abs(x), np.abs(w), np.abs(b), **k))


def label_of(name):
    return "more" if name == "conv_transpose2d" else ""  # cases/conv.py has the others


WINDOWS = (
    ((2, 3, 6, 5), (3, 2), {"padding": (1, 0), "stride": (2, 1)}),
    ((1, 2, 7, 8), (2, 3), {"dilation": (2, 3), "padding": 1}),
    ((2, 1, 4, 6), (2, 3), {"stride": (2, 3)}),
    ((2, 2, 3, 3), (1, 1), {}),
)


def _columns(dtype):
    for i, (s, kernel, kw) in enumerate(WINDOWS):
        yield Case(f"unfold-{dtype}-{i}", ("unfold",), ("cast",), (Spec(s, dtype),), lambda pf, x, n=kernel, k=kw: pf.nn.functional.unfold(x, n, **k), lambda x, n=kernel, k=kw: columns(x, n, **k), grad=(0,))
        shape = columns(np.zeros(s), kernel, **kw).shape
        terms = int(np.prod(kernel))
        yield Case(f"fold-{dtype}-{i}", ("fold",), ("cast",), (Spec(shape, dtype),), lambda pf, x, z=s, n=kernel, k=kw: pf.nn.functional.fold(x, z[2:], n, **k),
                   lambda x, z=s, n=kernel, k=kw: images(x, z[2:], n, **k), grad=(0,), c=3, length=terms, composed=True, fused_exact=False,
                   magnitude=lambda x, z=s, n=kernel, k=kw: images(np.abs(x), z[2:], n, **k))


def _pools(dtype):
    for i, (s, kernel, stride, padding, ceil) in enumerate((((2, 3, 7, 6), (3, 2), (2, 3), (1, 1), True), ((1, 2, 5, 6, 7), (2, 3, 2), (2, 2, 3), (1, 0, 1), True), ((2, 2, 4, 6, 4), (2, 2, 2), (2, 2, 2), (0, 0, 0), False))):
        name = f"max_pool{len(kernel)}d"
        yield Case(f"{name}-window-{dtype}-{i}", (name,), ("max_pool2d",), (Spec(s, dtype, distinct),), lambda pf, x, f=name, a=(kernel, stride, padding), c=ceil: getattr(pf, f)(x, *a, ceil_mode=c),
                   lambda x, a=(kernel, stride, padding), c=ceil: largest(x, *a, c), grad=(0,))


def doubled(x, dim):
    """Twice as many elements along a dim, each a quarter from one neighbour."""
    x = np.moveaxis(x, dim, -1)
    low, high = np.concatenate([x[..., :1], x[..., :-1]], -1), np.concatenate([x[..., 1:], x[..., -1:]], -1)
    y = np.stack([0.25 * low + 0.75 * x, 0.75 * x + 0.25 * high], -1)
    return np.moveaxis(y.reshape(*x.shape[:-1], -1), -1, dim)


def means(x, dim, n):
    size = x.shape[dim]
    return np.concatenate([x.take(range(i * size // n, -(-(i + 1) * size // n)), dim).mean(dim, keepdims=True) for i in range(n)], dim)


def _resampled(dtype):
    for name, s, dim in (("last", (3, 37), 1), ("first", (21, 10), 0), ("inner", (2, 9, 5), 1)):
        yield Case(f"resample-linear-{name}-{dtype}", ("resample",), ("resample",), (Spec(s, dtype),), lambda pf, x, d=dim: pf._C._resample(x, d, 2 * x.shape[d] if x.ndim > d else 2, "linear"),
                   lambda x, d=dim: doubled(x, d), grad=(0,), c=3, length=2, magnitude=lambda x, d=dim: doubled(np.abs(x), d), fused_exact=False)
        yield Case(f"resample-area-{name}-{dtype}", ("resample",), ("resample",), (Spec(s, dtype),), lambda pf, x, d=dim: pf._C._resample(x, d, 4, "area"),
                   lambda x, d=dim: means(x, d, 4), grad=(0,), c=3, length=8, magnitude=lambda x, d=dim: means(np.abs(x), d, 4), fused_exact=False)


def cases():
    return [case for dtype in FLOATS for make in (_convolutions, _columns, _pools, _resampled) for case in make(dtype)]
