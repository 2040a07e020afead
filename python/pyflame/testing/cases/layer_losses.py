"""Losses of pyflame.nn.functional that are composed of ops, with each of the reductions."""

import math

import numpy as np

from . import Spec, integers, literal, positive
from .elementwise import softplus
from .layers import HALVES, MOST, layer, size
from .loss import _reduce, cross_entropy
from .norm import log_softmax

HOWS = ("mean", "sum", "none")


def below_half(rng, shape):
    """Probabilities; their doubles too."""
    return 0.02 + 0.45 * rng.random(shape)


def one_sided(rng, shape):
    return rng.choice((-1.0, 1.0), shape)


def _logsigmoid(x):
    return -softplus(-x, threshold=math.inf)


def _huber(d, delta):
    d = np.abs(d)
    return np.where(d <= delta, 0.5 * d * d, delta * (d - 0.5 * delta))


def _distance(x, y, p=2.0, eps=1e-6):
    return (np.abs(x - y + eps) ** p).sum(-1) ** (1 / p)


def _cosine_of_squares(x, y, small=1e-12):
    """Of rows; a small number is added to each squared length."""
    return (x * y).sum(-1) / np.sqrt(((x * x).sum(-1) + small) * ((y * y).sum(-1) + small))


def _cosine(x, y, axis, eps=1e-8):
    length = lambda v: np.maximum(np.sqrt((v * v).sum(axis)), eps)  # noqa: E731
    return (x * y).sum(axis) / (length(x) * length(y))


def _triplet(a, p, n, margin=1.0, power=2.0, swap=False):
    far = _distance(a, n, power)
    return np.maximum(_distance(a, p, power) - (np.minimum(far, _distance(p, n, power)) if swap else far) + margin, 0)


def _stirling(t):
    safe = np.where(t > 1, t, 1.0)
    return np.where(t > 1, t * np.log(safe) - t + 0.5 * np.log(2 * np.pi * safe), 0.0)


def _margins(x, t, p, margin, w=None):
    """The mean over the classes of how far each other one comes too near."""
    own = np.take_along_axis(x, t[:, None], 1)
    loss = np.maximum(margin - own + x, 0) ** p * (1.0 if w is None else w[t][:, None])
    np.put_along_axis(loss, t[:, None], 0.0, 1)
    return loss.sum(1) / x.shape[1]


def _label_margins(x, t):
    """Each target, up to the first that is negative, against all classes that are no targets."""
    out = []
    for row, labels in zip(x, t):
        own = labels[: np.argmax(labels < 0)] if (labels < 0).any() else labels
        others = np.setdiff1d(np.arange(len(row)), own)
        out.append(sum(np.maximum(1 - row[i] + row[others], 0).sum() for i in own) / len(row))
    return np.asarray(out, np.float64)


def _divergence(x, t, log_target):
    return np.exp(t) * (t - x) if log_target else np.where(t > 0, t * (np.log(np.where(t > 0, t, 1)) - x), 0)


