"""Signals that arrive while the CPU computes: handlers of Python must not harm what runs."""
import signal
import subprocess
import sys

import pytest

PROGRAM = """
import signal

import pyflame as pf

seen = 0


def handler(number, frame):
    global seen
    seen += 1


{make}
pf.set_grad_enabled(False)
expected = compute().numpy()
signal.signal(signal.SIGALRM, handler)
signal.setitimer(signal.ITIMER_REAL, 0.0003, 0.0003)
while seen < 1500:
    got = compute().numpy()
    assert (got == expected).all(), "a signal changed a result"
signal.setitimer(signal.ITIMER_REAL, 0)
print("fine")
"""
CASES = {
    "a product": "a, b = pf.randn(64, 256), pf.randn(256, 256)\ncompute = lambda: a @ b",
    "a product with a bias": "layer, a = pf.nn.Linear(256, 256), pf.randn(64, 256)\ncompute = lambda: layer(a)",
    "bfloat16": "a, b = pf.randn(64, 256).bfloat16(), pf.randn(256, 256).bfloat16()\ncompute = lambda: (a @ b).float()",
    "a convolution": "layer, a = pf.nn.Conv2d(16, 32, 3, padding=1), pf.randn(2, 16, 32, 32)\ncompute = lambda: layer(a)",
}


@pytest.mark.skipif(sys.version_info < (3, 10), reason="Python 3.9 runs its handlers on the thread's stack")
@pytest.mark.parametrize("name", CASES)
def test_a_handler_does_not_harm_what_runs(name):
    r = subprocess.run([sys.executable, "-c", PROGRAM.format(make=CASES[name])], capture_output=True, text=True, timeout=300)
    assert r.returncode == 0 and r.stdout == "fine\n", f"exit code {r.returncode} ({signal.Signals(-r.returncode).name if r.returncode < 0 else ''}): {r.stderr}"
