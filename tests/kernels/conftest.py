"""ROCm's compiler, the kernels' texts and their budgets."""
import json
import os
import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools"))
import kernel_code  # noqa: E402


@pytest.fixture(scope="module")
def plan(sources):
    """architecture -> the sources that are compiled for it today."""
    return kernel_code.plan_of_day(sources, json.loads(kernel_code.TEXTS.read_text()))


@pytest.fixture(scope="module")
def rocm():
    return kernel_code.Rocm(os.environ["PYFLAME_TEST_ROCM_ROOT"])


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    found = kernel_code.sources(os.environ["PYFLAME_TEST_KERNELS"], tmp_path_factory.mktemp("sources"))
    assert len(found) >= 16
    return found


@pytest.fixture(scope="module")
def budgets():
    return json.loads(kernel_code.BUDGETS.read_text())
