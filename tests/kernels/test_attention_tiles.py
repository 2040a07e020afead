"""The tiles of attention that tuning may try (src/pyflame/backends/gpu/ops/attention_tiles.cpp) as AMD code: none spills a vector
register, and without a mask none spills a scalar one. A fifth of them is compiled each day (PYFLAME_TEST_ROTATION; without it all of them are), for one
architecture of each kind of matrix cores."""
import os
import subprocess

import kernel_code
import pytest

ROOT, PROGRAM = os.environ.get("PYFLAME_TEST_ROCM_ROOT"), os.environ.get("PYFLAME_TEST_KERNELS")
pytestmark = pytest.mark.skipif(not ROOT or not PROGRAM, reason="PYFLAME_TEST_ROCM_ROOT and PYFLAME_TEST_KERNELS are not set: no compiler")
# What PyFlame itself takes there, and spills.
OWN = ("attention_wmma_queries_1_2_16_1_192_masked", "attention_wmma_queries_1_2_16_1_256_masked")
ARCHS = {"mfma": ("gfx942", "gfx90a"), "wmma": ("gfx1100", "gfx1201")}


def test_nothing_is_spilled(program, rocm, tmp_path):
    texts = tmp_path / "texts"
    texts.mkdir()
    subprocess.run([PROGRAM, "--gtest_filter=GpuAttention.TilesForOtherCompilers"], env=dict(os.environ, PYFLAME_DUMP_KERNELS=str(texts)), check=True, capture_output=True)
    plan = {}
    for units, archs in ARCHS.items():
        files = sorted(texts.glob(f"attention_{units}_*.hip"))
        assert len(files) >= 80
        plan[kernel_code.todays(archs)[0]] = kernel_code.part_of_day(files)
    failures = kernel_code.compile_all(rocm, plan, tmp_path / "code")
    assert not failures, "\n".join(failures)
    figures = {name: archs for name, archs in kernel_code.read(program, tmp_path / "code").items() if name not in OWN}
    assert kernel_code.never({name: archs for name, archs in figures.items() if not name.endswith("_masked")}) == []
    spilled = {name: archs for name, archs in figures.items() if any(f["vgpr_spill"] for f in archs.values())}
    assert spilled == {}
