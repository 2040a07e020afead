#!/usr/bin/env python3
"""Decoding of language models on a device: tokens per second of the step that pf.llm.Engine computes, by the number of texts.

The weights are random, in bfloat16, in GGUF's blocks or in 8-bit floats with a scale for each row (fp8), and so are the keys and values before the first step. For each number of texts a line
says: milliseconds of a step (median), tokens per second, the milliseconds of it in which Python records the step, and the bytes of weights, keys
and values that a step reads, over its time. --torch measures the same decoder as PyTorch runs it eagerly, with caches that do not grow. --chunk measures
steps that also read a part of a long prompt, --prompts steps that read whole prompts. --products measures products alone, with weights that no cache holds; --profile lists the kernels of some steps.

    python benchmarks/llm_decode.py --device cuda --shape 8b --sequences 1,8,32,128 --json results.json
    python benchmarks/llm_decode.py --device cuda --shape 8b --weights Q4_K,Q8_0 --sequences 1
"""
import argparse
import json
import statistics
import time

import numpy as np

import pyflame as pf
from pyflame import _C
from pyflame.llm import _architectures, _paged
from pyflame.llm._packed import PackedWeight
from pyflame.llm.language_model import LanguageModel

# layers, hidden, heads, heads of keys, head size, inner, vocabulary
SHAPES = {"8b": (32, 4096, 32, 8, 128, 14336, 128256), "1b": (16, 2048, 32, 8, 64, 8192, 128256), "tiny": (2, 256, 4, 2, 64, 512, 1000),
          # Mixtures of experts; inner is an expert's. Qwen3-30B-A3B with 16 of its 48 layers.
          "30b-a3b-16": (16, 2048, 32, 4, 128, 768, 151936), "tiny-experts": (2, 256, 4, 2, 64, 128, 1000)}
EXPERTS = {"30b-a3b-16": (128, 8), "tiny-experts": (8, 2)}  # how many, and how many of them a token has
# Bytes of a block, elements, and where its float16 scales are.
BLOCKS = {"Q4_0": (18, 32, (0,)), "Q8_0": (34, 32, (0,)), "Q2_K": (84, 256, (80, 82)), "Q3_K": (110, 256, (108,)), "Q4_K": (144, 256, (0, 2)), "Q5_K": (176, 256, (0, 2)), "Q6_K": (210, 256, (208,)),
          "IQ4_NL": (18, 32, (0,)), "IQ4_XS": (136, 256, (0,))}


KINDS = ["bfloat16", "fp8", *BLOCKS]


