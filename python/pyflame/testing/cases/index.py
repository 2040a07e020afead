"""Reading and adding by index, triangles, selection in order."""

import numpy as np

from . import FLOATS, INTS, Case, Spec, distinct, integers, label, normal, positive, unit


def _scatter_add(x, dim, index, src):
    y = x.copy()
    it = np.ndindex(*index.shape)
    for at in it:
        to = list(at)
        to[dim] = index[at]
        y[tuple(to)] += src[at]
    return y


def _gather(x, dim, index):
    y = np.zeros(index.shape, x.dtype)
    for at in np.ndindex(*index.shape):
        to = list(at)
        to[dim] = index[at]
        y[at] = x[tuple(to)]
    return y


def _index_add(x, dim, index, src):
    y = x.copy()
    np.add.at(y, (slice(None),) * dim + (index,), src)
    return y


_COMBINE = {"replace": lambda a, b: b, "sum": np.add, "prod": np.multiply, "amax": np.maximum, "amin": np.minimum}


def _scatter(x, dim, index, src, how):
    y = x.copy()
    for at in np.ndindex(*index.shape):
        to = list(at)
        to[dim] = index[at]
        y[tuple(to)] = _COMBINE[how](y[tuple(to)], src[at])
    return y


def _put_slices(x, dim, index, src, how):
    y = np.moveaxis(x.copy(), dim, 0)
    for k, i in enumerate(index):
        y[i] = _COMBINE[how](y[i], np.moveaxis(src, dim, 0)[k])
    return np.moveaxis(y, 0, dim)


def _topk(x, k, dim, largest):
    order = np.argsort(-x if largest else x, axis=dim, kind="stable").take(np.arange(k), axis=dim)
    return np.take_along_axis(x, order, dim), order


def _sort(x, dim, descending):
    order = np.argsort(-x if descending else x, axis=dim, kind="stable")
    return np.take_along_axis(x, order, dim), order


