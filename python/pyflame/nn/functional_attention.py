"""Multi-head attention as a function. nn.functional has multi_head_attention_forward; the layer calls attend, too."""
from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .. import _C
from ._arguments import _tensor

TYPE_CHECKING = False  # type checkers take this name as true
if TYPE_CHECKING:
    from .._C import Tensor


@dataclass
class Projections:
    """The parameters of multi-head attention: one packed matrix for q, k and v, or one for each."""

    packed: Any = None
    separate: Any = (None, None, None)
    bias: Any = None  # [3 E]
    bias_k: Any = None  # [1, 1, E]: one more key
    bias_v: Any = None  # and its value
    out_weight: Any = None
    out_bias: Any = None


@dataclass
class Masks:
    """What may not be seen: True in bool masks; float masks are added to the scores."""

    attn: Any = None
    padding: Any = None
    causal: bool = False


def later_keys(queries, keys, device):
    """True where a key comes after the query."""
    return _C.triu(_C.ones(queries, keys, device=device), 1).bool()


def _as_additive(mask, dtype):
    """Converts a bool mask, in which True hides, to a mask that is added to the scores."""
    return _C.zeros(mask.shape, dtype=dtype, device=mask.device).masked_fill(mask, float("-inf"))


def _project(q, k, v, e, p):
    w, b = p.packed, p.bias
    if w is not None and q.is_same(k) and k.is_same(v):
        qkv = _C.linear(q, w, b)
        return qkv.narrow(2, 0, e), qkv.narrow(2, e, e), qkv.narrow(2, 2 * e, e)
    weights = p.separate if w is None else tuple(w.narrow(0, i * e, e) for i in range(3))
    return tuple(_C.linear(x, weights[i], None if b is None else b.narrow(0, i * e, e)) for i, x in enumerate((q, k, v)))


def _check(op, query, key, value, embed_dim):
    for name, x in (("query", query), ("key", key), ("value", value)):
        if x.ndim != 3:
            raise ValueError(f"{op}: {name} must have 2 or 3 dimensions, as the others; got shape {x.shape}")
    if query.shape[2] != embed_dim:
        raise ValueError(f"{op}: the last size of query does not fit; got {query.shape[2]}; expected {embed_dim}")


def _mask_parts(op, masks, b, h, t, s, added):
    """The masks, each broadcasting to [B, H, T, S + added]; what was added may be seen by all."""
    parts, attn, padding = [], masks.attn, masks.padding
    for name, mask in (("attn_mask", attn), ("key_padding_mask", padding)):
        if mask is not None:
            _tensor(op, name, mask)
        if mask is not None and mask.dtype != _C.bool_ and not mask.is_floating_point():
            raise RuntimeError(f"{op}: {name} is no mask; got {mask.dtype}; expected bool or a float dtype; hint: mask.bool(), where True hides a position")
    if attn is not None:
        if attn.shape == (t, s):
            attn = attn.view(1, 1, t, s)
        elif attn.shape == (b * h, t, s):
            attn = attn.view(b, h, t, s)
        else:
            raise ValueError(f"{op}: attn_mask does not fit; got shape {attn.shape}; expected {(t, s)} or {(b * h, t, s)}")
        parts.append(attn)
    if padding is not None:
        if padding.shape != (b, s):
            raise ValueError(f"{op}: key_padding_mask does not fit; got shape {padding.shape}; expected {(b, s)}")
        parts.append(padding.view(b, 1, 1, s))
    return parts if not added else [_C.cat([m, _C.zeros(*m.shape[:3], added, dtype=m.dtype, device=m.device)], 3) for m in parts]


def _combined(parts, query):
    total = None
    for m in parts:
        if m.dtype == _C.bool_:
            m = _as_additive(m, query.dtype)
        elif m.dtype == _C.float32:  # as PyTorch, whatever the dtype of the query is
            m = m.to(query.dtype)
        total = m if total is None else total + m
    return total


