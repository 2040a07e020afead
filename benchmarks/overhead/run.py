"""Runs the overhead benchmarks (those in C++, step.py and bandwidth.py), prints them and keeps them in benchmarks/results/<machine>/overhead.json.

    python benchmarks/overhead/run.py build/release/benchmarks/overhead/pyflame_overhead [--json FILE] [--short] [options of Google Benchmark]

What the file has of the machine is its CPU: Google Benchmark's host name, paths and load are left out.
"""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

BENCHMARKS = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(BENCHMARKS))
import machine  # noqa: E402


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary", help="the program of the benchmarks in C++")
    parser.add_argument("--json", type=pathlib.Path, default=BENCHMARKS / "results" / machine.slug() / "overhead.json", help="where the results are written")
    parser.add_argument("--short", action="store_true", help="each measurement for a moment, to try the program; the figures mean nothing")
    args, options = parser.parse_known_args()
    short = {"": ["--benchmark_min_time=0.001"], "step.py": ["--repeat", "1"], "bandwidth.py": ["--turns", "1", "--elements", "65536"]} if args.short else {}
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "out.json"
        run = subprocess.run([args.binary, f"--benchmark_out={out}", "--benchmark_out_format=json", "--benchmark_counters_tabular=true", *options, *short.get("", [])])
        if run.returncode != 0:
            return run.returncode
        result, more = json.loads(out.read_text()), {}
        for name in ("step.py", "bandwidth.py"):
            file = pathlib.Path(folder) / "more.json"
            run = subprocess.run([sys.executable, BENCHMARKS / "overhead" / name, "--json", file, *short.get(name, [])])
            if run.returncode != 0:
                return run.returncode
            more[name] = json.loads(file.read_text())
    failed = [b["name"] for b in result["benchmarks"] if b.get("error_occurred")]
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
        return 1
    kept = {
        "machine": {"cpu": machine.cpu(), "cores": machine.cores(), "mhz": result["context"]["mhz_per_cpu"]},
        "benchmarks": {b["name"]: {"ns_per_op": round(b["per_op"] * 1e9, 1), "iterations": b["iterations"]} for b in result["benchmarks"]},
        "training_steps": more["step.py"],
        "bandwidth": more["bandwidth.py"],
    }
    args.json.parent.mkdir(parents=True, exist_ok=True)
    args.json.write_text(json.dumps(kept, indent=1) + "\n")
    print(f"kept in {args.json}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