def _per_dtype(dtype):
    g = (0,) if dtype != "int64" else ()
    sums = dict(c=2, length=8, composed=True) if dtype != "int64" else {}
    for dim in (0, 1):
        x, i = Spec((31, 33), dtype), Spec((5, 7), "int64", integers(0, 31))
        yield Case(f"gather-{dtype}-{dim}", ("gather",), ("gather", "scatter_add"), (x, i), lambda pf, x, i, d=dim: pf.gather(x, d, i), lambda x, i, d=dim: _gather(x, d, i), grad=g)
        few = Spec((5, 7), "int64", integers(0, 4))
        yield Case(f"scatter_add-{dtype}-{dim}", ("scatter_add",), ("scatter_add", "gather", "add"), (Spec((9, 10), dtype), few, Spec((5, 7), dtype)), lambda pf, x, i, s, d=dim: pf.scatter_add(x, d, i, s),
                   lambda x, i, s, d=dim: _scatter_add(x, d, i, s), grad=(0, 2) if g else (), magnitude=lambda x, i, s, d=dim: _scatter_add(np.abs(x), d, i, np.abs(s)), **sums)
        v = Spec((6,), "int64", integers(0, 9))
        yield Case(f"index_select-{dtype}-{dim}", ("index_select",), ("index_select", "index_add"), (Spec((9, 11), dtype), v), lambda pf, x, i, d=dim: pf.index_select(x, d, i),
                   lambda x, i, d=dim: np.take(x, i, axis=d), grad=g)
        src = Spec((6, 11) if dim == 0 else (9, 6), dtype)
        yield Case(f"index_add-{dtype}-{dim}", ("index_add",), ("index_add", "index_select", "add"), (Spec((9, 11), dtype), v, src), lambda pf, x, i, s, d=dim: pf.index_add(x, d, i, s),
                   lambda x, i, s, d=dim: _index_add(x, d, i, s), grad=(0, 2) if g else (), magnitude=lambda x, i, s, d=dim: _index_add(np.abs(x), d, i, np.abs(s)), **sums)
        yield Case(f"take_along_dim-{dtype}-{dim}", ("take_along_dim",), ("gather",), (Spec((9, 11), dtype), Spec((9, 4) if dim else (4, 11), "int64", integers(0, 9))),
                   lambda pf, x, i, d=dim: pf.take_along_dim(x, i, d), lambda x, i, d=dim: np.take_along_axis(x, i, d), grad=g)
        for flag in (True, False):
            yield Case(f"topk-{dtype}-{dim}-{flag}", ("topk",), ("topk",), (Spec((31, 33), dtype, distinct),), lambda pf, x, d=dim, f=flag: tuple(pf.topk(x, 5, dim=d, largest=f)),
                       lambda x, d=dim, f=flag: _topk(x, 5, d, f), grad=g, out=(dtype, "int64"))
            yield Case(f"sort-{dtype}-{dim}-{flag}", ("sort",), ("sort",), (Spec((31, 33), dtype, distinct),), lambda pf, x, d=dim, f=flag: tuple(pf.sort(x, dim=d, descending=f)),
                       lambda x, d=dim, f=flag: _sort(x, d, f), grad=g, out=(dtype, "int64"))
    for shape in ((), (1,), (0,), (63,), (64,), (65,), (2, 3, 4)):
        rows = Spec((17, 9), dtype)
        i = Spec(shape, "int64", integers(0, 17))
        yield Case(f"embedding-{dtype}-{label(shape)}", ("embedding",), ("index_select", "index_add"), (i, rows), lambda pf, i, w: pf.embedding(i, w), lambda i, w: w[i], grad=(1,) if g else (), out=dtype)
        yield Case(f"sort-stable-{dtype}-{label(shape)}", ("sort",), ("sort",), (Spec(shape, dtype, integers(0, 4)),), lambda pf, x: tuple(pf.sort(x)),
                   lambda x: _sort(x, -1, False) if x.ndim else (x, np.zeros((), np.int64)), out=(dtype, "int64"))
    bags, sums = Spec((5,), "int64", lambda rng, shape: np.array([0, 3, 3, 10, 31])), lambda i, o, w: np.stack([w[i[a:b]].sum(0) for a, b in zip(o, [*o[1:], len(i)])])
    if dtype in FLOATS:
        for width in (3, 70):
            yield Case(f"embedding_bag-{dtype}-{width}", ("embedding_bag",), ("embedding_bag",), (Spec((31,), "int64", integers(0, 17)), bags, Spec((17, width), dtype)),
                       lambda pf, i, o, w: pf.nn.functional.embedding_bag(i, w, o, mode="sum"), sums, magnitude=lambda i, o, w: sums(i, o, np.abs(w)), grad=(2,), c=1, length=21, out=dtype, own_values=True)
    yield Case(f"embedding-int32-{dtype}", ("embedding",), ("index_select", "cast"), (Spec((5,), "int32", integers(0, 17)), Spec((17, 9), dtype)), lambda pf, i, w: pf.embedding(i, w), lambda i, w: w[i], grad=(1,) if g else (),
               out=dtype)
    yield Case(f"take_along_dim-flat-{dtype}", ("take_along_dim",), ("gather",), (Spec((9, 11), dtype), Spec((3, 4), "int64", integers(0, 99))), lambda pf, x, i: pf.take_along_dim(x, i),
               lambda x, i: x.reshape(-1)[i.reshape(-1)], grad=g)
    yield Case(f"take_along_dim-broadcast-{dtype}", ("take_along_dim",), ("gather",), (Spec((9, 11), dtype), Spec((1, 4), "int64", integers(0, 11))), lambda pf, x, i: pf.take_along_dim(x, i, 1), lambda x, i: x[:, i[0]], grad=g)
    for name in ("tril", "triu"):
        f = getattr(np, name)
        for shape in ((31, 33), (2, 5, 4), (1, 1), (3, 0)):
            for k in (0, 2, -3):
                yield Case(f"{name}-{dtype}-{label(shape)}-{k}", (name,), ("arange", "where"), (Spec(shape, dtype),), lambda pf, x, n=name, k=k: getattr(pf, n)(x, k), lambda x, f=f, k=k: f(x, k), grad=g)


