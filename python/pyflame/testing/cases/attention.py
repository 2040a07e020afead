"""Attention: causal, masks, grouped heads, a filling cache, unequal lengths."""

import numpy as np

from ..tolerance import EPS
from . import FLOATS, Case, Spec, booleans, literal


def attention(q, k, v, mask=None, scale=None, causal=False, kv_length=None):
    """By rows, in the shape [..., H, T, D]; keys' heads are repeated for groups."""
    if q.ndim > 2 and k.shape[-3] != q.shape[-3]:
        k, v = (np.repeat(t, q.shape[-3] // t.shape[-3], axis=-3) for t in (k, v))
    t, s = q.shape[-2], k.shape[-2]
    scores = (q @ np.swapaxes(k, -1, -2)) * (1 / np.sqrt(q.shape[-1]) if scale is None else scale)
    seen = np.ones((t, s), bool)
    shift = 0
    if kv_length is not None:
        seen &= np.arange(s)[None] < kv_length
        shift = kv_length - t
    if causal:
        seen &= np.arange(s)[None] <= np.arange(t)[:, None] + shift
    if mask is not None and mask.dtype == bool:
        seen = seen & mask
    elif mask is not None:
        scores = scores + mask
    scores = np.where(seen, scores, -np.inf)
    top = scores.max(axis=-1, keepdims=True)
    e = np.exp(scores - np.where(np.isfinite(top), top, 0))
    total = e.sum(axis=-1, keepdims=True)
    return np.where(total > 0, e / np.where(total > 0, total, 1), 0) @ v


def _mask(rng, shape):
    m = rng.random(shape) < 0.7
    m[..., 0] = True  # every row sees something
    return m


def padding(rng, shape):
    """Which keys each of four sequences has: the first ones, the last ones, none, and all but a hole in the middle."""
    keys, at = shape[-1], np.arange(shape[-1])
    return np.stack([at < keys // 3, at >= keys - 3, at < 0, (at < 7) | (at >= keys - keys // 4)]).reshape(shape)


def added_padding(rng, shape):
    return np.where(padding(rng, shape), 0, -np.inf)


SHAPES = (((2, 3, 7, 5), (2, 3, 7, 5)), ((1, 2, 33, 16), (1, 2, 65, 16)), ((2, 1, 1, 8), (2, 1, 31, 8)), ((3, 4, 8), (3, 4, 8)), ((2, 2, 3, 5, 4), (2, 2, 3, 5, 4)), ((1, 1, 1, 1), (1, 1, 1, 1)))


def plain(rng, shape):
    return rng.standard_normal(shape)


def size(q, k, v, *_):
    """The scores' rounding error, not the result's, sets the size: exp turns it into a relative one."""
    if k.ndim > 2 and k.shape[-3] != q.shape[-3]:
        k = np.repeat(k, q.shape[-3] // k.shape[-3], axis=-3)
    return (1 + (np.abs(q) @ np.swapaxes(np.abs(k), -1, -2)).max() / np.sqrt(q.shape[-1])) * np.abs(v).max()


def with_rounded_weights(reference, dtype):
    """Matrix units take the weights (softmax of the scores) in the values' own half type: one more rounding of each product."""
    more = EPS[dtype] / EPS["float32"]
    return lambda q, k, v, *mask: size(q, k, v) + more * reference(q, k, np.abs(v), *mask)


def _case(name, dtype, qs, ks, call, reference, extra=(), twice=True, **more):
    q, k, v = Spec(qs, dtype, plain), Spec(ks, dtype, plain), Spec(ks, dtype, plain)
    magnitude = with_rounded_weights(reference, dtype) if dtype in ("float16", "bfloat16") else size
    return Case(f"sdpa-{name}-{dtype}", ("scaled_dot_product_attention",), ("attention", "attention_grad"), (q, k, v, *extra), call, reference, grad=(0, 1, 2), c=2, magnitude=magnitude,
                fused_exact=False, twice=twice, flops=lambda q, k, *_: 4 * int(np.prod(q)) * k[-2], **more)


# Lengths of the queries and of the keys of each sequence.
PACKED = {
    "alike": ((5, 9, 1), (5, 9, 1)),
    "empty": ((0, 4, 0, 3, 0), (0, 4, 2, 3, 0)),  # the third has keys that nobody sees
    "no-keys": ((3, 2), (0, 4)),
    "many-short": ((1, 2, 3) * 15, (2, 1, 3) * 15),
    "one": ((37,), (37,)),
    "crossing": ((70, 1, 130), (70, 65, 131)),  # tiles' edges
    "longer-keys": ((3, 1, 6), (7, 9, 6)),
    "shorter-keys": ((7, 2), (3, 2)),  # causal: the first queries see nothing
}


def packed_attention(q, k, v, from_q, from_k, causal=False, scale=None):
    """Sequence by sequence, of [T, H, D]."""
    out = np.zeros(q.shape)
    heads = lambda x: np.swapaxes(x, 0, 1)  # noqa: E731
    for (a, b), (c, d) in zip(zip(from_q, from_q[1:]), zip(from_k, from_k[1:])):
        if b > a and d > c:
            out[a:b] = heads(attention(heads(q[a:b]), heads(k[c:d]), heads(v[c:d]), scale=scale, causal=causal, kv_length=d - c))
    return out


def _packed(name, dtype, lengths, causal=False, heads=(2, 2), dim=8, scale=None):
    from_q, from_k = (np.cumsum((0, *n)).astype(np.int32) for n in lengths)
    specs = [Spec((int(n[-1]), h, dim), dtype, plain) for n, h in ((from_q, heads[0]), (from_k, heads[1]), (from_k, heads[1]))]
    offsets = [Spec(n.shape, "int32", literal(n)) for n in (from_q, from_k)]
    reference = lambda q, k, v, a, b: packed_attention(q, k, v, a, b, causal, scale)  # noqa: E731

    def magnitude(q, k, v, a, b):
        return size(*(np.swapaxes(x, 0, 1) for x in (q, k, v))) + (EPS[dtype] / EPS["float32"] * packed_attention(q, k, np.abs(v), a, b, causal, scale) if dtype in ("float16", "bfloat16") else 0)

    longest = [max(n) for n in lengths]
    return Case(f"varlen-{name}-{'causal' if causal else 'full'}-{dtype}", ("varlen_attn",), ("varlen_attn", "varlen_attn_grad"), (*specs, *offsets),
                lambda pf, q, k, v, a, b: pf.nn.attention.varlen.varlen_attn(q, k, v, a, b, *longest, causal, scale=scale, enable_gqa=True), reference, grad=(0, 1, 2), c=2, magnitude=magnitude, fused_exact=False)


def packed_cases():
    out = []
    for dtype in FLOATS:
        for name, lengths in PACKED.items():
            for causal in (False, True):
                if dtype in ("float16", "bfloat16") if name == "crossing" else dtype == "float32" or name in ("empty", "many-short", "longer-keys"):
                    out.append(_packed(name, dtype, lengths, causal))
        out.append(_packed("grouped", dtype, PACKED["longer-keys"], True, (6, 2)))
        out.append(_packed("scale", dtype, PACKED["longer-keys"], True, scale=0.3))
        for dim in (32, 64, 100, 128, 256):
            out.append(_packed(f"head-{dim}", dtype, ((3, 0, 20), (5, 1, 20)), True, dim=dim))
    return out


def cases():
    out = packed_cases()
    for dtype in FLOATS:
        for i, (qs, ks) in enumerate(SHAPES if dtype in ("float32", "float64") else SHAPES[:2]):
            for causal in (False, True):
                out.append(_case(f"{i}-{'causal' if causal else 'full'}", dtype, qs, ks, lambda pf, q, k, v, c=causal: pf.scaled_dot_product_attention(q, k, v, is_causal=c),
                                 lambda q, k, v, c=causal: attention(q, k, v, causal=c)))
        qs, ks = (2, 4, 7, 8), (2, 4, 9, 8)
        bools, floats = Spec((7, 9), "bool", _mask), Spec((2, 1, 7, 9), dtype)
        masked = lambda pf, q, k, v, m: pf.scaled_dot_product_attention(q, k, v, m)  # noqa: E731
        out.append(_case("bool-mask", dtype, qs, ks, masked, attention, (bools,)))
        out.append(_case("float-mask", dtype, qs, ks, masked, attention, (floats,)))
        for name, qp, kp in (("", (4, 2, 9, 8), (4, 2, 150, 8)), ("-cache", (4, 2, 1, 8), (4, 1, 520, 8))):  # tiles without a key, also where keys are split
            for kind, spec in (("bool", Spec((4, 1, 1, kp[2]), "bool", padding)), ("float", Spec((4, 1, 1, kp[2]), dtype, added_padding))):
                if name == "" or dtype in ("float16", "bfloat16"):
                    out.append(_case(f"padding{name}-{kind}", dtype, qp, kp, lambda pf, q, k, v, m: pf.scaled_dot_product_attention(q, k, v, m, enable_gqa=True), attention, (spec,), twice=False))
        out.append(_case("scale", dtype, qs, ks, lambda pf, q, k, v: pf.scaled_dot_product_attention(q, k, v, scale=0.3), lambda q, k, v: attention(q, k, v, scale=0.3)))
        grouped = (2, 2, 9, 8)
        out.append(_case("grouped", dtype, qs, grouped, lambda pf, q, k, v: pf.scaled_dot_product_attention(q, k, v, enable_gqa=True), attention))
        out.append(_case("grouped-causal", dtype, (2, 4, 9, 8), grouped, lambda pf, q, k, v: pf.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True),
                         lambda q, k, v: attention(q, k, v, causal=True)))
        for length in (1, 5, 9):
            out.append(_case(f"cache-{length}", dtype, (2, 4, 1, 8), (2, 4, 9, 8), lambda pf, q, k, v, n=length: pf.scaled_dot_product_attention(q, k, v, is_causal=True, kv_length=n),
                             lambda q, k, v, n=length: attention(q, k, v, causal=True, kv_length=n)))
        out.append(_case("cache-full", dtype, (1, 2, 3, 8), (1, 2, 9, 8), lambda pf, q, k, v: pf.scaled_dot_product_attention(q, k, v, kv_length=6), lambda q, k, v: attention(q, k, v, kv_length=6)))
    # A mask that learns, and values of another width, take the composed path.
    q, k = Spec((2, 3, 5, 4), values=plain), Spec((2, 3, 6, 4), values=plain)
    composed = dict(c=2, fused_exact=False, magnitude=size)
    out.append(Case("sdpa-learned-mask", ("scaled_dot_product_attention",), (), (q, k, k, Spec((5, 6))), lambda pf, q, k, v, m: pf.scaled_dot_product_attention(q, k, v, m), attention, grad=(0, 1, 2, 3), **composed))
    out.append(Case("sdpa-wide-values", ("scaled_dot_product_attention",), (), (q, k, Spec((2, 3, 6, 9))), lambda pf, q, k, v: pf.scaled_dot_product_attention(q, k, v), attention, grad=(0, 1, 2), **composed))
    out.append(Case("sdpa-blind-rows", ("scaled_dot_product_attention",), ("attention",), (q, k, k, Spec((5, 6), "bool", lambda rng, s: booleans(rng, s) & (np.arange(5) != 2)[:, None])),
                    lambda pf, q, k, v, m: pf.scaled_dot_product_attention(q, k, v, m), attention, grad=(0, 1, 2), **composed))
    return out
