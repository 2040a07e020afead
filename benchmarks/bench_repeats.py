#!/usr/bin/env python3
"""How well pf.bench repeats: measures a short op in several fresh processes, and prints how far their figures lie apart.

    python benchmarks/bench_repeats.py                      # on the CPU
    python benchmarks/bench_repeats.py --device rocm --op matmul --json repeats.json

The op adds two vectors, or multiplies two square matrices. --size chooses their length; by default it is searched for, so that a call takes about 5 us. The range is the distance of the
largest and the smallest figure, relative to their median. The exit code is 1 if it is over --most (2 %).
"""
import argparse
import json
import statistics
import subprocess
import sys

TARGET_MS = 5e-3


SMALLEST = {"add": 1024, "matmul": 32}


def _op(name, device, size):
    import pyflame as pf

    shape = (size,) if name == "add" else (size, size)
    return getattr(pf, name), pf.randn(*shape, device=device), pf.randn(*shape, device=device)


def one(name, device, size, seconds):
    """The measurement of one process, printed as JSON."""
    import pyflame as pf

    fn, x, y = _op(name, device, size)
    m = pf.bench(fn, x, y, device=device, max_seconds=seconds)
    low, high = m.interval
    print(json.dumps({"us": m.median * 1e3, "low_us": low * 1e3, "high_us": high * 1e3, "spread": m.spread, "accepted": m.accepted, "reasons": m.reasons}))


def size_of_target(name, device):
    """The size for which a call takes about 5 us; the smallest one if even that takes longer."""
    import pyflame as pf

    size = SMALLEST[name]
    while size < 1 << 24:
        fn, x, y = _op(name, device, 2 * size)
        if pf.bench(fn, x, y, device=device, max_seconds=0.5).median > TARGET_MS:
            break
        size *= 2
    return size


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--processes", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=10.0, help="the longest time for one figure")
    parser.add_argument("--op", default="add", choices=SMALLEST)
    parser.add_argument("--size", type=int, help="the length of the vectors, or the rows of the matrices; default: such that a call takes about 5 us")
    parser.add_argument("--most", type=float, default=2.0, help="percent")
    parser.add_argument("--json", help="write the figures here")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.processes < 2:
        parser.error("--processes is at least 2")
    if args.one:
        return one(args.op, args.device, args.size, args.seconds)
    size = args.size or size_of_target(args.op, args.device)
    found = []
    for k in range(args.processes):
        command = [sys.executable, __file__, "--one", f"--device={args.device}", f"--op={args.op}", f"--size={size}", f"--seconds={args.seconds}"]
        r = subprocess.run(command, capture_output=True, text=True)
        if r.returncode:
            print(r.stderr, end="", file=sys.stderr)
            return 1
        found.append(json.loads(r.stdout))
        m = found[-1]
        print(f"process {k + 1}: {m['us']:.3f} us [{m['low_us']:.3f}, {m['high_us']:.3f}], spread {m['spread']:.1%}{'' if m['accepted'] else ', rejected'}", flush=True)
    figures = [m["us"] for m in found]
    apart = (max(figures) - min(figures)) / statistics.median(figures)
    print(f"{args.op} of {size} float32 on {args.device}: {statistics.median(figures):.3f} us, range {apart:.2%} over {len(figures)} processes")
    if args.json:
        with open(args.json, "w", encoding="utf-8") as f:
            json.dump({"device": args.device, "op": args.op, "size": size, "range": apart, "processes": found}, f, indent=1)
            f.write("\n")
    return 0 if 100 * apart <= args.most else 1


if __name__ == "__main__":
    sys.exit(main())