def _combining(dtype):
    """scatter and index_put in each of their ways. Factors are small, so that products stay exact."""
    values = integers(-2, 3) if dtype != "uint8" else integers(0, 4)
    g = (0, 2) if dtype in FLOATS else ()
    for dim in (0, 1):
        x, few, src = Spec((9, 10), dtype, distinct if dtype in FLOATS else values), Spec((5, 7), "int64", integers(0, 4)), Spec((5, 7), dtype, values)
        # Which of several values counts is not differentiable, so replacements go to different places.
        apart = Spec((5, 7), "int64", lambda rng, shape, d=dim: np.argsort(rng.random(shape), axis=d))
        rows, slices = Spec((6,), "int64", integers(0, 9)), Spec((6, 10) if dim == 0 else (9, 6), dtype, values)
        places = Spec((6,), "int64", lambda rng, shape: rng.permutation(9)[:6])
        for how in _COMBINE:
            name = "scatter" if how == "replace" else "scatter_reduce"
            call = (lambda pf, x, i, s, d=dim: pf.scatter(x, d, i, s)) if how == "replace" else lambda pf, x, i, s, d=dim, h=how: pf.scatter_reduce(x, d, i, s, h)
            smooth = g if how in ("replace", "sum") else ()  # the others are not differentiable at ties and zeros
            twice = how in ("replace", "sum")
            yield Case(f"{name}-{dtype}-{dim}-{how}", (name,), ("scatter",), (x, apart if how == "replace" else few, src), call, lambda x, i, s, d=dim, h=how: _scatter(x, d, i, s, h), grad=smooth, twice=twice, own_values=how == "replace")
            call = (lambda pf, x, i, s, d=dim: pf.index_copy(x, d, i, s)) if how == "replace" else lambda pf, x, i, s, d=dim, h=how: pf.index_reduce(x, d, i, s, h)
            if how != "sum":
                yield Case(f"index_put-{dtype}-{dim}-{how}", ("index_copy" if how == "replace" else "index_reduce",), ("index_put",), (x, places if how == "replace" else rows, slices), call,
                           lambda x, i, s, d=dim, h=how: _put_slices(x, d, i, s, h), grad=smooth, twice=twice, own_values=how == "replace")
        pick = (lambda pf, x, i, s: pf.index_put(x, (i,), s, True)) if dim == 0 else lambda pf, x, i, s: pf.index_put(x.t(), (i,), s.t(), True).t()
        yield Case(f"index_put-{dtype}-{dim}-sum", ("index_put",), ("index_put",), (x, rows, slices), pick, lambda x, i, s, d=dim: _put_slices(x, d, i, s, "sum"), grad=g)
        yield Case(f"scatter_-{dtype}-{dim}", ("scatter_",), ("scatter",), (x, apart, src), lambda pf, x, i, s, d=dim: pf.clone(x).scatter_(d, i, s), lambda x, i, s, d=dim: _scatter(x, d, i, s, "replace"),
                   grad=g, own_values=True)
        yield Case(f"index_copy_-{dtype}-{dim}", ("index_copy_",), ("index_put",), (x, places, slices), lambda pf, x, i, s, d=dim: pf.clone(x).index_copy_(d, i, s), lambda x, i, s, d=dim: _put_slices(x, d, i, s, "replace"),
                   grad=g, own_values=True)
    yield Case(f"index_put_-{dtype}", ("index_put_",), ("index_put",), (Spec((9, 10), dtype, values), Spec((6,), "int64", integers(0, 9)), Spec((6, 10), dtype, values)),
               lambda pf, x, i, s: pf.clone(x).index_put_((i,), s, True), lambda x, i, s: _put_slices(x, 0, i, s, "sum"), grad=g)
    yield Case(f"index-{dtype}", ("index",), ("index_select",), (Spec((7, 4, 5), dtype, values), Spec((6, 1), "int64", integers(-7, 7)), Spec((3,), "int64", integers(0, 5))),
               lambda pf, x, i, j: x[i, :, j], lambda x, i, j: x[i, :, j], grad=g[:1])
    mask, line = Spec((70,), "bool"), Spec((33,), dtype, lambda rng, shape: np.sort(values(rng, shape)))
    yield Case(f"nonzero-{dtype}", ("nonzero",), ("nonzero",), (Spec((9, 11), dtype, values),), lambda pf, x: pf.nonzero(x), lambda x: np.argwhere(x), out="int64")
    yield Case(f"nonzero_static-{dtype}", ("nonzero_static",), ("nonzero",), (Spec((4,), dtype, values),), lambda pf, x: pf.nonzero_static(x, size=6), lambda x: np.concatenate([np.argwhere(x), np.full((6, 1), -1)])[:6],
               out="int64")
    yield Case(f"masked_select-{dtype}", ("masked_select",), ("nonzero", "index_select"), (Spec((70,), dtype), mask), lambda pf, x, m: pf.masked_select(x, m), lambda x, m: x[m], grad=g[:1], layouts=False)
    for right in (False, True):
        yield Case(f"searchsorted-{dtype}-{right}", ("searchsorted",), ("searchsorted",), (line, Spec((5, 7), dtype, values)), lambda pf, a, v, r=right: pf.searchsorted(a, v, right=r),
                   lambda a, v, r=right: np.searchsorted(a, v, "right" if r else "left"), out="int64", layouts=False)
        yield Case(f"searchsorted-rows-{dtype}-{right}", ("searchsorted",), ("searchsorted",), (Spec((3, 33), dtype, lambda rng, shape: np.sort(values(rng, shape))), Spec((3, 40), dtype, values)),
                   lambda pf, a, v, r=right: pf.searchsorted(a, v, right=r), lambda a, v, r=right: np.stack([np.searchsorted(x, y, "right" if r else "left") for x, y in zip(a, v)]), out="int64", layouts=False)


