"""How near a fused loop of elementwise ops comes to what a copy reaches: gelu(x·w + b) + r with operands of full size, a copy by PyFlame, and
the C library's memcpy on as many threads, in turns in one process.

    python benchmarks/overhead/bandwidth.py [--elements 16777216] [--turns 30] [--json FILE]

Bytes are those that must move: the chain reads four arrays and writes one, a copy reads one and writes one. Of each the fastest
turn counts: whatever disturbs makes it slower. They take turns, so that none has the quieter machine; a busy one still gives wrong figures, because a
long turn is disturbed more often than a short one.
"""
import argparse
import concurrent.futures
import json
import time

import numpy as np
import pyflame as pf
from pyflame.nn import functional as F


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--elements", type=int, default=1 << 24)
    parser.add_argument("--turns", type=int, default=30)
    parser.add_argument("--json", help="write the results here")
    args = parser.parse_args()
    x, w, b, r = (pf.rand(args.elements) for _ in range(4))
    threads = pf.get_num_threads()
    parts = list(zip(np.array_split(x.clone().numpy(), threads), np.array_split(np.empty(args.elements, np.float32), threads)))
    pool = concurrent.futures.ThreadPoolExecutor(threads)
    kinds = {
        "gelu_chain": (lambda: F.gelu(x * w + b) + r, 5),
        "copy": (lambda: x.clone(), 2),
        "memcpy": (lambda: list(pool.map(lambda p: np.copyto(p[1], p[0]), parts)), 2),
    }
    times = {k: [] for k in kinds}
    for turn in range(3 + args.turns):
        for kind, (f, _) in kinds.items():
            pf.synchronize()
            start = time.perf_counter()
            out = f()
            pf.synchronize()
            if turn >= 3:
                times[kind].append(time.perf_counter() - start)
            del out
    result = {"elements": args.elements, "dtype": "float32", "threads": threads, "turns": args.turns,
              "ms": {k: round(min(t) * 1e3, 3) for k, t in times.items()},
              "gb_per_s": {k: round(arrays * 4e-9 * args.elements / min(times[k]), 2) for k, (_, arrays) in kinds.items()}}
    for k in kinds:
        print(f"{k:12} {result['ms'][k]:8.3f} ms {result['gb_per_s'][k]:8.2f} GB/s")
    if args.json:
        with open(args.json, "w") as f:
            json.dump(result, f, indent=1)
            f.write("\n")


if __name__ == "__main__":
    main()
