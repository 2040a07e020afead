"""Functions of the package that Python composes of ops: sums, orders and counts, distances, signals, and parts of layers. As compositions.py."""

import numpy as np

from . import Spec, distinct, integers, literal, normal, positive
from .compositions import At, B, D, F, H, W, X, largest, largest_products, made
from .conv import conv2d, conv_transpose2d
from .grids import off_the_elements, sampled
from .recurrent import GATES, _step, small


def holes(rng, shape):
    return np.where(rng.random(shape) < 0.2, np.nan, normal(rng, shape))


def distinct_holes(rng, shape):
    return np.where(rng.random(shape) < 0.2, np.nan, distinct(rng, shape))


# ---------------------------------------------------------------- sums
def _trapezoids(y, x):
    return (y[..., 1:] + y[..., :-1]) * np.diff(x, axis=-1) / 2


def _steps(rng, shape):
    """Places that ascend."""
    return np.cumsum(0.3 + rng.random(shape), -1)


def _moments(f, correction):
    return lambda x: (f(x, axis=1, ddof=correction), x.mean(1))


def _correlation(x):
    c = np.cov(x)
    d = np.sqrt(np.diagonal(c))
    return c / d / d[:, None]


def _covariance(x, f, a):
    w = f * a
    d = x - (x * w).sum(1, keepdims=True) / w.sum()
    return (d * w) @ d.T / (w.sum() - (w * a).sum() / w.sum())


def _segmented(name, lengths):
    f = {"sum": np.sum, "mean": np.mean, "max": np.max, "min": np.min, "prod": np.prod}[name]
    ends = np.cumsum(lengths)
    return lambda x, *_: np.stack([f(x[end - n:end], axis=0) for end, n in zip(ends, lengths)])