# name, tag, inputs, (function, module of it, reduction, tensors), NumPy before the reduction, inputs with a gradient, dtypes
S = (5, 67)
LOSSES = (
    ("binary_cross_entropy", "", ((S, below_half), (S, below_half)), lambda f, how, x, t: f(x, t, reduction=how), lambda x, t: -(t * np.log(x) + (1 - t) * np.log(1 - x)), (0,), MOST),
    ("binary_cross_entropy", "weight", ((S, below_half), (S, below_half), (S[1:], positive)), lambda f, how, x, t, w: f(x, t, w, reduction=how), lambda x, t, w: -w * (t * np.log(x) + (1 - t) * np.log(1 - x)), (0,), ("float32",)),
    ("cosine_embedding_loss", "", (S, S, ((5,), one_sided)), lambda f, how, x, y, t: f(x, y, t, margin=0.1, reduction=how), lambda x, y, t: np.where(t == 1, 1 - _cosine_of_squares(x, y), np.maximum(_cosine_of_squares(x, y) - 0.1, 0)), (0, 1), MOST),
    ("gaussian_nll_loss", "", (S, S, (S, positive)), lambda f, how, x, t, v: f(x, t, v, reduction=how), lambda x, t, v: 0.5 * (np.log(v) + (x - t) ** 2 / v), (0, 2), HALVES),
    ("gaussian_nll_loss", "full", (S, S, ((5, 1), positive)), lambda f, how, x, t, v: f(x, t, v, full=True, reduction=how), lambda x, t, v: 0.5 * (np.log(v) + (x - t) ** 2 / v + math.log(2 * math.pi)), (0, 2), ("float32",)),
    ("hinge_embedding_loss", "", (S, (S, one_sided)), lambda f, how, x, t: f(x, t, margin=0.7, reduction=how), lambda x, t: np.where(t == 1, x, np.maximum(0.7 - x, 0)), (0,), MOST),
    ("huber_loss", "", (S, S), lambda f, how, x, t: f(x, t, reduction=how, delta=0.8), lambda x, t: _huber(x - t, 0.8), (0, 1), HALVES),
    ("huber_loss", "weight", (S, S, (S, positive)), lambda f, how, x, t, w: f(x, t, reduction=how, delta=0.8, weight=w), lambda x, t, w: w * _huber(x - t, 0.8), (0, 1), ("float32",)),
    ("kl_div", "", (S, (S, below_half)), lambda f, how, x, t: f(x, t, reduction=how), lambda x, t: _divergence(x, t, False), (0, 1), MOST),
    ("kl_div", "log_target", (S, S), lambda f, how, x, t: f(x, t, reduction=how, log_target=True), lambda x, t: _divergence(x, t, True), (0, 1), ("float32",)),
    ("l1_loss", "", (S, S), lambda f, how, x, t: f(x, t, reduction=how), lambda x, t: np.abs(x - t), (0, 1), HALVES),
    ("l1_loss", "weight", (S, S, (S, positive)), lambda f, how, x, t, w: f(x, t, reduction=how, weight=w), lambda x, t, w: (w * np.abs(x - t), w), (0, 1), ("float32",)),
    ("margin_ranking_loss", "", (S, S, (S, one_sided)), lambda f, how, x, y, t: f(x, y, t, margin=0.2, reduction=how), lambda x, y, t: np.maximum(-t * (x - y) + 0.2, 0), (0, 1), ("float32", "float64")),
    ("multi_margin_loss", "", ((9, 7), Spec((9,), "int64", integers(0, 7))), lambda f, how, x, t: f(x, t, reduction=how), lambda x, t: _margins(x, t, 1, 1.0), (0,), ("float32", "float64")),
    ("multi_margin_loss", "squares", ((9, 7), Spec((9,), "int64", integers(0, 7)), ((7,), positive)), lambda f, how, x, t, w: f(x, t, 2, 0.7, w, reduction=how), lambda x, t, w: _margins(x, t, 2, 0.7, w), (0,), ("float32",)),
    ("multilabel_soft_margin_loss", "", (S, (S, below_half)), lambda f, how, x, t: f(x, t, reduction=how), lambda x, t: -(t * _logsigmoid(x) + (1 - t) * _logsigmoid(-x)).mean(-1), (0,), MOST),
    ("multilabel_soft_margin_loss", "weight", (S, (S, below_half), (S[1:], positive)), lambda f, how, x, t, w: f(x, t, w, reduction=how), lambda x, t, w: -(w * (t * _logsigmoid(x) + (1 - t) * _logsigmoid(-x))).mean(-1), (0,), ("float32",)),
    ("poisson_nll_loss", "", (S, (S, positive)), lambda f, how, x, t: f(x, t, reduction=how), lambda x, t: np.exp(x) - t * x, (0,), HALVES),
    ("poisson_nll_loss", "full", ((S, positive), (S, positive)), lambda f, how, x, t: f(x, t, log_input=False, full=True, reduction=how), lambda x, t: x - t * np.log(x + 1e-8) + _stirling(t), (0,), ("float32",)),
    ("smooth_l1_loss", "", (S, S), lambda f, how, x, t: f(x, t, reduction=how, beta=0.6), lambda x, t: _huber(x - t, 0.6) / 0.6, (0, 1), MOST),
    ("soft_margin_loss", "", (S, (S, one_sided)), lambda f, how, x, t: f(x, t, reduction=how), lambda x, t: np.log1p(np.exp(-t * x)), (0,), HALVES),
    ("triplet_margin_loss", "", (S, S, S), lambda f, how, *x: f(*x, margin=2.0, reduction=how), lambda *x: _triplet(*x, 2.0), (0, 1, 2), ("float32", "float64")),
    ("triplet_margin_loss", "swap", (S, S, S), lambda f, how, *x: f(*x, p=3, swap=True, reduction=how), lambda *x: _triplet(*x, power=3.0, swap=True), (0, 1, 2), ("float32",)),
    ("triplet_margin_with_distance_loss", "", (S, S, S), lambda f, how, *x: f(*x, distance_function=lambda a, b: (a - b).abs().sum(-1), margin=9.0, reduction=how),
     lambda a, p, n: np.maximum(np.abs(a - p).sum(-1) - np.abs(a - n).sum(-1) + 9, 0), (0, 1, 2), ("float32",)),
)  # fmt: skip


def _reduced(loss, how):
    """A pair is a weighted loss and its weights, by whose sum the mean divides."""
    if isinstance(loss, tuple):
        return np.asarray(loss[0].sum() / loss[1].sum()) if how == "mean" else _reduce(loss[0], how)
    return _reduce(loss, how)


def _terms(loss, how):
    """What the absolute values of the terms add up to, and what single terms are made of: about 1."""
    loss = loss[0] if isinstance(loss, tuple) else loss
    return _reduce(np.abs(loss) + 1, how)


ROWS = ("triplet", "cosine", "multi")  # their losses are sums over the classes


