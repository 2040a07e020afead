#!/usr/bin/env python3
"""The figures of docs/tutorials/read-a-profile.md: shares of the time of its three programs, and products of matrices below the roof of this machine.

It runs the code of the page. tools/gen_pictures.py draws the results.

    python benchmarks/tutorial_profile.py --json results.json
"""
import argparse
import contextlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import pyflame as pf
from pyflame import benchmarking
from pyflame.profiler import ceilings

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tools"))
import run_doc_blocks  # noqa: E402

PAGE = ROOT / "docs" / "tutorials" / "read-a-profile.md"
ROWS = (1, 2, 8, 64)
WIDE = 8192
ROUNDS = 8


def shares(profile):
    """The parts of the steps' time: planning, between steps (Python, recording, the executor), in steps; and the median of a step."""
    with tempfile.TemporaryDirectory() as folder:
        trace = pathlib.Path(folder) / "trace.json.gz"
        profile.export_chrome_trace(str(trace))
        d = json.loads(subprocess.run(["pyflame", "report", str(trace), "--json"], check=True, capture_output=True, text=True).stdout)
    parts = {c["name"]: c["share"] for c in d["categories"]}
    idle, between = parts.pop("idle", 0.0), parts.pop("launch-bound", 0.0)
    planning = sum(g["share"] for g in d["gap_reasons"] if g["why"] == "code was compiled")
    return {"planning": planning, "between": between + idle - planning, "steps": sum(parts.values()), "median_us": d["time"]["steps"]["median_us"]}


def product(rows):
    """{rows, intensity, gflops} of (rows × WIDE) by (WIDE × WIDE) in float32, the fastest sample."""
    x, w = pf.randn(rows, WIDE), pf.randn(WIDE, WIDE)
    flops, moved = 2 * rows * WIDE * WIDE, 4 * (2 * rows * WIDE + WIDE * WIDE)
    best = min(benchmarking.bench(lambda: x @ w, device="cpu", max_seconds=0.5, min_samples=5).samples)
    return {"rows": rows, "intensity": flops / moved, "gflops": flops / best / 1e6}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=pathlib.Path, help="write the results to this file")
    a = parser.parse_args()
    out = a.json and a.json.resolve()
    code = next(code for _, language, code, _ in run_doc_blocks.runnable(PAGE.read_text(encoding="utf-8")) if language == "python")
    names = {"__name__": "page"}
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(None):
        os.chdir(folder)  # where the page's code writes its traces
        exec(compile(code, str(PAGE), "exec"), names)  # the code of our own page
        os.chdir(ROOT)
    # In turns, and the best of each: other work on the machine can only make a figure smaller.
    rounds = [(ceilings.ceilings("cpu", renew=True), [product(rows) for rows in ROWS]) for _ in range(ROUNDS)]
    products = [max((made[i] for _, made in rounds), key=lambda p: p["gflops"]) for i in range(len(ROWS))]
    results = {"device": pf.device_info("cpu")["name"], "threads": pf.get_num_threads(), "version": pf.__version__,
               "programs": {name: shares(names[variable]) for name, variable in (("slow", "slow"), ("no loop over rows", "vectorised"), ("one shape", "fast"))},
               "roof": {"gbs": max(roof.gbs for roof, _ in rounds), "gflops": max(roof.gflops["float32"] for roof, _ in rounds)}, "products": products}
    text = json.dumps(results, indent=1) + "\n"
    print(text)
    if out:
        out.write_text(text)


if __name__ == "__main__":
    main()
