"""Softmax and the normalisations."""

import numpy as np

from . import FLOATS, SHAPES, Case, Spec, away_from_zero, label, positive
from ..tolerance import EPS


def softmax(x, axis):
    e = np.exp(x - x.max(axis=axis, keepdims=True)) if x.size else np.exp(x)
    return e / e.sum(axis=axis, keepdims=True)


def log_softmax(x, axis):
    if not x.size:
        return x
    s = x - x.max(axis=axis, keepdims=True)
    return s - np.log(np.exp(s).sum(axis=axis, keepdims=True))


def layer_norm(x, n, w=None, b=None, eps=1e-5):
    axes = tuple(range(x.ndim - n, x.ndim))
    d = x - x.mean(axis=axes, keepdims=True)
    y = d / np.sqrt((d * d).mean(axis=axes, keepdims=True) + eps)
    y = y if w is None else y * w
    return y if b is None else y + b


def rms_norm(x, n, w=None, eps=1e-5):
    axes = tuple(range(x.ndim - n, x.ndim))
    y = x / np.sqrt((x * x).mean(axis=axes, keepdims=True) + eps)
    return y if w is None else y * w


def batch_norm(x, mean, var, w=None, b=None, eps=1e-5):
    c = (1, -1) + (1,) * (x.ndim - 2)
    y = (x - mean.reshape(c)) / np.sqrt(var.reshape(c) + eps)
    y = y if w is None else y * w.reshape(c)
    return y if b is None else y + b.reshape(c)


def batch_statistics(x):
    axes = (0, *range(2, x.ndim))
    return x.mean(axis=axes), x.var(axis=axes)


def _size(name, axis):
    """x - max is rounded, and exp makes of that a relative error."""
    if name == "log_softmax":
        return lambda x: 1 + np.abs(x)
    return lambda x: softmax(x, axis) * (1 + x.max(initial=-np.inf) - x)


def _softmaxes(dtype):
    for name, f, c in (("softmax", softmax, 6), ("log_softmax", log_softmax, 4)):
        magnitude = _size(name, -1)
        for shape in SHAPES if dtype == "float32" else ((65,), (31, 33)):
            yield Case(f"{name}-{dtype}-{label(shape)}", (name,), (name,), (Spec(shape, dtype),), lambda pf, x, n=name: getattr(pf, n)(x, -1),
                       lambda x, f=f: f(x, -1) if x.ndim else f(x.reshape(1), 0).reshape(()), grad=(0,), c=c, magnitude=magnitude,
                       flops=lambda s: 5 * int(np.prod(s)), bytes=lambda s: 2 * int(np.prod(s)))
        for dim in (0, 1, 2):
            yield Case(f"{name}-{dtype}-dim{dim}", (name,), (name,), (Spec((5, 31, 7), dtype),), lambda pf, x, n=name, d=dim: getattr(pf, n)(x, d), lambda x, f=f, d=dim: f(x, d), grad=(0,), c=c,
                       magnitude=_size(name, dim))
        yield Case(f"{name}-dtype-{dtype}", (name,), (name, "cast"), (Spec((31, 33), dtype),), lambda pf, x, n=name: getattr(pf, n)(x, -1, dtype="float64"), lambda x, f=f: f(x, -1), out="float64", c=4,
                   magnitude=magnitude)


