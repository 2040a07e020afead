"""Trains the GPT of `pyflame train gpt` from Python: the same model, initial values, batches and updates, so the same losses.

    python examples/train_gpt.py --data text.txt --steps 100

prints one line a step, as `metrics.jsonl` of the program has them for the same options and seed.
"""
# ci: --data README.md --steps 4 --n_layer 1 --n_head 2 --n_embd 32 --batch_size 4 --block_size 16
import argparse
import json
import math

import numpy as np

import pyflame as pf
from pyflame import nn
from pyflame.nn import functional as F


class Attention(nn.Module):
    """Causal self-attention with one projection for queries, keys and values."""

    def __init__(self, n_embd, n_head, dropout):
        super().__init__()
        self.n_head, self.dropout = n_head, dropout
        self.qkv = nn.Linear(n_embd, 3 * n_embd)
        self.proj = nn.Linear(n_embd, n_embd)
        self.residual_dropout = nn.Dropout(dropout)

    def forward(self, x):
        b, t, c = x.shape
        qkv = self.qkv(x).view(b, t, 3, self.n_head, c // self.n_head)
        q, k, v = (qkv[:, :, i].transpose(1, 2) for i in range(3))
        y = F.scaled_dot_product_attention(q, k, v, dropout_p=self.dropout if self.training else 0.0, is_causal=True)
        y = y.transpose(1, 2).reshape(b, t, c)
        return self.residual_dropout(self.proj(y))


class MLP(nn.Module):
    def __init__(self, n_embd, dropout):
        super().__init__()
        self.fc = nn.Linear(n_embd, 4 * n_embd)
        self.proj = nn.Linear(4 * n_embd, n_embd)
        self.drop = nn.Dropout(dropout)

    def forward(self, x):
        return self.drop(self.proj(F.gelu(self.fc(x), approximate="tanh")))


class Block(nn.Module):
    def __init__(self, n_embd, n_head, dropout):
        super().__init__()
        self.ln1 = nn.LayerNorm(n_embd)
        self.attn = Attention(n_embd, n_head, dropout)
        self.ln2 = nn.LayerNorm(n_embd)
        self.mlp = MLP(n_embd, dropout)

    def forward(self, x):
        x = x + self.attn(self.ln1(x))
        return x + self.mlp(self.ln2(x))


class GPT(nn.Module):
    def __init__(self, vocabulary, block_size, n_layer, n_head, n_embd, dropout=0.0):
        super().__init__()
        self.wte = nn.Embedding(vocabulary, n_embd)
        self.wpe = nn.Embedding(block_size, n_embd)
        self.drop = nn.Dropout(dropout)
        self.blocks = nn.ModuleList([Block(n_embd, n_head, dropout) for _ in range(n_layer)])
        self.ln_f = nn.LayerNorm(n_embd)
        self.head = nn.Linear(n_embd, vocabulary, bias=False)
        # The order of these calls is part of the model: each one draws the next random numbers of the seed.
        for name, p in self.named_parameters():
            if p.ndim == 2:
                residual = name.endswith("proj.weight")
                nn.init.normal_(p, 0.0, 0.02 / math.sqrt(2.0 * n_layer) if residual else 0.02)
            elif name.endswith("bias"):
                nn.init.zeros_(p)

    def forward(self, index):
        x = self.drop(self.wte(index) + self.wpe.weight[: index.shape[1]])
        for block in self.blocks:
            x = block(x)
        return self.head(self.ln_f(x))


def philox(seed, offset, blocks):
    """Philox4x32-10: the 128 random bits of (seed, offset, block) for an array of blocks, as two uint64 words a block."""
    low, shift = np.uint64(0xFFFFFFFF), np.uint64(32)
    blocks = np.asarray(blocks, np.uint64)
    c = [np.full_like(blocks, offset & 0xFFFFFFFF), np.full_like(blocks, offset >> 32), blocks & low, blocks >> shift]
    k0, k1 = seed & 0xFFFFFFFF, seed >> 32
    for _ in range(10):
        p0, p1 = c[0] * np.uint64(0xD2511F53), c[2] * np.uint64(0xCD9E8D57)
        c = [(p1 >> shift) ^ c[1] ^ np.uint64(k0), p1 & low, (p0 >> shift) ^ c[3] ^ np.uint64(k1), p0 & low]
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return np.stack([c[0] | c[1] << shift, c[2] | c[3] << shift], axis=-1)


TRAIN, EVAL = 1 << 63, (1 << 63) + (1 << 62)  # offsets of the two streams of batches


def batch(tokens, seed, stream, number, batch_size, block_size):
    """Rows of block_size + 1 tokens: where they start is a function of seed and number alone."""
    words = philox(seed, stream + number, np.arange((batch_size + 1) // 2)).reshape(-1)[:batch_size]
    starts = (words % np.uint64(len(tokens) - block_size)).astype(np.int64)
    rows = np.stack([tokens[s : s + block_size + 1] for s in starts])
    return pf.tensor(rows[:, :-1]), pf.tensor(rows[:, 1:])


def learning_rate(step, steps, peak, warmup, floor):
    warmup = min(warmup, steps // 10)
    if step < warmup:
        return peak * (step + 1) / (warmup + 1)
    if step >= steps or steps <= warmup:
        return floor if step >= steps else peak
    return floor + (peak - floor) * (1 + math.cos(math.pi * ((step - warmup) / (steps - warmup)))) / 2


def loss_of(model, x, y):
    logits = model(x)
    return F.cross_entropy(logits.reshape(-1, logits.shape[-1]), y.reshape(-1))


def evaluate(model, tokens, a):
    model.eval()
    with pf.no_grad():
        losses = [loss_of(model, *batch(tokens, a.seed, EVAL, i, a.batch_size, a.block_size)).item() for i in range(a.eval_batches)]
    model.train()
    return sum(losses) / len(losses)


def main(argv=None):
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--data", required=True, help="a text file")
    for name, default in dict(steps=200, batch_size=16, block_size=128, n_layer=4, n_head=4, n_embd=128, seed=1337, warmup_steps=100,
                              eval_batches=40, eval_interval=250, gradient_accumulation_steps=1).items():
        p.add_argument("--" + name, type=int, default=default)
    for name, default in dict(dropout=0.0, lr=2e-3, min_lr_ratio=0.1, weight_decay=0.1, clip=1.0).items():
        p.add_argument("--" + name, type=float, default=default)
    a = p.parse_args(argv)

    text = open(a.data, encoding="utf-8", newline="").read()
    alphabet = sorted(set(text))
    index = {c: i for i, c in enumerate(alphabet)}
    tokens = np.array([index[c] for c in text], np.int64)
    split = len(tokens) * 9 // 10
    train, held_out = tokens[:split], tokens[split:]

    pf.manual_seed(a.seed)
    model = GPT(len(alphabet), a.block_size, a.n_layer, a.n_head, a.n_embd, a.dropout)
    params = list(model.parameters())
    groups = [
        {"params": [q for q in params if q.ndim >= 2], "weight_decay": a.weight_decay},
        {"params": [q for q in params if q.ndim < 2], "weight_decay": 0.0},
    ]
    optimizer = pf.optim.AdamW(groups, lr=a.lr, betas=(0.9, 0.99))

    for step in range(a.steps):
        optimizer.zero_grad()
        total = 0.0
        for micro in range(a.gradient_accumulation_steps):
            n = step * a.gradient_accumulation_steps + micro
            loss = loss_of(model, *batch(train, a.seed, TRAIN, n, a.batch_size, a.block_size))
            if a.gradient_accumulation_steps > 1:
                loss = loss / a.gradient_accumulation_steps
            loss.backward()
            total = total + loss.detach()
        nn.utils.clip_grad_norm_(params, a.clip)
        for g in optimizer.param_groups:
            g["lr"] = learning_rate(step, a.steps, a.lr, a.warmup_steps, a.lr * a.min_lr_ratio)
        optimizer.step()
        line = {"step": step + 1, "loss": total.item()}
        if (step + 1) % a.eval_interval == 0 or step + 1 == a.steps:
            line["val_loss"] = evaluate(model, held_out, a)
        print(json.dumps({**line, "lr": optimizer.param_groups[0]["lr"]}), flush=True)


if __name__ == "__main__":
    main()
