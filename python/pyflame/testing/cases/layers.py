"""Functions of pyflame.nn.functional that are composed of ops: activations, normalizations, rearrangements, attention and resampling.

A row of a table is one case for each of its dtypes: its inputs, how the function is called and what NumPy says."""

import functools
import math

import numpy as np

from . import FLOATS, Case, Spec, label, literal, positive
from .elementwise import sigmoid, softplus
from .linalg import noise

HALVES = ("float32", "float16", "bfloat16")
MOST = ("float32", "float64", "bfloat16")


def size(*arrays):
    """What errors are relative to: the largest number of the inputs, and at least 1."""
    return np.asarray(1.0 + max((np.abs(a).max(initial=0) for a in arrays), default=0.0))


def composition(function, inputs, call, reference, dtypes=("float32",), tag="", **settings):
    """A case of each dtype. An input is a shape, a shape with what makes its values, or a Spec, whose dtype stays. call(module, *tensors) has the module of the function."""
    module = function.rpartition(".")[0]
    for dtype in dtypes:
        specs = tuple(i if isinstance(i, Spec) else Spec(i[0], dtype, i[1]) if len(i) == 2 and callable(i[1]) else Spec(i, dtype, noise) for i in inputs)
        free = tuple(k for k, i in enumerate(inputs) if not isinstance(i, Spec))
        name = "-".join(filter(None, (function, tag, label(specs[0].shape) if specs else "", dtype)))
        yield Case(name, (function,), (), specs, lambda pf, *x: call(functools.reduce(getattr, filter(None, module.split(".")), pf), *x), reference,
                   **{"grad": free, "c": 8, "composed": True, "magnitude": size, **settings})


def layer(name, *row, **settings):
    return composition(f"nn.functional.{name}", *row, **settings)


# ---- one tensor
def mish(x):
    return x * np.tanh(softplus(x))


def elu(x, alpha=1.0, scale=1.0, inner=1.0):
    return scale * np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0) * inner))


def _after(x, power, lowest):
    """x / its norm along dim 1, which is at least the lowest."""
    return x / np.maximum((np.abs(x) ** power).sum(1, keepdims=True) ** (1 / power), lowest)


SELU_ALPHA, SELU_SCALE = 1.6732632423543772848170429916717, 1.0507009873554804934193349852946

# name, tag, the call, NumPy, dtypes
ACTIVATIONS = (
    ("celu", "", lambda F, x: F.celu(x, 0.7), lambda x: elu(x, 0.7, inner=1 / 0.7), HALVES),
    ("elu", "", lambda F, x: F.elu(x, 1.3), lambda x: elu(x, 1.3), MOST),
    ("selu", "", lambda F, x: F.selu(x), lambda x: elu(x, SELU_ALPHA, SELU_SCALE), HALVES),
    ("glu", "", lambda F, x: F.glu(x, -1), lambda x: np.split(x, 2, -1)[0] * sigmoid(np.split(x, 2, -1)[1]), HALVES),
    ("hardshrink", "", lambda F, x: F.hardshrink(x, 0.3), lambda x: np.where(np.abs(x) > 0.3, x, 0), ("float32",)),
    ("hardsigmoid", "", lambda F, x: F.hardsigmoid(x * 2), lambda x: np.clip(x / 3 + 0.5, 0, 1), MOST),
    ("hardswish", "", lambda F, x: F.hardswish(x * 2), lambda x: 2 * x * np.clip(x / 3 + 0.5, 0, 1), HALVES),
    ("hardtanh", "", lambda F, x: F.hardtanh(x, -0.5, 0.8), lambda x: np.clip(x, -0.5, 0.8), ("float32",)),
    ("logsigmoid", "", lambda F, x: F.logsigmoid(x * 5), lambda x: -softplus(-5 * x, threshold=math.inf), MOST),
    ("mish", "", lambda F, x: F.mish(x), mish, FLOATS),
    ("relu6", "", lambda F, x: F.relu6(x * 5), lambda x: np.clip(5 * x, 0, 6), ("float32",)),
    ("rrelu", "eval", lambda F, x: F.rrelu(x, 0.1, 0.4), lambda x: np.where(x >= 0, x, x * 0.25), ("float32",)),
    ("softmin", "", lambda F, x: F.softmin(x, -1), lambda x: (lambda e: e / e.sum(-1, keepdims=True))(np.exp(x.min(-1, keepdims=True) - x)), HALVES),
    ("softshrink", "", lambda F, x: F.softshrink(x, 0.3), lambda x: np.where(x > 0.3, x - 0.3, np.where(x < -0.3, x + 0.3, 0)), ("float32",)),
    ("softsign", "", lambda F, x: F.softsign(x), lambda x: x / (1 + np.abs(x)), MOST),
    ("tanhshrink", "", lambda F, x: F.tanhshrink(x), lambda x: x - np.tanh(x), ("float32", "float64")),
    ("threshold", "", lambda F, x: F.threshold(x, 0.1, -20.0), lambda x: np.where(x > 0.1, x, -20.0), ("float32",)),
    ("normalize", "", lambda F, x: F.normalize(x), lambda x: _after(x, 2, 1e-12), HALVES),
    ("normalize", "p3", lambda F, x: F.normalize(x, 3.0, 1), lambda x: _after(x, 3, 1e-12), ("float32",)),
)

