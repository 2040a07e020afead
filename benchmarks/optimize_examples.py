#!/usr/bin/env python3
"""What `pyflame optimize` finds for the programs in examples/optimize.

Each program is optimized in a folder of its own. The figure is the last comparison: the program as it was against the program with all that is kept, in
turns, in fresh processes. Above 1, the settings make it faster.

    python benchmarks/optimize_examples.py --device cuda --budget 240 --json results.json
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "examples", "optimize")
PROGRAMS = {"projections": 0.6, "resnet": 1.0, "reading_loss": 1.3, "padded_attention": 1.1}  # the share of the budget: their runs differ in length


def optimize(name, args, folder):
    """The journal's events, by kind."""
    command = [sys.executable, "-m", "pyflame.optimizing", "--budget", f"{args.budget * PROGRAMS[name]:.0f}s", "--pairs", str(args.pairs), "--level", str(args.level), "--out", os.path.join(folder, name)]
    subprocess.run([*command, "--", os.path.join(FOLDER, f"{name}.py"), "--device", args.device, *(["--small"] if args.small else [])], check=False)
    events = {}
    with open(os.path.join(folder, name, "optimize.jsonl"), encoding="utf-8") as journal:
        for line in journal:
            event = json.loads(line)
            events.setdefault(event["event"], []).append(event)
    return events


def result_of(name, events):
    base, total = events.get("baseline", [{}])[0], events.get("total", [{}])[-1]
    trials = [{key: e.get(key) for key in ("name", "verdict", "ratio", "low", "high", "why")} for e in events.get("candidate", [])]
    return {"program": name, "baseline_seconds": base.get("figures"), "ratio": total.get("ratio"), "low": total.get("low"), "high": total.get("high"), "verdict": total.get("verdict", "nothing kept"), "trials": trials,
            "stopped": [e.get("why") for e in events.get("stopped", [])], "untried": [n for e in events.get("budget", []) for n in e.get("untried", [])]}


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--device", default="cpu")
    p.add_argument("--small", action="store_true", help="the programs' small sizes")
    p.add_argument("--budget", type=float, default=240, help="seconds for a program, on average")
    p.add_argument("--pairs", type=int, default=5)
    p.add_argument("--level", type=int, default=4)
    p.add_argument("--only", nargs="*", choices=sorted(PROGRAMS), default=list(PROGRAMS))
    p.add_argument("--json")
    args = p.parse_args()
    import pyflame as pf

    from pyflame.benchmarking.environment import describe

    found = []
    with tempfile.TemporaryDirectory() as folder:
        for name in args.only:
            found.append(result_of(name, optimize(name, args, folder)))
            one = found[-1]
            kept = ", ".join(t["name"] for t in one["trials"] if t["verdict"] == "kept")
            print(f"{name:20} {one['verdict'] if one['ratio'] is None else '%.2f times [%.2f, %.2f]' % (one['ratio'], one['low'], one['high'])}  kept: {kept or 'nothing'}", flush=True)
    if args.json:
        with open(args.json, "w", encoding="utf-8") as f:
            json.dump({"environment": describe(args.device), "budget": args.budget, "pairs": args.pairs, "small": args.small, "version": pf.__version__, "results": found}, f, indent=1)


if __name__ == "__main__":
    sys.exit(main())
