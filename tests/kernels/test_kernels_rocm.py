"""Kernels of the GPU backend as AMD code, without an AMD GPU: compiled by ROCm's clang, without a warning, a spill or scratch memory,
and within the committed budget (budgets.json: `make kernel-budgets` rewrites it, the difference is for a reviewer). It says that
they are code for these GPUs and how much of them they take, not that they are right or fast there.

PYFLAME_TEST_ROCM_ROOT names the folder with ROCm, PYFLAME_TEST_KERNELS the C++ test program that writes the sources. One dtype of every kernel whose text is
not that of texts.json is compiled for gfx942 and gfx1100. Everything with a budget has a part each day (PYFLAME_TEST_ROTATION; without it all of it);
`make rocm-full` compiles everything for all."""
import json
import os
import pathlib
import subprocess
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools"))
import kernel_code  # noqa: E402

ROOT, PROGRAM = os.environ.get("PYFLAME_TEST_ROCM_ROOT"), os.environ.get("PYFLAME_TEST_KERNELS")
pytestmark = pytest.mark.skipif(not ROOT or not PROGRAM, reason="PYFLAME_TEST_ROCM_ROOT and PYFLAME_TEST_KERNELS are not set: no compiler")
IN_ONE_PROCESS = "all kernels are compiled once, by every core"


@pytest.fixture(scope="module")
def code(program, rocm, plan, tmp_path_factory):
    """kernel -> architecture -> figures, for all kernels that were compiled."""
    folder = tmp_path_factory.mktemp("code")
    failures = kernel_code.compile_all(rocm, plan, folder)
    assert not failures, "\n".join(failures)
    return kernel_code.read(program, folder)


def test_nothing_is_spilled(code):
    assert kernel_code.never(code) == []


def test_kernels_keep_to_their_budget(code, budgets):
    problems = kernel_code.worse(code, budgets)
    assert not problems, "\n".join([*problems, "`make kernel-budgets` writes what they have now; the difference is for a reviewer"])


def test_every_budget_has_a_kernel(sources, budgets):
    names = [f.stem for f in sources]
    assert sorted(set(budgets["kernels"]) - set(names)) == [], "`make kernel-budgets` forgets them"
    assert sorted(set(names) - set(budgets["kernels"])) == [], "`make kernel-budgets` gives them budgets"
    for rule in kernel_code.RULES.values():
        for pattern in rule:
            assert kernel_code.matching(names, [pattern]), f"{pattern} in rules.json names no kernel"


def test_every_kernel_is_compiled_within_some_days(sources, monkeypatch):
    monkeypatch.setenv("PYFLAME_TEST_ROTATION", "")
    texts = {f.stem: kernel_code.digest(f) for f in sources}
    everything = {(gfx, f.stem) for gfx, files in kernel_code.plan_of_day(sources, texts).items() for f in files}
    seen = set()
    for day in range(20781, 20781 + kernel_code.PARTS * len(kernel_code.PART)):
        monkeypatch.setenv("PYFLAME_TEST_ROTATION", str(day))
        seen |= {(gfx, f.stem) for gfx, files in kernel_code.plan_of_day(sources, texts).items() for f in files}
    assert seen == everything == {(gfx, f.stem) for gfx, files in kernel_code.with_budget(sources).items() for f in files}


def test_a_kernel_that_changed_is_compiled_today(sources, monkeypatch):
    monkeypatch.setenv("PYFLAME_TEST_ROTATION", "20781")
    texts = {f.stem: kernel_code.digest(f) for f in sources}
    part = {f.stem for f in kernel_code.part_of_day(sources)}
    first, second, *_ = [f.stem for f in kernel_code.one_dtype(sources) if f.stem not in part]
    del texts[second]  # a new kernel
    plan = kernel_code.plan_of_day(sources, {**texts, first: "0"})
    for gfx in kernel_code.WHOLE:
        assert {f.stem for f in plan[gfx]} - part == {first, second}


def test_every_text_is_that_of_a_budget(budgets):
    assert sorted(json.loads(kernel_code.TEXTS.read_text())) == sorted(budgets["kernels"]), "`make kernel-budgets` writes both"


def test_streaming_kernels_move_16_bytes_and_products_use_the_matrix_units(code, program):
    broken = kernel_code.broken_rules(code, kernel_code.architectures(program))
    assert not broken, "\n".join(broken)


@pytest.mark.parametrize(("kernel", "gfx", "has_it"), [("fnuz", "gfx942", True), ("float8", "gfx942", False), ("float8", "gfx950", True), ("fnuz", "gfx950", False), ("float8", "gfx1201", True)])
def test_pages_of_the_gpus_own_format_are_decoded_by_its_instruction(sources, rocm, kernel, gfx, has_it):
    [source] = [f for f in sources if f.stem == f"paged_attention_{kernel}_bfloat16"]
    r = subprocess.run([*rocm.command(gfx), "-include", "hip/hip_runtime.h", "-S", source, "-o", "-"], capture_output=True, text=True)
    assert r.returncode == 0, r.stderr
    assert ("v_cvt_pk_f32_fp8" in r.stdout) == has_it


def test_absence_of_a_gpu_is_said(rocm):
    """The real HIP runtime on a machine without an AMD GPU. The library is found and opened, and the reason names it."""
    if os.path.exists("/dev/kfd"):
        pytest.skip("this machine has an AMD GPU's driver")
    r = subprocess.run([*rocm.runner, PROGRAM, "--gtest_filter=GpuRuntime.AbsenceHasAReason"], env=rocm.environment(dict(os.environ)), capture_output=True, text=True)
    assert r.returncode == 0, r.stdout
    assert "[  PASSED  ] 1 test" in r.stdout
