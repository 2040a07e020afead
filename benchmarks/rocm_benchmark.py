#!/usr/bin/env python3
"""How fast a GPU runs PyFlame: times and rates of single ops, and a training step.

    python benchmarks/rocm_benchmark.py --all
    python benchmarks/rocm_benchmark.py --matmul --conv
    python benchmarks/rocm_benchmark.py --all --iterations 200 --warmup 20 --json results.json

Each line is the median of `--iterations` calls, timed one by one between synchronisations, and the quartiles around it. A call that is
shorter than the synchronisation itself is repeated within one measurement. Nothing is compared here: benchmarks/compare_torch.py does that.
"""
import argparse
import json
import os
import statistics
import sys
import time

import pyflame as pf
from pyflame.nn import functional as F

MIN_SECONDS = 200e-6  # of one measurement: a synchronisation costs about a hundredth of that


def timed(call, iterations, warmup):
    """Seconds of one call: a list of `iterations` measurements."""
    for _ in range(max(1, warmup)):
        call()
    pf.synchronize()
    start = time.perf_counter()
    call()
    pf.synchronize()
    repeats = max(1, round(MIN_SECONDS / max(time.perf_counter() - start, 1e-9)))
    times = []
    for _ in range(iterations):
        start = time.perf_counter()
        for _ in range(repeats):
            call()
            pf.cut()  # calls that could be fused with each other would say nothing about one call
        pf.synchronize()
        times.append((time.perf_counter() - start) / repeats)
    return times


def matmul(scale):
    for dtype in (pf.float32, pf.float16, pf.bfloat16):
        for n in (512, 1024, 2048, 4096):
            n //= scale
            a, b = pf.randn(n, n).to(dtype), pf.randn(n, n).to(dtype)
            yield f"matmul {n}x{n}x{n} {name(dtype)}", lambda a=a, b=b: pf.matmul(a, b), 2 * n**3, 3 * n * n * a.itemsize
    for m in (1, 16, 64):
        n = 4096 // scale
        a, b = pf.randn(m, n).to(pf.bfloat16), pf.randn(n, n).to(pf.bfloat16)
        yield f"matmul {m}x{n}x{n} bfloat16", lambda a=a, b=b: pf.matmul(a, b), 2 * m * n * n, (n * n + 2 * m * n) * 2


def conv(scale):
    batch = max(1, 32 // scale)
    for c, size, k, kernel, stride in ((3, 224, 64, 7, 2), (64, 56, 64, 3, 1), (128, 28, 128, 3, 1), (256, 14, 256, 3, 1), (512, 7, 512, 3, 1), (256, 14, 1024, 1, 1)):
        c, k, size = max(1, c // scale), max(1, k // scale), max(kernel, size // scale)
        x, w = pf.randn(batch, c, size, size), pf.randn(k, c, kernel, kernel)
        y = F.conv2d(x, w, stride=stride, padding=kernel // 2)
        yield (f"conv {kernel}x{kernel} {c}->{k} {size}x{size} b{batch} float32", lambda x=x, w=w, s=stride, p=kernel // 2: F.conv2d(x, w, stride=s, padding=p),
               2 * y.numel() * c * kernel * kernel, 4 * (x.numel() + w.numel() + y.numel()))


def elementwise(scale):
    n = (64 << 20) // scale**3
    x, y = pf.randn(n), pf.randn(n)
    for what, call, arrays in (("copy", lambda: x.clone(), 2), ("add", lambda: x + y, 3), ("relu", lambda: F.relu(x), 2), ("gelu", lambda: F.gelu(x), 2),
                               ("silu", lambda: F.silu(x), 2), ("gelu(x * y + y) + x", lambda: F.gelu(x * y + y) + x, 3)):
        yield f"{what} {n} float32", call, None, arrays * n * 4


def reductions(scale):
    rows, width = max(1, (64 << 20) // scale**3 // 4096), 4096
    x = pf.randn(rows, width)
    for what, call, arrays in (("sum", lambda: x.sum(), 1), ("sum of rows", lambda: x.sum(1), 1), ("sum of columns", lambda: x.sum(0), 1), ("softmax", lambda: F.softmax(x, -1), 2),
                               ("layer_norm", lambda: F.layer_norm(x, (width,)), 2)):
        yield f"{what} {rows}x{width} float32", call, None, arrays * x.numel() * 4


def attention(scale):
    t = max(16, 2048 // scale)
    for d in (64, 128):
        q = pf.randn(4, 16 // min(scale, 16), t, d).to(pf.bfloat16)
        yield (f"attention {'x'.join(map(str, q.shape))} causal bfloat16", lambda q=q: F.scaled_dot_product_attention(q, q, q, is_causal=True),
               2 * q.shape[0] * q.shape[1] * t * t * d, 4 * q.numel() * 2)


def train(scale):
    nn = pf.nn
    model = nn.Sequential(nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 10))
    optimizer = pf.optim.Adam(model.parameters(), lr=1e-3)
    x, y = pf.randn(32, 784), pf.randint(0, 10, (32,))

    def step():
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()

    yield "training step 784-256-128-10 b32", step, None, None


GROUPS = {"matmul": matmul, "conv": conv, "elementwise": elementwise, "reductions": reductions, "attention": attention, "train": train}


def name(dtype):
    return str(dtype).rsplit(".", 1)[-1]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--all", action="store_true", help="every group (the default when none is named)")
    for group in GROUPS:
        parser.add_argument(f"--{group}", action="store_true")
    parser.add_argument("--iterations", type=int, default=100)
    parser.add_argument("--warmup", type=int, default=10)
    parser.add_argument("--device", default="rocm", help="'rocm', 'rocm:1', 'cuda', 'cpu' (default: rocm)")
    parser.add_argument("--scale", type=int, default=1, help="divides the sizes: 8 makes everything small enough for a CPU")
    parser.add_argument("--json", help="write the results here")
    args = parser.parse_args()
    if args.iterations < 1 or args.scale < 1:
        parser.error("--iterations and --scale are at least 1")
    try:
        pf.set_device(args.device)
    except pf.DeviceError as e:
        print(e, file=sys.stderr)
        return 1
    info = pf.device_info()
    print(f"{info['name']} ({info['architecture']}), PyFlame {pf.__version__}, {args.iterations} iterations after {args.warmup}")
    print(f"{'':48} {'median ms':>10} {'quartiles ms':>19} {'TFLOP/s':>9} {'GB/s':>8}")
    wanted = [g for g in GROUPS if getattr(args, g)]
    results = []
    for group in GROUPS if args.all or not wanted else wanted:
        for label, call, flops, nbytes in GROUPS[group](args.scale):
            with pf.set_grad_enabled(group == "train"):
                times = timed(call, args.iterations, args.warmup)
            low, middle, high = (t * 1e3 for t in statistics.quantiles(times, n=4, method="inclusive")) if len(times) > 1 else [times[0] * 1e3] * 3
            rate = f"{flops / middle / 1e9:9.2f}" if flops else f"{'':9}"
            print(f"{label:48} {middle:10.4f} {f'{low:.4f} {high:.4f}':>19} {rate} {f'{nbytes / middle / 1e6:8.0f}' if nbytes else ''}", flush=True)
            results.append({"group": group, "work": label, "median_ms": middle, "quartiles_ms": [low, high], "flops": flops, "bytes": nbytes})
    if args.json:
        os.makedirs(os.path.dirname(os.path.abspath(args.json)), exist_ok=True)
        with open(args.json, "w", encoding="utf-8") as f:
            json.dump({"device": info, "version": pf.__version__, "iterations": args.iterations, "results": results}, f, indent=1)
            f.write("\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
