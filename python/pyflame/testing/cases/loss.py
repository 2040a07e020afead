"""Losses."""

import numpy as np

from . import FLOATS, Case, Spec, integers, positive, unit
from .norm import log_softmax


def _reduce(x, how):
    return x if how == "none" else np.asarray(x.mean() if how == "mean" else x.sum())


def nll(logp, target, ignore=-100, how="mean", smoothing=0.0, weight=None):
    """Classes in dim 1 (or 0 of a vector). Smoothing spreads over the weighted classes, and the mean is over the targets' weights."""
    axis = 0 if logp.ndim == 1 else 1
    p = np.moveaxis(logp, axis, -1)
    kept = target != ignore
    at = np.where(kept, target, 0)
    w = np.ones(p.shape[-1]) if weight is None else weight
    picked = np.take_along_axis(p, at[..., None], -1)[..., 0] * w[at]
    spread = smoothing * (p * w).mean(axis=-1) if smoothing else 0.0  # 0 * -inf would be NaN
    loss = np.where(kept, -(1 - smoothing) * picked - spread, 0.0)
    return np.asarray(loss.sum() / np.where(kept, w[at], 0).sum()) if how == "mean" else _reduce(loss, how)


def cross_entropy(x, target, ignore=-100, how="mean", smoothing=0.0, weight=None):
    axis = 0 if x.ndim == 1 else 1
    logp = log_softmax(x, axis)
    if target.dtype.kind == "f":
        t = target * (1 - smoothing) + smoothing / x.shape[axis]
        w = 1.0 if weight is None else weight.reshape([-1 if i == axis else 1 for i in range(x.ndim)])
        loss = -(logp * t * w).sum(axis=axis)
        return _reduce(loss, how)
    return nll(logp, target, ignore, how, smoothing, weight)


def bce(x, t, w=None, how="mean", pos=None):
    s = np.log1p(np.exp(-np.abs(x))) + np.maximum(-x, 0)  # -log sigmoid(x)
    loss = (1 - t) * (x + s) + (t if pos is None else t * pos) * s
    return _reduce(loss if w is None else loss * w, how)


def _targets(rng, shape):
    t = rng.integers(0, 7, shape)
    return np.where(rng.random(shape) < 0.2, 3, t) if t.size > 1 else np.full(shape, 5)


SHAPES = (((31, 7), (31,)), ((7,), ()), ((2, 7, 5), (2, 5)), ((2, 7, 3, 4), (2, 3, 4)), ((65, 7), (65,)), ((1, 7), (1,)))


def _classes(dtype):
    size = lambda x, t: np.abs(log_softmax(x.astype(float), 0 if x.ndim == 1 else 1)).max() + np.abs(x).max()  # noqa: E731
    total = lambda x, t: size(x, t) * t.size  # noqa: E731
    for s, t in SHAPES:
        x, at = Spec(s, dtype), Spec(t, "int64", _targets)
        for how in ("mean", "sum", "none"):
            common = dict(grad=(0,), c=2, composed=True, magnitude=total if how == "sum" else size)
            tag = f"{dtype}-{'x'.join(map(str, s))}-{how}"
            yield Case(f"nll_loss-{tag}", ("nll_loss",), ("nll_loss", "nll_loss_grad"), (x, at), lambda pf, x, t, h=how: pf.nll_loss(x, t, ignore_index=3, reduction=h), lambda x, t, h=how: nll(x, t, 3, h), **common)
            yield Case(f"cross_entropy-{tag}", ("cross_entropy",), ("cross_entropy", "cross_entropy_grad"), (x, at), lambda pf, x, t, h=how: pf.cross_entropy(x, t, reduction=h),
                       lambda x, t, h=how: cross_entropy(x, t, how=h), **common)
            yield Case(f"cross_entropy-smooth-{tag}", ("cross_entropy",), ("cross_entropy", "cross_entropy_grad"), (x, at),
                       lambda pf, x, t, h=how: pf.cross_entropy(x, t, ignore_index=3, reduction=h, label_smoothing=0.1), lambda x, t, h=how: cross_entropy(x, t, 3, h, 0.1), **common)
    for how in ("mean", "sum", "none"):
        yield Case(f"cross_entropy-probabilities-{dtype}-{how}", ("cross_entropy",), ("log_softmax",), (Spec((5, 7, 3), dtype), Spec((5, 7, 3), dtype, unit)),
                   lambda pf, x, t, h=how: pf.cross_entropy(x, t, reduction=h, label_smoothing=0.1), lambda x, t, h=how: cross_entropy(x, t, how=h, smoothing=0.1), grad=(0, 1), c=2, composed=True,
                   magnitude=lambda x, t, h=how: 7 * np.abs(log_softmax(x, 1)).max() * (15 if h == "sum" else 1))


