#!/usr/bin/env python3
"""How well pf.bench repeats: measures a short op in several fresh processes, and prints how far their figures lie apart.

    python benchmarks/bench_repeats.py                      # on the CPU
    python benchmarks/bench_repeats.py --device rocm --json repeats.json

The op adds two vectors. --elements chooses its length; by default it is searched for, so that a call takes about 5 us. The range is the distance of the
largest and the smallest figure, relative to their median. The exit code is 1 if it is over --most (2 %).
"""
import argparse
import json
import statistics
import subprocess
import sys

TARGET_MS = 5e-3


def _add(device, elements):
    import pyflame as pf

    x, y = pf.randn(elements, device=device), pf.randn(elements, device=device)
    return pf.add, x, y


def one(device, elements, seconds):
    """The measurement of one process, printed as JSON."""
    import pyflame as pf

    fn, x, y = _add(device, elements)
    m = pf.bench(fn, x, y, device=device, max_seconds=seconds)
    low, high = m.interval
    print(json.dumps({"us": m.median * 1e3, "low_us": low * 1e3, "high_us": high * 1e3, "spread": m.spread, "accepted": m.accepted, "reasons": m.reasons}))


def elements_of_target(device):
    """The length for which a call takes about 5 us; 1024 if even that takes longer."""
    import pyflame as pf

    elements = 1024
    while elements < 1 << 24:
        fn, x, y = _add(device, 2 * elements)
        if pf.bench(fn, x, y, device=device, max_seconds=0.5).median > TARGET_MS:
            break
        elements *= 2
    return elements


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--processes", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=10.0, help="the longest time for one figure")
    parser.add_argument("--elements", type=int, help="the length of the vectors; default: such that a call takes about 5 us")
    parser.add_argument("--most", type=float, default=2.0, help="percent")
    parser.add_argument("--json", help="write the figures here")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.processes < 2:
        parser.error("--processes is at least 2")
    if args.one:
        return one(args.device, args.elements, args.seconds)
    elements = args.elements or elements_of_target(args.device)
    found = []
    for k in range(args.processes):
        command = [sys.executable, __file__, "--one", f"--device={args.device}", f"--elements={elements}", f"--seconds={args.seconds}"]
        r = subprocess.run(command, capture_output=True, text=True)
        if r.returncode:
            print(r.stderr, end="", file=sys.stderr)
            return 1
        found.append(json.loads(r.stdout))
        m = found[-1]
        print(f"process {k + 1}: {m['us']:.3f} us [{m['low_us']:.3f}, {m['high_us']:.3f}], spread {m['spread']:.1%}{'' if m['accepted'] else ', rejected'}", flush=True)
    figures = [m["us"] for m in found]
    apart = (max(figures) - min(figures)) / statistics.median(figures)
    print(f"add of {elements} float32 on {args.device}: {statistics.median(figures):.3f} us, range {apart:.2%} over {len(figures)} processes")
    if args.json:
        with open(args.json, "w", encoding="utf-8") as f:
            json.dump({"device": args.device, "elements": elements, "range": apart, "processes": found}, f, indent=1)
            f.write("\n")
    return 0 if 100 * apart <= args.most else 1


if __name__ == "__main__":
    sys.exit(main())