def _rows(dtype):
    for shape, n in (((31, 33), 1), ((2, 5, 64), 1), ((3, 4, 5, 7), 2), ((1,), 1), ((65,), 1), ((7, 1), 1), ((0, 5), 1)):
        tail = shape[len(shape) - n:]
        x, w, b = Spec(shape, dtype), Spec(tail, dtype), Spec(tail, dtype)
            # A mean near the values' size cancels in x - mean: errors count against the largest normalised value.
        size = lambda x, n=n: np.abs(x).max() / np.sqrt(x.var(axis=tuple(range(x.ndim - n, x.ndim)), keepdims=True) + 1e-5) if x.size else x  # noqa: E731
        common = dict(c=4, flops=lambda *s: 8 * int(np.prod(s[0])), bytes=lambda *s: 2 * int(np.prod(s[0])))
        yield Case(f"layer_norm-{dtype}-{label(shape)}", ("layer_norm",), ("layer_norm", "layer_norm_grad"), (x, w, b), lambda pf, x, w, b, n=n: pf.layer_norm(x, x.shape[x.dim() - n:], w, b),
                   lambda x, w, b, n=n: layer_norm(x, n, w, b), grad=(0, 1, 2), magnitude=lambda x, w, b, s=size: s(x) * np.abs(w) + np.abs(b), **common)
        yield Case(f"layer_norm-plain-{dtype}-{label(shape)}", ("layer_norm",), ("layer_norm", "layer_norm_grad"), (x,), lambda pf, x, n=n: pf.layer_norm(x, x.shape[x.dim() - n:]), lambda x, n=n: layer_norm(x, n), grad=(0,),
                   magnitude=size, **common)
        yield Case(f"layer_norm-no-bias-{dtype}-{label(shape)}", ("layer_norm",), ("layer_norm", "layer_norm_grad"), (x, w), lambda pf, x, w, n=n: pf.layer_norm(x, x.shape[x.dim() - n:], w, None, 0.1),
                   lambda x, w, n=n: layer_norm(x, n, w, eps=0.1), grad=(0, 1), magnitude=lambda x, w, s=size: s(x) * np.abs(w), **common)
        yield Case(f"rms_norm-{dtype}-{label(shape)}", ("rms_norm",), ("rms_norm", "rms_norm_grad"), (x, w), lambda pf, x, w, n=n: pf.rms_norm(x, x.shape[x.dim() - n:], w, 1e-5), lambda x, w, n=n: rms_norm(x, n, w),
                   grad=(0, 1), **common)
        # Without eps: the machine epsilon of the dtype in which the statistics are taken.
        eps = EPS["float64" if dtype == "float64" else "float32"]
        x = Spec(shape, dtype, away_from_zero)  # the gradient of a single number's sign is a difference of 1 / |x|
        yield Case(f"rms_norm-plain-{dtype}-{label(shape)}", ("rms_norm",), ("rms_norm", "rms_norm_grad"), (x,), lambda pf, x, n=n: pf.rms_norm(x, x.shape[x.dim() - n:]), lambda x, n=n, e=eps: rms_norm(x, n, eps=e), grad=(0,), **common)


def _batch_training(pf, x, m, v, w, b):
    m, v = pf.clone(m), pf.clone(v)
    return pf.batch_norm(x, m, v, w, b, training=True, momentum=0.2), m, v


def _batch_training_reference(x, m, v, w, b):
    mean, var = batch_statistics(x)
    n = x.size // x.shape[1]
    return batch_norm(x, mean, var, w, b), 0.8 * m + 0.2 * mean, 0.8 * v + 0.2 * var * n / (n - 1)


def _batches(dtype):
    for shape in ((4, 3, 5, 7), (65, 3), (2, 3, 9)):
        c = Spec((shape[1],), dtype)
        p = Spec((shape[1],), dtype, positive)
        size = lambda *a: np.abs(a[0]).max() / np.sqrt(min(batch_statistics(a[0])[1].min(), a[2].min() if len(a) > 2 else 1) + 1e-5) * np.abs(a[3]).max() + np.abs(a[4]).max()  # noqa: E731
        yield Case(f"batch_norm-eval-{dtype}-{label(shape)}", ("batch_norm",), (), (Spec(shape, dtype), c, p, c, c), lambda pf, x, m, v, w, b: pf.batch_norm(x, m, v, w, b), batch_norm, grad=(0, 3, 4), c=2, composed=True,
                   magnitude=size)
        yield Case(f"batch_norm-train-{dtype}-{label(shape)}", ("batch_norm",), ("batch_norm", "batch_norm_grad"), (Spec(shape, dtype), c, p, c, c), _batch_training, _batch_training_reference, grad=(0, 3, 4), c=2,
                   magnitude=size, length=int(np.prod(shape)) // shape[1], composed=True)
    yield Case(f"batch_norm-plain-{dtype}", ("batch_norm",), (), (Spec((4, 3, 5), dtype),), lambda pf, x: pf.batch_norm(x, None, None, training=True), lambda x: batch_norm(x, *batch_statistics(x)), grad=(0,), c=2,
               magnitude=lambda x: np.abs(x).max() / np.sqrt(batch_statistics(x)[1].min()))


def cases():
    return [case for dtype in FLOATS for make in (_softmaxes, _rows, _batches) for case in make(dtype)]