def _weighted(dtype):
    size = lambda x, t, w: (np.abs(log_softmax(x.astype(float), 0 if x.ndim == 1 else 1)).max() + np.abs(x).max()) * max(1, w.max()) * max(1, w.max() / w.min())  # noqa: E731
    for s, t in SHAPES[:4]:
        inputs = (Spec(s, dtype), Spec(t, "int64", _targets), Spec((7,), dtype, positive))
        for how in ("mean", "sum", "none"):
            common = dict(grad=(0,), c=3, length=7, composed=True, magnitude=lambda x, t, w, h=how: size(x, t, w) * (t.size if h == "sum" else 1))
            tag = f"weight-{dtype}-{'x'.join(map(str, s))}-{how}"
            yield Case(f"nll_loss-{tag}", ("nll_loss",), ("nll_loss", "nll_loss_grad"), inputs, lambda pf, x, t, w, h=how: pf.nll_loss(x, t, w, 3, h), lambda x, t, w, h=how: nll(x, t, 3, h, weight=w), **common)
            for smoothing, ignore in ((0.0, -100), (0.2, 3)):
                yield Case(f"cross_entropy-{tag}-{smoothing}-{ignore}", ("cross_entropy",), ("cross_entropy", "cross_entropy_grad"), inputs,
                           lambda pf, x, t, w, h=how, e=smoothing, i=ignore: pf.cross_entropy(x, t, w, i, h, e), lambda x, t, w, h=how, e=smoothing, i=ignore: cross_entropy(x, t, i, h, e, w), **common)
    for how in ("mean", "sum", "none"):
        yield Case(f"cross_entropy-probabilities-weight-{dtype}-{how}", ("cross_entropy",), ("log_softmax",), (Spec((5, 7, 3), dtype), Spec((5, 7, 3), dtype, unit), Spec((7,), dtype, positive)),
                   lambda pf, x, t, w, h=how: pf.cross_entropy(x, t, w, reduction=h, label_smoothing=0.1), lambda x, t, w, h=how: cross_entropy(x, t, how=h, smoothing=0.1, weight=w), grad=(0, 1), c=3,
                   composed=True, magnitude=lambda x, t, w, h=how: 7 * np.abs(log_softmax(x, 1)).max() * max(1, w.max()) * (15 if h == "sum" else 1))


def _hard(dtype):
    """Logits that overflow without their maximum, that are -inf, rows that begin anywhere, one class, many classes, nothing at all."""
    far = 300.0 if dtype == "float16" else 3e4
    at = lambda n: lambda rng, shape: rng.integers(0, n, shape)  # noqa: E731

    def none(rng, shape):  # the last class, which is nobody's target, and whole runs of others
        x = np.random.default_rng(1).standard_normal(shape)
        x[:, -1] = -np.inf
        x[1, 1:] = -np.inf
        return x

    def case(name, shape, values, classes, ignore=-100, smoothing=0.0, how="sum", grad=(0,), target=None, **kw):
        return Case(f"cross_entropy-{name}-{dtype}", ("cross_entropy",), ("cross_entropy", "cross_entropy_grad"), (Spec(shape, dtype, values), Spec(shape[:1], "int64", target or at(classes))),
                    lambda pf, x, t: pf.cross_entropy(x, t, ignore_index=ignore, reduction=how, label_smoothing=smoothing), lambda x, t: cross_entropy(x, t, ignore, how, smoothing),
                    grad=grad, c=2, composed=True, length=shape[1], magnitude=lambda x, t: (np.log(shape[1]) + np.abs(x[np.isfinite(x)]).max(initial=1)) * max(1, t.size), **kw)

    yield case("large", (5, 33), lambda rng, s: rng.standard_normal(s) * far, 33, grad=())
    yield case("large-alike", (5, 33), lambda rng, s: far + rng.integers(0, 4, s), 33, how="none", grad=())
    yield case("infinite", (5, 12), none, 1, grad=(), target=lambda rng, s: np.array([0, 0, 3, 10, 0]))
    yield case("ignored", (5, 7), None, 7, ignore=2, target=lambda rng, s: np.full(s, 2))
    yield case("ignored-mean", (5, 7), None, 7, ignore=2, how="mean", grad=(), target=lambda rng, s: np.full(s, 2))
    yield case("one-class", (9, 1), None, 1, smoothing=0.2)
    yield case("no-rows", (0, 7), None, 7)
    yield case("no-rows-each", (0, 7), None, 7, how="none")
    for n in (32, 37, 511, 1024, 1025, 5003):
        yield case(f"{n}", (7, n), None, n, smoothing=0.1 if n % 2 else 0.0, ignore=3, twice=n < 1000)


