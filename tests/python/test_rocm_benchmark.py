"""benchmarks/rocm_benchmark.py: every group runs (small, on the CPU), and a device that is not there is one line with the reason."""
import json
import pathlib
import subprocess
import sys

import pytest

import pyflame as pf

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "benchmarks" / "rocm_benchmark.py"


def run(*args):
    return subprocess.run([sys.executable, str(SCRIPT), *args], capture_output=True, text=True, timeout=300)


def test_all_groups(tmp_path):
    r = run("--all", "--device", "cpu", "--scale", "32", "--iterations", "2", "--warmup", "1", "--seconds", "0.05", "--json", str(tmp_path / "r.json"))
    assert r.returncode == 0, r.stderr
    results = json.loads((tmp_path / "r.json").read_text())["results"]
    assert {x["group"] for x in results} == {"matmul", "conv", "elementwise", "reductions", "attention", "train"}
    assert all(0 < x["interval_ms"][0] <= x["median_ms"] <= x["interval_ms"][1] for x in results)


def test_named_groups_only():
    r = run("--matmul", "--device", "cpu", "--scale", "32", "--iterations", "1", "--warmup", "0", "--seconds", "0.05")
    assert r.returncode == 0 and "gemm" in r.stdout and "conv" not in r.stdout


@pytest.mark.skipif(pf.rocm_is_available(), reason="this machine has an AMD GPU")
def test_without_a_gpu_it_says_why():
    r = run("--matmul")
    assert r.returncode == 1 and "set_device: the device is not available; got 'rocm" in r.stderr and "Traceback" not in r.stderr
