"""Kernels compiled now, by the compiler of a real ROCm, for six architectures: every figure of `pyflame inspect` against llvm-readelf.
PYFLAME_TEST_ROCM_ROOT names the folder with ROCm's env.sh; without it there is nothing to compile with and these tests are skipped."""
import json
import os
import re
import shlex
import subprocess

import pytest

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.environ.get("PYFLAME_TEST_ROCM_ROOT")
ENV = os.path.join(ROOT, "env.sh") if ROOT else ""
pytestmark = pytest.mark.skipif(not os.path.isfile(ENV), reason="PYFLAME_TEST_ROCM_ROOT names no folder with ROCm's env.sh: nothing to compile with")

ARCHS = ["gfx90a", "gfx942", "gfx950", "gfx1030", "gfx1100", "gfx1201"]
FIGURES = {".vgpr_count": "vgpr", ".agpr_count": "agpr", ".sgpr_count": "sgpr", ".vgpr_spill_count": "vgpr_spill",
           ".sgpr_spill_count": "sgpr_spill", ".group_segment_fixed_size": "lds", ".private_segment_fixed_size": "scratch",
           ".kernarg_segment_size": "kernarg", ".max_flat_workgroup_size": "max_workgroup", ".wavefront_size": "wave",
           ".uses_dynamic_stack": "dynamic_stack", ".workgroup_processor_mode": "wgp_mode"}

SOURCE = r"""
#include <hip/hip_runtime.h>

template <class T, int kTile>
__global__ __launch_bounds__(kTile * kTile) void matmul(const T* a, const T* b, T* c, int n) {
  __shared__ T left[kTile][kTile], right[kTile][kTile + 1];
  const int row = blockIdx.y * kTile + threadIdx.y, column = blockIdx.x * kTile + threadIdx.x;
  T sum{};
  for (int k = 0; k < n; k += kTile) {
    left[threadIdx.y][threadIdx.x] = a[row * n + k + threadIdx.x];
    right[threadIdx.y][threadIdx.x] = b[(k + threadIdx.y) * n + column];
    __syncthreads();
    for (int i = 0; i < kTile; ++i) sum += left[threadIdx.y][i] * right[i][threadIdx.x];
    __syncthreads();
  }
  c[row * n + column] = sum;
}
template __global__ void matmul<float, 16>(const float*, const float*, float*, int);
template __global__ void matmul<double, 32>(const double*, const double*, double*, int);

// Asks for more waves than its registers allow: spills.
__global__ __launch_bounds__(1024) void crowded(const float4* x, float4* y, int n) {
  float4 v[48];
  for (int i = 0; i < 48; ++i) v[i] = x[threadIdx.x + i * n];
  __syncthreads();
  for (int i = 0; i < 48; ++i) {
    v[i].x += v[47 - i].y * v[(i * 5) % 48].z;
    y[threadIdx.x + i * n] = v[i];
  }
}

__device__ __attribute__((noinline)) int tree(int n) { return n <= 1 ? 1 : tree(n / 2) * 3 + tree(n / 3); }
__global__ void recursive(int* x) { x[threadIdx.x] = tree(x[threadIdx.x]); }

extern "C" __global__ void softmax(const float* x, float* y, int n) {
  extern __shared__ float row[];
  float most = -INFINITY, sum = 0;
  for (int i = threadIdx.x; i < n; i += blockDim.x) most = fmaxf(most, row[i] = x[blockIdx.x * n + i]);
  for (int i = threadIdx.x; i < n; i += blockDim.x) sum += row[i] = expf(row[i] - most);
  for (int i = threadIdx.x; i < n; i += blockDim.x) y[blockIdx.x * n + i] = row[i] / sum;
}
"""


def tool(command, **kwargs):
    r = subprocess.run(["bash", "-c", f". {shlex.quote(ENV)} && {command}"], capture_output=True, text=True, **kwargs)
    assert r.returncode == 0, r.stderr
    return r.stdout


def compile_hip(folder, output, *options):
    source = folder / "kernels.hip"
    source.write_text(SOURCE)
    tool(f'"$ROCM_CXX" -x hip --rocm-path="$ROCM_PATH" -isystem "$ROCM_PATH/include" -O2 -std=c++17 {" ".join(options)} {source} -o {output}')
    return output


