"""Errors that people meet in their first hour name what to write instead."""
import subprocess
import sys

import pytest

import pyflame as pf
import pyflame.nn as nn
import pyflame.nn.functional as F


@pytest.mark.parametrize("module, name, meant", [(F, "softpls", "softplus"), (pf, "sofmax", "softmax"), (nn, "Liner", "Linear"), (nn, "conv2d", "Conv2d")])
def test_misspelt_names(module, name, meant):
    with pytest.raises(AttributeError, match=f"^module '{module.__name__}' has no attribute '{name}'; did you mean '{meant}'\\?$"):
        getattr(module, name)


def test_names_that_resemble_none_and_private_names():
    for name in ("qqqqqqqq", "_sofmax"):
        assert not hasattr(pf, name)
        with pytest.raises(AttributeError, match=f"^module 'pyflame' has no attribute '{name}'$"):
            getattr(pf, name)


def test_a_power_is_two_asterisks():
    square = pf.elementwise("x^2")
    with pytest.raises(TypeError, match=r"^elementwise: only for integers; got float32; .*; hint: \^ is the exclusive or of bits; a power is \*\*, as in x \*\* 2$"):
        square(pf.ones(3))
    assert square(pf.arange(3)).tolist() == [2, 3, 0]


def test_a_program_that_is_not_there():
    run = subprocess.run([sys.executable, "-m", "pyflame.torch", "nofile.py"], capture_output=True, text=True, timeout=120)
    assert run.returncode == 2 and run.stdout == ""
    assert run.stderr == "python -m pyflame.torch: can't open file 'nofile.py': no such file\n"