def _sums():
    yield from made("trace", ((5, 7),), lambda x: np.asarray(np.trace(x)), dtypes=B, c=2, length=5, magnitude=lambda x: np.trace(np.abs(x)))
    yield from made("trace", ((5, 7),), lambda x: np.asarray(np.trace(x)), dtypes=("int64",))
    yield from made("count_nonzero", (At(W, integers(-1, 2)),), lambda x: np.asarray(np.count_nonzero(x)), dtypes=X, grad=(), out="int64")
    yield from made("count_nonzero", (W,), lambda x: np.count_nonzero(x, axis=1), lambda pf, x: pf.count_nonzero(x, 1), dtypes=("bool",), tag="dim", out="int64")
    for name, f in (("nansum", np.nansum), ("nanmean", np.nanmean)):
        yield from made(name, (At(W, holes),), lambda x, f=f: np.asarray(f(x)), dtypes=D, c=3, length=201, magnitude=largest)
        yield from made(name, (At(W, holes),), lambda x, f=f: f(x, axis=1), lambda pf, x, n=name: getattr(pf, n)(x, 1), dtypes=("float32", "bfloat16"), tag="dim", c=3, length=67, magnitude=lambda x: 67 * largest(x))
    yield from made("frobenius_norm", (W,), lambda x: np.asarray(np.sqrt((x * x).sum())), dtypes=H, c=4)
    yield from made("frobenius_norm", ((2, 5, 7),), lambda x: np.sqrt((x * x).sum((0, 2))), lambda pf, x: pf.frobenius_norm(x, (0, 2)), tag="dims", c=4)
    yield from made("nuclear_norm", ((5, 3),), lambda x: np.asarray(np.linalg.svd(x, compute_uv=False).sum()), dtypes=D, c=16, fused_exact=False, own_values=True)
    for p in (0, 1, 3, np.inf, -np.inf):
        yield from made("norm", (At(W, lambda rng, shape: distinct(rng, shape) + 0.1),), lambda x, p=p: np.linalg.norm(x, p, 1), lambda pf, x, p=p: pf.norm(x, p, 1), dtypes=D if p == 3 else F, tag=f"{p}-dim", c=4, length=67, fused_exact=p != 3)
    for name, f in (("var_mean", np.var), ("std_mean", np.std)):
        moments = dict(dtypes=D, c=4, length=67, magnitude=lambda x: largest(x) ** 2)
        yield from made(name, (W,), _moments(f, 1), lambda pf, x, n=name: getattr(pf, n)(x, 1), tag="dim", **moments)
        yield from made(name, (W,), lambda x, f=f: (np.asarray(f(x)), np.asarray(x.mean())), lambda pf, x, n=name: getattr(pf, n)(x, correction=0), tag="all", **{**moments, "length": 201})
    square = lambda x: np.abs(x) @ np.abs(x).T / (x.shape[1] - 1) + largest(x)  # noqa: E731
    yield from made("cov", (W,), np.cov, dtypes=D, c=8, length=67, magnitude=square, fused_exact=False)
    yield from made("cov", (W, Spec((67,), "int64", integers(1, 4)), At((67,), positive)), _covariance, lambda pf, x, f, a: pf.cov(x, fweights=f, aweights=a), tag="weights", grad=(0,), c=16, length=67, magnitude=largest_products,
                    fused_exact=False, own_values=True)
    yield from made("corrcoef", (W,), _correlation, dtypes=D, c=16, length=67, magnitude=lambda x: np.ones((len(x), len(x))), fused_exact=False, own_values=True)
    yield from made("trapezoid", (W,), lambda y: (y[..., 1:] + y[..., :-1]).sum(-1) / 4, lambda pf, y: pf.trapezoid(y, dx=0.5), dtypes=B, tag="dx", c=3, length=67, magnitude=lambda y: np.abs(y).sum(-1))
    yield from made("trapezoid", (W, At((67,), _steps)), lambda y, x: _trapezoids(y, x).sum(-1), tag="x", c=3, length=67, magnitude=lambda y, x: np.abs(y).sum(-1) * largest(x))
    yield from made("cumulative_trapezoid", (W, At((67,), _steps)), lambda y, x: np.cumsum(_trapezoids(y, x), -1), dtypes=D, c=3, length=67, magnitude=lambda y, x: np.abs(y).sum(-1, keepdims=True) * largest(x) + np.zeros((1, y.shape[1] - 1)))
    yield from made("cumulative_trapezoid", (W,), lambda y: np.cumsum((y[1:] + y[:-1]) / 2, 0), lambda pf, y: pf.cumulative_trapezoid(y, dim=0), tag="first", c=3, magnitude=largest)
    yield from made("diff", (W,), lambda x: np.diff(x, 2), lambda pf, x: pf.diff(x, 2), dtypes=B, c=3, magnitude=lambda x: 4 * largest(x))
    yield from made("diff", (W, (1, 67), (2, 67)), lambda x, a, b: np.diff(x, axis=0, prepend=a, append=b), lambda pf, x, a, b: pf.diff(x, dim=0, prepend=a, append=b), dtypes=X, tag="ends")
    yield from made("gradient", ((5, 7),), lambda x: tuple(np.gradient(x)), lambda pf, x: tuple(pf.gradient(x)), dtypes=D, c=3, magnitude=largest)
    yield from made("gradient", (W,), lambda x: np.gradient(x, 0.5, axis=1, edge_order=2), lambda pf, x: pf.gradient(x, spacing=0.5, dim=1, edge_order=2)[0], tag="edges", c=6, magnitude=lambda x: 8 * largest(x))
    yield from made("gradient", (W, At((67,), _steps)), lambda x, at: np.gradient(x, at, axis=1), lambda pf, x, at: pf.gradient(x, spacing=(at.detach(),), dim=1)[0], tag="places", grad=(0,), c=16, magnitude=lambda x, at: 16 * largest(x) * largest(at), own_values=True)
    for name in ("sum", "mean", "max", "min", "prod"):
        lengths = [2, 1, 5, 3]
        yield from made("segment_reduce", (At((11, 3), distinct if name in ("max", "min") else normal), Spec((4,), "int64", literal(lengths))), _segmented(name, lengths), lambda pf, x, n, f=name: pf.segment_reduce(x, f, lengths=n),
                        dtypes=D if name == "mean" else F, tag=name, c=4, length=5, magnitude=largest, own_values=True)


