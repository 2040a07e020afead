"""Convolution and pooling against sums over explicit windows."""

import numpy as np

from . import FLOATS, Case, Spec, distinct, label, positive
from .norm import batch_norm


def _pad(x, padding, value=0.0):
    ph, pw = padding
    return np.pad(x, ((0, 0), (0, 0), (ph, ph), (pw, pw)), constant_values=value)


def _windows(x, kernel, stride, dilation):
    """[N, C, OH, OW, KH, KW]"""
    (kh, kw), (sh, sw), (dh, dw) = kernel, stride, dilation
    oh = (x.shape[2] - dh * (kh - 1) - 1) // sh + 1
    ow = (x.shape[3] - dw * (kw - 1) - 1) // sw + 1
    rows = (np.arange(oh) * sh)[:, None] + (np.arange(kh) * dh)[None]
    cols = (np.arange(ow) * sw)[:, None] + (np.arange(kw) * dw)[None]
    return x[:, :, rows[:, None, :, None], cols[None, :, None, :]]


def conv2d(x, w, b=None, stride=(1, 1), padding=(0, 0), dilation=(1, 1), groups=1):
    if x.ndim == 3:
        return conv2d(x[None], w, b, stride, padding, dilation, groups)[0]
    v = _windows(_pad(x, padding), w.shape[2:], stride, dilation)
    n, o = x.shape[0], w.shape[0]
    v = v.reshape(n, groups, w.shape[1], *v.shape[2:])
    y = np.einsum("ngcijkl,gockl->ngoij", v, w.reshape(groups, o // groups, *w.shape[1:]))
    y = y.reshape(n, o, *y.shape[3:])
    return y if b is None else y + b[:, None, None]


def conv_transpose2d(x, w, b=None, stride=(1, 1), padding=(0, 0), output_padding=(0, 0), groups=1, dilation=(1, 1)):
    """Each element of x adds its multiple of the weight to the result."""
    n, c, h, wide = x.shape
    (sh, sw), (ph, pw), (dh, dw), (kh, kw) = stride, padding, dilation, w.shape[2:]
    y = np.zeros((n, w.shape[1] * groups, (h - 1) * sh + dh * (kh - 1) + output_padding[0] + 1, (wide - 1) * sw + dw * (kw - 1) + output_padding[1] + 1))
    parts, each = y.reshape(n, groups, w.shape[1], *y.shape[2:]), c // groups
    for i in range(kh):
        for j in range(kw):
            parts[..., i * dh : i * dh + (h - 1) * sh + 1 : sh, j * dw : j * dw + (wide - 1) * sw + 1 : sw] += np.einsum(
                "ngchw,gco->ngohw", x.reshape(n, groups, each, h, wide), w[:, :, i, j].reshape(groups, each, w.shape[1]))
    y = y[:, :, ph : y.shape[2] - ph, pw : y.shape[3] - pw]
    return y if b is None else y + b[:, None, None]


def max_pool2d(x, kernel, stride, padding=(0, 0), dilation=(1, 1)):
    v = _windows(_pad(x, padding, -np.inf), kernel, stride, dilation)
    return v.max(axis=(4, 5))


def max_pool2d_indices(x, kernel, stride, padding=(0, 0), dilation=(1, 1)):
    v = _windows(_pad(x, padding, -np.inf), kernel, stride, dilation)
    at = v.reshape(*v.shape[:4], -1).argmax(-1)
    kh, kw = at // kernel[1], at % kernel[1]
    h = np.arange(v.shape[2])[:, None] * stride[0] + kh * dilation[0] - padding[0]
    w = np.arange(v.shape[3])[None, :] * stride[1] + kw * dilation[1] - padding[1]
    return h * x.shape[3] + w


def avg_pool2d(x, kernel, stride, padding=(0, 0), count_include_pad=True):
    one = (1, 1)
    s = _windows(_pad(x, padding), kernel, stride, one).sum(axis=(4, 5))
    if count_include_pad:
        return s / (kernel[0] * kernel[1])
    return s / _windows(_pad(np.ones_like(x), padding), kernel, stride, one).sum(axis=(4, 5))


def conv1d(x, w, b=None, **settings):
    one_row = {k: v if k == "groups" else (0 if k == "padding" else 1, v) for k, v in settings.items()}
    return conv2d(x[..., None, :], w[:, :, None], b, **one_row)[..., 0, :]


def adaptive_avg_pool2d(x, oh, ow):
    y = np.empty((*x.shape[:-2], oh, ow))
    for i in range(oh):
        for j in range(ow):
            rows, cols = ((k * size // n, -(-(k + 1) * size // n)) for k, n, size in ((i, oh, x.shape[-2]), (j, ow, x.shape[-1])))
            y[..., i, j] = x[..., slice(*rows), slice(*cols)].mean(axis=(-2, -1))
    return y


CONVS = (
    ((2, 3, 9, 8), (4, 3, 3, 3), {}),
    ((2, 3, 9, 8), (4, 3, 3, 3), {"padding": 1}),
    ((2, 4, 9, 8), (6, 2, 3, 2), {"stride": 2, "padding": (1, 0), "groups": 2}),
    ((1, 4, 11, 10), (4, 1, 3, 3), {"groups": 4, "padding": 2, "dilation": 2}),
    ((1, 3, 7, 7), (5, 3, 1, 1), {"stride": (2, 1)}),
    ((3, 8, 8), (2, 3, 3, 3), None),
    ((1, 1, 1, 1), (1, 1, 1, 1), {}),
    ((0, 3, 5, 5), (4, 3, 3, 3), {}),
    ((3, 5, 5), (4, 3, 5, 5), {}),
)
POOLS = (
    ((2, 3, 8, 9), {"kernel_size": 2}),
    ((2, 3, 9, 9), {"kernel_size": 3, "stride": 2, "padding": 1}),
    ((1, 2, 7, 8), {"kernel_size": (3, 2), "stride": 1}),
    ((3, 6, 6), {"kernel_size": 2}),
    ((1, 1, 1, 1), {"kernel_size": 1}),
)


def _pair(v):
    return (v, v) if isinstance(v, int) else v


def _settings(kw):
    return {k: v if k in ("groups", "count_include_pad") else _pair(v) for k, v in kw.items()}


def _pool_settings(kw):
    kernel = _pair(kw["kernel_size"])
    return kernel, _pair(kw.get("stride", kernel)), _pair(kw.get("padding", 0))


def _batched(f):
    return lambda x, *a, **k: f(x, *a, **k) if x.ndim == 4 else f(x[None], *a, **k)[0]


def _convolutions(dtype):
    ops = ("conv2d", "conv2d_grad_input", "conv2d_grad_weight")
    for i, (s, t, kw) in enumerate(CONVS if dtype in ("float32", "float64") else CONVS[:3]):
        if kw is None:
            continue
        terms = int(np.prod(t[1:]))

        def magnitude(x, w, b, k=kw):
            return conv2d(np.abs(x), np.abs(w), np.abs(b), **_settings(k))

        yield Case(f"conv2d-{dtype}-{i}", ("conv2d",), (*ops, "add"), (Spec(s, dtype), Spec(t, dtype), Spec((t[0],), dtype)), lambda pf, x, w, b, k=kw: pf.conv2d(x, w, b, **k),
                   lambda x, w, b, k=kw: conv2d(x, w, b, **_settings(k)), grad=(0, 1, 2), c=3, length=terms + 1, magnitude=magnitude, composed=True, fused_exact=False,
                   flops=lambda x, w, b: 2 * int(np.prod(x)) * int(np.prod(w[2:])) * w[0])
    yield Case(f"conv2d-no-bias-{dtype}", ("conv2d",), ops, (Spec((1, 2, 6, 6), dtype), Spec((3, 2, 3, 3), dtype)), lambda pf, x, w: pf.conv2d(x, w), conv2d, grad=(0, 1), c=3, length=18,
               magnitude=lambda x, w: conv2d(np.abs(x), np.abs(w)), fused_exact=False)


def _blocks(dtype):
    """What networks make of a convolution: normalised, activated, summed, and looked at in another shape. Channels enough for matrix units."""
    def normalised(y, m, v, g, b):
        return batch_norm(y, m, v, g, b)

    def block(pf, x, w, m, v, g, b, **kw):
        return pf.batch_norm(pf.conv2d(x, w, **kw), m, v, g, b)

    def size(x, w, m, v, g, b, **kw):
        return normalised(conv2d(np.abs(x), np.abs(w), **_settings(kw)) + np.abs(m).max(), 0 * m, v, np.abs(g), np.abs(b))

    for name, x, w, kw in (("3x3", (2, 8, 6, 5), (16, 8, 3, 3), {"padding": 1}), ("1x1", (2, 16, 5, 5), (24, 16, 1, 1), {}), ("depthwise", (2, 8, 7, 6), (8, 1, 3, 3), {"stride": 2, "groups": 8})):
        c, v = Spec((w[0],), dtype), Spec((w[0],), dtype, positive)
        common = {"c": 4, "length": int(np.prod(w[1:])) + 3, "magnitude": lambda *a, k=kw: size(*a, **k), "composed": True, "fused_exact": False}
        yield Case(f"conv2d-batch_norm-relu-{name}-{dtype}", ("conv2d", "batch_norm", "relu"), ("conv2d", "relu"), (Spec(x, dtype), Spec(w, dtype), c, v, c, c),
                   lambda pf, *a, k=kw: pf.relu(block(pf, *a, **k)), lambda x, w, *a, k=kw: np.maximum(normalised(conv2d(x, w, **_settings(k)), *a), 0), **common)
        yield Case(f"conv2d-flat-{name}-{dtype}", ("conv2d", "view"), ("conv2d", "conv2d_grad_input", "conv2d_grad_weight"), (Spec(x, dtype), Spec(w, dtype)),
                   lambda pf, x, w, k=kw: pf.conv2d(x, w, **k).view(x.shape[0], -1), lambda x, w, k=kw: conv2d(x, w, **_settings(k)).reshape(x.shape[0], -1), grad=(0, 1), c=3, length=common["length"],
                   magnitude=lambda x, w, k=kw: conv2d(np.abs(x), np.abs(w), **_settings(k)).reshape(x.shape[0], -1), fused_exact=False)
    yield Case(f"contiguous-channels_last-{dtype}", ("contiguous",), ("cast",), (Spec((2, 3, 4, 5), dtype),), lambda pf, x: x.contiguous(memory_format=pf.channels_last), lambda x: x, grad=(0,))


def _one_row(dtype):
    for i, (s, t, kw) in enumerate((((2, 3, 9), (4, 3, 3), {}), ((2, 4, 11), (6, 2, 3), {"stride": 2, "padding": 1, "groups": 2}), ((3, 8), (2, 3, 2), {"dilation": 3}))):
        yield Case(f"conv1d-{dtype}-{i}", ("conv1d",), ("conv2d", "conv2d_grad_input", "conv2d_grad_weight"), (Spec(s, dtype), Spec(t, dtype), Spec((t[0],), dtype)),
                   lambda pf, x, w, b, k=kw: pf.conv1d(x, w, b, **k), lambda x, w, b, k=kw: conv1d(x, w, b, **k), grad=(0, 1, 2), c=3, length=int(np.prod(t[1:])) + 1, composed=True, fused_exact=False,
                   magnitude=lambda x, w, b, k=kw: conv1d(np.abs(x), np.abs(w), np.abs(b), **k))


def _transposed(dtype):
    both = lambda v: v if isinstance(v, tuple) else (v, v)  # noqa: E731
    for i, (s, t, kw) in enumerate((((2, 3, 4, 5), (3, 4, 3, 3), {}), ((2, 4, 4, 3), (4, 3, 3, 2), {"stride": 2, "padding": (1, 0), "output_padding": (1, 0), "groups": 2}),
                                    ((1, 4, 5, 4), (4, 1, 2, 2), {"stride": 2, "groups": 4}), ((1, 2, 3, 4), (2, 3, 3, 2), {"dilation": (2, 1), "padding": 1}))):
        settings = {k: v if k == "groups" else both(v) for k, v in kw.items()}
        out = t[1] * kw.get("groups", 1)
        yield Case(f"conv_transpose2d-{dtype}-{i}", ("conv_transpose2d",), ("conv2d_grad_input", "conv2d", "conv2d_grad_weight"), (Spec(s, dtype), Spec(t, dtype), Spec((out,), dtype)),
                   lambda pf, x, w, b, k=kw: pf.conv_transpose2d(x, w, b, **k), lambda x, w, b, k=settings: conv_transpose2d(x, w, b, **k), grad=(0, 1, 2), c=3, length=s[1] * t[2] * t[3] + 1, composed=True,
                   fused_exact=False, magnitude=lambda x, w, b, k=settings: conv_transpose2d(np.abs(x), np.abs(w), np.abs(b), **k))


def _adaptive(dtype):
    for s, out in (((2, 3, 8, 6), (4, 3)), ((2, 3, 7, 7), (1, 1)), ((2, 3, 7, 10), (3, 4)), ((3, 5, 4), (5, 3)), ((1, 2, 3, 2), (5, 4)), ((1, 1, 1, 1), (2, 1)), ((2, 2, 9, 4), (2, 4))):
        yield Case(f"adaptive_avg_pool2d-{dtype}-{'x'.join(map(str, (*s, *out)))}", ("adaptive_avg_pool2d",), ("avg_pool2d", "resample"), (Spec(s, dtype),),
                   lambda pf, x, o=out: pf.adaptive_avg_pool2d(x, o), lambda x, o=out: adaptive_avg_pool2d(x, *o), grad=(0,), c=3, length=int(np.prod(s[-2:])), composed=True, fused_exact=False,
                   magnitude=lambda x, o=out: adaptive_avg_pool2d(np.abs(x), *o))


def _pools(dtype):
    for i, (s, kw) in enumerate(POOLS):
        yield Case(f"max_pool2d-{dtype}-{i}", ("max_pool2d",), ("max_pool2d", "max_pool2d_grad", "scatter_add", "gather"), (Spec(s, dtype, distinct),),
                   lambda pf, x, k=kw: pf.max_pool2d(x, **k), lambda x, k=kw: _batched(max_pool2d)(x, *_pool_settings(k)), grad=(0,))
        yield Case(f"max_pool2d_with_indices-{dtype}-{i}", ("max_pool2d_with_indices",), ("max_pool2d",), (Spec(s, dtype, distinct),),
                   lambda pf, x, k=kw: tuple(pf.max_pool2d(x, return_indices=True, **k)),
                   lambda x, k=kw: (_batched(max_pool2d)(x, *_pool_settings(k)), _batched(max_pool2d_indices)(x, *_pool_settings(k))), grad=(0,), out=(dtype, "int64"))
        for include in (True, False):
            yield Case(f"avg_pool2d-{dtype}-{i}-{include}", ("avg_pool2d",), ("avg_pool2d", "avg_pool2d_grad"), (Spec(s, dtype),),
                       lambda pf, x, k=kw, c=include: pf.avg_pool2d(x, count_include_pad=c, **k), lambda x, k=kw, c=include: _batched(avg_pool2d)(x, *_pool_settings(k), c), grad=(0,), c=2, length=9,
                       magnitude=lambda x, k=kw, c=include: _batched(avg_pool2d)(np.abs(x), *_pool_settings(k), c), fused_exact=False)
    yield Case(f"max_pool2d-dilated-{dtype}", ("max_pool2d",), ("max_pool2d",), (Spec((1, 2, 9, 9), dtype, distinct),), lambda pf, x: pf.max_pool2d(x, 2, 2, 0, 2),
               lambda x: max_pool2d(x, (2, 2), (2, 2), (0, 0), (2, 2)), grad=(0,))


def cases():
    return [case for dtype in FLOATS for make in (_convolutions, _blocks, _one_row, _transposed, _adaptive, _pools) for case in make(dtype)]
