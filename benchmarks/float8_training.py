"""Training steps of a Llama of 3 billion parameters with bfloat16 and with 8-bit products in its linear layers (pf.float8), and PyTorch's bfloat16 step.

    python benchmarks/float8_training.py [--device cuda] [--layers 28] [--steps 80] [--torch] [--json FILE]

All take the same initial weights and tokens, and AdamW. A step is timed as a whole, forward, backward and optimizer; the first two are left out. The losses of the first steps
are in the result: those of 8-bit products should follow the others within the noise of rounding, which the difference of the two bfloat16 programs shows.
"""
import argparse
import json
import pathlib
import statistics
import sys
import time

import numpy as np

import pyflame as pf

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from machine import slug  # noqa: E402

HIDDEN, HEADS, KEY_HEADS, INNER, WORDS = 3072, 24, 8, 8192, 32000  # as Llama 3.2 3B, with fewer words
LEARNING_RATE = 3e-4


def tokens(steps, batch, length):
    """Texts of a chain in which each token has four likely successors, so that there is something to learn."""
    rng = np.random.default_rng(0)
    successors = rng.integers(0, WORDS, (WORDS, 4))
    out = np.empty((steps, batch, length + 1), np.int64)
    out[..., 0] = rng.integers(0, WORDS, (steps, batch))
    for i in range(length):
        out[..., i + 1] = successors[out[..., i], rng.integers(0, 4, (steps, batch))]
    return out


def make(t, layers, length, device):
    """The model in PyFlame or PyTorch: t is the module."""
    nn, F = t.nn, t.nn.functional
    size = HIDDEN // HEADS

    def linear(inputs, outputs):
        return nn.Linear(inputs, outputs, bias=False, device=device, dtype=t.bfloat16)

    angles = np.outer(np.arange(length), 500000.0 ** (-np.arange(0, size, 2) / size)).repeat(2, axis=0).reshape(length, size // 2 * 2)
    angles = np.concatenate([angles[:, : size // 2]] * 2, -1).astype(np.float32)
    cos, sin = (t.tensor(f(angles)).to(device=device, dtype=t.bfloat16) for f in (np.cos, np.sin))

    def rotated(x):
        a, b = x.chunk(2, -1)
        return x * cos + t.cat([-b, a], -1) * sin

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm1, self.norm2 = (nn.RMSNorm(HIDDEN, device=device, dtype=t.bfloat16) for _ in range(2))
            self.q, self.k, self.v = linear(HIDDEN, HIDDEN), linear(HIDDEN, size * KEY_HEADS), linear(HIDDEN, size * KEY_HEADS)
            self.o, self.gate, self.up, self.down = linear(HIDDEN, HIDDEN), linear(HIDDEN, INNER), linear(HIDDEN, INNER), linear(INNER, HIDDEN)

        def forward(self, x):
            b, n, _ = x.shape
            y = self.norm1(x)
            q, k, v = (f(y).reshape(b, n, -1, size).transpose(1, 2) for f in (self.q, self.k, self.v))
            y = F.scaled_dot_product_attention(rotated(q), rotated(k), v, is_causal=True, enable_gqa=True)
            x = x + self.o(y.transpose(1, 2).reshape(b, n, HIDDEN))
            y = self.norm2(x)
            return x + self.down(F.silu(self.gate(y)) * self.up(y))

    class Llama(nn.Module):
        def __init__(self):
            super().__init__()
            self.words = nn.Embedding(WORDS, HIDDEN, device=device, dtype=t.bfloat16)
            self.blocks = nn.ModuleList([Block() for _ in range(layers)])
            self.norm, self.head = nn.RMSNorm(HIDDEN, device=device, dtype=t.bfloat16), linear(HIDDEN, WORDS)

        def forward(self, ids, target):
            x = self.words(ids)
            for block in self.blocks:
                x = block(x)
            return F.cross_entropy(self.head(self.norm(x)).reshape(-1, WORDS).float(), target.reshape(-1))

    model = Llama()
    rng = np.random.default_rng(1)
    with t.no_grad():
        for name, p in model.named_parameters():
            if p.ndim == 2:  # a few random rows again and again: drawing all of them would take longer than the measurement
                few = (rng.standard_normal((min(64, p.shape[0]), p.shape[1])) * 0.02).astype(np.float32)
                signs = (rng.integers(0, 2, (-(-p.shape[0] // len(few)), 1, p.shape[1])) * 2 - 1).astype(np.float32)
                few, signs = t.tensor(few).to(device), t.tensor(signs).to(device)
                p.copy_((few * signs).reshape(-1, p.shape[1])[: p.shape[0]].to(t.bfloat16))
    return model


def train(t, model, data, device, wait):
    optimizer = t.optim.AdamW(model.parameters(), lr=LEARNING_RATE, fused=True)
    times, losses = [], []
    for ids in data:
        ids = t.tensor(ids).to(device)
        wait()
        start = time.perf_counter()
        loss = model(ids[:, :-1], ids[:, 1:])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(loss.detach())
        wait()
        times.append(time.perf_counter() - start)
    return times[2:], [float(x) for x in losses]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--layers", type=int, default=28)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--length", type=int, default=2048)
    parser.add_argument("--steps", type=int, default=80)
    parser.add_argument("--torch", action="store_true", help="measure PyTorch too")
    parser.add_argument("--recipes", nargs="*", default=["tensorwise", "delayed", "rowwise"])
    parser.add_argument("--json", help="a file for the result")
    a = parser.parse_args()
    data = tokens(a.steps, a.batch, a.length)
    programs = ["bfloat16", *a.recipes, *(["torch"] if a.torch else [])]
    rows = []
    for name in programs:
        if name == "torch":
            import torch as t

            wait = t.cuda.synchronize if a.device == "cuda" else lambda: None
        else:
            t, wait = pf, pf.synchronize
        model = make(t, a.layers, a.length, a.device)
        count = sum(p.numel() for p in model.parameters())
        if name in a.recipes:
            config = pf.float8.Float8LinearConfig(**({"scaling": "delayed"} if name == "delayed" else {"recipe": name}))
            pf.float8.convert_to_float8_training(model, config=config, module_filter_fn=lambda layer, where: where != "head")
        times, losses = train(t, model, data, a.device, wait)
        del model
        if name == "torch":
            t.cuda.empty_cache()
        else:
            pf.memory.trim()
        quarters = statistics.quantiles(times, n=4)
        rows.append({"program": name, "parameters": count, "seconds": statistics.median(times), "quartiles": [quarters[0], quarters[2]], "losses": losses})
        speed = a.batch * a.length / statistics.median(times)
        print(f"{name:12} {count / 1e9:.2f} B  {statistics.median(times) * 1e3:8.1f} ms a step ({quarters[0] * 1e3:.1f} to {quarters[2] * 1e3:.1f})  {speed:9,.0f} tokens/s  losses {losses[0]:.4f} .. {losses[-1]:.4f}", flush=True)
    base = rows[0]["seconds"]
    for row in rows[1:]:
        row["faster_than_bfloat16"] = base / row["seconds"]
        print(f"{row['program']:12} {row['faster_than_bfloat16']:.3f} of bfloat16's speed; difference of the last ten losses {sum(row['losses'][-10:]) / 10 - sum(rows[0]['losses'][-10:]) / 10:+.4f}, the largest one {max(abs(x - y) for x, y in zip(row['losses'], rows[0]['losses'])):.4f}")
    if a.json:
        result = {"benchmark": "float8_training", "machine": slug(), "device": a.device, "layers": a.layers, "batch": a.batch, "length": a.length, "rows": rows}
        pathlib.Path(a.json).write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