def _elementwise(dtype):
    for shape in ((), (65,), (31, 33)):
        x = Spec(shape, dtype)
        n = int(np.prod(shape))
        for how in ("mean", "sum", "none"):
            tag = f"{dtype}-{n}-{how}"
            common = dict(c=2, length=n if how != "none" else 1, composed=True)
            scale = n if how == "sum" else 1
            yield Case(f"mse_loss-{tag}", ("mse_loss",), ("sub", "mul"), (x, x), lambda pf, x, t, h=how: pf.mse_loss(x, t, reduction=h), lambda x, t, h=how: _reduce((x - t) ** 2, h), grad=(0, 1),
                       magnitude=(lambda x, t, h=how: _reduce((x - t) ** 2, h)), **common)
            yield Case(f"bce-{tag}", ("binary_cross_entropy_with_logits",), ("softplus",), (x, Spec(shape, dtype, unit)), lambda pf, x, t, h=how: pf.binary_cross_entropy_with_logits(x, t, reduction=h),
                       lambda x, t, h=how: bce(x, t, how=h), grad=(0, 1), magnitude=lambda x, t, s=scale: (1 + np.abs(x).max()) * s, **common)
            last = shape[-1:]
            yield Case(f"bce-weights-{tag}", ("binary_cross_entropy_with_logits",), ("softplus",), (x, Spec(shape, dtype, unit), Spec(last, dtype, positive), Spec(last, dtype, positive)),
                       lambda pf, x, t, w, p, h=how: pf.binary_cross_entropy_with_logits(x, t, w, reduction=h, pos_weight=p), lambda x, t, w, p, h=how: bce(x, t, w, h, p), grad=(0,),
                       magnitude=lambda x, t, w, p, s=scale: (1 + np.abs(x).max()) * w.max() * (1 + p.max()) * s, **common)


def cases():
    ignored = Case("nll_loss-all-ignored", ("nll_loss",), ("nll_loss",), (Spec((5, 7)), Spec((5,), "int64", lambda rng, s: np.full(s, -100))), lambda pf, x, t: pf.nll_loss(x, t), lambda x, t: np.asarray(np.nan), own_values=True)
    far = Case("bce-far", ("binary_cross_entropy_with_logits",), ("softplus",), (Spec((7,), "float64", lambda rng, s: np.array([-800.0, -50, -1e-3, 0, 1e-3, 50, 800])), Spec((7,), "float64", unit)),
               lambda pf, x, t: pf.binary_cross_entropy_with_logits(x, t, reduction="none"), lambda x, t: bce(x, t, how="none"), grad=(0,), c=4, magnitude=lambda x, t: 1 + np.abs(x))
    vocabulary = Case("cross_entropy-vocabulary", ("cross_entropy",), ("cross_entropy", "cross_entropy_grad"), (Spec((3, 50257), "bfloat16"), Spec((3,), "int64", integers(0, 50257))), lambda pf, x, t: pf.cross_entropy(x, t),
                      lambda x, t: cross_entropy(x, t), grad=(0,), c=2, composed=True, length=50257, magnitude=lambda x, t: 11 + np.abs(x).max(), twice=False)
    return [case for dtype in FLOATS for make in (_classes, _weighted, _hard, _elementwise) for case in make(dtype)] + [far, ignored, vocabulary]
