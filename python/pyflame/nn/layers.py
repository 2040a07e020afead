"""The layers. Names, defaults and initial values are PyTorch's; the order of the random draws is that of the C++ layers."""
from .. import _C
from .._grad_mode import no_grad
from . import functional as F
from . import init
from .module import Module
from .parameter import Parameter


def _pair(v, what):
    if hasattr(v, "__index__"):
        return (v, v)
    if not isinstance(v, (tuple, list)) or not all(hasattr(n, "__index__") for n in v):
        raise TypeError(f"{what}: not sizes; got {v!r}; expected an integer or two")
    if len(v) != 2:
        raise ValueError(f"{what}: needs one number or two; got {v}")
    return tuple(v)


def _integers(layer, **sizes):
    for name, v in sizes.items():
        if not hasattr(v, "__index__"):
            raise TypeError(f"{layer}: {name} is not an integer; got {v!r}")


def _fan_in(weight):
    n = 1
    for s in weight.shape[1:]:
        n *= s
    return n


class Identity(Module):
    """The input itself."""

    def __init__(self, *args, **kwargs):
        super().__init__()

    def forward(self, input):
        return input


class Linear(Module):
    """input @ weight.T + bias: [..., in_features] -> [..., out_features]."""

    def __init__(self, in_features, out_features, bias=True, device=None, dtype=None):
        super().__init__()
        _integers("Linear", in_features=in_features, out_features=out_features)
        if in_features < 0 or out_features < 0:
            raise ValueError(f"Linear: sizes must not be negative; got in_features {in_features}, out_features {out_features}")
        self.in_features, self.out_features = in_features, out_features
        self.weight = Parameter(_C.empty(out_features, in_features, dtype=dtype, device=device))
        self.register_parameter("bias", Parameter(_C.empty(out_features, dtype=dtype, device=device)) if bias else None)
        self.reset_parameters()

    def reset_parameters(self):
        init._fan_in_uniform_(self.weight, self.in_features)
        if self.bias is not None:
            init._fan_in_uniform_(self.bias, self.in_features)

    def forward(self, input):
        return _C.linear(input, self.weight, self.bias)

    def extra_repr(self):
        return f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}"


class _BatchNorm(Module):
    def __init__(self, num_features, eps=1e-5, momentum=0.1, affine=True, track_running_stats=True, device=None, dtype=None):
        super().__init__()
        self.num_features, self.eps, self.momentum = num_features, eps, momentum
        self.affine, self.track_running_stats = affine, track_running_stats
        self.register_parameter("weight", Parameter(_C.ones(num_features, dtype=dtype, device=device)) if affine else None)
        self.register_parameter("bias", Parameter(_C.zeros(num_features, dtype=dtype, device=device)) if affine else None)
        tracked = track_running_stats
        self.register_buffer("running_mean", _C.zeros(num_features, dtype=dtype, device=device) if tracked else None)
        self.register_buffer("running_var", _C.ones(num_features, dtype=dtype, device=device) if tracked else None)
        self.register_buffer("num_batches_tracked", _C.zeros((), dtype=_C.int64, device=device) if tracked else None)

    def forward(self, input):
        if input.ndim not in self._ranks:
            raise ValueError(f"{type(self).__name__}: the input has {input.ndim} dimensions; expected {self._shapes}")
        momentum = self.momentum
        if self.training and self.track_running_stats:
            with no_grad():
                self.num_batches_tracked.add_(1)
            if momentum is None:
                momentum = 1.0 / self.num_batches_tracked.item()
        use_batch = self.training or not self.track_running_stats
        return _C.batch_norm(input, self.running_mean, self.running_var, self.weight, self.bias, use_batch, momentum if momentum is not None else 0.0, self.eps)

    def extra_repr(self):
        return f"{self.num_features}, eps={self.eps}, momentum={self.momentum}, affine={self.affine}, track_running_stats={self.track_running_stats}"


class BatchNorm1d(_BatchNorm):
    """Normalises every channel of [N, C] or [N, C, L]; with running statistics for evaluation."""

    _ranks, _shapes = (2, 3), "2 (N, C) or 3 (N, C, L)"


class BatchNorm2d(_BatchNorm):
    """Normalises every channel of [N, C, H, W]; with running statistics for evaluation."""

    _ranks, _shapes = (4,), "4 (N, C, H, W)"


class GroupNorm(Module):
    """Normalises each sample's groups of channels of [N, C, ...]."""

    def __init__(self, num_groups, num_channels, eps=1e-5, affine=True, device=None, dtype=None):
        super().__init__()
        _integers("GroupNorm", num_groups=num_groups, num_channels=num_channels)
        if num_groups < 1 or num_channels % num_groups:
            raise ValueError(f"GroupNorm: num_groups must divide num_channels; got {num_groups} and {num_channels}")
        self.num_groups, self.num_channels, self.eps, self.affine = num_groups, num_channels, eps, affine
        self.register_parameter("weight", Parameter(_C.ones(num_channels, dtype=dtype, device=device)) if affine else None)
        self.register_parameter("bias", Parameter(_C.zeros(num_channels, dtype=dtype, device=device)) if affine else None)

    def forward(self, input):
        return F.group_norm(input, self.num_groups, self.weight, self.bias, self.eps)

    def extra_repr(self):
        return f"{self.num_groups}, {self.num_channels}, eps={self.eps}, affine={self.affine}"


