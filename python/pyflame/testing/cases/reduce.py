"""Reductions: each over everything, over the last, the first and several dims."""

import numpy as np

from . import FLOATS, SHAPES, Case, Spec, away_from_zero, distinct, integers, label, literal, smooth

AXES = (((31, 33), (-1,)), ((31, 33), (0,)), ((3, 5, 7), (0, 2)), ((3, 5, 7), (1,)), ((2, 65, 64), (1, 2)))
NONEMPTY = tuple(s for s in SHAPES if 0 not in s)


def _variance(correction):
    def run(x, axis, keepdims):
        n = x.size if axis is None else int(np.prod([x.shape[a] for a in axis]))
        d = x - x.mean(axis=axis, keepdims=True)
        return (d * d).sum(axis=axis, keepdims=keepdims) / max(n - correction, 0)

    return run


def _logsumexp(x, axis, keepdims):
    top = x.max(axis=axis, keepdims=True)
    y = np.log(np.exp(x - top).sum(axis=axis, keepdims=True)) + top
    return y if keepdims else np.squeeze(y, axis=axis)


def _numpy(f):
    return lambda x, axis, keepdims: f(x, axis=axis, keepdims=keepdims)


# name: (primitive, reference(x, axis, keepdims), values, factor, magnitude's element, takes empty)
FLOAT = {
    "sum": ("sum", _numpy(np.sum), None, 2, np.abs, True),
    "mean": ("sum", _numpy(np.mean), None, 2, None, False),
    "prod": ("prod", _numpy(np.prod), lambda rng, s: 1 + 0.05 * rng.standard_normal(s), 2, None, True),
    "amax": ("amax", _numpy(np.max), None, 0, None, False),
    "amin": ("amin", _numpy(np.min), None, 0, None, False),
    "var": ("sum", _variance(1), None, 2, None, False),
    "std": ("sum", lambda x, a, k: np.sqrt(_variance(1)(x, a, k)), None, 2, None, False),
}


def _length(shape, axis):
    return int(np.prod([shape[a] for a in axis])) if axis is not None else int(np.prod(shape))


def _magnitude(name, x, axis, keepdims):
    if name == "sum":
        return np.abs(x).sum(axis=axis, keepdims=keepdims)
    if name == "mean":
        return np.abs(x).mean(axis=axis, keepdims=keepdims)
    if name in ("var", "std"):
        m = (x * x).mean(axis=axis, keepdims=keepdims)
        return m if name == "var" else np.sqrt(m)
    return np.abs(FLOAT[name][1](x, axis, keepdims))


def _one(name, dtype, shape, axis, keepdims, tag):
    op, reference, values, c, _, _ = FLOAT[name]
    extreme = name in ("amax", "amin")

    def call(pf, x):
        return getattr(pf, name)(x) if axis is None else getattr(pf, name)(x, dim=axis if len(axis) > 1 else axis[0], keepdim=keepdims)

    return Case(f"{name}-{dtype}-{tag}", (name,), (op,), (Spec(shape, dtype, distinct if extreme else values),), call, lambda x: np.asarray(reference(x, axis, keepdims)), grad=(0,), c=c,
                length=_length(shape, axis), magnitude=lambda x: _magnitude(name, x, axis, keepdims), composed=name in ("mean", "var", "std", "prod"),
                flops=lambda s: int(np.prod(s)), bytes=lambda s: int(np.prod(s)))


