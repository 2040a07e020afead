"""The kernels compiled by hipRTC, with the same budgets as with ROCm's clang (test_kernels_rocm.py): a part of one dtype of each, for the day's of two architectures."""
import os
import pathlib
import subprocess
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools"))
import kernel_code  # noqa: E402

ROOT, PROGRAM = os.environ.get("PYFLAME_TEST_ROCM_ROOT"), os.environ.get("PYFLAME_TEST_KERNELS")
pytestmark = pytest.mark.skipif(not ROOT or not PROGRAM, reason="PYFLAME_TEST_ROCM_ROOT and PYFLAME_TEST_KERNELS are not set: no compiler")


@pytest.mark.parametrize("gfx", kernel_code.todays(kernel_code.WHOLE))
def test_hiprtc_makes_the_same_code(gfx, program, rocm, sources, budgets, tmp_path):
    """hipRTC, the compiler on a user's machine, called as PyFlame calls it, on a machine without a GPU."""
    texts, objects = tmp_path / "texts", tmp_path / "code" / gfx
    texts.mkdir()
    objects.mkdir(parents=True)
    some = kernel_code.part_of_day(kernel_code.one_dtype(sources))
    for s in some:
        (texts / s.name).write_text(s.read_text())
    environment = rocm.environment(dict(os.environ, PYFLAME_COMPILE_KERNELS=str(texts), PYFLAME_COMPILE_ARCHS=gfx, AMD_COMGR_CACHE="0"))
    r = subprocess.run([*rocm.runner, PROGRAM, "--gtest_filter=GpuRtc.*"], env=environment, capture_output=True, text=True)
    assert r.returncode == 0, r.stdout[-4000:] + r.stderr
    for file in texts.glob("*.co"):
        file.rename(objects / file.name.replace(f".{gfx}.co", ".co"))
    figures = kernel_code.read(program, tmp_path / "code")
    assert sorted(figures) == sorted(s.stem for s in some)
    assert kernel_code.never(figures) == []
    assert kernel_code.worse(figures, budgets) == []
