#!/usr/bin/env python3
"""What the file of measurements costs a program: its start, and each look-up.

Fresh processes run with and without the file in turns (PYFLAME_TUNED=1 and 0); nothing is measured in them. The file holds `--rows` measurements of other problems of this
machine beside those that the program asks for. Each process prints three times: from the start of the interpreter to the first result, of a call whose program is
compiled already, and of the compilation of products of `--shapes` new shapes, one look-up each. So that what else runs on the machine counts little, the first is the
processor's time of the process, the second the median of 2,000 calls, and the last the processor's time of the thread. The first process after a change of the file makes a copy of the rows, which the others read; its start has a line
of its own (the copy is removed before it). The figures are medians over the processes; a cost is the median of the differences within a pair, with its quartiles.

    python benchmarks/tuning_database.py --json results.json
"""
import argparse
import json
import os
import pathlib
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time

CHILD = """
import sys, time
shapes = int(sys.argv[1])
import pyflame as pf
a, b = pf.randn(64, 64), pf.randn(64, 64)
(a @ b).sum().item()
start = time.process_time()

def call():
    y = a @ b
    pf.synchronize()
    return y

def timed(fn, clock=time.perf_counter):
    begin = clock()
    fn()
    return clock() - begin

for _ in range(200):
    call()
again = sorted(timed(call) for _ in range(2000))[1000]
pairs = [(pf.zeros(n, 8), pf.zeros(8, 8)) for n in range(100, 100 + shapes)]
for x, y in pairs:
    x.sum().item()

def compile():
    for x, y in pairs:
        z = x @ y
        pf.synchronize()

print(start, again, timed(compile, time.thread_time) / shapes)
"""


def measure(shapes):
    """A file as a session of tuning leaves it: the products of the child, each measured once."""
    import pyflame as pf

    with pf.tuning.measure(budget=60):
        for n in [64, *range(100, 100 + shapes)]:
            (pf.zeros(n, 8) @ pf.zeros(8, 8)).sum().item()
        (pf.randn(64, 64) @ pf.randn(64, 64)).sum().item()
    return pf.tuning.path()


def fill(path, rows):
    """Copies of a measured row for problems that nobody has."""
    with sqlite3.connect(path) as db:
        columns = [c[1] for c in db.execute("PRAGMA table_info(measurements)")]
        row = dict(zip(columns, db.execute("SELECT * FROM measurements LIMIT 1").fetchone()))
        for i in range(rows):
            copy = {**row, "problem": f"{row['problem']} copy {i}"}
            db.execute(f"INSERT INTO measurements ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})", [copy[n] for n in columns])
        return db.execute("SELECT count(*) FROM measurements").fetchone()[0]


def run(tuned, shapes):
    environment = {**os.environ, "PYFLAME_TUNED": tuned, "PYFLAME_TUNE_BUDGET_MS": "0"}
    child = subprocess.run([sys.executable, "-c", CHILD, str(shapes)], env=environment, capture_output=True, text=True, check=True)
    return [float(x) for x in child.stdout.split()]


def cost(off, on):
    """Microseconds: medians of both, and the quartiles of the differences within the pairs."""
    low, middle, high = statistics.quantiles([b - a for a, b in zip(off, on)], n=4, method="inclusive")
    return {"us_off": round(1e6 * statistics.median(off), 2), "us_on": round(1e6 * statistics.median(on), 2), "us_cost": round(1e6 * middle, 2), "us_cost_quartiles": [round(1e6 * low, 2), round(1e6 * high, 2)]}


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--pairs", type=int, default=30)
    p.add_argument("--rows", type=int, default=10000)
    p.add_argument("--shapes", type=int, default=200)
    p.add_argument("--json", type=pathlib.Path)
    args = p.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["PYFLAME_CACHE_DIR"] = folder
        import pyflame as pf

        total = fill(measure(args.shapes), args.rows)
        copy = pathlib.Path(f"{pf.tuning.path()}.rows")
        time.sleep(3)  # a file that was written a moment ago is not copied
        run("1", args.shapes)
        times = {"without": [], "with": [], "first": []}
        for i in range(args.pairs):
            for kind in list(times)[:: 1 if i % 2 == 0 else -1]:
                if kind == "first":
                    copy.unlink()
                times[kind].append(run("0" if kind == "without" else "1", args.shapes))
        rows = {name: cost([t[i] for t in times["without"]], [t[i] for t in times["with"]]) for i, name in enumerate(("start", "call", "look_up"))}
        rows["start_first"] = cost([t[0] for t in times["without"]], [t[0] for t in times["first"]])
        print(f"{total} measurements in the file; {args.pairs} pairs of processes")
        for name, r in rows.items():
            print(f"{name:11} {r['us_off']:12.2f} us without, {r['us_on']:12.2f} us with it; {r['us_cost']:+.2f} us [{r['us_cost_quartiles'][0]:+.2f}, {r['us_cost_quartiles'][1]:+.2f}]")
        if args.json:
            args.json.write_text(json.dumps({"device": pf.device_info("cpu")["name"], "version": pf.__version__, "measurements": total, "pairs": args.pairs, "shapes": args.shapes, "rows": rows}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