def _floats():
    for name, (_, _, _, _, _, empty) in FLOAT.items():
        for dtype in FLOATS:
            for shape in (SHAPES if empty else NONEMPTY) if dtype == "float32" else ((65,),):
                if name in ("var", "std") and int(np.prod(shape)) < 2:
                    continue
                yield _one(name, dtype, shape, None, False, label(shape))
            for i, (shape, axis) in enumerate(AXES):
                yield _one(name, dtype, shape, axis, i % 2 == 0, f"{label(shape)}-over-{'-'.join(map(str, axis))}")
    for dtype in FLOATS:
        for shape, axis in AXES:
            for keep in (False, True):
                yield Case(f"logsumexp-{dtype}-{label(shape)}-{axis}-{keep}", ("logsumexp",), ("amax", "exp", "sum", "log"), (Spec(shape, dtype),),
                           lambda pf, x, a=axis, k=keep: pf.logsumexp(x, dim=a, keepdim=k), lambda x, a=axis, k=keep: _logsumexp(x, a, k), grad=(0,), c=2, composed=True,
                           magnitude=lambda x, a=axis, k=keep: 1 + np.abs(_logsumexp(x, a, k)))
        yield Case(f"norm-{dtype}", ("norm",), ("sum", "sqrt"), (Spec((31, 33), dtype),), lambda pf, x: pf.norm(x), lambda x: np.asarray(np.sqrt((x * x).sum())), grad=(0,), c=3, composed=True)
        yield Case(f"var-correction-{dtype}", ("var",), ("sum",), (Spec((31, 33), dtype),), lambda pf, x: pf.var(x, dim=1, correction=0), lambda x: _variance(0)(x, (1,), False), grad=(0,), c=4,
                   magnitude=lambda x: (x * x).mean(1), composed=True)
        yield Case(f"sum_to-{dtype}", ("sum_to_size",), ("sum",), (Spec((3, 5, 7), dtype),), lambda pf, x: pf.sum_to_size(x, (5, 1)), lambda x: x.sum(axis=(0, 2)).reshape(5, 1), grad=(0,), c=2, length=21,
                   magnitude=lambda x: np.abs(x).sum(axis=(0, 2)).reshape(5, 1))
        for name in ("argmax", "argmin"):
            f = getattr(np, name)
            for shape in NONEMPTY if dtype == "float32" else ((65,),):
                yield Case(f"{name}-{dtype}-{label(shape)}", (name,), (name,), (Spec(shape, dtype, integers(-9, 9)),), lambda pf, x, n=name: getattr(pf, n)(x), lambda x, f=f: np.asarray(f(x)), out="int64")
            for dim in (0, 1, -1):
                yield Case(f"{name}-{dtype}-dim{dim}", (name,), (name,), (Spec((31, 33, 5), dtype, integers(-9, 9)),), lambda pf, x, n=name, d=dim: getattr(pf, n)(x, dim=d, keepdim=True),
                           lambda x, f=f, d=dim: np.expand_dims(f(x, axis=d), d), out="int64")
        for name, f, arg in (("max", np.max, np.argmax), ("min", np.min, np.argmin)):
            yield Case(f"{name}-{dtype}", (name,), ("a" + name,), (Spec((31, 33), dtype, distinct),), lambda pf, x, n=name: getattr(pf, n)(x), lambda x, f=f: np.asarray(f(x)), grad=(0,))
            yield Case(f"{name}-{dtype}-dim", (name,), ("a" + name, "arg" + name), (Spec((31, 33), dtype, distinct),), lambda pf, x, n=name: tuple(getattr(pf, n)(x, 1)),
                       lambda x, f=f, a=arg: (f(x, axis=1), a(x, axis=1)), grad=(0,), out=(dtype, "int64"))


def _others():
    for dtype in ("int64", "int32", "uint8", "bool"):
        x = Spec((31, 33), dtype, None if dtype == "bool" else integers(0, 100))
        yield Case(f"sum-{dtype}", ("sum",), ("sum",), (x,), lambda pf, x: pf.sum(x, dim=0), lambda x: x.astype(np.int64).sum(0), out="int64")
        yield Case(f"prod-{dtype}", ("prod",), ("prod",), (Spec((7, 3), dtype, integers(0, 2) if dtype == "bool" else integers(1, 4)),), lambda pf, x: pf.prod(x, dim=0), lambda x: x.astype(np.int64).prod(0), out="int64")
        yield Case(f"sum-dtype-{dtype}", ("sum",), ("cast", "sum"), (x,), lambda pf, x: pf.sum(x, dtype="float32"), lambda x: np.asarray(x.astype(np.float64).sum()), out="float32", c=2, length=1023)
        if dtype != "bool":
            yield Case(f"amax-{dtype}", ("amax",), ("amax",), (x,), lambda pf, x: pf.amax(x, dim=1), lambda x: x.max(1))
            yield Case(f"amin-{dtype}", ("amin",), ("amin",), (x,), lambda pf, x: pf.amin(x, dim=1), lambda x: x.min(1))
    for name in ("any", "all"):
        f = getattr(np, name)
        for shape in SHAPES:
            yield Case(f"{name}-{label(shape)}", (name,), (name,), (Spec(shape, "bool", lambda rng, s, n=name: rng.random(s) < (0.02 if n == "any" else 0.98)),), lambda pf, x, n=name: getattr(pf, n)(x),
                       lambda x, f=f: np.asarray(f(x)), out="bool")
        yield Case(f"{name}-dim", (name,), (name,), (Spec((31, 33), "float32", integers(0, 2)),), lambda pf, x, n=name: getattr(pf, n)(x, dim=1), lambda x, f=f: f(x, axis=1), out="bool")
    nan = np.array([[1.0, np.nan, 3.0], [2.0, 5.0, 4.0]])
    for name, f in (("amax", np.max), ("amin", np.min)):
        yield Case(f"{name}-nan", (name,), (name,), (Spec((2, 3), "float32", literal(nan)),), lambda pf, x, n=name: getattr(pf, n)(x, dim=1), lambda x, f=f: f(x, axis=1))
    for name, f in (("argmax", np.argmax), ("argmin", np.argmin)):
        yield Case(f"{name}-nan", (name,), (name,), (Spec((2, 3), "float32", literal(nan)),), lambda pf, x, n=name: getattr(pf, n)(x, dim=1), lambda x, f=f: f(x, axis=1), out="int64")


