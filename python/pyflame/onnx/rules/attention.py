"""Rules of attention and rotary embeddings."""
import math

import pyflame as pf
from pyflame.nn import functional as F

from ..table import op
from ..values import dtype_of


class _Heads:
    """Attention's inputs with heads: [batch, heads, length, size]."""

    def __init__(self, node, q, k, v, past_k, past_v):
        self.flat = q.dim() == 3
        if self.flat:
            q, k, v = _split(q, node.attr("q_num_heads")), _split(k, node.attr("kv_num_heads")), _split(v, node.attr("kv_num_heads"))
        self.past = 0 if past_k is None else past_k.shape[2]
        if past_k is not None:
            k, v = pf.cat([past_k, k], 2), pf.cat([past_v, v], 2)
        self.present = k, v
        groups = q.shape[1] // k.shape[1]
        if groups > 1:
            k, v = k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1)
        self.q, self.k, self.v = q, k, v


def _split(x, heads):
    n, length, width = x.shape
    return x.reshape(n, length, heads, width // heads).transpose(1, 2)


def _bias(h, mask, causal, lengths, dtype):
    """What is added to the scores: the mask, minus infinity where a key comes later or is beyond its length."""
    queries, keys = h.q.shape[2], h.k.shape[2]
    lowest, bias = pf.full((), -float("inf"), dtype=dtype, device=h.q.device), None
    zero = pf.zeros((), dtype=dtype, device=h.q.device)
    if mask is not None:
        bias = pf.where(mask, zero, lowest) if mask.dtype == pf.bool else mask.to(dtype=dtype)
        if bias.shape[-1] < keys:
            bias = F.pad(bias, [0, keys - bias.shape[-1]], value=-float("inf"))
    place = pf.arange(keys, device=h.q.device)
    if lengths is not None:
        lengths = lengths.reshape(-1, 1, 1, 1)
        kept = pf.where(place < lengths, zero, lowest)
        bias = kept if bias is None else bias + kept
    if causal:
        first = h.past if lengths is None else lengths - queries
        row = pf.arange(queries, device=h.q.device).unsqueeze(1) + first
        kept = pf.where(place <= row, zero, lowest)
        bias = kept if bias is None else bias + kept
    return bias


def _weights(scores, precision):
    """The softmax of each row; a row that sees nothing is zero."""
    dtype = scores.dtype
    scores = scores if not precision else scores.to(dtype=dtype_of(precision))
    top = pf.amax(scores, [-1], True)
    blind = top == -float("inf")
    rows = pf.softmax(pf.where(blind, pf.zeros_like(scores), scores), -1)
    return pf.where(blind, pf.zeros_like(rows), rows).to(dtype=dtype)


_ATTRIBUTES = {"is_causal", "softcap", "qk_matmul_output_mode", "scale", "softmax_precision", "q_num_heads", "kv_num_heads"}


@op("Attention", since=23)
def attention(node):
    if set(node.attrs) - _ATTRIBUTES:
        raise NotImplementedError(f"Attention: attributes without a rule; got {sorted(set(node.attrs) - _ATTRIBUTES)}; expected {sorted(_ATTRIBUTES)}")
    causal, cap, mode = node.attr("is_causal", 0), node.attr("softcap", 0.0), node.attr("qk_matmul_output_mode", 0)
    given, precision, outputs = node.attr("scale"), node.attr("softmax_precision"), len(node.outputs)
    with_scores = outputs > 3 and bool(node.outputs[3])

    def run(q, k, v, mask=None, past_k=None, past_v=None, lengths=None):
        h = _Heads(node, q, k, v, past_k, past_v)
        scale = given or 1 / math.sqrt(h.q.shape[-1])
        scores = None
        if mask is None and not cap and not with_scores and lengths is None and (not causal or not h.past and h.q.shape[2] == h.k.shape[2]):
            y = F.scaled_dot_product_attention(h.q, h.k, h.v, is_causal=bool(causal), scale=scale)
        else:
            y, scores = explicit(h, scale, mask, lengths)
        if h.flat:
            n, heads, length, size = y.shape
            y = y.transpose(1, 2).reshape(n, length, heads * size)
        return (y, *h.present, scores)[:outputs] if outputs > 1 else y

    def explicit(h, scale, mask, lengths):
        root = math.sqrt(scale)
        scores = pf.matmul(h.q * root, (h.k * root).transpose(-1, -2))
        capped = scores if not cap else cap * pf.tanh(scores / cap)
        bias = _bias(h, mask, causal, lengths, scores.dtype)
        biased = capped if bias is None else capped + bias
        weights = _weights(biased, precision)
        return pf.matmul(weights, h.v), (scores, capped, biased, weights)[mode]

    return run


def _rotated(x, cos, sin, interleaved):
    half = cos.shape[-1]
    if interleaved:
        pairs = x.reshape(tuple(x.shape)[:-1] + (half, 2))
        a, b = pairs.select(-1, 0), pairs.select(-1, 1)
        return pf.stack([a * cos - b * sin, b * cos + a * sin], -1).reshape(tuple(x.shape))
    a, b = x.narrow(-1, 0, half), x.narrow(-1, half, half)
    return pf.cat([a * cos - b * sin, b * cos + a * sin], -1)


@op("RotaryEmbedding", since=23)
def rotary(node):
    interleaved, heads, dim = node.attr("interleaved", 0), node.attr("num_heads", 0), node.attr("rotary_embedding_dim", 0)

    def run(x, cos, sin, places=None):
        flat = x.dim() == 3
        y = _split(x, heads) if flat else x
        if places is not None:
            shape = tuple(places.shape)
            cos, sin = (t.index_select(0, places.reshape(-1).to(dtype=pf.int64)).reshape(shape + (t.shape[-1],)) for t in (cos, sin))
        cos, sin = cos.unsqueeze(1), sin.unsqueeze(1)
        width = y.shape[-1]
        used = dim or width
        cos, sin = cos.narrow(-1, 0, used // 2), sin.narrow(-1, 0, used // 2)
        rotated = _rotated(y.narrow(-1, 0, used), cos, sin, interleaved)
        y = rotated if used == width else pf.cat([rotated, y.narrow(-1, used, width - used)], -1)
        return y.transpose(1, 2).reshape(tuple(x.shape)) if flat else y

    return run
