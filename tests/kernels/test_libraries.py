"""The functions that PyFlame calls of ROCm's libraries, looked up in real ones on a machine without a GPU."""
import os
import pathlib
import subprocess
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools"))
import kernel_code  # noqa: E402

ROOT, PROGRAM = os.environ.get("PYFLAME_TEST_ROCM_ROOT"), os.environ.get("PYFLAME_TEST_KERNELS")
pytestmark = pytest.mark.skipif(not ROOT or not PROGRAM, reason="PYFLAME_TEST_ROCM_ROOT and PYFLAME_TEST_KERNELS are not set: no libraries")


@pytest.mark.parametrize("name", ["TheRunTime", "Hipblaslt", "Rocblas", "Miopen", "Rccl"])
def test_all_functions_are_there(name, program, rocm):
    environment = rocm.environment(dict(os.environ, PYFLAME_TEST_ROCM_LIBRARIES="1"))
    r = subprocess.run([*rocm.runner, PROGRAM, f"--gtest_filter=RocmLibraries.{name}HasAllFunctions"], env=environment, capture_output=True, text=True, timeout=300)
    assert r.returncode == 0 and "[  PASSED  ] 1 test" in r.stdout, r.stdout[-4000:] + r.stderr