# The edges of a tile and of a unit of threads, each dim, a long row, many lines that are neighbours.
SCANS = (((), 0), ((0,), 0), ((1,), 0), ((65,), 0), ((1027,), -1), ((31, 33), 0), ((31, 33), -1), ((3, 5, 7), 1), ((2, 0, 3), 1), ((2, 3, 0), 1), ((7, 129), 1), ((2, 40000), 1), ((3, 70, 4096), 1))


def _scan(x, dim):
    return np.cumsum(x, axis=dim) if x.ndim else x


def _scans():
    for dtype in FLOATS:
        for shape, dim in SCANS if dtype == "float32" else (((7, 129), 1), ((3, 5, 7), 1)):
            yield Case(f"cumsum-{dtype}-{label(shape)}-{dim}", ("cumsum",), ("cumsum",), (Spec(shape, dtype),), lambda pf, x, d=dim: pf.cumsum(x, d), lambda x, d=dim: _scan(x, d), grad=(0,), c=2,
                       length=shape[dim] if shape else 1, magnitude=lambda x, d=dim: _scan(np.abs(x), d))
    for dtype in ("int64", "int32", "int16", "int8", "uint8", "bool"):
        for shape, dim in (((7, 129), 1), ((3, 5, 7), 1), ((2, 40000), 1)):
            yield Case(f"cumsum-{dtype}-{label(shape)}", ("cumsum",), ("cumsum",), (Spec(shape, dtype),), lambda pf, x, d=dim: x.cumsum(d), lambda x, d=dim: np.cumsum(x.astype(np.int64), axis=d), out="int64")
        yield Case(f"cumsum-dtype-{dtype}", ("cumsum",), ("cast", "cumsum"), (Spec((31, 33), dtype),), lambda pf, x: pf.cumsum(x, dim=0, dtype="float32"), lambda x: np.cumsum(x.astype(np.float64), axis=0), out="float32")
    yield Case("cumsum-to-int32", ("cumsum",), ("cast", "cumsum"), (Spec((31, 33), "uint8"),), lambda pf, x: pf.cumsum(x, 1, dtype="int32"), lambda x: np.cumsum(x.astype(np.int32), axis=1, dtype=np.int32), out="int32")
    nan = np.array([[1.0, np.nan, 3.0], [2.0, np.inf, -np.inf]])
    yield Case("cumsum-special", ("cumsum",), ("cumsum",), (Spec((2, 3), "float32", literal(nan)),), lambda pf, x: pf.cumsum(x, 1), lambda x: np.cumsum(x, axis=1))


def _extreme_so_far(largest):
    """Values and indices: the last of equals; NaN wins."""
    def along(line):
        best, at, values, places = line[0], 0, [], []
        for i, v in enumerate(line):
            if v != v or (v >= best if largest else v <= best):
                best, at = v, i
            values.append(best)
            places.append(at)
        return np.array([values, places], dtype=np.float64)

    def run(x, dim):
        if x.ndim == 0 or x.size == 0:
            return x, np.zeros(x.shape, np.int64)
        both = np.apply_along_axis(lambda line: along(line).ravel(), dim, x.astype(np.float64) if x.dtype.kind == "f" else x)
        values, places = np.split(both, 2, axis=dim)
        return values.astype(x.dtype), places.astype(np.int64)

    return run


def _log_sums(x, dim):
    return np.logaddexp.accumulate(x, axis=dim) if x.ndim else x