# Of a copy: arguments, NumPy
IN_PLACE = {
    "celu_": ((0.7,), lambda x: elu(x, 0.7, inner=1 / 0.7)),
    "elu_": ((1.3,), lambda x: elu(x, 1.3)),
    "hardtanh_": ((-0.5, 0.8), lambda x: np.clip(x, -0.5, 0.8)),
    "leaky_relu_": ((0.1,), lambda x: np.where(x > 0, x, 0.1 * x)),
    "relu_": ((), lambda x: np.maximum(x, 0)),
    "rrelu_": ((0.1, 0.4), lambda x: np.where(x >= 0, x, x * 0.25)),
    "selu_": ((), lambda x: elu(x, SELU_ALPHA, SELU_SCALE)),
    "threshold_": ((0.1, -20.0), lambda x: np.where(x > 0.1, x, -20.0)),
}


def _activations():
    for name, tag, call, reference, dtypes in ACTIVATIONS:
        yield from layer(name, ((3, 66 if name == "glu" else 67),), call, reference, dtypes, tag)
    for name, call, reference in (("hardtanh", lambda F, x: F.hardtanh(x, -7, 20), lambda x: np.clip(x, -7, 20)), ("relu6", lambda F, x: F.relu6(x), lambda x: np.clip(x, 0, 6))):
        yield from layer(name, (Spec((5, 13), "int64"),), call, reference, ("int64",))
    for name, (arguments, reference) in IN_PLACE.items():
        yield from layer(name, ((3, 67),), lambda F, x, n=name, a=arguments: getattr(F, n)(x * 1, *a), reference)
    yield from layer("glu", ((2, 6, 0),), lambda F, x: F.glu(x, 1), lambda x: x[:, : x.shape[1] // 2] * sigmoid(x[:, x.shape[1] // 2 :]), tag="empty")
    yield from layer("prelu", ((2, 3, 67), (3,)), lambda F, x, w: F.prelu(x, w), lambda x, w: np.where(x > 0, x, x * w.reshape(1, -1, *(1,) * (x.ndim - 2))), HALVES)
    yield from layer("prelu", ((3, 5), (1,)), lambda F, x, w: F.prelu(x, w), lambda x, w: np.where(x > 0, x, x * w), tag="one")


# ---- normalizations
def _whitened(x, axes, eps=1e-5):
    return (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + eps)


def _channels(v, x):
    return v.reshape(1, -1, *(1,) * (x.ndim - 2))


def group_norm(x, w, b, groups, eps=1e-5):
    y = _whitened(x.reshape(x.shape[0], groups, -1), (2,), eps).reshape(x.shape)
    return y * _channels(w, x) + _channels(b, x)


def instance_norm(x, w, b):
    return _whitened(x, tuple(range(2, x.ndim))) * _channels(w, x) + _channels(b, x)


def local_response_norm(x, n, alpha, beta, k):
    """By the mean square of n channels, with zeros beyond the first and the last."""
    padded = np.pad(x * x, [(0, 0), (n // 2, (n - 1) // 2)] + [(0, 0)] * (x.ndim - 2))
    return x / (k + alpha / n * sum(padded[:, i : i + x.shape[1]] for i in range(n))) ** beta


def _norms():
    free = {"c": 32, "length": 64, "fused_exact": False}
    yield from layer("group_norm", ((2, 6, 5), (6,), (6,)), lambda F, x, w, b: F.group_norm(x, 3, w, b), lambda x, w, b: group_norm(x, w, b, 3), HALVES, **free)
    yield from layer("group_norm", ((3, 4, 3, 5), (4,), (4,)), lambda F, x, w, b: F.group_norm(x, 2, w, b, 0.01), lambda x, w, b: group_norm(x, w, b, 2, 0.01), tag="eps", **free)
    yield from layer("instance_norm", ((2, 3, 7), (3,), (3,)), lambda F, x, w, b: F.instance_norm(x, weight=w, bias=b), instance_norm, MOST, **free)
    yield from layer("instance_norm", ((2, 3, 4, 5), (3,), ((3,), positive)), lambda F, x, m, v: F.instance_norm(x, m, v, use_input_stats=False),
                     lambda x, m, v: (x - _channels(m, x)) / np.sqrt(_channels(v, x) + 1e-5), tag="running", grad=(0,), **free)
    for n, shape in ((3, (2, 7, 9)), (4, (2, 5, 3, 4))):
        yield from layer("local_response_norm", (shape,), lambda F, x, n=n: F.local_response_norm(x, n, 0.5, 0.75, 2.0), lambda x, n=n: local_response_norm(x, n, 0.5, 0.75, 2.0), HALVES if n == 3 else ("float32",), str(n), **free)


# ---- rearrangements, grids and products
def _shuffled(x, groups):
    return x.reshape(x.shape[0], groups, -1, *x.shape[2:]).swapaxes(1, 2).reshape(x.shape)


def pixel_shuffle(x, r):
    *n, c, h, w = x.shape
    at = len(n)
    order = (*range(at), at, at + 3, at + 1, at + 4, at + 2)
    return x.reshape(*n, c // r**2, r, r, h, w).transpose(order).reshape(*n, c // r**2, h * r, w * r)


def pixel_unshuffle(x, r):
    *n, c, h, w = x.shape
    at = len(n)
    order = (*range(at), at, at + 2, at + 4, at + 1, at + 3)
    return x.reshape(*n, c, h // r, r, w // r, r).transpose(order).reshape(*n, c * r**2, h // r, w // r)


def affine_grid(theta, sizes, align):
    """Each place of the output, in coordinates of -1 to 1 from the last dim to the first, multiplied by its sample's matrix."""
    axes = [(np.linspace(-1, 1, n) if align else (2 * np.arange(n) + 1) / n - 1) for n in sizes]
    places = np.stack([*np.meshgrid(*axes, indexing="ij")][::-1] + [np.ones(sizes)], -1)
    return np.einsum("...j,nij->n...i", places, theta)


def conv_tbc(x, w, b, pad):
    x = np.pad(x, ((pad, pad), (0, 0), (0, 0)))
    return sum(x[k : k + len(x) - len(w) + 1] @ w[k] for k in range(len(w))) + b


def _maps():
    exact = {"c": 0, "composed": False, "magnitude": None}
    for name in ("channel_shuffle", "native_channel_shuffle"):
        yield from layer(name, ((2, 6, 5),), lambda F, x, name=name: getattr(F, name)(x, 3), lambda x: _shuffled(x, 3), MOST if name[0] == "c" else ("float32",), **exact)
    yield from layer("channel_shuffle", (Spec((2, 4, 3, 3), "int64"),), lambda F, x: F.channel_shuffle(x, 2), lambda x: _shuffled(x, 2), ("int64",), **exact)
    yield from layer("pixel_shuffle", ((2, 8, 3, 5),), lambda F, x: F.pixel_shuffle(x, 2), lambda x: pixel_shuffle(x, 2), HALVES, **exact)
    yield from layer("pixel_shuffle", ((9, 4, 7),), lambda F, x: F.pixel_shuffle(x, 3), lambda x: pixel_shuffle(x, 3), tag="3", **exact)
    yield from layer("pixel_unshuffle", ((2, 3, 4, 6),), lambda F, x: F.pixel_unshuffle(x, 2), lambda x: pixel_unshuffle(x, 2), MOST, **exact)
    for align in (False, True):
        tag = "corners" if align else "edges"
        yield from layer("affine_grid", ((2, 2, 3),), lambda F, t, a=align: F.affine_grid(t, (t.shape[0], 3, 4, 7), a), lambda t, a=align: affine_grid(t, (4, 7), a), MOST if align else ("float32",), tag, fused_exact=False)
        yield from layer("affine_grid", ((2, 3, 4),), lambda F, t, a=align: F.affine_grid(t, (t.shape[0], 1, 3, 4, 5), a), lambda t, a=align: affine_grid(t, (3, 4, 5), a), tag=tag, fused_exact=False)
    yield from layer("bilinear", ((5, 3), (5, 4), (7, 3, 4), (7,)), lambda F, a, b, w, c: F.bilinear(a, b, w, c), lambda a, b, w, c: np.einsum("...i,oij,...j->...o", a, w, b) + c, HALVES,
                     length=12, fused_exact=False, magnitude=lambda a, b, w, c: size(a) * size(b) * size(w))
    yield from layer("conv_tbc", ((7, 2, 3), (3, 3, 4), (4,)), lambda F, x, w, b: F.conv_tbc(x, w, b, 1), lambda x, w, b: conv_tbc(x, w, b, 1), length=9, fused_exact=False, magnitude=lambda x, w, b: size(x) * size(w))


# ---- attention
def attended(q, k, v, w, b, out_w, out_b, heads, hidden=None, causal=False):
    """(output, the heads' mean weights) of query [T, N, E], keys and values [S, N, E]; `hidden` [N, S] is true for keys that take no part."""
    size_of_head = q.shape[-1] // heads
    qs, ks, vs = ((x @ m.T + c).reshape(*x.shape[:2], heads, size_of_head) for x, m, c in zip((q, k, v), np.split(w, 3), np.split(b, 3)))
    scores = np.einsum("tnhd,snhd->nhts", qs, ks) / math.sqrt(size_of_head)
    if hidden is not None:
        scores = np.where(hidden[:, None, None], -np.inf, scores)
    if causal:
        scores = np.where(np.triu(np.ones(scores.shape[-2:], bool), 1), -np.inf, scores)
    p = np.exp(scores - scores.max(-1, keepdims=True))
    p /= p.sum(-1, keepdims=True)
    return np.einsum("nhts,snhd->tnhd", p, vs).reshape(q.shape) @ out_w.T + out_b, p.mean(1)


def _attention():
    shapes = ((3, 2, 6), (4, 2, 6), (4, 2, 6), (18, 6), (18,), (6, 6), (6,))
    settings = {"c": 16, "length": 64, "fused_exact": False, "own_values": True, "magnitude": lambda q, k, v, w, *_: size(v) * size(w) * size(w)}
    hidden = np.array([[False, False, True, False], [False, True, False, False]])
    call = lambda F, q, k, v, w, b, o, c, **kw: F.multi_head_attention_forward(q, k, v, q.shape[-1], 2, w, b, None, None, False, 0.0, o, c, **kw)  # noqa: E731
    yield from layer("multi_head_attention_forward", shapes, call, lambda *x: attended(*x, 2), ("float32", "bfloat16"), **settings)
    yield from layer("multi_head_attention_forward", (*shapes, Spec(hidden.shape, "bool", literal(hidden))), lambda F, *x: call(F, *x[:7], key_padding_mask=x[7]), lambda *x: attended(*x[:7], 2, hidden=x[7]), tag="padding", **settings)
    later = np.triu(np.ones((3, 4), bool), 1)
    yield from layer("multi_head_attention_forward", (*shapes, Spec(later.shape, "bool", literal(later))), lambda F, *x: call(F, *x[:7], attn_mask=x[7], need_weights=False)[0], lambda *x: attended(*x[:7], 2, causal=True)[0], tag="causal", **settings)


# ---- resampling
def _cubic(t, a):
    t = np.abs(t)
    return np.where(t <= 1, ((a + 2) * t - (a + 3)) * t * t + 1, np.where(t < 2, (((t - 5) * t + 8) * t - 4) * a, 0.0))


FILTERS = {"linear": (1, lambda t: np.maximum(1 - np.abs(t), 0)), "cubic": (2, lambda t: _cubic(t, -0.5)), "lanczos": (3, lambda t: np.where(np.abs(t) < 3, np.sinc(t) * np.sinc(t / 3), 0.0))}


def resampling(old, new, mode, align=False, scale=None, antialias=False):
    """[new, old]: how much of each old element each new one has."""
    w, at = np.zeros((new, old)), np.arange(new)
    ratio = ((old - 1) / (new - 1) if new > 1 else 0.0) if align else 1 / scale if scale else old / new
    if antialias:
        reach, shape = FILTERS[mode]
        wide, middle = max(ratio, 1.0), at * ratio + 0.5 if align else (at + 0.5) * ratio
        for i, c in enumerate(middle):
            j = np.arange(max(int(c - reach * wide + 0.5), 0), min(int(c + reach * wide + 0.5), old))
            w[i, j] = shape((j - c + 0.5) / wide)
        return w / w.sum(1, keepdims=True)
    if mode == "area":
        for i in at:
            w[i, i * old // new : -(-(i + 1) * old // new)] = 1
        return w / w.sum(1, keepdims=True)
    if mode.startswith("nearest"):
        w[at, np.minimum((at + (0.5 if mode == "nearest-exact" else 0.0)) * ratio, old - 1).astype(int)] = 1
        return w
    source = at * ratio if align else (at + 0.5) * ratio - 0.5
    source = np.maximum(source, 0) if mode == "linear" else source
    low = np.floor(source).astype(int)
    for tap in (0, 1) if mode == "linear" else (-1, 0, 1, 2):
        t = source - low - tap
        np.add.at(w, (at, np.clip(low + tap, 0, old - 1)), np.maximum(1 - np.abs(t), 0) if mode == "linear" else _cubic(t, -0.75))
    return w


def resampled(x, new, mode, align=False, scale=None, antialias=False):
    for d, n in enumerate(new):
        w = resampling(x.shape[2 + d], n, mode, align, scale, antialias)
        x = np.moveaxis(np.tensordot(w, x, (1, 2 + d)), 0, 2 + d)
    return x


# mode, the filter of each dim, shape, sizes, arguments, dtypes
RESAMPLED = (
    ("nearest", "nearest", (2, 3, 7), (11,), {}, MOST),
    ("nearest", "nearest", (2, 3, 5, 7), (8, 4), {}, HALVES),
    ("nearest", "nearest", (1, 2, 3, 4, 5), (5, 3, 7), {}, ("float32",)),
    ("nearest-exact", "nearest-exact", (2, 3, 5, 7), (8, 4), {}, ("float32",)),
    ("area", "area", (2, 3, 5, 7), (3, 10), {}, HALVES),
    ("area", "area", (2, 3, 67), (5,), {}, ("float32",)),
    ("linear", "linear", (2, 3, 7), (12,), {}, FLOATS),
    ("linear", "linear", (2, 3, 7), (5,), {"align_corners": True}, ("float32",)),
    ("bilinear", "linear", (2, 3, 5, 7), (9, 4), {}, FLOATS),
    ("bilinear", "linear", (2, 3, 5, 7), (9, 4), {"align_corners": True}, ("float32",)),
    ("bilinear", "linear", (2, 3, 9, 8), (4, 3), {"antialias": True}, ("float32",)),
    ("bicubic", "cubic", (2, 3, 5, 7), (9, 4), {}, HALVES),
    ("bicubic", "cubic", (2, 3, 5, 7), (9, 4), {"align_corners": True}, ("float32",)),
    ("bicubic", "cubic", (2, 3, 9, 8), (4, 12), {"antialias": True}, ("float32",)),
    ("lanczos", "lanczos", (2, 3, 9, 8), (4, 12), {"antialias": True}, ("float32",)),
    ("trilinear", "linear", (1, 2, 3, 4, 5), (5, 3, 7), {}, ("float32",)),
)


def _resampling():
    settings = {"length": 16, "fused_exact": False}
    for mode, one, shape, new, arguments, dtypes in RESAMPLED:
        tag = "-".join((mode, *arguments))
        align, antialias = arguments.get("align_corners", False), arguments.get("antialias", False)
        yield from layer("interpolate", (shape,), lambda F, x, m=mode, n=new, a=arguments: F.interpolate(x, n, mode=m, **a), lambda x, o=one, n=new, c=align, a=antialias: resampled(x, n, o, c, None, a), dtypes, tag, **settings)
    for mode, one in (("nearest", "nearest"), ("bilinear", "linear"), ("bicubic", "cubic")):
        new = lambda x: tuple(int(n * 1.7) for n in x.shape[2:])  # noqa: E731
        yield from layer("interpolate", ((2, 3, 5, 7),), lambda F, x, m=mode: F.interpolate(x, scale_factor=1.7, mode=m), lambda x, o=one, new=new: resampled(x, new(x), o, scale=1.7), tag=f"{mode}-scale_factor", **settings)
    yield from layer("upsample", ((2, 3, 5, 7),), lambda F, x: F.upsample(x, (6, 9), mode="bilinear"), lambda x: resampled(x, (6, 9), "linear"), **settings)
    yield from layer("upsample_bilinear", ((2, 3, 5, 7),), lambda F, x: F.upsample_bilinear(x, (6, 9)), lambda x: resampled(x, (6, 9), "linear", True), **settings)
    yield from layer("upsample_nearest", ((2, 3, 5, 7),), lambda F, x: F.upsample_nearest(x, (6, 9)), lambda x: resampled(x, (6, 9), "nearest"), **settings)


def cases():
    return [c for part in (_activations, _norms, _maps, _attention, _resampling) for c in part()]