def readelf(path):
    """name of a kernel -> what llvm-readelf says: its metadata, and the size of its symbol."""
    notes = tool(f'"$ROCM_LLVM/llvm-readelf" --notes {path}')
    symbols = tool(f'"$ROCM_LLVM/llvm-readelf" -sW {path}')
    sizes = {m[2]: int(m[1]) for m in re.finditer(r"\s(\d+) FUNC\s.*\s(\S+)$", symbols, re.M)}
    kernels = {}
    for block in re.split(r"^  - (?=\.)", notes, flags=re.M)[1:]:
        values = dict(re.findall(r"^(?:    |)(\.[a-z_]+): +(\S+)$", block, flags=re.M))
        if ".vgpr_count" in values:
            name = values[".name"].strip("'\"")
            kernels[name] = {**values, "code_bytes": sizes[name]}
    return kernels


def value(text):
    return {"true": True, "false": False, "1": 1}.get(text, None) if not text.isdigit() else int(text)


def check(document, expected, gfx):
    kernels = {k["symbol"]: k for k in document["kernels"] if k["gfx"] == gfx}
    assert set(kernels) == set(expected)
    for name, values in expected.items():
        for key, ours in FIGURES.items():
            if key in values:
                assert kernels[name][ours] == value(values[key]), (name, key)
        assert kernels[name]["code_bytes"] == values["code_bytes"]


@pytest.mark.parametrize("arch", ARCHS)
def test_figures_are_those_of_readelf(run, tmp_path, arch):
    co = compile_hip(tmp_path, tmp_path / "k.co", "--cuda-device-only", "--no-gpu-bundle-output", f"--offload-arch={arch}")
    expected = readelf(co)
    assert len(expected) == 5
    document = json.loads(run("inspect", co, "--json").stdout)
    assert document["problems"] == []
    check(document, expected, arch)
    by_name = {k["name"]: k for k in document["kernels"]}
    assert by_name["void matmul<float, 16>(float const*, float const*, float*, int)"]["lds"] > 2048
    assert by_name["recursive(int*)"]["dynamic_stack"] is True
    assert by_name["crowded(HIP_vector_type<float, 4u> const*, HIP_vector_type<float, 4u>*, int)"]["vgpr_spill"] > 0


@pytest.mark.parametrize("options", [["--offload-compress"], ["--offload-new-driver", "-fno-gpu-rdc"]], ids=["compressed", "new driver"])
def test_every_architecture_comes_out_of_an_object_file(run, tmp_path, options):
    archs = ARCHS if "--offload-compress" in options else ["gfx942", "gfx1100"]
    obj = compile_hip(tmp_path, tmp_path / "k.o", "-c", *options, *(f"--offload-arch={a}" for a in archs))
    document = json.loads(run("inspect", obj, "--json", "--no_isa").stdout)
    assert document["problems"] == []
    assert sorted(o["target"] for o in document["objects"]) == sorted(archs)
    assert len(document["kernels"]) == 5 * len(archs)


def test_the_linker_keeps_them(run, tmp_path):
    compile_hip(tmp_path, tmp_path / "k.o", "-c", "-fPIC", "--offload-compress", "--offload-arch=gfx942")
    tool(f'"$ROCM_LLVM/clang++" -shared -nostdlib -Wl,--unresolved-symbols=ignore-all {tmp_path}/k.o -o {tmp_path}/libk.so')
    document = json.loads(run("inspect", tmp_path / "libk.so", "--json", "--no_isa").stdout)
    assert document["problems"] == [] and len(document["kernels"]) == 5
    assert document["objects"][0]["container"] == "compressed bundle"


def test_features_of_the_target(run, tmp_path):
    co = compile_hip(tmp_path, tmp_path / "k.co", "--cuda-device-only", "--no-gpu-bundle-output", "--offload-arch=gfx942:sramecc+:xnack-")
    document = json.loads(run("inspect", co, "--json", "--no_isa").stdout)
    assert {k["target"] for k in document["kernels"]} == {"gfx942:sramecc+:xnack-"}
    assert {k["gfx"] for k in document["kernels"]} == {"gfx942"}