def random_weight(kind, rows, columns, device, stack=0):
    if stack:
        w = random_weight(kind, stack * rows, columns, device)
        return w.reshape(stack, rows, columns) if kind == "bfloat16" else PackedWeight(w.blocks.reshape(stack, rows, -1), w.type, columns)
    if kind == "bfloat16":
        return pf.randn(rows, columns, dtype=pf.bfloat16, device=device) * 0.02
    if kind == "fp8":
        codes = pf.randint(0, 0x7F, (rows, columns), device=device) + 128 * pf.randint(0, 2, (rows, columns), device=device)  # no NaN
        scales = pf.zeros(rows, 16, dtype=pf.uint8, device=device)  # 2^-11, float32
        scales[:, 3] = 0x3A
        return PackedWeight(pf.cat([codes.to(pf.uint8), scales], dim=1), "F8_E4M3", columns)
    size, elements, scales = BLOCKS[kind]
    blocks = pf.randint(0, 256, (rows, columns // elements, size), device=device).to(pf.uint8)
    for at in scales:
        blocks[:, :, at] = 0
        blocks[:, :, at + 1] = 0x0C  # 2^-12
    return PackedWeight(blocks.reshape(rows, -1), kind, columns)


def random_model(shape, kind, device, context):
    layers, hidden, heads, kv_heads, head, inner, vocab = SHAPES[shape]
    config = _architectures.Config(architecture=next(a for a in _architectures.ARCHITECTURES if a.gguf == "mistral"), layers=layers, hidden=hidden, heads=heads, kv_heads=kv_heads, head_dim=head, inner=inner,
                                   vocab=vocab, context=context, eps=1e-5, activation="silu", rope_base=500000.0, rope_dim=head, windowed=(False,) * layers, scale=head**-0.5, tied=False,
                                   experts=_architectures.ExpertSizes(*EXPERTS[shape], inner) if shape in EXPERTS else None)
    tensors = {"token_embd.weight": pf.randn(vocab, hidden, dtype=pf.bfloat16, device=device), "output.weight": random_weight(kind, vocab, hidden, device), "output_norm.weight": pf.ones(hidden, device=device)}
    for i in range(layers):
        p = f"blk.{i}."
        count, end = (EXPERTS[shape][0], "_exps") if shape in EXPERTS else (0, "")
        for name, rows, columns in (("attn_q", heads * head, hidden), ("attn_k", kv_heads * head, hidden), ("attn_v", kv_heads * head, hidden), ("attn_output", hidden, heads * head)):
            tensors[p + name + ".weight"] = random_weight(kind, rows, columns, device)
        for name, rows, columns in (("ffn_up", inner, hidden), ("ffn_gate", inner, hidden), ("ffn_down", hidden, inner)):
            tensors[p + name + end + ".weight"] = random_weight(kind, rows, columns, device, count)
        if count:
            tensors[p + "ffn_gate_inp.weight"] = random_weight("bfloat16", count, hidden, device)
        tensors |= {p + "attn_norm.weight": pf.ones(hidden, device=device), p + "ffn_norm.weight": pf.ones(hidden, device=device)}
        pf.synchronize()
    return LanguageModel(config, tensors, None, dtype=pf.bfloat16, device=device)


def bytes_of(kind, elements):
    """Of so many weights. The scales of rows of fp8 are not counted."""
    size, each = {"bfloat16": (2, 1), "fp8": (1, 1)}.get(kind) or BLOCKS[kind][:2]
    return elements * size // each


def weight_bytes(shape, kind, count):
    """What a step of `count` texts reads. Of experts: as many as tokens have that choose at random, on average."""
    layers, hidden, heads, kv_heads, head, inner, vocab = SHAPES[shape]
    if shape in EXPERTS:
        experts, chosen = EXPERTS[shape]
        inner *= experts * (1 - (1 - chosen / experts) ** count)
    elements = int(layers * (hidden * head * (2 * heads + 2 * kv_heads) + 3 * hidden * inner) + vocab * hidden)
    return bytes_of(kind, elements)


def summary(name, shape, kind, count, context, seconds, host=()):
    layers, _, _, kv_heads, head, _, _ = SHAPES[shape]
    total = weight_bytes(shape, kind, count) + 4 * layers * kv_heads * head * count * context
    s = statistics.median(seconds)
    row = {"program": name, "shape": shape, "weights": kind, "sequences": count, "context": context, "ms": s * 1e3, "ms_least": min(seconds) * 1e3, "tokens_per_s": count / s, "GB_per_s": total / s / 1e9}
    if host:
        row["ms_recording"] = statistics.median(host) * 1e3
    print(", ".join(f"{k} {v:.4g}" if isinstance(v, float) else f"{k} {v}" for k, v in row.items()), flush=True)
    return row


class Step(_paged.Step):
    def logits(self):
        x = super().logits()
        self.recorded = time.perf_counter()
        return x


class Decoding:
    """The steps of `count` texts of `context` tokens each."""

    def __init__(self, model, count, context, steps):
        self.model, self.network, self.at, self.begun = model, model._network, context, None
        each = -(-(context + steps + 1) // _paged.BLOCK)
        self.pages = _paged.Pages(self.network, count * each)
        for x in (*self.pages.keys, *self.pages.values):
            x.normal_()
        order = (np.random.default_rng(0).permutation(count * each) + 1).tolist()
        self.blocks = [order[i * each:(i + 1) * each] for i in range(count)]
        self.ids = [7 + i for i in range(count)]
        pf.synchronize()

    def parts(self, found):
        """A token of each text; found: the tokens of the step before, where only the device knows them."""
        return [_paged.Part([id], self.at, blocks, True, after=None if found is None else i) for i, (id, blocks) in enumerate(zip(self.ids, self.blocks))]

    def begin(self, ids=None):
        n = _paged.rounded(len(self.ids))
        parts = self.parts(ids)
        step = Step(self.network, self.pages, parts, n, n, ids)
        step.start(self.model.config.vocab)
        self.at += 1
        return step

    def step(self):
        """(seconds, seconds of recording). As in the engine, the next step begins before the host has the tokens of this one."""
        begin = time.perf_counter()
        now = self.begun or self.begin()
        self.begun = self.begin(now.next_ids)
        self.ids = [found.id for found in now.chosen()]
        return time.perf_counter() - begin, self.begun.recorded - begin


def measure(model, shape, kind, count, a):
    decoding = Decoding(model, count, a.context, a.warmup + a.steps + a.profile)
    times = [decoding.step() for _ in range(a.warmup + a.steps)][a.warmup:]
    row = summary("pyflame", shape, kind, count, a.context, *zip(*times))
    if a.profile:
        with pf.profiler.profile() as prof:
            for _ in range(a.profile):
                decoding.step()
        print(prof.key_averages().table(sort_by="self_device_time_total", row_limit=24), flush=True)
    return row


def measure_engine(model, shape, kind, count, temperature, a):
    """The same through pf.llm.Engine: texts with prompts, whose tokens are drawn at this temperature; the steps in which all of them write."""
    moments, written, budget = [], [0] * count, max(2048, count)
    length = a.warmup + a.steps + -(-count * a.context // budget)  # the first texts write while prompts are read

    def receive(i):
        def note(event):
            written[i] += isinstance(event, pf.llm.engine.Token)
            moments.append((time.perf_counter(), min(written), max(written)))
        return note

    with pf.llm.Engine(model, max_num_seqs=count, max_num_batched_tokens=budget, max_model_len=a.context + length + 16, kv_cache_bytes=int(2e10)) as engine:
        rng = np.random.default_rng(0)
        done = [engine.submit(rng.integers(0, 1000, a.context).tolist(), pf.llm.Sampling(temperature=temperature, seed=i), length, stop_ids=(), receive=receive(i)) for i in range(count)]
        while any(r.finished is None for r in done):
            time.sleep(0.05)
    steps = [t for t, least, most in moments if least > 0 and most < length][::count]  # every text gets one token in a step
    gaps = [after - before for before, after in zip(steps, steps[1:])]
    return {**summary(f"pyflame engine at temperature {temperature:g}", shape, kind, count, a.context, gaps[-a.steps:]), "program": "pyflame engine", "temperature": temperature}


def measure_chunks(model, shape, kind, count, a):
    """Steps that read the next part of a long prompt beside `count` texts that write, as the engine computes them with chunked prefill: a step has a.chunk
    tokens, those of the texts among them. The prompt is read from its beginning, again and again."""
    size, length = a.chunk - count, a.chunk_context
    if size < 1:
        raise SystemExit(f"--chunk {a.chunk} has no room for a prompt beside {count} texts")
    steps = length // size
    decoding = Decoding(model, count, a.context, 3 * steps + a.profile)
    pages, network, first = decoding.pages, model._network, len(decoding.pages.keys[0]) // _paged.BLOCK
    pages.keys, pages.values = ([pf.cat([x, pf.randn(length, *x.shape[1:], dtype=x.dtype, device=x.device)]) for x in xs] for xs in (pages.keys, pages.values))
    own = list(range(first, first + length // _paged.BLOCK))

    def begin(i, found):
        parts = [*decoding.parts(found), _paged.Part([3] * size, i * size, own, False)]
        step = Step(network, pages, parts, *_paged.step_sizes(parts, count), found=found)
        step.start(model.config.vocab)
        decoding.at += 1
        return step

    def step(i):  # as in the engine, the next step begins before the host has the tokens of this one
        start = time.perf_counter()
        now = decoding.begun or begin(i, None)
        decoding.begun = begin((i + 1) % steps, now.next_ids)
        now.chosen()
        return time.perf_counter() - start, decoding.begun.recorded - start

    times = [[step(i) for i in range(steps)] for _ in range(3)][1:]  # the first time compiles
    times = [t for turn in times for t in turn]
    s, host = (statistics.median(x) for x in zip(*times))
    layers, hidden, heads, kv_heads, head, inner, _ = SHAPES[shape]
    chosen = EXPERTS[shape][1] if shape in EXPERTS else 1
    products = 2 * layers * (hidden * head * (2 * heads + 2 * kv_heads) + 3 * hidden * inner * chosen) * a.chunk
    row = {"program": "pyflame chunk", "shape": shape, "weights": kind, "sequences": count, "context": a.context, "chunk": a.chunk, "prompt": length, "ms": s * 1e3, "ms_first_part": times[0][0] * 1e3, "ms_last_part": times[-1][0] * 1e3,
           "ms_recording": host * 1e3, "TFLOP_per_s": products / s / 1e12}
    print(", ".join(f"{k} {v:.4g}" if isinstance(v, float) else f"{k} {v}" for k, v in row.items()), flush=True)
    if a.profile:
        with pf.profiler.profile() as prof:
            for _ in range(a.profile):
                step(steps // 2)
        print(prof.key_averages().table(sort_by="self_device_time_total", row_limit=24), flush=True)
    return row


def measure_prompts(model, shape, kind, count, length, a):
    """Steps that read `count` prompts of `length` tokens each, from their beginning to the end. The arithmetic that counts: all products of the layers, the scores and
    sums of attention for the keys that a token sees, and the logits of each prompt's last token."""
    layers, hidden, heads, kv_heads, head, inner, vocab = SHAPES[shape]
    network, each = model._network, -(-length // _paged.BLOCK)
    pages = _paged.Pages(network, count * each)
    order = (np.random.default_rng(0).permutation(count * each) + 1).tolist()
    ids = np.random.default_rng(1).integers(0, vocab, (count, length)).tolist()

    def step():
        parts = [_paged.Part(ids[i], 0, order[i * each:(i + 1) * each], True) for i in range(count)]
        begin = time.perf_counter()
        now = Step(network, pages, parts, *_paged.step_sizes(parts, count))
        now.start(vocab)
        now.chosen()
        return time.perf_counter() - begin

    times = [step() for _ in range(a.warmup + a.steps)][a.warmup:]
    tokens, s = count * length, statistics.median(times)
    operations = 2 * tokens * layers * (hidden * head * (2 * heads + 2 * kv_heads) + 3 * hidden * inner) + count * (2 * hidden * vocab + 4 * layers * heads * head * length * (length + 1) // 2)
    row = {"program": "pyflame prompts", "shape": shape, "weights": kind, "prompts": count, "length": length, "ms": s * 1e3, "ms_least": min(times) * 1e3, "tokens_per_s": tokens / s, "TFLOP_per_s": operations / s / 1e12}
    print(", ".join(f"{k} {v:.4g}" if isinstance(v, float) else f"{k} {v}" for k, v in row.items()), flush=True)
    if a.profile:
        with pf.profiler.profile() as prof:
            step()
        print(prof.key_averages().table(sort_by="self_device_time_total", row_limit=24), flush=True)
    return row


def measure_torch_prompts(shape, count, length, a):
    """The same by PyTorch, eagerly: its products and its fastest attention for this case."""
    import torch
    import torch.nn.functional as F

    layers, hidden, heads, kv_heads, head, inner, vocab = SHAPES[shape]
    kind = dict(dtype=torch.bfloat16, device=a.device)
    weight = lambda n, k: torch.randn(n, k, **kind) * 0.02  # noqa: E731
    embedding, output, ones = torch.randn(vocab, hidden, **kind), weight(vocab, hidden), torch.ones(hidden, **kind)
    blocks = [(weight((heads + 2 * kv_heads) * head, hidden), weight(hidden, heads * head), weight(2 * inner, hidden), weight(hidden, inner)) for _ in range(layers)]
    keys, values = (torch.empty(layers, count, kv_heads, length, head, **kind) for _ in range(2))
    turns = torch.arange(length, device=a.device)[:, None] * 500000.0 ** (-torch.arange(0, head, 2, device=a.device) / head)
    cos, sin = (f(torch.cat([turns, turns], 1)).to(torch.bfloat16) for f in (torch.cos, torch.sin))
    rotated = lambda x: x * cos + torch.cat([-x[..., head // 2:], x[..., : head // 2]], -1) * sin  # noqa: E731
    ids = torch.randint(0, vocab, (count, length), device=a.device)

    @torch.no_grad()
    def step():
        x = F.embedding(ids, embedding)
        for i, (qkv, o, up, down) in enumerate(blocks):
            y = F.rms_norm(x, (hidden,), ones, 1e-5)
            q, k, v = F.linear(y, qkv).view(count, length, -1, head).transpose(1, 2).split([heads, kv_heads, kv_heads], 1)
            q, k = rotated(q), rotated(k)
            keys[i], values[i] = k, v
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
            x = x + F.linear(y.transpose(1, 2).reshape(count, length, -1), o)
            gate, more = F.linear(F.rms_norm(x, (hidden,), ones, 1e-5), up).chunk(2, -1)
            x = x + F.linear(F.silu(gate) * more, down)
        return F.linear(F.rms_norm(x[:, -1], (hidden,), ones, 1e-5), output).float().argmax(1)

    def timed(backend):
        from torch.nn.attention import sdpa_kernel
        seconds = []
        with sdpa_kernel([backend]):
            for _ in range(a.warmup + a.steps):
                begin = time.perf_counter()
                step().cpu()
                seconds.append(time.perf_counter() - begin)
        return seconds[a.warmup:]

    best, error = None, None
    for backend in ("CUDNN_ATTENTION", "FLASH_ATTENTION"):
        from torch.nn.attention import SDPBackend
        try:
            times = timed(getattr(SDPBackend, backend))
        except RuntimeError as e:
            error = e
            print(f"torch eager, {backend}: {e}", flush=True)
            continue
        s = statistics.median(times)
        row = {"program": "torch eager", "attention": backend, "shape": shape, "weights": "bfloat16", "prompts": count, "length": length, "ms": s * 1e3, "ms_least": min(times) * 1e3, "tokens_per_s": count * length / s}
        print(", ".join(f"{k} {v:.4g}" if isinstance(v, float) else f"{k} {v}" for k, v in row.items()), flush=True)
        best = row if best is None or row["ms"] < best["ms"] else best
    if best is None:
        raise SystemExit(f"torch eager: no attention runs; the last one: {error}")
    return best


def measure_torch(shape, count, a):
    import torch
    import torch.nn.functional as F

    layers, hidden, heads, kv_heads, head, inner, vocab = SHAPES[shape]
    kind = dict(dtype=torch.bfloat16, device=a.device)
    weight = lambda n, k: torch.randn(n, k, **kind) * 0.02  # noqa: E731
    room = a.context + a.warmup + a.steps
    embedding, output, ones = torch.randn(vocab, hidden, **kind), weight(vocab, hidden), torch.ones(hidden, **kind)
    experts, chosen = EXPERTS.get(shape, (0, 0))
    stack = lambda n, k: weight(experts * n, k).view(experts, n, k) if experts else weight(n, k)  # noqa: E731
    routers = [weight(experts, hidden) for _ in range(layers)] if experts else [None] * layers
    blocks = [(weight((heads + 2 * kv_heads) * head, hidden), weight(hidden, heads * head), stack(2 * inner, hidden), stack(hidden, inner), torch.randn(count, kv_heads, room, head, **kind), torch.randn(count, kv_heads, room, head, **kind)) for _ in range(layers)]
    turns = torch.arange(room, device=a.device)[:, None] * 500000.0 ** (-torch.arange(0, head, 2, device=a.device) / head)
    cos, sin = (f(torch.cat([turns, turns], 1)).to(torch.bfloat16) for f in (torch.cos, torch.sin))

    def rotated(x, at):
        return x * cos[at] + torch.cat([-x[..., head // 2:], x[..., : head // 2]], -1) * sin[at]

    def feed_forward(y, up, down, router):
        if not experts:
            gate, more = F.linear(y, up).chunk(2, -1)
            return F.linear(F.silu(gate) * more, down)
        share, which = F.linear(y, router).float().softmax(-1).topk(chosen, -1)
        which = which.reshape(-1)
        order = which.argsort(stable=True)
        offs = torch.histc(which.float(), experts, 0, experts - 1).cumsum(0).int()  # bincount would wait for the device
        gate, more = F.grouped_mm(y[order // chosen], up.transpose(1, 2), offs=offs).chunk(2, -1)
        z = F.grouped_mm(F.silu(gate) * more, down.transpose(1, 2), offs=offs)
        z = torch.empty_like(z).index_copy_(0, order, z).view(count, chosen, -1)
        return (z * (share / share.sum(-1, keepdim=True)).unsqueeze(-1)).sum(1).to(y.dtype)

    @torch.no_grad()
    def step(ids, at):
        x = F.embedding(ids, embedding)
        for (qkv, o, up, down, keys, values), router in zip(blocks, routers):
            y = F.rms_norm(x, (hidden,), ones, 1e-5)
            q, k, v = F.linear(y, qkv).view(count, 1, -1, head).transpose(1, 2).split([heads, kv_heads, kv_heads], 1)
            keys[:, :, at:at + 1], values[:, :, at:at + 1] = rotated(k, at), v
            y = F.scaled_dot_product_attention(rotated(q, at), keys[:, :, : at + 1], values[:, :, : at + 1], enable_gqa=True)
            x = x + F.linear(y.transpose(1, 2).reshape(count, -1), o)
            x = x + feed_forward(F.rms_norm(x, (hidden,), ones, 1e-5), up, down, router)
        return F.linear(F.rms_norm(x, (hidden,), ones, 1e-5), output).float().argmax(1)

    ids, seconds = torch.arange(count, device=a.device), []
    for i in range(a.warmup + a.steps):
        begin = time.perf_counter()
        ids = step(ids, a.context + i)
        ids.cpu()
        seconds.append(time.perf_counter() - begin)
    return summary("torch eager", shape, "bfloat16", count, a.context, seconds[a.warmup:])


def measure_products(kind, rows, outputs, columns, device):
    """A product alone, with eight weights in turns."""
    weights = [random_weight(kind, outputs, columns, device) for _ in range(8)]
    for w in weights:
        if kind != "bfloat16":
            w.tile()
    x = pf.randn(rows, columns, dtype=pf.bfloat16, device=device)

    def turn():
        with pf.no_grad():
            return [w.linear(x) if kind != "bfloat16" else pf.nn.functional.linear(x, w) for w in weights]

    for _ in range(8):
        y = turn()
        pf.synchronize()
    seconds = []
    for _ in range(5):
        begin = time.perf_counter()
        for _ in range(10):
            y = turn()
        pf.synchronize()
        seconds.append((time.perf_counter() - begin) / 80)
    assert y
    s = min(seconds)
    size = bytes_of(kind, outputs * columns)
    print(f"product {kind} rows {rows} weight {outputs}x{columns}: {s * 1e6:.1f} us, {size / s / 1e9:.0f} GB/s", flush=True)
    return {"program": "pyflame product", "weights": kind, "rows": rows, "outputs": outputs, "columns": columns, "us": s * 1e6, "GB_per_s": size / s / 1e9}


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--device", default="cuda")
    p.add_argument("--shape", default="8b", help=f"any of {', '.join(SHAPES)}, with commas")
    p.add_argument("--weights", default="bfloat16", help=f"any of {', '.join(KINDS)}, with commas")
    p.add_argument("--sequences", default="1,8,32,128")
    p.add_argument("--context", type=int, default=550)
    p.add_argument("--steps", type=int, default=24)
    p.add_argument("--warmup", type=int, default=16)
    p.add_argument("--profile", type=int, default=0, help="so many more steps under the profiler")
    p.add_argument("--engine", action="store_true", help="through pf.llm.Engine, too")
    p.add_argument("--temperature", default="0", help="of the texts of --engine; several with commas; 0 takes the likeliest token")
    p.add_argument("--torch", action="store_true", help="PyTorch, too")
    p.add_argument("--chunk", type=int, default=0, metavar="N", help="steps of N tokens that read a long prompt beside the texts that write, and nothing else")
    p.add_argument("--chunk_context", type=int, default=8192, metavar="N", help="tokens of that prompt")
    p.add_argument("--prompts", default="", metavar="NxL", help="steps that read N prompts of L tokens, such as 8x512, and nothing else; several with commas")
    p.add_argument("--products", action="store_true", help="only products, for 1, 8 and 32 rows")
    p.add_argument("--json", help="a file for the results")
    a = p.parse_args()
    counts, rows = [int(n) for n in a.sequences.split(",")], []
    for shape in a.shape.split(","):
        _, hidden, _, _, _, inner, _ = SHAPES[shape]
        prompts = [tuple(int(n) for n in each.split("x")) for each in a.prompts.split(",") if each]
        for kind in a.weights.split(","):
            if a.products:
                rows += [measure_products(kind, n, *size, a.device) for size in ((2 * inner, hidden), (hidden, inner)) for n in (1, 8, 32)]
                continue
            model = random_model(shape, kind, a.device, 1 << (max([a.context, a.chunk and a.chunk_context, *(n for _, n in prompts)]) + 255).bit_length())
            if prompts:
                rows += [measure_prompts(model, shape, kind, *each, a) for each in prompts]
                del model
                continue
            for count in counts:
                if a.chunk:
                    rows.append(measure_chunks(model, shape, kind, count, a))
                    continue
                rows.append(measure(model, shape, kind, count, a))
                if a.engine:
                    rows += [measure_engine(model, shape, kind, count, float(t), a) for t in a.temperature.split(",")]
            del model
        if a.torch and prompts:
            rows += [measure_torch_prompts(shape, *each, a) for each in prompts]
        elif a.torch:
            rows += [measure_torch(shape, count, a) for count in counts]
    if a.json:
        info = pf.device_info(a.device)
        with open(a.json, "w") as f:
            json.dump({"device": {k: info[k] for k in ("name", "architecture")}, "version": pf.__version__, "rows": rows}, f, indent=1)


if __name__ == "__main__":
    main()
