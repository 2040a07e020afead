"""A transformer of given sizes, to be planned on the null device: it has the matrices, the attention and the loss of the real one."""
from .. import nn
from .._C import bfloat16, float16, float32


class _Attention(nn.Module):
    def __init__(self, a):
        super().__init__()
        self.shape = (a.heads, a.kv_heads, a.head_dim)
        self.q = nn.Linear(a.hidden, a.heads * a.head_dim, bias=False)
        self.k = nn.Linear(a.hidden, a.kv_heads * a.head_dim, bias=False)
        self.v = nn.Linear(a.hidden, a.kv_heads * a.head_dim, bias=False)
        self.o = nn.Linear(a.heads * a.head_dim, a.hidden, bias=False)

    def forward(self, x):
        n, t, _ = x.shape
        heads, kv_heads, size = self.shape
        q = self.q(x).view(n, t, heads, size).transpose(1, 2)
        k, v = (m(x).view(n, t, kv_heads, size).transpose(1, 2) for m in (self.k, self.v))
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=kv_heads != heads)
        return self.o(y.transpose(1, 2).reshape(n, t, heads * size))


class _FeedForward(nn.Module):
    def __init__(self, a):
        super().__init__()
        self.gate = nn.Linear(a.hidden, a.intermediate, bias=False) if a.gated else None
        self.up = nn.Linear(a.hidden, a.intermediate, bias=False)
        self.down = nn.Linear(a.intermediate, a.hidden, bias=False)

    def forward(self, x):
        inner = nn.functional.silu(self.gate(x)) * self.up(x) if self.gate is not None else nn.functional.gelu(self.up(x))
        return self.down(inner)


class _Experts(nn.Module):
    """Each token passes through some of the experts; as many of them take all tokens here, which is the same number of products."""

    def __init__(self, a):
        super().__init__()
        self.router = nn.Linear(a.hidden, a.experts, bias=False)
        self.experts = nn.ModuleList([_FeedForward(a) for _ in range(a.experts)])
        self.used = min(a.experts_used, a.experts)

    def forward(self, x):
        weight = self.router(x).softmax(-1)
        return sum(self.experts[i](x) * weight[..., i : i + 1] for i in range(self.used))


class _Block(nn.Module):
    def __init__(self, a):
        super().__init__()
        self.norm_1, self.norm_2 = nn.RMSNorm(a.hidden), nn.RMSNorm(a.hidden)
        self.attention = _Attention(a)
        self.feed_forward = _Experts(a) if a.experts > 1 else _FeedForward(a)

    def forward(self, x):
        x = x + self.attention(self.norm_1(x))
        return x + self.feed_forward(self.norm_2(x))


class Decoder(nn.Module):
    """Token ids (N, T) to the loss of their next tokens in training, and to the last token's logits otherwise."""

    def __init__(self, a):
        super().__init__()
        self.embedding = nn.Embedding(max(1, a.vocab), a.hidden)
        self.layers = nn.ModuleList([_Block(a) for _ in range(a.layers)])
        self.norm = nn.RMSNorm(a.hidden)
        self.head = nn.Linear(a.hidden, max(1, a.vocab), bias=False)
        if a.tied:
            self.head.weight = self.embedding.weight

    def forward(self, ids):
        x = self.embedding(ids)
        for layer in self.layers:
            x = layer(x)
        x = self.norm(x)
        if not self.training:
            return self.head(x[:, -1])
        logits = self.head(x)
        return nn.functional.cross_entropy(logits.reshape(-1, logits.shape[-1]), ids.reshape(-1))


DTYPES = {"float32": float32, "bfloat16": bfloat16, "float16": float16}
