"""The kernels of fused loops as AMD code, without an AMD GPU: what the op cases generate (forward, gradient and second gradient), compiled by
ROCm's clang. A group of ops is cut before its kernel needs more registers than there are, so none may spill or use scratch memory. Here the
largest of some cases and a part of their others, which change with PYFLAME_TEST_ROTATION; `make loop-code` compiles all."""
import os
import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools"))
import loop_code  # noqa: E402

ROOT, PROGRAM = os.environ.get("PYFLAME_TEST_ROCM_ROOT"), os.environ.get("PYFLAME_TEST_KERNELS")
EMULATOR = pathlib.Path(PROGRAM or ".").resolve().parents[2 if PROGRAM else 0] / "emulator"
needs_rocm = pytest.mark.skipif(not ROOT or not PROGRAM, reason="PYFLAME_TEST_ROCM_ROOT and PYFLAME_TEST_KERNELS are not set: no compiler")
IN_ONE_PROCESS = "the op cases are run once, and their kernels are compiled by every core"
LARGEST, PARTS, SECTIONS = 40, 10, 4


@needs_rocm
def test_generated_loops_spill_nothing(program, rocm, tmp_path):
    (tmp_path / "texts").mkdir()
    rotation, section = divmod(int(os.environ.get("PYFLAME_TEST_ROTATION") or 0), SECTIONS)
    texts = loop_code.generate(sys.executable, EMULATOR, tmp_path / "texts", os.cpu_count(), section=section, sections=SECTIONS)
    assert len(texts) > 1000
    some = loop_code.chosen(texts, LARGEST, PARTS, rotation)
    problems, figures = loop_code.check(rocm, program, some, tmp_path)
    assert not problems, "\n".join(problems)
    assert len(figures) == len(some) * len(loop_code.ARCHS)


@needs_rocm
@pytest.mark.parametrize("name", ["cross_entropy-probabilities-float32-mean"])
def test_a_loop_that_spilled_is_cut(program, rocm, tmp_path, name):
    """Its second gradient was one loop of 22 ops, which spilled 17 scalar registers on gfx1100 and 29 on gfx942."""
    (tmp_path / "texts").mkdir()
    texts = loop_code.generate(sys.executable, EMULATOR, tmp_path / "texts", 1, name)
    assert texts
    problems, _ = loop_code.check(rocm, program, texts, tmp_path)
    assert not problems, "\n".join(problems)


def test_all_parts_are_all_loops():
    texts = {f"{i:016x}": "head\nPF_KERNEL(256) pf_loop_add(void* b0) {\n" + "x" * i for i in range(300)}
    parts = [loop_code.chosen(texts, 5, 4, rotation) for rotation in range(4)]
    assert set().union(*parts) == set(texts)
    largest = {f"{i:016x}" for i in range(295, 300)}
    assert all(largest <= set(part) and len(part) < len(texts) // 2 for part in parts)
