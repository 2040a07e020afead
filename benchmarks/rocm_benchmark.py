#!/usr/bin/env python3
"""How fast a GPU runs PyFlame: times and rates of single ops, and a training step.

    python benchmarks/rocm_benchmark.py --all
    python benchmarks/rocm_benchmark.py --matmul --conv
    python benchmarks/rocm_benchmark.py --all --iterations 200 --warmup 20 --json results.json

Each line is the median of `--iterations` calls, timed one by one between synchronisations, and the quartiles around it. A call that is
shorter than the synchronisation itself is repeated within one measurement. Nothing is compared here: benchmarks/compare_torch.py does that.
`pyflame bench` measures the same work until its interval is narrow, and keeps records.
"""
import argparse
import json
import os
import statistics
import sys
import time

import pyflame as pf
from pyflame.benchmarking import problems

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


GROUPS = {"matmul": problems.gemm, "conv": problems.conv, "elementwise": problems.elementwise, "reductions": problems.reduce, "attention": problems.attention,
          "train": problems.model}


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
        for p in GROUPS[group](args.scale):
            label, flops, nbytes = p.name, p.flops, p.bytes
            with pf.set_grad_enabled(p.train):
                times = timed(p.call, args.iterations, args.warmup)
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
