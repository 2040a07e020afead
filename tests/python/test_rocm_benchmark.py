"""benchmarks/rocm_benchmark.py: the commands of docs/rocm.md run (small, on the CPU), and a device that is not there is one line with the reason."""
import json
import pathlib
import re
import subprocess
import sys

import pytest

import pyflame as pf

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "benchmarks" / "rocm_benchmark.py"
SMALL = ["--device", "cpu", "--scale", "32", "--iterations", "2", "--seconds", "0.05"]


def shown(begin):
    """The arguments of the command of docs/rocm.md whose arguments begin so."""
    found = re.findall(rf"^python benchmarks/rocm_benchmark\.py ({begin}.*)$", (ROOT / "docs" / "rocm.md").read_text(), re.M)
    assert len(found) == 1
    return found[0].split()


def run(*args):
    return subprocess.run([sys.executable, str(SCRIPT), *args], capture_output=True, text=True, timeout=300)


def test_all_groups(tmp_path):
    r = run(*shown("--all"), *SMALL, "--json", str(tmp_path / "r.json"))
    assert r.returncode == 0, r.stderr
    results = json.loads((tmp_path / "r.json").read_text())["results"]
    assert {x["group"] for x in results} == {"matmul", "conv", "elementwise", "reductions", "attention", "train"}
    assert all(0 < x["interval_ms"][0] <= x["median_ms"] <= x["interval_ms"][1] for x in results)


def test_named_groups_only():
    r = run(*shown("--matmul --conv"), *SMALL)
    assert r.returncode == 0 and "gemm" in r.stdout and "conv" in r.stdout and "softmax" not in r.stdout


@pytest.mark.skipif(pf.rocm_is_available(), reason="this machine has an AMD GPU")
def test_without_a_gpu_it_says_why():
    r = run("--matmul")
    assert r.returncode == 1 and "set_device: the device is not available; got 'rocm" in r.stderr and "Traceback" not in r.stderr
