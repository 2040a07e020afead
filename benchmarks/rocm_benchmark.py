#!/usr/bin/env python3
"""How fast a GPU runs PyFlame: times and rates of single ops, and a training step.

    python benchmarks/rocm_benchmark.py --all
    python benchmarks/rocm_benchmark.py --matmul --conv
    python benchmarks/rocm_benchmark.py --all --iterations 200 --warmup 20 --json results.json

It is a face of pf.bench: each line is the median of samples, and the 95 % interval of it. --iterations is the least number of samples, and --seconds the longest
time for one line; the warm-up ends by itself when two groups of samples agree, so --warmup has no effect and is accepted for old command lines. Nothing is compared
here: benchmarks/compare_torch.py does that. `pyflame bench` measures the same work and keeps records.
"""
import argparse
import json
import os
import sys

import pyflame as pf
from pyflame.benchmarking import problems

GROUPS = {"matmul": problems.gemm, "conv": problems.conv, "elementwise": problems.elementwise, "reductions": problems.reduce, "attention": problems.attention,
          "train": problems.model}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--all", action="store_true", help="every group (the default when none is named)")
    for group in GROUPS:
        parser.add_argument(f"--{group}", action="store_true")
    parser.add_argument("--iterations", type=int, default=100, help="the least number of samples")
    parser.add_argument("--warmup", type=int, default=10, help="accepted for old command lines; the warm-up ends by itself")
    parser.add_argument("--seconds", type=float, default=10.0, help="the longest time for one line")
    parser.add_argument("--device", default="rocm", help="'rocm', 'rocm:1', 'cuda', 'cpu' (default: rocm)")
    parser.add_argument("--scale", type=int, default=1, help="divides the sizes: 8 makes everything small enough for a CPU")
    parser.add_argument("--json", help="write the results here")
    args = parser.parse_args()
    if args.iterations < 1 or args.scale < 1 or args.seconds <= 0:
        parser.error("--iterations and --scale are at least 1, and --seconds is positive")
    try:
        pf.set_device(args.device)
    except pf.DeviceError as e:
        print(e, file=sys.stderr)
        return 1
    info = pf.device_info()
    print(f"{info['name']} ({info['architecture']}), PyFlame {pf.__version__}, at least {max(3, args.iterations)} samples a line")
    print(f"{'':48} {'median ms':>10} {'interval ms':>19} {'TFLOP/s':>9} {'GB/s':>8}")
    wanted = [g for g in GROUPS if getattr(args, g)]
    results = []
    for group in GROUPS if args.all or not wanted else wanted:
        for p in GROUPS[group](args.scale):
            with pf.set_grad_enabled(p.train):
                m = pf.bench(p.call, device=args.device, min_samples=max(3, args.iterations), max_seconds=args.seconds, name=p.name, flops=p.flops, bytes=p.bytes)
            low, high = m.interval
            rate = f"{m.tflops:9.2f}" if p.flops else f"{'':9}"
            print(f"{p.name:48} {m.median:10.4f} {f'{low:.4f} {high:.4f}':>19} {rate} {f'{m.gbs:8.0f}' if p.bytes else ''}{'' if m.accepted else '  spread over 10 %'}", flush=True)
            results.append({"group": group, "work": p.name, "median_ms": m.median, "interval_ms": [low, high], "spread": m.spread, "accepted": m.accepted, "flops": p.flops, "bytes": p.bytes})
    if args.json:
        os.makedirs(os.path.dirname(os.path.abspath(args.json)), exist_ok=True)
        with open(args.json, "w", encoding="utf-8") as f:
            json.dump({"device": info, "version": pf.__version__, "iterations": args.iterations, "results": results}, f, indent=1)
            f.write("\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
