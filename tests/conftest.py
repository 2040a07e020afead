"""What all tests of the program share."""
import os
import shutil
import subprocess
import sys
import zlib

import pytest

os.environ.setdefault("PYFLAME_INTERPRET", "0")  # what is tested on a GPU is its own kernels, from their first run on


@pytest.fixture(autouse=True)
def random_numbers_of_the_test(request):
    """Each test draws the same numbers in every run, whatever ran before it: a tolerance that holds today holds tomorrow."""
    if (pf := sys.modules.get("pyflame")) is not None and hasattr(pf, "manual_seed"):
        pf.manual_seed(zlib.crc32(request.node.nodeid.encode()))


@pytest.fixture(scope="session")
def program():
    beside = os.path.dirname(sys.executable)  # of the environment that runs the tests, whether it was activated or not
    path = os.environ.get("PYFLAME_BIN") or shutil.which("pyflame", path=beside) or shutil.which("pyflame")
    assert path, "the pyflame program was not found; set PYFLAME_BIN or put it on PATH"
    return path


@pytest.fixture
def run(program):
    """run(*arguments, code=0, **subprocess options): the finished process, whose exit code was `code` (None: any)."""

    def call(*args, code=0, **kwargs):
        kwargs.setdefault("timeout", 300)
        r = subprocess.run([program, *map(str, args)], capture_output=True, text=True, encoding="utf-8", errors="replace", **kwargs)
        assert code is None or r.returncode == code, f"exit code {r.returncode}\nstdout: {r.stdout}\nstderr: {r.stderr}"
        return r

    return call
