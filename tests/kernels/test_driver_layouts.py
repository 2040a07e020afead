"""What rt.h says about the drivers' interfaces, compared with the drivers' own headers if they are installed: the structs of a graph's kernel node and edge, the
numbers of flags and errors. PYFLAME_TEST_ROCM_ROOT names the folder with ROCm, CUDA_HOME that of CUDA."""
import os
import pathlib
import shutil
import subprocess

import pytest

SOURCES = pathlib.Path(__file__).resolve().parents[2] / "src"
ROCM, CUDA = os.environ.get("PYFLAME_TEST_ROCM_ROOT"), os.environ.get("CUDA_HOME")

FIELDS = """
static_assert(sizeof({theirs}) == sizeof({ours}));
static_assert(offsetof({theirs}, {function}) == offsetof({ours}, function));
static_assert(offsetof({theirs}, {grid}) == offsetof({ours}, grid));
static_assert(offsetof({theirs}, {block}) == offsetof({ours}, block));
static_assert(offsetof({theirs}, sharedMemBytes) == offsetof({ours}, shared_bytes));
static_assert(offsetof({theirs}, kernelParams) == offsetof({ours}, parameters));
static_assert(offsetof({theirs}, extra) == offsetof({ours}, extra));
"""

# In the order of rt.h's enumeration. None: the driver has no such attribute.
ATTRIBUTES = {
    "hip": ("MultiprocessorCount", "WarpSize", "MaxSharedMemoryPerBlock", "MaxThreadsPerBlock", "L2CacheSize", "ComputeCapabilityMajor", "ComputeCapabilityMinor", "Integrated", "NumberOfXccs"),
    "cuda": ("MULTIPROCESSOR_COUNT", "WARP_SIZE", "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN", "MAX_THREADS_PER_BLOCK", "L2_CACHE_SIZE", "COMPUTE_CAPABILITY_MAJOR", "COMPUTE_CAPABILITY_MINOR", "INTEGRATED", None),
}


def attributes(side, prefix):
    names = ATTRIBUTES[side]
    return f"static_assert(std::size(kAttributeNumbers) == {len(names)});" + "".join(
        f"static_assert(kAttributeNumbers[{i}].{side} == {prefix + name if name else -1});\n" for i, name in enumerate(names))


def check(tmp_path, header, include, text, *flags):
    compiler = shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")
    if not compiler:
        pytest.skip("no C++ compiler")
    source = tmp_path / "layout.cpp"
    source.write_text(f"#include <{header}>\n#include <cstddef>\n#include <iterator>\n#include \"pyflame/backends/gpu/driver/rt.h\"\nusing namespace pyflame::gpu;\n{text}")
    done = subprocess.run([compiler, "-std=c++20", "-fsyntax-only", f"-I{SOURCES}", "-isystem", include, *flags, source], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(not ROCM, reason="PYFLAME_TEST_ROCM_ROOT is not set: no headers of HIP")
def test_hip(tmp_path):
    found = [p for p in (pathlib.Path(ROCM) / "usr/include", pathlib.Path(ROCM) / "include") if (p / "hip").is_dir()]
    assert found, f"no headers of HIP in {ROCM}"
    names = dict(theirs="hipKernelNodeParams", ours="HipKernelNode", function="func", grid="gridDim", block="blockDim")
    check(tmp_path, "hip/hip_runtime_api.h", str(found[0]), FIELDS.format(**names) + attributes("hip", "hipDeviceAttribute") + """
static_assert(offsetof(hipDeviceProp_t, gcnArchName) == kHipPropertiesNameAt && sizeof(hipDeviceProp_t::gcnArchName) == kHipPropertiesNameBytes);
static_assert(hipHostMallocPortable == kPortable && hipEventDisableTiming == kNoTiming);
static_assert(hipStreamCaptureModeRelaxed == kCaptureRelaxed);
static_assert(hipErrorNotReady == kNotReady && hipErrorOutOfMemory == kOutOfMemory);
""", "-D__HIP_PLATFORM_AMD__")


@pytest.mark.skipif(not CUDA, reason="CUDA_HOME is not set: no headers of CUDA")
def test_cuda(tmp_path):
    names = dict(theirs="CUDA_KERNEL_NODE_PARAMS", ours="CudaKernelNode", function="func", grid="gridDimX", block="blockDimX")
    check(tmp_path, "cuda.h", f"{CUDA}/include", FIELDS.format(**names) + attributes("cuda", "CU_DEVICE_ATTRIBUTE_") + """
static_assert(CU_MEMHOSTALLOC_PORTABLE == kPortable && CU_EVENT_DISABLE_TIMING == kNoTiming);
static_assert(CU_STREAM_CAPTURE_MODE_RELAXED == kCaptureRelaxed);
static_assert(CUDA_ERROR_NOT_READY == kNotReady && CUDA_ERROR_OUT_OF_MEMORY == kOutOfMemory);
""")


@pytest.mark.skipif(not CUDA, reason="CUDA_HOME is not set: no headers of CUDA")
def test_cuda_edges(tmp_path):
    include = pathlib.Path(CUDA) / "include"
    if "CUgraphEdgeData" not in (include / "cuda.h").read_text(encoding="utf-8"):
        pytest.skip("cuda.h is older than 12.3: it has no CUgraphEdgeData")
    fields = "".join(f"static_assert(offsetof(CUgraphEdgeData, {f}) == offsetof(GraphEdge, {f}));\n" for f in ("from_port", "to_port", "type", "reserved"))
    check(tmp_path, "cuda.h", str(include), fields + """
static_assert(sizeof(CUgraphEdgeData) == 8 && sizeof(GraphEdge) == 8);
static_assert(kEarlyEdge.from_port == CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC && kEarlyEdge.to_port == 0);
static_assert(kEarlyEdge.type == CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC);
static_assert(GraphEdge{}.from_port == CU_GRAPH_KERNEL_NODE_PORT_DEFAULT && GraphEdge{}.type == CU_GRAPH_DEPENDENCY_TYPE_DEFAULT);
""")