def _others():
    for dtype in ("int64", "bool"):
        x = Spec((300,), dtype, integers(0, 5) if dtype != "bool" else None)
        yield Case(f"unique-{dtype}", ("unique",), ("sort", "nonzero", "index_select"), (x,), lambda pf, x: tuple(pf.unique(x, return_inverse=True, return_counts=True)),
                   lambda x: np.unique(x, return_inverse=True, return_counts=True), out=(dtype, "int64", "int64"), layouts=False)
        yield Case(f"sort-{dtype}-equal", ("sort",), ("sort",), (x,), lambda pf, x: tuple(pf.sort(x)), lambda x: _sort(x.astype(np.int64), -1, False), out=(dtype, "int64"))
    yield Case("msort", ("msort",), ("sort",), (Spec((31, 5)),), lambda pf, x: pf.msort(x), lambda x: np.sort(x, 0), grad=(0,))
    yield Case("tril-bool", ("tril",), ("arange", "where"), (Spec((5, 6), "bool"),), lambda pf, x: pf.tril(x), lambda x: np.tril(x))
    yield Case("one_hot", ("one_hot",), ("eq",), (Spec((5, 7), "int64", integers(0, 9)),), lambda pf, i: pf.one_hot(i, 9), lambda i: (i[..., None] == np.arange(9)).astype(np.int64))
    yield Case("one_hot-read", ("one_hot",), ("eq",), (Spec((65,), "int64", integers(0, 9)),), lambda pf, i: pf.one_hot(i), lambda i: (i[..., None] == np.arange(i.max() + 1)).astype(np.int64))
    yield Case("embedding-padding", ("embedding",), ("index_select", "index_add", "where"), (Spec((31,), "int64", integers(0, 4)), Spec((4, 3))), lambda pf, i, w: pf.embedding(i, w, padding_idx=2), lambda i, w: w[i],
               out="float32", check=_padding_has_no_gradient)


def _padding_has_no_gradient(pf, outputs, arrays):
    i, w = pf.tensor(arrays[0]), pf.tensor(arrays[1], dtype="float32", requires_grad=True)
    pf.embedding(i, w, padding_idx=-2).sum().backward()
    counts = np.bincount(arrays[0], minlength=4)
    counts[2] = 0
    np.testing.assert_array_equal(w.grad.numpy(), np.repeat(counts[:, None], 3, axis=1))


def _bin_sums(values, weights, scale, divide, start, bins):
    at = values / scale if divide else values * scale
    with np.errstate(invalid="ignore"):
        good = (np.abs(at) < 2.0**50) & (weights >= 0) & (weights < np.inf)
    bin = np.rint(at[good]).astype(np.int64)
    sums = np.zeros(bins, weights.dtype)
    inside = (bin >= start) & (bin < start + bins)
    np.add.at(sums, bin[inside] - start, weights[good][inside])
    most = int(weights[good].max(initial=0)) if weights.dtype.kind == "i" else 0
    return sums, np.array([bin.min(initial=2**63 - 1), bin.max(initial=-(2**63)), most, int((~good).sum())])


