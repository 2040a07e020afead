"""Kernels of the GPU backend, compiled by ROCm's clang for AMD GPUs, without one: no warning, no spill, no scratch memory. It says that
they are code for these GPUs, not that they are right or fast there.

PYFLAME_TEST_ROCM_ROOT names the folder with ROCm's env.sh, PYFLAME_TEST_KERNELS the C++ test program that writes the sources."""
import json
import os
import subprocess

import pytest

ROOT, PROGRAM = os.environ.get("PYFLAME_TEST_ROCM_ROOT"), os.environ.get("PYFLAME_TEST_KERNELS")
pytestmark = pytest.mark.skipif(not ROOT or not PROGRAM, reason="PYFLAME_TEST_ROCM_ROOT and PYFLAME_TEST_KERNELS are not set: no compiler")
ARCHS = ["gfx90a", "gfx942", "gfx950", "gfx1030", "gfx1100", "gfx1201"]


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    folder = tmp_path_factory.mktemp("kernels")
    subprocess.run([PROGRAM, "--gtest_filter=GpuLoop.SourcesForOtherCompilers"], env=dict(os.environ, PYFLAME_DUMP_KERNELS=str(folder)), check=True,
                   capture_output=True)
    found = sorted(folder.glob("*.hip"))
    assert len(found) >= 16
    return found


@pytest.mark.parametrize("gfx", ARCHS)
def test_kernels_are_code_for(run, sources, tmp_path, gfx):
    environment = subprocess.run(["bash", "-c", f". '{ROOT}/env.sh' && printf '%s\\n%s' \"$ROCM_CXX\" \"$ROCM_PATH\""], check=True, capture_output=True, text=True).stdout
    cxx, rocm = environment.split("\n")
    for source in sources:
        target = tmp_path / (source.stem + ".co")
        r = subprocess.run([cxx, "-x", "hip", f"--rocm-path={rocm}", "-isystem", f"{rocm}/include", f"--offload-arch={gfx}", "--cuda-device-only",
                            "--no-gpu-bundle-output", "-include", "hip/hip_runtime.h", "-std=c++17", "-O3", "-ffp-contract=off", "-Wall", "-Werror", "-Wno-pragma-once-outside-header",
                            "-c", str(source), "-o", str(target)], capture_output=True, text=True)
        assert r.returncode == 0, r.stderr
    kernels = json.loads(run("inspect", tmp_path, "--json").stdout)["kernels"]
    assert len(kernels) == len(sources)
    for kernel in kernels:
        assert kernel["vgpr_spill"] == kernel["sgpr_spill"] == kernel["scratch"] == 0, kernel
        assert kernel["occupancy"]["waves_per_simd"] >= 2, kernel