def _losses():
    for name, tag, inputs, call, reference, grad, dtypes in LOSSES:
        rows = name.startswith(ROWS)
        # A distance of two inputs of one dtype is as exact as that dtype, and the loss may have a wider one by the third input: no one tolerance is right.
        mixed = {"own_values": True} if name.startswith("triplet") else {}
        for dtype in dtypes:
            for how in HOWS if dtype == "float32" else ("mean",):
                yield from layer(name, inputs, lambda F, *x, c=call, n=name, h=how: c(getattr(F, n), h, *x), lambda *x, r=reference, h=how: _reduced(r(*x), h), (dtype,), f"{tag}-{how}".strip("-"), grad=grad,
                                 length=67 if rows else 1, magnitude=lambda *x, r=reference, h=how: _terms(r(*x), h), fused_exact=how == "none" and not rows, **mixed)


# ---- of distances
def _distances():
    settings = {"length": 67, "fused_exact": False}
    yield from layer("cosine_similarity", ((3, 67), (3, 67)), lambda F, x, y: F.cosine_similarity(x, y), lambda x, y: _cosine(x, y, 1), HALVES, **settings)
    yield from layer("cosine_similarity", ((3, 7, 5), (1, 7, 5)), lambda F, x, y: F.cosine_similarity(x, y, -1), lambda x, y: _cosine(x, y, -1), tag="last", **settings)
    yield from layer("pairwise_distance", (S, S), lambda F, x, y: F.pairwise_distance(x, y), _distance, MOST, **settings)
    yield from layer("pairwise_distance", (S, S), lambda F, x, y: F.pairwise_distance(x, y, 1.0, keepdim=True), lambda x, y: _distance(x, y, 1.0)[..., None], tag="p1", **settings)
    yield from layer("pairwise_distance", (S, S), lambda F, x, y: F.pairwise_distance(x, y, 3.0), lambda x, y: _distance(x, y, 3.0), tag="p3", **settings)


# ---- of classes and sequences
def linear_cross_entropy(x, w, b, t, how, smoothing=0.0):
    return cross_entropy(x @ w.T + b, t, how=how, smoothing=smoothing)


def ctc(logp, targets, lengths, target_lengths, blank=0):
    """-log of the sum over all paths that become the targets once repetitions and blanks are left out: one number for each sequence."""
    out = []
    for n, (length, labels) in enumerate(zip(lengths, target_lengths)):
        states = [blank]
        for label in targets[n][:labels]:
            states += [label, blank]
        a = np.full(len(states), -np.inf)
        a[:2] = logp[0, n, states[:2]]
        for t in range(1, length):
            before = a
            a = np.empty_like(before)
            for i, state in enumerate(states):
                come = [before[i], *before[max(i - 1, 0) : i], *([before[i - 2]] if i > 1 and state != blank and state != states[i - 2] else [])]
                a[i] = np.logaddexp.reduce(come) + logp[t, n, state]
        out.append(-np.logaddexp.reduce(a[-2:]))
    return np.asarray(out)


def _classes():
    labels = np.array([[0, 3, -1, 1, 2], [4, 1, 2, -1, 0], [-1, 0, 1, 2, 3]])
    for how in HOWS:
        yield from layer("multilabel_margin_loss", ((3, 5), Spec((3, 5), "int64", literal(labels))), lambda F, x, t, h=how: F.multilabel_margin_loss(x, t, reduction=h), lambda x, t, h=how: _reduce(_label_margins(x, t), h),
                         ("float32", "float64") if how == "mean" else ("float32",), how, length=25, fused_exact=False, own_values=True)
        yield from layer("linear_cross_entropy", ((9, 5), (7, 5), (7,), Spec((9,), "int64", integers(0, 7))), lambda F, x, w, b, t, h=how: F.linear_cross_entropy(x, w, t, linear_bias=b, reduction=h),
                         lambda *x, h=how: linear_cross_entropy(*x, h), ("float32", "bfloat16") if how == "mean" else ("float32",), how, length=45, fused_exact=False, magnitude=lambda x, w, *_: size(x) * size(w))
    yield from layer("linear_cross_entropy", ((9, 5), (7, 5), (7,), Spec((9,), "int64", integers(0, 7))), lambda F, x, w, b, t: F.linear_cross_entropy(x, w, t, linear_bias=b, label_smoothing=0.2),
                     lambda *x: linear_cross_entropy(*x, "mean", 0.2), tag="smoothing", length=45, fused_exact=False, magnitude=lambda x, w, *_: size(x) * size(w))
    targets, lengths, long = np.array([[1, 2, 2], [3, 1, 1]]), np.array([8, 6]), np.array([3, 2])
    integer = [Spec(a.shape, "int64", literal(a)) for a in (targets, lengths, long)]
    ways = {"none": lambda loss, n: loss, "sum": lambda loss, n: np.asarray(loss.sum()), "mean": lambda loss, n: np.asarray((loss / n).mean())}
    for how, reduced in ways.items():
        yield from layer("ctc_loss", ((8, 2, 4), *integer), lambda F, x, t, a, b, h=how: F.ctc_loss(F.log_softmax(x, -1), t, a, b, reduction=h), lambda x, t, a, b, r=reduced: r(ctc(log_softmax(x, -1), t, a, b), b),
                         ("float32", "float64") if how == "mean" else ("float32",), how, length=64, c=16, fused_exact=False, own_values=True, twice=False)


def cases():
    return [c for part in (_losses, _distances, _classes) for c in part()]
