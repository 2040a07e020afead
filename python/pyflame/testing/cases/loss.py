"""Losses."""

import numpy as np

from . import FLOATS, Case, Spec, integers, positive, unit
from .norm import log_softmax


def _reduce(x, how):
    return x if how == "none" else np.asarray(x.mean() if how == "mean" else x.sum())


def nll(logp, target, ignore=-100, how="mean", smoothing=0.0):
    """Classes in dim 1 (or 0 of a vector)."""
    axis = 0 if logp.ndim == 1 else 1
    p = np.moveaxis(logp, axis, -1)
    kept = target != ignore
    at = np.where(kept, target, 0)
    picked = np.take_along_axis(p, at[..., None], -1)[..., 0]
    loss = np.where(kept, -(1 - smoothing) * picked - smoothing * p.mean(axis=-1), 0.0)
    return np.asarray(loss.sum() / kept.sum()) if how == "mean" else _reduce(loss, how)


def cross_entropy(x, target, ignore=-100, how="mean", smoothing=0.0):
    axis = 0 if x.ndim == 1 else 1
    logp = log_softmax(x, axis)
    if target.dtype.kind == "f":
        t = target * (1 - smoothing) + smoothing / x.shape[axis]
        loss = -(logp * t).sum(axis=axis)
        return _reduce(loss, how)
    return nll(logp, target, ignore, how, smoothing)


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
            yield Case(f"cross_entropy-{tag}", ("cross_entropy",), ("log_softmax", "nll_loss", "nll_loss_grad"), (x, at), lambda pf, x, t, h=how: pf.cross_entropy(x, t, reduction=h),
                       lambda x, t, h=how: cross_entropy(x, t, how=h), **common)
            yield Case(f"cross_entropy-smooth-{tag}", ("cross_entropy",), ("log_softmax", "nll_loss", "nll_loss_grad"), (x, at),
                       lambda pf, x, t, h=how: pf.cross_entropy(x, t, ignore_index=3, reduction=h, label_smoothing=0.1), lambda x, t, h=how: cross_entropy(x, t, 3, h, 0.1), **common)
    for how in ("mean", "sum", "none"):
        yield Case(f"cross_entropy-probabilities-{dtype}-{how}", ("cross_entropy",), ("log_softmax",), (Spec((5, 7, 3), dtype), Spec((5, 7, 3), dtype, unit)),
                   lambda pf, x, t, h=how: pf.cross_entropy(x, t, reduction=h, label_smoothing=0.1), lambda x, t, h=how: cross_entropy(x, t, how=h, smoothing=0.1), grad=(0, 1), c=2, composed=True,
                   magnitude=lambda x, t, h=how: 7 * np.abs(log_softmax(x, 1)).max() * (15 if h == "sum" else 1))


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
    ignored = Case("nll_loss-all-ignored", ("nll_loss",), ("nll_loss",), (Spec((5, 7)), Spec((5,), "int64", lambda rng, s: np.full(s, -100))), lambda pf, x, t: pf.nll_loss(x, t), lambda x, t: np.asarray(np.nan))
    far = Case("bce-far", ("binary_cross_entropy_with_logits",), ("softplus",), (Spec((7,), "float64", lambda rng, s: np.array([-800.0, -50, -1e-3, 0, 1e-3, 50, 800])), Spec((7,), "float64", unit)),
               lambda pf, x, t: pf.binary_cross_entropy_with_logits(x, t, reduction="none"), lambda x, t: bce(x, t, how="none"), grad=(0,), c=4, magnitude=lambda x, t: 1 + np.abs(x))
    return [case for dtype in FLOATS for make in (_classes, _elementwise) for case in make(dtype)] + [far, ignored]
