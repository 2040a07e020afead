"""Programs in the manner of PyTorch's examples, through the alias package: their losses are PyTorch's, which runs them where it is installed; otherwise those
that it gave when they were recorded (run.py --record)."""
import importlib.util
import json
import subprocess
import sys

import numpy as np
import pytest
import run
from pyflame.testing import tolerance

LONGEST_SUM = 1000  # terms in the sums of these small networks


def losses(*options):
    done = subprocess.run([sys.executable, run.__file__, *run.names(), *options], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def ours():
    return losses()


@pytest.fixture(scope="module")
def theirs():
    if importlib.util.find_spec("torch") is not None:
        return losses("--torch")
    with open(run.LOSSES, encoding="utf-8") as f:
        return json.load(f)


@pytest.mark.parametrize("name", run.names())
def test_losses_are_pytorchs(name, ours, theirs):
    assert "error" not in ours[name], ours[name]
    got, want = (np.array(found[name]["losses"]) for found in (ours, theirs))
    wrong = tolerance.differences(got, want, ours[name]["dtype"], 4, np.abs(want), LONGEST_SUM)
    assert not wrong, wrong


def test_every_program_is_recorded():
    with open(run.LOSSES, encoding="utf-8") as f:
        assert sorted(json.load(f)) == run.names()
