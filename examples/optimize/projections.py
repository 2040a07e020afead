"""A transformer whose queries, keys, values, gates and ups are products of their own, as many published models have them. It computes logits of tokens, without gradients.

    python examples/optimize/projections.py --small
    pyflame optimize examples/optimize/projections.py --small
"""
import argparse

import pyflame as pf
import pyflame.nn.functional as F
from pyflame import nn


class Block(nn.Module):
    def __init__(self, width, heads, inner):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.RMSNorm(width), nn.RMSNorm(width)
        self.q_proj, self.k_proj, self.v_proj, self.o_proj = (nn.Linear(width, width, bias=False) for _ in range(4))
        self.gate_proj, self.up_proj = nn.Linear(width, inner, bias=False), nn.Linear(width, inner, bias=False)
        self.down_proj = nn.Linear(inner, width, bias=False)

    def forward(self, x):
        h = self.norm1(x)
        q, k, v = (self.split(p(h)) for p in (self.q_proj, self.k_proj, self.v_proj))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.o_proj(y.transpose(1, 2).reshape(x.shape))
        h = self.norm2(x)
        return x + self.down_proj(F.silu(self.gate_proj(h)) * self.up_proj(h))

    def split(self, x):
        batch, length, width = x.shape
        return x.reshape(batch, length, self.heads, width // self.heads).transpose(1, 2)


class Model(nn.Module):
    def __init__(self, vocabulary, width, heads, inner, layers):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.blocks = nn.ModuleList([Block(width, heads, inner) for _ in range(layers)])
        self.norm, self.head = nn.RMSNorm(width), nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens):
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--small", action="store_true", help="sizes for a CPU: seconds")
    p.add_argument("--device", default="cpu")
    p.add_argument("--steps", type=int, default=0)
    args = p.parse_args()
    vocabulary, width, heads, inner, layers, batch, length, steps = (500, 128, 4, 256, 2, 2, 32, 30) if args.small else (32000, 2048, 16, 5504, 8, 4, 64, 60)
    pf.set_device(args.device)
    pf.manual_seed(0)
    model = Model(vocabulary, width, heads, inner, layers).eval()
    tokens = pf.randint(0, vocabulary, (batch, length))
    with pf.no_grad():
        for _ in range(args.steps or steps):
            logits = model(tokens)
    print("mean of the logits", logits.float().mean().item())


if __name__ == "__main__":
    main()