class LayerNorm(Module):
    """Normalises over the last dims, whose sizes are normalized_shape."""

    def __init__(self, normalized_shape, eps=1e-5, elementwise_affine=True, bias=True, device=None, dtype=None):
        super().__init__()
        self.normalized_shape = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
        self.eps, self.elementwise_affine = eps, elementwise_affine
        self.register_parameter("weight", Parameter(_C.ones(self.normalized_shape, dtype=dtype, device=device)) if elementwise_affine else None)
        self.register_parameter("bias", Parameter(_C.zeros(self.normalized_shape, dtype=dtype, device=device)) if elementwise_affine and bias else None)

    def forward(self, input):
        return _C.layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps)

    def extra_repr(self):
        return f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}"


class RMSNorm(Module):
    """x / sqrt(mean(x * x) + eps) * weight over the last dims. eps defaults to the dtype's machine epsilon."""

    def __init__(self, normalized_shape, eps=None, elementwise_affine=True, device=None, dtype=None):
        super().__init__()
        self.normalized_shape = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
        self.eps, self.elementwise_affine = eps, elementwise_affine
        self.register_parameter("weight", Parameter(_C.ones(self.normalized_shape, dtype=dtype, device=device)) if elementwise_affine else None)

    def forward(self, input):
        return _C.rms_norm(input, self.normalized_shape, self.weight, self.eps)

    def extra_repr(self):
        return f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}"


class Dropout(Module):
    """Zeroes elements with probability p while training and scales the rest by 1 / (1 - p)."""

    def __init__(self, p=0.5, inplace=False):
        super().__init__()
        if not isinstance(p, (int, float)):
            raise TypeError(f"Dropout: the probability is not a number; got {p!r}; expected 0 to 1")
        if not 0 <= p <= 1:
            raise ValueError(f"Dropout: the probability is out of range; got {p}; expected 0 to 1")
        self.p, self.inplace = p, inplace

    def forward(self, input):
        # p = 0 makes no random call, so that it costs nothing and moves no random state.
        return _C.dropout(input, self.p, True) if self.training and self.p > 0 else input

    def extra_repr(self):
        return f"p={self.p}"


class Embedding(Module):
    """Rows of a table by integer index: [...] -> [..., embedding_dim]."""

    def __init__(self, num_embeddings, embedding_dim, padding_idx=None, device=None, dtype=None):
        super().__init__()
        if padding_idx is not None:
            if not -num_embeddings <= padding_idx < num_embeddings:
                raise IndexError(f"Embedding: padding_idx is out of range; got {padding_idx}; expected within {num_embeddings} rows")
            padding_idx %= num_embeddings
        self.num_embeddings, self.embedding_dim, self.padding_idx = num_embeddings, embedding_dim, padding_idx
        self.weight = Parameter(_C.empty(num_embeddings, embedding_dim, dtype=dtype, device=device))
        self.reset_parameters()

    def reset_parameters(self):
        init.normal_(self.weight)
        if self.padding_idx is not None:
            with no_grad():
                self.weight[self.padding_idx].fill_(0)

    def forward(self, input):
        return _C.embedding(input, self.weight, self.padding_idx)

    def extra_repr(self):
        s = f"{self.num_embeddings}, {self.embedding_dim}"
        return s if self.padding_idx is None else s + f", padding_idx={self.padding_idx}"


class Flatten(Module):
    """The dims from start_dim to end_dim as one."""

    def __init__(self, start_dim=1, end_dim=-1):
        super().__init__()
        _integers("Flatten", start_dim=start_dim, end_dim=end_dim)
        self.start_dim, self.end_dim = start_dim, end_dim

    def forward(self, input):
        return _C.flatten(input, self.start_dim, self.end_dim)

    def extra_repr(self):
        return f"start_dim={self.start_dim}, end_dim={self.end_dim}"


class Unflatten(Module):
    """One dim as several."""

    def __init__(self, dim, unflattened_size):
        super().__init__()
        _integers("Unflatten", dim=dim)
        self.dim, self.unflattened_size = dim, tuple(unflattened_size)

    def forward(self, input):
        dim = self.dim + input.ndim if self.dim < 0 else self.dim
        return input.reshape(*input.shape[:dim], *self.unflattened_size, *input.shape[dim + 1 :])

    def extra_repr(self):
        return f"dim={self.dim}, unflattened_size={self.unflattened_size}"


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
