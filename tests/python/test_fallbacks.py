"""pf.fallbacks(): what ran elsewhere than asked, why, how often, and for how long."""
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
