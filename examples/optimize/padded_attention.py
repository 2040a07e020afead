"""Attention that is written by hand: keys and values are repeated for each group of queries, and a mask hides the padding of the shorter sequences.

    python examples/optimize/padded_attention.py --small
    pyflame optimize examples/optimize/padded_attention.py --small
"""
import argparse
import math

import pyflame as pf
from pyflame import nn


def repeat_kv(x, times):
    batch, heads, length, size = x.shape
    return x[:, :, None].expand(batch, heads, times, length, size).reshape(batch, heads * times, length, size)


class Attention(nn.Module):
    def __init__(self, width, heads, groups):
        super().__init__()
        self.heads, self.groups, self.size = heads, groups, width // heads
        self.norm = nn.RMSNorm(width)
        self.q_proj, self.o_proj = nn.Linear(width, width, bias=False), nn.Linear(width, width, bias=False)
        self.k_proj, self.v_proj = nn.Linear(width, groups * self.size, bias=False), nn.Linear(width, groups * self.size, bias=False)

    def forward(self, x, mask):
        batch, length, _ = x.shape
        h = self.norm(x)
        q = self.q_proj(h).reshape(batch, length, self.heads, self.size).transpose(1, 2)
        k, v = (p(h).reshape(batch, length, self.groups, self.size).transpose(1, 2) for p in (self.k_proj, self.v_proj))
        k, v = repeat_kv(k, self.heads // self.groups), repeat_kv(v, self.heads // self.groups)
        scores = q @ k.transpose(2, 3) / math.sqrt(self.size) + mask
        y = scores.softmax(-1) @ v
        return x + self.o_proj(y.transpose(1, 2).reshape(x.shape))


class Model(nn.Module):
    def __init__(self, width, heads, groups, layers):
        super().__init__()
        self.layers = nn.ModuleList([Attention(width, heads, groups) for _ in range(layers)])

    def forward(self, x, mask):
        for layer in self.layers:
            x = layer(x, mask)
        return x


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--small", action="store_true", help="sizes for a CPU: seconds")
    p.add_argument("--device", default="cpu")
    p.add_argument("--steps", type=int, default=0)
    args = p.parse_args()
    width, heads, groups, layers, batch, length, steps = (64, 4, 2, 2, 4, 48, 30) if args.small else (2048, 32, 4, 3, 4, 1024, 120)
    pf.set_device(args.device)
    pf.manual_seed(0)
    dtype = pf.float32 if args.small else pf.bfloat16
    model = Model(width, heads, groups, layers).to(dtype).eval()
    lengths = pf.linspace(length // 4, length, batch).long()
    valid = pf.arange(length)[None] < lengths[:, None]
    mask = pf.zeros(batch, 1, 1, length).masked_fill(~valid[:, None, None, :], -math.inf).to(dtype)
    x = pf.randn(batch, length, width).to(dtype)
    with pf.no_grad():
        for _ in range(args.steps or steps):
            y = model(x, mask)
    print("mean of the valid rows", y[valid].float().mean().item())


if __name__ == "__main__":
    main()
