"""examples/triton_kernel.py with stand-ins for Triton and PyTorch: the wave emulator computes nothing before it is waited for, so a kernel that is launched
too early reads what is not there yet."""
import pathlib
import subprocess
import sys

EXAMPLE = pathlib.Path(__file__).resolve().parents[2] / "examples" / "triton_kernel.py"

TRITON = """
import ctypes
import numpy as np
from . import language

def next_power_of_2(n):
    return 1 << (n - 1).bit_length()

class jit:
    def __init__(self, function):
        pass
    def __getitem__(self, grid):
        return lambda *arguments, BLOCK: launch(grid, BLOCK, *arguments)

def launch(grid, block, x, out, columns):
    assert block >= columns
    x, out = (np.ctypeslib.as_array((ctypes.c_float * (grid[0] * columns)).from_address(t.data_ptr())).reshape(grid[0], columns) for t in (x, out))
    e = np.exp(x - x.max(1, keepdims=True))
    out[:] = e / e.sum(1, keepdims=True)
"""


def test_the_kernel_reads_what_was_queued_before_it(program, tmp_path):
    for name, text in (("triton/__init__.py", TRITON), ("triton/language.py", "constexpr = int\n"), ("torch.py", "class cuda:\n    @staticmethod\n    def synchronize():\n        print('waited')\n")):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    environment = program.environment(PYTHONPATH=str(tmp_path))
    r = subprocess.run([sys.executable, str(EXAMPLE), "--rows", "7", "--columns", "100"], env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert r.returncode == 0, r.stdout + r.stderr
    assert "waited\nPyFlame wave emulator: the largest difference from PyFlame's softmax is " in r.stdout, r.stdout


def test_it_says_what_is_missing(program, tmp_path):
    (tmp_path / "triton").mkdir()
    (tmp_path / "triton" / "__init__.py").write_text("raise ImportError\n")
    for text, said in (("raise ImportError\n", "The kernel is not run: Triton is not installed: pip install triton.\n"),
                       (TRITON, "The kernel is not run: Triton asks PyTorch for AMD GPUs, and PyTorch is not installed.\n")):
        (tmp_path / "triton" / "__init__.py").write_text(text)
        (tmp_path / "triton" / "language.py").write_text("")
        (tmp_path / "torch.py").write_text("raise ImportError\n")
        r = subprocess.run([sys.executable, str(EXAMPLE)], env=program.environment(PYTHONPATH=str(tmp_path)), capture_output=True, text=True, timeout=300, check=False)
        assert (r.returncode, r.stdout) == (0, said), r.stdout + r.stderr