def _binned():
    far = lambda rng, shape: np.where(rng.random(shape) < 0.02, 1e7, np.round(rng.standard_normal(shape) * 30, 1))  # noqa: E731
    runs = lambda rng, shape: np.cumsum(rng.integers(-1, 2, shape)) * 0.25  # noqa: E731
    slow = lambda rng, shape: np.cumsum(rng.random(shape) < 0.02) * 0.25  # noqa: E731
    halves = lambda rng, shape: rng.integers(-90, 90, shape) / 2  # noqa: E731
    spoiled = lambda rng, shape: np.where(rng.random(shape) < 0.01, rng.choice([np.nan, np.inf, -np.inf, 1e300, 2.0**50], shape), halves(rng, shape))  # noqa: E731
    few, many = integers(0, 1000), integers(0, 2**40)
    owed = lambda rng, shape: rng.integers(-3, 1000, shape)  # noqa: E731
    holes = lambda rng, shape: np.where(rng.random(shape) < 0.01, rng.choice([np.nan, np.inf, -1.0], shape), rng.random(shape))  # noqa: E731
    # name, n, values, (their dtype), weights, (their dtype), scale, divide, start, bins
    table = [
        ("shared", 5000, far, "float64", few, "int64", 10.0, False, -600, 1200),
        ("runs", 3001, runs, "float64", many, "int64", 4.0, False, -200, 400),
        ("slow", 9001, slow, "float64", few, "int64", 4.0, False, -10, 400),
        ("slow-many", 4099, slow, "float64", many, "int64", 4.0, False, -10, 60),
        ("slow-global", 9001, slow, "float32", few, "int32", 4.0, False, -10, 40000),
        ("halves", 700, halves, "float64", few, "int64", 1.0, False, -45, 91),
        ("divided", 1000, far, "float64", few, "int32", 0.3, True, -400, 800),
        ("global", 3000, far, "float64", many, "int64", 100.0, False, -20000, 40000),
        ("global-float32", 3000, far, "float32", few, "int32", 100.0, False, -20000, 40000),
        ("beside", 100, halves, "float64", few, "int64", 1.0, False, 1000, 3),
        ("one", 1, halves, "float32", few, "int64", 1.0, False, -45, 91),
        ("none", 0, halves, "float64", few, "int64", 1.0, False, -45, 91),
        ("bad-values", 2000, spoiled, "float64", few, "int64", 1.0, False, -45, 91),
        ("bad-weights", 2000, halves, "float64", owed, "int64", 1.0, False, -45, 91),
        ("bad-float-weights", 2000, halves, "float64", holes, "float64", 1.0, False, -45, 91),
        ("floats", 5000, far, "float64", positive, "float64", 10.0, False, -600, 1200),
        ("floats-divided", 4999, runs, "float64", unit, "float64", 0.25, True, -200, 400),
        ("floats-of-32", 1000, far, "float32", unit, "float32", 10.0, False, -600, 1200),
    ]
    for name, n, values, of, weights, by, *window in table:
        floats = by.startswith("float")
        yield Case(f"bin_sums-{name}", ("finance.VolumeProfileAnalyzer",), ("bin_sums",), (Spec((n,), of, values), Spec((n,), by, weights)), lambda pf, x, w, at=window: pf._C._bin_sums(x, w, *at),
                   lambda x, w, at=window: _bin_sums(x, w, *at), c=2.0 if floats else 0.0, length=max(n, 1), out=("float64" if floats else "int64", "int64"), own_values=True)


def kept_weights(x, temperature, top_k, top_p, min_p):
    """The probability of each token relative to the likeliest, 0 for those that draw_tokens does not keep. x: logits, float64 (V,)."""
    w = np.exp((x - x.max()) / temperature)
    order = np.argsort(-x, kind="stable")
    order = order[: int(top_k) if 1 <= top_k < x.size else None]
    if top_p < 1:
        sums = np.cumsum(w[order])
        order = order[: int(np.searchsorted(sums, top_p * sums[-1])) + 1]
    kept = np.zeros(x.size)
    kept[order] = w[order]
    return np.where(w >= min_p, kept, 0)


def draw_tokens(logits, settings):
    """(ids, largest logits) of rows of finite logits."""
    ids = []
    for x, (temperature, *which, drawn) in zip(logits, settings):
        if temperature < 1e-30:
            ids.append(x.argmax())
        else:
            w = kept_weights(x, temperature, *which)
            ids.append(min(np.searchsorted(np.cumsum(w), drawn * w.sum(), side="right"), np.flatnonzero(w)[-1]))
    return np.array(ids, np.int64), logits.max(1, initial=-np.inf)


def _draws():
    def settings(rng, shape):
        n = shape[0]
        columns = rng.choice([0, 0.5, 1, 1.7], n), rng.choice([0, 1, 5, 50, 1000], n), rng.choice([1, 0.93, 0.51, 0.07], n), rng.choice([0, 0.04, 0.3], n), rng.random(n)
        return np.stack(columns, 1)

    for name, shape, values in (("normal", (12, 650), normal), ("ties", (12, 300), lambda rng, shape: np.round(normal(rng, shape))), ("equal", (9, 70), lambda rng, shape: np.full(shape, 1.5)),
                                ("close", (9, 2100), lambda rng, shape: 100 + rng.standard_normal(shape) / 64), ("one", (3, 1), normal), ("none", (0, 5), normal)):
        yield Case(f"draw_tokens-{name}", ("draw_tokens",), ("draw_tokens",), (Spec(shape, "float32", values), Spec((shape[0], 5), "float32", settings)),
                   lambda pf, *x: pf._C._draw_tokens(*x), draw_tokens, out=("int64", "float32"), own_values=True)


def cases():
    combining = [case for dtype in (*FLOATS, *INTS) for case in _combining(dtype)]
    return [case for dtype in (*FLOATS, "int64") for case in _per_dtype(dtype)] + combining + list(_others()) + list(_binned()) + list(_draws())