def _other_scans():
    near_one = lambda rng, shape: np.sign(rng.standard_normal(shape)) * np.exp(0.05 * rng.standard_normal(shape))  # noqa: E731
    for dtype in FLOATS:
        for shape, dim in SCANS[:-2] if dtype == "float32" else (((7, 129), 1), ((3, 5, 7), 1)):
            spec = Spec(shape, dtype)
            n = shape[dim] if shape else 1
            yield Case(f"cumprod-{dtype}-{label(shape)}-{dim}", ("cumprod",), ("cumprod",), (Spec(shape, dtype, near_one),), lambda pf, x, d=dim: pf.cumprod(x, d), lambda x, d=dim: np.cumprod(x, axis=d) if x.ndim else x,
                       grad=(0,), c=2, length=n)
            yield Case(f"logcumsumexp-{dtype}-{label(shape)}-{dim}", ("logcumsumexp",), ("logcumsumexp",), (spec,), lambda pf, x, d=dim: pf.logcumsumexp(x, d), lambda x, d=dim: _log_sums(x, d), grad=(0,), c=4,
                       length=n, magnitude=lambda x, d=dim: 1 + np.abs(_log_sums(x, d)))
            for name in ("cummax", "cummin"):
                yield Case(f"{name}-{dtype}-{label(shape)}-{dim}", (name,), (name,), (spec,), lambda pf, x, d=dim, f=name: getattr(pf, f)(x, d), lambda x, d=dim, f=_extreme_so_far(name == "cummax"): f(x, d),
                           grad=(0,), out=(dtype, "int64"))
    for shape, dim in (((2, 40000), 1), ((3, 70, 512), 1)):  # several segments of a line, many lines that are neighbours
        for name in ("cummax", "cummin"):
            yield Case(f"{name}-{label(shape)}", (name,), (name,), (Spec(shape),), lambda pf, x, d=dim, f=name: getattr(pf, f)(x, d), lambda x, d=dim, f=_extreme_so_far(name == "cummax"): f(x, d), out=("float32", "int64"))
        yield Case(f"logcumsumexp-{label(shape)}", ("logcumsumexp",), ("logcumsumexp",), (Spec(shape),), lambda pf, x, d=dim: pf.logcumsumexp(x, d), lambda x, d=dim: _log_sums(x, d), c=4, length=shape[dim], magnitude=lambda x, d=dim: 1 + np.abs(_log_sums(x, d)))
        yield Case(f"cumprod-{label(shape)}", ("cumprod",), ("cumprod",), (Spec(shape, "float64", lambda rng, shape: 1 + 1e-3 * rng.standard_normal(shape)),), lambda pf, x, d=dim: pf.cumprod(x, d), lambda x, d=dim: np.cumprod(x, axis=d), c=2, length=shape[dim])
    for dtype in ("int64", "int32", "int16", "int8", "uint8", "bool"):
        few = None if dtype == "bool" else integers(0, 3)
        yield Case(f"cumprod-{dtype}", ("cumprod",), ("cumprod",), (Spec((7, 129), dtype, few),), lambda pf, x: x.cumprod(1), lambda x: np.cumprod(x.astype(np.int64), axis=1), out="int64")
        for name in ("cummax", "cummin"):
            yield Case(f"{name}-{dtype}", (name,), (name,), (Spec((7, 129), dtype, few),), lambda pf, x, f=name: getattr(pf, f)(x, 1), lambda x, f=_extreme_so_far(name == "cummax"): f(x, 1), out=(dtype, "int64"))
    special = np.array([[1.0, np.nan, 3.0, 3.0], [2.0, np.inf, -np.inf, np.inf], [-np.inf, -np.inf, 1.0, 1.0]])
    for name in ("cummax", "cummin"):
        yield Case(f"{name}-special", (name,), (name,), (Spec((3, 4), "float32", literal(special)),), lambda pf, x, f=name: getattr(pf, f)(x, 1), lambda x, f=_extreme_so_far(name == "cummax"): f(x, 1), out=("float32", "int64"))
    yield Case("logcumsumexp-special", ("logcumsumexp",), ("logcumsumexp",), (Spec((3, 4), "float32", literal(special)),), lambda pf, x: pf.logcumsumexp(x, 1), lambda x: _log_sums(x, 1), c=4)
    # Zeros: none, one and two in a line, of which the gradient goes through the first.
    zeros = np.array([[1.5, 2.0, -0.5, 3.0], [1.5, 0.0, -0.5, 3.0], [0.0, 2.0, 0.0, 3.0]])
    yield Case("cumprod-zeros", ("cumprod",), ("cumprod",), (Spec((3, 4), "float64", literal(zeros)),), lambda pf, x: pf.cumprod(x, 1), lambda x: np.cumprod(x, axis=1), grad=(0,), c=2, twice=False)


def _distances():
    def pairs(x):
        i, j = np.triu_indices(len(x), 1)
        return np.sqrt(((x[i] - x[j]) ** 2).sum(1))

    for dtype in FLOATS:
        for shape in ((7, 3), (37, 70), (2, 33), (1, 4), (3, 0)):
            yield Case(f"pdist-{dtype}-{label(shape)}", ("pdist",), ("pdist",) if shape[0] > 1 else (), (Spec(shape, dtype),), lambda pf, x: pf.pdist(x), pairs, grad=(0,), c=4, length=shape[1])


def cases():
    return [*_other_scans(), *_floats(), *_others(), *_scans(), *_distances()]