# ---------------------------------------------------------------- orders
def _middle(x, axis):
    """The lower one of two."""
    return np.take(np.sort(x, axis), (x.shape[axis] - 1) // 2, axis)


def _middle_number(x):
    """The lower middle element of the numbers of each row; NaN of a row without any."""
    rows = np.sort(x, 1)
    n = (~np.isnan(rows)).sum(1)
    return np.take_along_axis(rows, np.maximum((n - 1) // 2, 0)[:, None], 1)[:, 0]


def _most_frequent(x):
    def of(row):
        values, counts = np.unique(row, return_counts=True)
        return values[counts.argmax()]

    return np.array([of(row) for row in x], x.dtype).reshape(len(x))


def _with_places(name, *arguments):
    """The values, and the elements at the places that come with them."""

    def call(pf, x):
        values, places = getattr(pf, name)(x, *arguments)
        return values, x.gather(1, places.unsqueeze(1)).squeeze(1)

    return call


def _runs(x):
    starts = np.flatnonzero(np.append(True, x[1:] != x[:-1])[: len(x)])
    counts = np.diff(np.append(starts, len(x)))
    return x[starts], np.repeat(np.arange(len(starts)), counts), counts


def _orders():
    rows = At(W, distinct)
    yield from made("aminmax", (rows,), lambda x: (np.asarray(x.min()), np.asarray(x.max())), lambda pf, x: tuple(pf.aminmax(x)), dtypes=X)
    yield from made("aminmax", (rows,), lambda x: (x.min(1, keepdims=True), x.max(1, keepdims=True)), lambda pf, x: tuple(pf.aminmax(x, dim=1, keepdim=True)), dtypes=B, tag="dim")
    yield from made("median", (rows,), lambda x: np.asarray(_middle(x.ravel(), 0)), dtypes=X)
    yield from made("median", (rows,), lambda x: (_middle(x, 1),) * 2, _with_places("median", 1), dtypes=H, tag="dim")
    yield from made("nanmedian", (At(W, distinct_holes),), lambda x: (_middle_number(x),) * 2, _with_places("nanmedian", 1), dtypes=D, tag="dim")
    yield from made("nanmedian", (At(W, distinct_holes),), lambda x: _middle_number(x.reshape(1, -1)).reshape(()))
    yield from made("kthvalue", (rows,), lambda x: (np.sort(x, 1)[:, 4],) * 2, _with_places("kthvalue", 5), dtypes=B)
    yield from made("kthvalue", (rows,), lambda x: (np.sort(x, 1)[:, 4],) * 2, _with_places("kthvalue", 5), dtypes=("int64",))
    yield from made("mode", (At(W, integers(0, 9)),), lambda x: (_most_frequent(x),) * 2, _with_places("mode"), dtypes=("float32", "bfloat16"), grad=())
    yield from made("mode", (At((2, 9), literal([[3, 1, 3, 1, 3, 2, 2, 2, 2], [5, 5, 4, 4, 5, 4, 4, 5, 5]])),), lambda x: (np.array([2, 5]), np.array([8, 8])), lambda pf, x: tuple(pf.mode(x)), dtypes=("int64",), tag="last", out="int64", own_values=True)
    for name, f, values in (("quantile", np.quantile, distinct), ("nanquantile", np.nanquantile, distinct_holes)):
        yield from made(name, (At(W, values),), lambda x, f=f: f(x, 0.3, axis=1), lambda pf, x, n=name: getattr(pf, n)(x, 0.3, dim=1), dtypes=D, c=8, length=67, magnitude=largest)
        yield from made(name, (At(W, values), At((3,), literal([0.0, 0.5, 1.0]))), lambda x, q, f=f: f(x, np.clip(q, 0, 1)), lambda pf, x, q, n=name: getattr(pf, n)(x, pf.clamp(q.detach(), 0.0, 1.0)), grad=(0,), tag="several", c=8, length=201, magnitude=largest)
    for way in ("lower", "higher", "nearest", "midpoint"):
        yield from made("quantile", (rows,), lambda x, w=way: np.quantile(x, 0.4, axis=0, method=w), lambda pf, x, w=way: pf.quantile(x, 0.4, dim=0, interpolation=w), tag=way, c=4, magnitude=largest)
    yield from made("argsort", (At(W, integers(0, 30)),), lambda x: np.argsort(x, -1, kind="stable"), lambda pf, x: pf.argsort(x, stable=True), dtypes=X, grad=(), out="int64")
    yield from made("argsort", (At(W, integers(0, 30)),), lambda x: np.argsort(-x, 0, kind="stable"), lambda pf, x: pf.argsort(x, 0, descending=True, stable=True), tag="descending", grad=(), out="int64")
    yield from made("bucketize", (W, Spec((5,), "float32", literal([-1.5, -0.5, 0.0, 0.5, 2.0]))), lambda x, edges: np.searchsorted(edges, x), out="int64", grad=(), own_values=True)
    yield from made("bucketize", (At(W, integers(-3, 4)), Spec((3,), "int64", literal([-2, 0, 1]))), lambda x, edges: np.searchsorted(edges, x, "right"), lambda pf, x, e: pf.bucketize(x, e, right=True), dtypes=("int64",), tag="right", own_values=True)
    yield from made("unique_consecutive", (At((67,), integers(0, 2)),), _runs, lambda pf, x: pf.unique_consecutive(x, return_inverse=True, return_counts=True), dtypes=("int64",))
    yield from made("unique_consecutive", (At((9, 1), integers(0, 2)),), lambda x: x[np.flatnonzero(np.append(True, (x[1:] != x[:-1]).any(1))[: len(x)])], lambda pf, x: pf.unique_consecutive(x, dim=0), tag="dim", grad=())


# ---------------------------------------------------------------- counts
def _counts():
    numbers = At((67,), integers(0, 9))
    yield from made("bincount", (numbers,), np.bincount, dtypes=("int64",))
    yield from made("bincount", (numbers,), lambda x: np.bincount(x, minlength=15), lambda pf, x: pf.bincount(x, minlength=15), dtypes=("uint8",), tag="minlength", out="int64")
    yield from made("bincount", (Spec((67,), "int64", integers(0, 9)), (67,)), lambda x, w: np.bincount(x, w), tag="weights", grad=(), c=2, length=67, magnitude=lambda x, w: 67 * largest(w), out="float32")
    yield from made("histc", (W,), lambda x: np.histogram(x, 10, (-3, 3))[0], lambda pf, x: pf.histc(x, 10, -3, 3), dtypes=D, grad=())
    yield from made("histogram", (W,), lambda x: np.histogram(x, 6, (-2, 2)), lambda pf, x: tuple(pf.histogram(x, 6, range=(-2, 2))), grad=(), c=2)
    yield from made("histogram", ((67,), At((67,), positive)), lambda x, w: np.histogram(x, 5, (-2, 2), weights=w, density=True), lambda pf, x, w: tuple(pf.histogram(x, 5, range=(-2, 2), weight=w, density=True)), tag="density",
                    grad=(), c=8, length=67, magnitude=largest)
    yield from made("histogramdd", ((67, 2),), lambda x: (lambda h, edges: (h, *edges))(*np.histogramdd(x, (3, 4), ((-2, 2), (-1, 3)))), lambda pf, x: (lambda h, edges: (h, *edges))(*pf.histogramdd(x, (3, 4), range=(-2, 2, -1, 3))), grad=(), c=2)
    yield from made("isin", (At(W, integers(0, 20)), At((6,), integers(0, 20))), np.isin, dtypes=X, grad=(), out="bool")
    yield from made("isin", (At(W, integers(0, 5)),), lambda x: ~np.isin(x, 3), lambda pf, x: pf.isin(x, 3, invert=True), dtypes=("int64",), tag="invert", out="bool")
    yield from made("unravel_index", (At(W, integers(0, 35)),), lambda x: np.unravel_index(x, (5, 7)), lambda pf, x: pf.unravel_index(x, (5, 7)), dtypes=("int64",))
    yield from made("logspace", (), lambda: np.logspace(0, 3, 7), lambda pf: pf.logspace(0, 3, 7), c=8)
    yield from made("logspace", (), lambda: np.logspace(-1, 2, 4, base=2.0), lambda pf: pf.logspace(-1, 2, 4, base=2.0, dtype=pf.float64), dtypes=("float64",), tag="base", c=8, out="float64")


# ---------------------------------------------------------------- distances
def _distances(p):
    def between(x, y):
        d = np.abs(x[..., :, None, :] - y[..., None, :, :])
        return (d > 0).sum(-1).astype(float) if p == 0 else d.max(-1) if p == np.inf else (d**p).sum(-1) ** (1 / p)

    return between


def _between():
    far = lambda rng, shape: 4 + rng.standard_normal(shape)  # noqa: E731
    for p, dtypes in ((2.0, D), (1.0, F), (3.0, H), (np.inf, F), (0.0, F)):
        yield from made("cdist", ((5, 7), At((4, 7), far)), _distances(p), lambda pf, x, y, p=p: pf.cdist(x, y, p, compute_mode="donot_use_mm_for_euclid_dist"), dtypes, f"{p:g}", c=8, length=7, magnitude=largest)
    yield from made("cdist", ((2, 30, 3), At((1, 9, 3), far)), _distances(2.0), lambda pf, x, y: pf.cdist(x, y), tag="product", c=16, length=3, magnitude=lambda x, y: largest(x, y) ** 2, fused_exact=False, own_values=True)
    for p in (2, 1, 3, np.inf):
        yield from made("dist", (W, At((67,), far)), lambda x, y, p=p: np.asarray(np.linalg.norm((x - y).ravel(), p)), lambda pf, x, y, p=p: pf.dist(x, y, p), D if p == 2 else F, str(p), c=6, length=201)
    yield from made("l1_loss", (W, At(W, far)), lambda x, y: np.abs(x - y), lambda pf, x, y: pf.l1_loss(x, y, reduction="none"), tag="none", c=1)


# ---------------------------------------------------------------- signals
STEP, FRAME = 4, 16


def _transforms(x, w):
    """[B, frequencies, frames, 2] of frames of FRAME samples, one every STEP, of the signal mirrored at its ends."""
    y = np.pad(x, ((0, 0), (FRAME // 2, FRAME // 2)), mode="reflect")
    frames = np.lib.stride_tricks.sliding_window_view(y, FRAME, 1)[:, ::STEP] * w
    z = np.fft.rfft(frames).swapaxes(1, 2)
    return np.stack([z.real, z.imag], -1)


def _from_transforms(re, im, w):
    frames = np.fft.irfft((re + 1j * im).T, FRAME) * w
    n = FRAME + STEP * (len(frames) - 1)
    y, weight = np.zeros(n), np.zeros(n)
    for k, frame in enumerate(frames):
        y[k * STEP:k * STEP + FRAME] += frame
        weight[k * STEP:k * STEP + FRAME] += w * w
    return (y / np.maximum(weight, 1e-9))[FRAME // 2:-(FRAME // 2)]


def _cosines(n, *factors):
    """A window of one period of n samples: a sum of cosines."""
    angle = 2 * np.pi * np.arange(n) / n
    return lambda: sum(a * np.cos(k * angle) for k, a in enumerate(factors))


def _signals():
    window = _cosines(FRAME, 0.5, -0.5)()
    signal = dict(length=FRAME, fused_exact=False)
    yield from made("stft", ((2, 64),), lambda x: _transforms(x, window), lambda pf, x: pf.stft(x, FRAME, STEP, window=pf.hann_window(FRAME, dtype=x.dtype, device=x.device), return_complex=False), dtypes=D, c=8,
                    magnitude=lambda x: FRAME * largest(x), **signal)
    yield from made("stft", ((2, 64), At((FRAME,), positive)), lambda x, w: _transforms(x, w) / 4, lambda pf, x, w: pf.view_as_real(pf.stft(x, FRAME, STEP, window=w, normalized=True, return_complex=True)), tag="normalized", c=8,
                    magnitude=lambda x, w: FRAME * largest_products(x, w), own_values=True, **signal)
    yield from made("istft", ((9, 13), (9, 13)), lambda re, im: _from_transforms(re, im, window), lambda pf, re, im: pf.istft(pf.complex(re, im), FRAME, STEP, window=pf.hann_window(FRAME, dtype=re.dtype, device=re.device)), dtypes=D, c=16,
                    magnitude=largest, own_values=True, **signal)
    yield from made("istft", ((9, 13), (9, 13), At((FRAME,), positive)), lambda re, im, w: _from_transforms(re, im, w), lambda pf, re, im, w: pf.istft(pf.complex(re, im), FRAME, STEP, window=w.detach()), tag="window", grad=(0, 1), c=32,
                    magnitude=lambda re, im, w: largest(re, im) * largest(w, 1 / w), own_values=True, **signal)
    yield from made("bartlett_window", (), lambda: 1 - np.abs(2 * np.arange(13) / 13 - 1), lambda pf: pf.bartlett_window(13), c=4)
    for name, factors in (("hann", (0.5, -0.5)), ("hamming", (0.54, -0.46)), ("blackman", (0.42, -0.5, 0.08))):
        yield from made(f"{name}_window", (), _cosines(13, *factors), lambda pf, n=f"{name}_window": getattr(pf, n)(13), c=4, magnitude=lambda: np.ones(13))
    yield from made("hann_window", (), lambda: np.hanning(13), lambda pf: pf.hann_window(13, periodic=False, dtype=pf.float64), dtypes=("float64",), tag="symmetric", c=8, magnitude=lambda: np.ones(13), out="float64")
    yield from made("kaiser_window", (), lambda: np.kaiser(14, 12.0)[:13], lambda pf: pf.kaiser_window(13), c=16, magnitude=lambda: np.ones(13))


# ---------------------------------------------------------------- parts of layers
def _normalized(axes):
    """(what is normalised, its means, the reciprocals of its deviations)"""

    def parts(x):
        mean, deviation = x.mean(axes, keepdims=True), np.sqrt(x.var(axes, keepdims=True) + 1e-5)
        return (x - mean) / deviation, mean, 1 / deviation

    return parts


def _group_normalized(x, w, b):
    n, c = x.shape[:2]
    y, mean, reciprocal = _normalized(2)(x.reshape(n, 2, -1))
    return y.reshape(x.shape) * w[:, None] + b[:, None], mean[..., 0], reciprocal[..., 0]


def _batch_normalized(x, w, b):
    y, mean, reciprocal = _normalized((0, 2))(x)
    return y * w[:, None] + b[:, None], mean.ravel(), reciprocal.ravel()


def _layer_normalized(x, w, b):
    y, mean, reciprocal = _normalized(-1)(x)
    return y * w + b, mean, reciprocal


def _cell(op):
    def step(x, h, *rest):
        c, (w_ih, w_hh, b_ih, b_hh) = (rest[0], rest[1:]) if op == "lstm" else (None, rest)
        new, cell = _step(op, x @ w_ih.T + b_ih, h @ w_hh.T + b_hh, h, c)
        return (new, cell) if op == "lstm" else new

    return step


def _columns(x):
    """Windows of 2 by 3 elements as columns."""
    v = np.lib.stride_tricks.sliding_window_view(x, (2, 3), (2, 3))
    return v.transpose(0, 1, 4, 5, 2, 3).reshape(len(x), x.shape[1] * 6, -1)


def _of_columns(y):
    """The sums of such windows in images of 4 by 5."""
    x = np.zeros((len(y), y.shape[1] // 6, 4, 5))
    v = y.reshape(len(y), -1, 2, 3, 3, 3)
    for i in range(2):
        for j in range(3):
            x[:, :, i:i + 3, j:j + 3] += v[:, :, i, j]
    return x


def _places(theta, n, h, w):
    y, x = np.meshgrid((2 * np.arange(h) + 1) / h - 1, (2 * np.arange(w) + 1) / w - 1, indexing="ij")
    return np.einsum("nij,hwj->nhwi", theta, np.stack([x, y, np.ones_like(x)], -1))


def _trigamma(x):
    """The recurrence to 20 and beyond, and the asymptotic series there."""
    y = np.zeros_like(x)
    for _ in range(20):
        y, x = y + 1 / x**2, x + 1
    return y + 1 / x + 1 / (2 * x**2) + 1 / (6 * x**3) - 1 / (30 * x**5) + 1 / (42 * x**7) - 1 / (30 * x**9)


def _layers():
    weights = ((4,), (4,))
    sized = dict(c=8, length=67, magnitude=largest_products, fused_exact=False)
    yield from made("native_layer_norm", (W, (67,), (67,)), _layer_normalized, lambda pf, x, w, b: pf.native_layer_norm(x, w.shape, w, b, 1e-5), dtypes=D, **sized)
    yield from made("native_group_norm", ((3, 4, 7), *weights), _group_normalized, lambda pf, x, w, b: pf.native_group_norm(x, w, b, 3, 4, 7, 2, 1e-5), own_values=True, **sized)
    yield from made("native_batch_norm", ((5, 4, 7), *weights), _batch_normalized, lambda pf, x, w, b: pf.native_batch_norm(x, w, b, None, None, True, 0.1, 1e-5), **sized)
    x, w = (2, 4, 6, 7), (6, 2, 3, 2)
    yield from made("convolution", (x, w, (6,)), lambda x, w, b: conv2d(x, w, b, (2, 1), (1, 0), (1, 2), 2), lambda pf, x, w, b: pf.convolution(x, w, b, (2, 1), (1, 0), (1, 2), False, (0, 0), 2), dtypes=B, **sized)
    yield from made("convolution", (x, (4, 3, 3, 2)), lambda x, w: conv_transpose2d(x, w, None, (2, 1), (1, 0), (1, 0)), lambda pf, x, w: pf.convolution(x, w, None, (2, 1), (1, 0), (1, 1), True, (1, 0), 1), tag="transposed", **sized)
    for op, gates in GATES.items():
        states = (At((3, 4), small),) * (2 if op == "lstm" else 1)
        cell = lambda pf, x, h, *rest, op=op: getattr(pf, f"{op}_cell")(x, (h, rest[0]) if op == "lstm" else h, *rest[op == "lstm":])  # noqa: E731
        yield from made(f"{op}_cell", (At((3, 5), small), *states, *(At((gates * 4, *n), small) for n in ((5,), (4,), (), ()))), _cell(op), cell, dtypes=D if op in ("lstm", "gru") else F, **sized)
    for name, shape, mode in (("grid_sampler", (2, 3, 5, 7), "bilinear"), ("grid_sampler_2d", (1, 2, 5, 7), "bicubic"), ("grid_sampler_3d", (1, 2, 3, 4, 5), "bilinear")):
        n = len(shape) - 2
        number = ("bilinear", "nearest", "bicubic").index(mode)
        yield from made(name, (shape, At((shape[0], *(3, 4, 2)[:n], n), off_the_elements)), lambda x, g, m=mode: sampled(x, g, m, "zeros", False), lambda pf, x, g, n=name, m=number: getattr(pf, n)(x, g, m, 0, False), c=16,
                        magnitude=lambda x, g: 64 * largest(x), twice=mode == "bilinear", own_values=True)
    yield from made("affine_grid_generator", ((2, 2, 3),), lambda t: _places(t, 2, 4, 5), lambda pf, t: pf.affine_grid_generator(t, (2, 3, 4, 5), False), dtypes=D, c=4, magnitude=lambda t: 3 * largest(t), fused_exact=False, own_values=True)
    yield from made("im2col", ((2, 3, 4, 5),), _columns, lambda pf, x: pf.im2col(x, (2, 3)), tag="windows")
    yield from made("col2im", ((2, 18, 9),), _of_columns, lambda pf, y: pf.col2im(y, (4, 5), (2, 3)), tag="sums", c=4, length=6, magnitude=lambda y: 6 * largest(y), own_values=True)
    places = Spec((1, 2, 2, 2), "int64", literal([[[[0, 6], [12, 14]], [[1, 2], [14, 19]]]]))
    yield from made("max_pool2d_with_indices_backward", ((1, 2, 2, 2), (1, 2, 4, 5), places), _scattered_back, lambda pf, g, x, i: pf.max_pool2d_with_indices_backward(g, x, (2, 2), (2, 2), (0, 0), (1, 1), False, i), grad=(0,), own_values=True)
    yield from made("special_trigamma", (At(W, lambda rng, shape: 0.3 + positive(rng, shape)),), _trigamma, dtypes=D, tag="positive", c=16)


def _scattered_back(g, x, places):
    y = np.zeros((*x.shape[:2], x.shape[2] * x.shape[3]))
    np.put_along_axis(y, places.reshape(*x.shape[:2], -1), g.reshape(*x.shape[:2], -1), -1)
    return y.reshape(x.shape)


def cases():
    return [*_sums(), *_orders(), *_counts(), *_between(), *_signals(), *_layers()]