def attend(op, query, key, value, heads, p, masks, dropout_p=0.0, need_weights=True, average_attn_weights=True, batch_first=False, add_zero_attn=False):
    """(output, weights or None) of [T, B, E] inputs, or [B, T, E] with batch_first; without a batch, two dims."""
    for name, x in (("query", query), ("key", key), ("value", value)):
        _tensor(op, name, x)
    single = query.ndim == 2
    if single:
        at = 0 if batch_first else 1
        same = query.is_same(key), key.is_same(value)
        query = query.unsqueeze(at)
        key = query if same[0] else key.unsqueeze(at)
        value = key if same[1] else value.unsqueeze(at)
        masks = Masks(masks.attn, None if masks.padding is None else masks.padding.unsqueeze(0), masks.causal)
    embed_dim = p.out_weight.shape[1]
    _check(op, query, key, value, embed_dim)
    batch, seq = (0, 1) if batch_first else (1, 0)
    if key.shape[:2] != value.shape[:2] or key.shape[batch] != query.shape[batch]:
        raise ValueError(f"{op}: keys and values do not fit; got query {tuple(query.shape)}, key {tuple(key.shape)} and value {tuple(value.shape)}; "
                         "expected keys and values of one length, and one batch for all")  # fmt: skip
    b, t, s, d = query.shape[batch], query.shape[seq], key.shape[seq], embed_dim // heads
    q, k, v = _project(query, key, value, embed_dim, p)

    def with_row(x, row):
        return _C.cat([x, row.to(x.dtype).expand(*(b if i == batch else 1 if i == seq else embed_dim for i in range(3)))], seq)

    added = (p.bias_k is not None) + bool(add_zero_attn)
    if p.bias_k is not None:
        k, v = with_row(k, p.bias_k), with_row(v, p.bias_v)
    if add_zero_attn:
        zero = _C.zeros(1, 1, embed_dim, dtype=k.dtype, device=k.device)
        k, v = with_row(k, zero), with_row(v, zero)
    if masks.causal and masks.padding is None and not need_weights:
        masks = Masks(causal=True)  # the fast kernel hides the same
    parts = _mask_parts(op, masks, b, heads, t, s, added)
    if masks.causal and masks.attn is None and masks.padding is not None:
        parts += _mask_parts(op, Masks(later_keys(t, s, query.device)), b, heads, t, s, added)
    mask = _combined(parts, query)
    causal = masks.causal and mask is None

    def split(x):
        x = x.view(x.shape[0], x.shape[1], heads, d)
        return x.permute(0, 2, 1, 3) if batch_first else x.permute(1, 2, 0, 3)

    q, k, v = split(q), split(k), split(v)
    weights = None
    if need_weights:
        scores = _C.matmul(q, k.transpose(-2, -1)) * (d**-0.5)
        if causal:
            mask = _as_additive(later_keys(t, s + added, query.device), query.dtype)
        weights = _C.softmax(scores if mask is None else scores + mask, -1)
        if dropout_p > 0:
            weights = _C.dropout(weights, dropout_p, True)
        a = _C.matmul(weights, v)
        if average_attn_weights:
            weights = weights.mean(1)
        weights = weights.squeeze(0) if single else weights
    else:
        a = _C.scaled_dot_product_attention(q, k, v, mask, dropout_p, causal)
    a = a.permute(0, 2, 1, 3) if batch_first else a.permute(2, 0, 1, 3)
    y = _C.linear(a.reshape(query.shape[0], query.shape[1], embed_dim), p.out_weight, p.out_bias)
    return (y.squeeze(batch) if single else y), weights


def multi_head_attention_forward(query: Tensor, key: Tensor, value: Tensor, embed_dim_to_check: int, num_heads: int, in_proj_weight: Tensor | None,
                                 in_proj_bias: Tensor | None, bias_k: Tensor | None, bias_v: Tensor | None, add_zero_attn: bool, dropout_p: float,
                                 out_proj_weight: Tensor, out_proj_bias: Tensor | None, training: bool = True, key_padding_mask: Tensor | None = None,
                                 need_weights: bool = True, attn_mask: Tensor | None = None, use_separate_proj_weight: bool = False,
                                 q_proj_weight: Tensor | None = None, k_proj_weight: Tensor | None = None, v_proj_weight: Tensor | None = None,
                                 static_k: None = None, static_v: None = None, average_attn_weights: bool = True,
                                 is_causal: bool = False) -> tuple[Tensor, Tensor | None]:
    """(output, weights) of multi-head attention: query [T, N, E], key [S, N, Ek], value [S, N, Ev], or without N. weights [N, T, S] are None without
    need_weights, which is faster. True in a bool attn_mask or key_padding_mask [N, S] hides; float masks are added. is_causal says that attn_mask hides
    the later keys.

    embed_dim_to_check: E, at least 1, which num_heads divides (ValueError). in_proj_weight [3 E, E] and in_proj_bias [3 E] are for query, key and value; with
    use_separate_proj_weight, q_proj_weight, k_proj_weight and v_proj_weight are used in place of in_proj_weight. bias_k, bias_v: an entry that is
    added to the keys and the values, or None. add_zero_attn: so are zeros. out_proj_weight [E, E] (a ValueError for other columns), out_proj_bias [E]: of the output. dropout_p: the
    probability of zeros in the weights, if training. average_attn_weights: weights are the mean over the heads. static_k and static_v are refused
    (NotImplementedError).
    """
    op = "multi_head_attention_forward"
    if static_k is not None or static_v is not None:
        raise NotImplementedError(f"{op}: static_k and static_v are not available; expected None; hint: scaled_dot_product_attention")
    if query.shape[-1] != embed_dim_to_check or embed_dim_to_check < 1 or num_heads < 1 or embed_dim_to_check % num_heads:
        raise ValueError(f"{op}: sizes do not fit; got query {tuple(query.shape)}, embed_dim {embed_dim_to_check} and {num_heads} heads; expected a last size of embed_dim, at least 1, which the heads divide")
    if out_proj_weight.ndim != 2 or out_proj_weight.shape[1] != embed_dim_to_check:
        raise ValueError(f"{op}: out_proj_weight does not fit; got shape {tuple(out_proj_weight.shape)}; expected a matrix with {embed_dim_to_check} columns")
    if is_causal and attn_mask is None:
        raise RuntimeError(f"{op}: is_causal without attn_mask; expected the mask; hint: Transformer.generate_square_subsequent_mask")
    separate = (q_proj_weight, k_proj_weight, v_proj_weight) if use_separate_proj_weight else (None,) * 3
    p = Projections(None if use_separate_proj_weight else in_proj_weight, separate, in_proj_bias, bias_k, bias_v, out_proj_weight, out_proj_bias)
    masks = Masks(attn_mask, key_padding_mask, is_causal)
    return attend(op, query, key, value, num_heads, p, masks, dropout_p if training else 0.0, need_weights, average_attn_weights, False, add_zero_attn)
