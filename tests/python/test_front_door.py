"""What a newcomer meets first: the beginning of help(pf), and what `from pyflame import *` does to Python's own names."""
import builtins
import pydoc
import subprocess
import sys

import pytest

import pyflame as pf

TYPES = ("int", "float", "bool", "complex", "str", "list", "dict", "tuple", "set", "bytes", "object", "type")


@pytest.fixture(scope="module")
def starred():
    names = {}
    exec("from pyflame import *", names)
    return names


@pytest.mark.parametrize("name", TYPES)
def test_a_star_leaves_pythons_types_alone(name, starred):
    assert starred.get(name, getattr(builtins, name)) is getattr(builtins, name)


def test_a_star_hides_no_other_type(starred):
    hidden = [name for name, value in vars(builtins).items() if isinstance(value, type) and starred.get(name, value) is not value]
    assert not hidden, f"`from pyflame import *` hides {', '.join(hidden)}; hint: _BESIDE_PYTHONS of pyflame/__init__.py"


def test_a_star_has_functions(starred):
    assert {"Tensor", "zeros", "float32", "half", "double", "long", "matmul", "sum", "max"} <= set(starred)
    assert starred["sum"] is pf.sum and starred["double"] is pf.float64


def test_the_names_are_there():
    assert (pf.int, pf.float, pf.bool) == (pf.int32, pf.float32, pf.bool_)
    assert pf.complex(pf.ones(2), pf.ones(2)).dtype == pf.complex64
    assert {"int", "float", "bool", "complex"} <= set(dir(pf))
    names = {}
    exec("from pyflame import float, complex", names)
    assert names["float"] is pf.float32 and names["complex"] is pf.complex


def test_pickle_finds_complex():
    import pickle

    assert pickle.loads(pickle.dumps(pf.complex)) is pf.complex


def description():
    """What help(pf) shows below DESCRIPTION."""
    text = pydoc.plain(pydoc.render_doc(pf))
    return text[: text.index("PACKAGE CONTENTS")]


def test_help_begins_with_what_there_is():
    shown = description()
    assert len(pf.__doc__.strip().split("\n")) <= 20
    assert len(shown.split("\n")) <= 30 and max(map(len, shown.split("\n"))) <= 110
    for name in ("Tensor", "zeros", "linalg", "nn", "nn.functional", "optim", "data", "amp", "distributed", "llm", "onnx", "save", "load", "explain", "profiler"):
        assert f"pf.{name}" in shown
    assert "begin with _" in shown


def test_what_help_names_is_there():
    import re

    named = re.findall(r"\bpf\.([\w.]*\w)", pf.__doc__)
    assert len(named) > 20
    for name in named:
        value = pf
        for part in name.split("."):
            value = getattr(value, part)
        assert value.__doc__ and value.__doc__.strip(), name


def test_the_example_of_help_runs():
    lines = pf.__doc__.split("\n\n")[1].split("\n")
    code = "\n".join(line[4:] for line in lines)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and done.stdout.startswith("tensor("), done.stderr
