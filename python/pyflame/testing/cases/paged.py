"""Attention over pages: grouped heads, windows, soft caps, lengths around the sizes of pages and of the parts of keys, pages of 8 bits with scales."""

import numpy as np

from ..tolerance import EPS
from . import FLOATS, Case, Spec
from .attention import plain
from .float8 import FORMATS, encoded
from .float8 import table as values_of_codes


def paged_attention(q, keys, values, table, lengths, scale=None, window=None, softcap=None):
    """Sequence by sequence: q [S, H, D], keys and values [pages, P, Hk, D]."""
    out = np.zeros(q.shape)
    together = q.shape[1] // keys.shape[2]
    for s, n in enumerate(lengths):
        k, v = (np.repeat(x[table[s]].reshape(-1, *x.shape[2:])[max(0, n - window) if window else 0:n], together, axis=1) for x in (keys, values))
        if len(k):
            scores = np.einsum("hd,nhd->hn", q[s], k) * (q.shape[-1] ** -0.5 if scale is None else scale)
            scores = softcap * np.tanh(scores / softcap) if softcap else scores
            e = np.exp(scores - scores.max(-1, keepdims=True))
            out[s] = np.einsum("hn,nhd->hd", e / e.sum(-1, keepdims=True), v)
    return out


def _or_small(values, small):
    """These values; for a changed shape, numbers that fit whatever the other inputs have become."""
    return lambda rng, shape: values if tuple(shape) == values.shape else rng.integers(0, small + 1, shape)


def _pages(shape, dtype, stored):
    """(Spec of keys or values, that of their scales). Without `stored` they have no scales; float8 ones are codes."""
    if stored is None:
        return (Spec(shape, dtype, plain),)
    if stored == "int8":
        return Spec(shape, "int8", lambda rng, shape: rng.integers(-127, 128, shape)), Spec(shape[:-1], "float32", lambda rng, shape: (0.5 + rng.random(shape)) / 64)
    return Spec(shape, "uint8", lambda rng, shape: encoded(stored, plain(rng, shape))), Spec(shape[:-1], "float32", lambda rng, shape: 0.5 + rng.random(shape))


