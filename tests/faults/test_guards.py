"""Kernels of the user's that access what lies outside of their tensors. The wave emulator stops at the access; on a real GPU `pyflame debug run` finds
what was written to the bands around the tensors."""
import subprocess
import sys

import pytest


def debug_run(program, folder, text, **variables):
    file = folder / "unbounded.py"
    file.write_text(f"""
import pyflame as pf
k = pf.kernel({text!r}, "unbounded", inputs="x")
try:
    k(pf.ones(1000, device="rocm")).tolist()
except RuntimeError as e:
    print(e)
""")
    command = [sys.executable, "-m", "pyflame", "debug", "run", "--guards", "--no-agent", str(file)]
    return subprocess.run(command, env=program.environment(**variables), capture_output=True, text=True, timeout=300, check=False)


STOPPED = """
y = pf.kernel({text!r}, "outside", inputs="x")(pf.zeros({size}, device="rocm"))
print(refused(RuntimeError, y.tolist))
"""


@pytest.mark.parametrize("text, size, said", [
    ("if (i < out_size) out[i] = x[i + 1];", 1000, "workgroup (3, 0, 0): thread 231 reads 4 bytes outside of every tensor, 4000 bytes behind the begin of x, which has 4000 bytes"),
    ("if (i < out_size) out[i] = x[i + 1];", 1024, "thread 255 reads 4 bytes outside of every tensor, 4096 bytes behind the begin of x, which has 4096 bytes"),  # what is behind it is a tensor
    ("if (i < out_size) out[i] = x[i + 1000];", 1000, "thread 0 reads 4 bytes outside of every tensor, 4000 bytes behind the begin of x"),
    ("if (i < out_size) out[i] = x[i + 100000000];", 1000, "thread 0 reads 4 bytes outside of every tensor, "),
    ("if (i < out_size) out[i] = x[i - 1];", 1000, "thread 0 reads 4 bytes outside of every tensor, 4 bytes before the begin of x"),
    ("if (4 * i < out_size) pf::store_vec(out + 4 * i, pf::load_vec<4>(x + 4 * i));", 62, "thread 15 reads 4 bytes outside of every tensor, 248 bytes behind the begin of x, which has 248 bytes"),
    ("out[i] = x[i % 1000];", 1000, "workgroup (3, 0, 0): thread 232 writes 4 bytes outside of every tensor, 4000 bytes behind the begin of out, which has 4000 bytes"),
])
@pytest.mark.parametrize("arch", ["gfx942", "gfx1100"])
def test_the_emulator_stops_at_an_access_outside_of_a_tensor(program, text, size, said, arch):
    out = program.run(STOPPED.format(text=text, size=size), PYFLAME_EMULATOR_ARCH=arch)
    assert "outside" in out and said in out, out


def test_debug_run_ends_with_the_error_of_a_device_that_is_lost(program, tmp_path):
    r = debug_run(program, tmp_path, "out[i] = x[i];")
    assert r.returncode == 1 and "thread 232 reads 4 bytes outside of every tensor" in r.stdout and "terminate" not in r.stderr, r.stdout + r.stderr


@pytest.mark.parametrize("text", ["out[i] = x[i];", "out[i] = 2 * x[i];"])  # the first one copies what lies behind x to what lies behind out
def test_debug_run_finds_a_kernel_without_a_bound(program, tmp_path, text):
    r = debug_run(program, tmp_path, text, PYFLAME_EMULATOR_BOUNDS="0")
    assert r.returncode == 4, r.stdout + r.stderr
    assert "user_kernel: wrote outside of a buffer; got 96 bytes changed 0 bytes behind the end of a buffer of 4000 bytes" in r.stderr
