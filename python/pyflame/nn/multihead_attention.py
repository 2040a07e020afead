"""Multi-head attention."""
from .. import _C
from . import functional as F
from . import init
from ._arguments import _integers
from .linear import Linear
from .module import Module
from .parameter import Parameter


def _later_keys(queries, keys, device):
    """True where a key comes after the query."""
    return _C.triu(_C.ones(queries, keys, device=device), 1).bool()


def _as_additive(mask, dtype):
    """Converts a bool mask, in which True hides, to a mask that is added to the scores."""
    return _C.zeros(mask.shape, dtype=dtype, device=mask.device).masked_fill(mask, float("-inf"))


class MultiheadAttention(Module):
    """Multi-head attention with a packed input projection. Inputs are [B, T, E] with batch_first, otherwise [T, B, E].

    Masks: True in a bool attn_mask or key_padding_mask means "may not be seen" (as in PyTorch, and the opposite of
    scaled_dot_product_attention); a float attn_mask is added to the scores."""

    def __init__(self, embed_dim, num_heads, dropout=0.0, bias=True, batch_first=False, device=None, dtype=None):
        super().__init__()
        _integers("MultiheadAttention", embed_dim=embed_dim, num_heads=num_heads)
        if num_heads < 1 or embed_dim % num_heads:
            raise ValueError(f"MultiheadAttention: num_heads must divide embed_dim; got embed_dim {embed_dim}, num_heads {num_heads}")
        self.embed_dim, self.num_heads, self.dropout, self.batch_first = embed_dim, num_heads, dropout, batch_first
        self.head_dim = embed_dim // num_heads
        self.register_parameter("in_proj_weight", None)
        self.register_parameter("in_proj_bias", None)
        self.out_proj = Linear(embed_dim, embed_dim, bias, device=device, dtype=dtype)
        self.in_proj_weight = Parameter(_C.empty(3 * embed_dim, embed_dim, dtype=dtype, device=device))
        init.xavier_uniform_(self.in_proj_weight)
        if bias:
            self.in_proj_bias = Parameter(_C.zeros(3 * embed_dim, dtype=dtype, device=device))
            init.zeros_(self.out_proj.bias)

    def _project(self, query, key, value):
        e, w, b = self.embed_dim, self.in_proj_weight, self.in_proj_bias
        if query.is_same(key) and key.is_same(value):
            qkv = _C.linear(query, w, b)
            return qkv.narrow(2, 0, e), qkv.narrow(2, e, e), qkv.narrow(2, 2 * e, e)
        return tuple(
            _C.linear(x, w.narrow(0, i * e, e), None if b is None else b.narrow(0, i * e, e)) for i, x in enumerate((query, key, value))
        )

    def _mask(self, attn_mask, key_padding_mask, is_causal, b, t, s, query):
        """Combines the masks to one additive mask that broadcasts to [B, H, T, S], or None."""
        parts = []
        if attn_mask is not None:
            shape = attn_mask.shape
            if shape == (t, s):
                attn_mask = attn_mask.view(1, 1, t, s)
            elif shape == (b * self.num_heads, t, s):
                attn_mask = attn_mask.view(b, self.num_heads, t, s)
            else:
                raise ValueError(f"MultiheadAttention: attn_mask does not fit; got shape {shape}; expected {(t, s)} or {(b * self.num_heads, t, s)}")
            parts.append(attn_mask)
        if key_padding_mask is not None:
            if key_padding_mask.shape != (b, s):
                raise ValueError(f"MultiheadAttention: key_padding_mask does not fit; got shape {key_padding_mask.shape}; expected {(b, s)}")
            parts.append(key_padding_mask.view(b, 1, 1, s))
        if is_causal and parts:
            parts.append(_later_keys(t, s, query.device))
        total = None
        for m in parts:
            if m.dtype == _C.bool_:
                m = _as_additive(m, query.dtype)
            total = m if total is None else total + m
        return total

    def forward(self, query, key, value, key_padding_mask=None, need_weights=True, attn_mask=None, average_attn_weights=True, is_causal=False):
        """(output, weights). weights are None without need_weights, which is faster."""
        for name, x in (("query", query), ("key", key), ("value", value)):
            if x.ndim != 3:
                raise ValueError(f"MultiheadAttention: {name} must have 3 dimensions; got shape {x.shape}")
            if x.shape[2] != self.embed_dim:
                raise ValueError(f"MultiheadAttention: the last size of {name} does not fit; got {x.shape[2]}; expected {self.embed_dim}")
        batch, seq = (0, 1) if self.batch_first else (1, 0)
        b, t, s = query.shape[batch], query.shape[seq], key.shape[seq]
        h, d = self.num_heads, self.head_dim
        mask = self._mask(attn_mask, key_padding_mask, is_causal, b, t, s, query)
        causal = is_causal and mask is None

        def heads(x):
            x = x.view(x.shape[0], x.shape[1], h, d)
            return x.permute(0, 2, 1, 3) if self.batch_first else x.permute(1, 2, 0, 3)

        q, k, v = (heads(x) for x in self._project(query, key, value))
        p = self.dropout if self.training else 0.0
        weights = None
        if need_weights:
            scores = _C.matmul(q, k.transpose(-2, -1)) * (d**-0.5)
            if causal:
                mask = _as_additive(_later_keys(t, s, query.device), query.dtype)
            if mask is not None:
                scores = scores + mask
            weights = F.softmax(scores, -1)
            if p > 0:
                weights = _C.dropout(weights, p, True)
            a = _C.matmul(weights, v)
            if average_attn_weights:
                weights = weights.mean(1)
        else:
            a = _C.scaled_dot_product_attention(q, k, v, mask, p, causal)
        a = a.permute(0, 2, 1, 3) if self.batch_first else a.permute(2, 0, 1, 3)
        return self.out_proj(a.reshape(query.shape[0], query.shape[1], self.embed_dim)), weights
