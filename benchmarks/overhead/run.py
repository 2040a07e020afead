"""Runs the overhead benchmarks (those in C++, step.py and bandwidth.py), prints them and keeps them in benchmarks/results/<machine>/overhead.json.

    python benchmarks/overhead/run.py build/release/benchmarks/overhead/pyflame_overhead [options of Google Benchmark]

What the file has of the machine is its CPU: Google Benchmark's host name, paths and load are left out.
"""
import json
import pathlib
import subprocess
import sys
import tempfile

BENCHMARKS = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(BENCHMARKS))
import machine  # noqa: E402


def main(binary, *options):
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "out.json"
        run = subprocess.run([binary, f"--benchmark_out={out}", "--benchmark_out_format=json", "--benchmark_counters_tabular=true", *options])
        if run.returncode != 0:
            return run.returncode
        result = json.loads(out.read_text())
        steps = pathlib.Path(folder) / "steps.json"
        run = subprocess.run([sys.executable, BENCHMARKS / "overhead" / "step.py", "--json", steps])
        if run.returncode != 0:
            return run.returncode
        training = json.loads(steps.read_text())
        streams = pathlib.Path(folder) / "streams.json"
        run = subprocess.run([sys.executable, BENCHMARKS / "overhead" / "bandwidth.py", "--json", streams])
        if run.returncode != 0:
            return run.returncode
        bandwidth = json.loads(streams.read_text())
    failed = [b["name"] for b in result["benchmarks"] if b.get("error_occurred")]
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
        return 1
    kept = {
        "machine": {"cpu": machine.cpu(), "cores": machine.cores(), "mhz": result["context"]["mhz_per_cpu"]},
        "benchmarks": {b["name"]: {"ns_per_op": round(b["per_op"] * 1e9, 1), "iterations": b["iterations"]} for b in result["benchmarks"]},
        "training_steps": training,
        "bandwidth": bandwidth,
    }
    page = BENCHMARKS / "results" / machine.slug() / "overhead.json"
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text(json.dumps(kept, indent=1) + "\n")
    print(f"kept in {page.relative_to(BENCHMARKS.parent)}")
    return 0


if __name__ == "__main__":
    if len(sys.argv) < 2:
        raise SystemExit(__doc__)
    sys.exit(main(*sys.argv[1:]))
