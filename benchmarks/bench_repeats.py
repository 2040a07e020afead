#!/usr/bin/env python3
"""How well pf.bench repeats: measures a short op in several fresh processes, and prints how far their figures lie apart.

    python benchmarks/bench_repeats.py                      # on the CPU
    python benchmarks/bench_repeats.py --device rocm --op matmul --json repeats.json
    python benchmarks/bench_repeats.py --within             # how much the places in memory matter

The op adds two vectors, or multiplies two square matrices. --size chooses their length; by default it is searched for, so that a call takes about 5 us. The range is the distance of the
largest and the smallest figure, relative to their median. The exit code is 1 if it is over --most (2 %).

--places is that of pf.bench: each process measures with copies of the operands at so many places in memory. --within tells how far the figures of one process differ between such places. Each turn's samples are taken relative to their median, so what changes from
turn to turn is not seen. The standard deviation of the places' medians is printed, and the correlation of those of even and of odd turns: near 1, the places differ; near 0, it is noise.
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


def one(name, device, size, seconds, places):
    """The measurement of one process, printed as JSON."""
    import pyflame as pf

    fn, x, y = _op(name, device, size)
    m = pf.bench(fn, x, y, device=device, max_seconds=seconds, places=places)
    low, high = m.interval
    print(json.dumps({"us": m.median * 1e3, "low_us": low * 1e3, "high_us": high * 1e3, "spread": m.spread, "accepted": m.accepted, "reasons": m.reasons}))


def within(name, device, size, count, rounds):
    """The places' relative medians in even and in odd turns; each round has operands of its own."""
    import numpy as np

    import pyflame as pf
    from pyflame.benchmarking import measure

    measure.STAY = dict.fromkeys(measure.STAY, 1)  # samples at a place: what disturbs for some milliseconds shall meet all places
    found = []
    for _ in range(rounds):
        fn, x, y = _op(name, device, size)
        m = pf.bench(fn, x, y, device=device, max_seconds=8.0, min_samples=1600 if device == "cpu" else 400, places=count)
        if one := next((note for note in m.notes if note.startswith(measure.FEWER_PLACES)), None):
            raise SystemExit(f"bench_repeats: {one}")
        turns = np.array(m.samples[:len(m.samples) // (2 * count) * 2 * count]).reshape(-1, count)
        turns /= np.median(turns, 1, keepdims=True)
        halves = [np.median(turns[half::2], 0) for half in (0, 1)]
        found.append({"us": m.median * 1e3, "even": halves[0].tolist(), "odd": halves[1].tolist()})
        print(f"{m.median * 1e3:.3f} us: " + " ".join(f"{a:.3f}/{b:.3f}" for a, b in zip(*halves, strict=True)), flush=True)
    even, odd = (np.concatenate([np.array(r[half]) - np.mean(r[half]) for r in found]) for half in ("even", "odd"))
    return {"deviation": float(np.std(even)), "correlation": float(np.corrcoef(even, odd)[0, 1]), "rounds": found}


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


def _write(args, result):
    if args.json:
        with open(args.json, "w", encoding="utf-8") as f:
            json.dump(result, f, indent=1)
            f.write("\n")
    return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--processes", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=10.0, help="the longest time for one figure")
    parser.add_argument("--op", default="add", choices=SMALLEST)
    parser.add_argument("--size", type=int, help="the length of the vectors, or the rows of the matrices; default: such that a call takes about 5 us")
    parser.add_argument("--most", type=float, default=2.0, help="percent")
    parser.add_argument("--places", type=int, default=1, help="of the operands, in each process")
    parser.add_argument("--within", action="store_true", help="how much the places in memory matter, in one process; --places of them, 8 unless given")
    parser.add_argument("--rounds", type=int, default=4, help="of --within: how often new operands are made")
    parser.add_argument("--json", help="write the figures here")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.processes < 2:
        parser.error("--processes is at least 2")
    if args.one:
        return one(args.op, args.device, args.size, args.seconds, args.places)
    size = args.size or size_of_target(args.op, args.device)
    if args.within:
        result = within(args.op, args.device, size, args.places if args.places > 1 else 8, args.rounds)
        print(f"{args.op} of {size} float32 on {args.device}: the places differ by {result['deviation']:.2%} (standard deviation); correlation of both halves {result['correlation']:.2f}")
        return _write(args, {"device": args.device, "op": args.op, "size": size, **result})
    found = []
    for k in range(args.processes):
        command = [sys.executable, __file__, "--one", f"--device={args.device}", f"--op={args.op}", f"--size={size}", f"--seconds={args.seconds}", f"--places={args.places}"]
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
    _write(args, {"device": args.device, "op": args.op, "size": size, "places": args.places, "range": apart, "processes": found})
    return 0 if 100 * apart <= args.most else 1


if __name__ == "__main__":
    sys.exit(main())