def _case(name, dtype, lengths, heads=(2, 2), dim=8, page=4, stored=None, **options):
    columns = max(1, -(-max(lengths) // page))
    order = np.random.default_rng(len(name)).permutation(len(lengths) * columns)
    table = order.reshape(len(lengths), columns)
    table = np.where(np.arange(columns) * page < np.array(lengths)[:, None], table, 0).astype(np.int32)
    cache, *scale = _pages((len(order), page, heads[1], dim), dtype, stored)
    inputs = (Spec((len(lengths), heads[0], dim), dtype, plain), cache, cache, Spec(table.shape, "int32", _or_small(table, 0)), Spec((len(lengths),), "int32", _or_small(np.array(lengths, np.int32), 1)), *scale, *scale)

    def decoded(x, scale):
        return (x if stored == "int8" else values_of_codes(stored)[x]) * scale[..., None]

    def floats(q, keys, values, table, lengths, *scales):
        return q, *((decoded(x, s) for x, s in zip((keys, values), scales)) if scales else (keys, values)), table, lengths

    def call(pf, q, keys, values, table, lengths, *scales):
        if scales:
            keys, values = (x.view(getattr(pf, stored)) for x in (keys, values))
        return pf.paged_attention(q, keys, values, table, lengths, **dict(zip(("key_scale", "value_scale"), scales)), **options)

    def magnitude(*x):
        q, keys, values, *where = floats(*x)
        largest = np.abs(q).sum(-1).max() * np.abs(keys).max() * (options.get("scale") or dim**-0.5)
        size = (1 + min(largest, dim**0.5 * 10)) * np.abs(values).max()
        if dtype not in ("float16", "bfloat16"):
            return size
        # Matrix cores take the weights in the values' own half type: one more rounding of each product.
        return size + EPS[dtype] / EPS["float32"] * paged_attention(q, keys, np.abs(values), *where, **options)

    return Case(f"paged-{name}-{dtype}", ("paged_attention",), ("paged_attention",), inputs, call,
                lambda *x: paged_attention(*floats(*x), **options), c=2, magnitude=magnitude, fused_exact=False)


def rotary_store(q, k, v, cos, sin, positions, slots, keys, values):
    """(q rotated, keys and values with the new rows). q [T, H, D], k and v [T, Hk, D], cos and sin [P, R], keys and values [N, Hk, D]."""

    def rotated(x):
        n = cos.shape[1]
        first, second = x[..., : n // 2], x[..., n // 2:n]
        part = x[..., :n] * cos[positions][:, None] + np.concatenate([-second, first], -1) * sin[positions][:, None]
        return np.concatenate([part, x[..., n:]], -1)

    keys, values, there = keys.copy(), values.copy(), slots >= 0
    keys[slots[there]], values[slots[there]] = rotated(k)[there], v[there]
    return rotated(q), keys, values


def _rotary_case(name, dtype, rows, heads, dim, turns, positions=11):
    rs = np.random.RandomState(len(name))
    at, slots = rs.randint(0, positions, rows), rs.permutation(rows + 3)[:rows]
    slots[rows // 2] = -1
    numbers = [Spec(x.shape, "int64", lambda rng, shape, x=x: x.astype(np.int64)) for x in (at, slots)]
    table, cache = Spec((positions, turns), dtype, plain), Spec((rows + 3, heads[1], dim), dtype, plain)
    inputs = (Spec((rows, heads[0], dim), dtype, plain), *(Spec((rows, heads[1], dim), dtype, plain),) * 2, table, table, *numbers, cache, cache)

    def call(pf, *x):
        keys, values = (c.clone(memory_format=pf.contiguous_format) for c in x[7:])
        return pf._C._rotary_store(*x[:7], keys, values), keys, values

    return Case(f"rotary-store-{name}-{dtype}", ("rotary_store",), ("rotary_store",), inputs, call, rotary_store, c=2, composed=True, own_values=True,
                magnitude=lambda q, k, v, cos, sin, *_: 2 * max(np.abs(x).max() for x in (q, k, v, *_[2:])) * max(1, np.abs(cos).max(), np.abs(sin).max()))


def cases():
    out = []
    for dtype in FLOATS:
        out.append(_rotary_case("whole-heads", dtype, 5, (4, 2), 32, 32))
        out.append(_rotary_case("a-part-of-them", dtype, 3, (3, 1), 20, 6))
        out.append(_case("lengths", dtype, (1, 4, 5, 0, 17)))
        out.append(_case("grouped", dtype, (9, 70, 131), (6, 2), 16))
        for stored in ("int8", *FORMATS):
            out.append(_case(stored, dtype, (9, 70, 131, 0), (6, 2), 16, stored=stored))
        if dtype in ("float32", "bfloat16"):
            out.append(_case("int8-window-softcap", dtype, (3, 64, 200), (4, 1), 5, 16, stored="int8", window=70, softcap=2.0))
            out.append(_case("one-head-of-keys", dtype, (3, 65), (9, 1), 24, 16))
            out.append(_case("window", dtype, (3, 64, 200), (4, 2), 16, 16, window=70))
            out.append(_case("short-window", dtype, (3, 64, 200), (2, 1), 8, 16, window=1))
            out.append(_case("softcap", dtype, (3, 70), (2, 1), 16, 8, softcap=2.0, scale=0.5))
            out.append(_case("many-heads", dtype, (200, 16), (20, 1), 16, 16))
            out.append(_case("page-of-one", dtype, (5, 3), page=1))
            for dim in (5, 40, 64, 128, 256):
                out.append(_case(f"head-{dim}", dtype, (66, 3), (2, 1), dim, 16))
    return out
