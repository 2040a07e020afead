"""pf.fallbacks(): what ran elsewhere than asked, why, how often, and for how long."""
import json
import os
import subprocess
import sys

import pyflame as pf
import pytest

GPU = "rocm" if pf.rocm_is_available() else "cuda" if pf.cuda_is_available() else None
ON_THE_HOST = f"""
import pyflame as pf
pf.set_device({GPU!r})
x = 4 * pf.eye(4) + pf.ones(4, 4)
for _ in range(3):
    pf.linalg.cholesky(x).sum().item()
[line] = pf.fallbacks()
assert line["op"] == "cholesky" and line["device"] == "{GPU}:0" and line["ran_on"] == "LAPACK on the host", line
assert line["times"] == 3 and line["seconds"] > 0 and line["reason"], line
"""


def run(code, **settings):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, env={**os.environ, **settings})


def test_nothing_falls_back_on_the_cpu():
    r = run("import pyflame as pf\npf.nn.functional.softmax(pf.ones(4, 4) @ pf.ones(4, 4), -1).sum().item()\nassert pf.fallbacks() == []\n", PYFLAME_DEBUG="1")
    assert r.returncode == 0 and "fallbacks" not in r.stderr, r.stderr


@pytest.mark.skipif(GPU is None, reason="there is no GPU")
def test_what_a_gpu_leaves_to_the_host_is_counted_and_told():
    r = run(ON_THE_HOST, PYFLAME_DEBUG="0")
    assert r.returncode == 0 and r.stderr.count("cholesky: matrices are factorized on the host, by LAPACK; printed once") == 1, r.stderr
    assert "pf.fallbacks()" not in r.stderr
    table = run(ON_THE_HOST, PYFLAME_DEBUG="1").stderr
    assert "pyflame: fallbacks (pf.fallbacks()), the most time first:" in table and "3 times" in table and "LAPACK on the host for cholesky" in table


@pytest.mark.skipif(GPU is None, reason="there is no GPU")
def test_a_trace_and_its_report_name_fallbacks(program, tmp_path):
    trace = tmp_path / "trace.json"
    r = run(f"import pyflame as pf\nprof = pf.profiler.profile()\nprof.start()\n{ON_THE_HOST}prof.stop()\nprof.export_chrome_trace({str(trace)!r})\n")
    assert r.returncode == 0, r.stderr
    events = [e["args"]["fallback"] for e in json.loads(trace.read_text())["traceEvents"] if e["name"] == "fallback"]
    assert len(events) == 1 and events[0].startswith(f"cholesky on {GPU}:0 ran on LAPACK on the host 3 times, for ")
    d = json.loads(subprocess.run([program, "report", str(trace), "--json"], capture_output=True, text=True, check=True).stdout)
    assert d["fallbacks"] == events and "fallbacks" in {a["id"] for a in d["advice"]}


@pytest.mark.skipif(GPU is None, reason="there is no GPU")
def test_explain_of_a_gpu_program_lists_fallbacks_and_writes_kernels(program, tmp_path):
    (tmp_path / "gpu.py").write_text(ON_THE_HOST)
    r = subprocess.run([program, "explain", "--python", sys.executable, "--kernels", str(tmp_path / "kernels"), str(tmp_path / "gpu.py")], capture_output=True, text=True, timeout=300)
    assert r.returncode == 0, r.stderr
    assert f"what ran on a fallback in this process:\n  cholesky on {GPU}:0 ran on LAPACK on the host: 3 times" in r.stdout and "sync point: the check that a factorization succeeded" in r.stdout
    names = os.listdir(tmp_path / "kernels")
    code = [name for name in names if name.endswith((".co", ".cubin"))]
    assert code and len(names) == 2 * len(code) and all(name.startswith("pf_") for name in names), names
    assert f"{len(code)} kernels in {tmp_path / 'kernels'}" in r.stderr and "PF_KERNEL" in (tmp_path / "kernels" / code[0]).with_suffix(".cpp").read_text()


def test_pf_bench_notes_what_fell_back_meanwhile(monkeypatch):
    from pyflame.benchmarking import measure

    entry = {"op": "eigh", "device": "rocm:0", "ran_on": "LAPACK on the host", "reason": "there is no kernel of it for GPUs", "times": 0, "seconds": 0.0}
    monkeypatch.setattr(measure._C, "fallbacks", lambda: [dict(entry)])

    def fn():
        entry["times"] += 1

    assert "fallback: eigh on rocm:0 runs on LAPACK on the host: there is no kernel of it for GPUs" in pf.bench(fn, max_seconds=0.05, min_samples=3).notes
    assert not pf.bench(lambda: None, max_seconds=0.05, min_samples=3).notes


@pytest.mark.skipif(GPU != "cuda", reason="needs an NVIDIA GPU with cuBLASLt")
@pytest.mark.parametrize("rows", [1, 3, 7, 35])
def test_a_librarys_workspace_lies_anywhere_in_an_arena(rows):
    """What is in front of the workspace ends at any multiple of 64 bytes; cuBLASLt refuses a workspace that is not at a multiple of 256."""
    r = run(f"import pyflame as pf\npf.set_device('cuda')\nw = pf.randn(2600, 650)\n(pf.randn({rows}, 20, 650)[0] @ w.mT).sum().item()\n"
            "assert not [f for f in pf.fallbacks() if f['op'] == 'matmul'], pf.fallbacks()\n")
    assert r.returncode == 0, r.stderr
