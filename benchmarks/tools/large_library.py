"""Makes a code object with many different kernels, and times `pyflame inspect` on it.

    python benchmarks/tools/large_library.py --rocm ROOT [--kernels 10000] [--arch gfx942] [--pyflame build/release/bin/pyflame]

ROOT is a ROCm installation with clang++ (ROOT/llvm/bin, ROOT/bin, or named by ROOT/env.sh as ROCM_CXX). Each kernel has a loop with
wide loads, arithmetic and LDS traffic, with sizes that differ from kernel to kernel, so that no two have the same code.
"""
import argparse
import json
import os
import pathlib
import resource
import shutil
import subprocess
import sys
import tempfile
import time

SOURCE = """
#define KERNEL(N) extern "C" __global__ void kernel_##N(const float4* __restrict__ a, float4* __restrict__ b, int n) {{ \\
  __shared__ float tile[64 + N % 61]; float4 sum[1 + N % 5]; for (auto& s : sum) s = float4{{}}; \\
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += N % 127 + 1) {{ float4 v = a[i]; \\
    tile[threadIdx.x & 63] = v.x * (N + 0.5f); __syncthreads(); \\
    for (int k = 0; k < 1 + N % 5; ++k) {{ sum[k].x += tile[(threadIdx.x + k) & 63]; sum[k].y += v.y * k; sum[k].z -= v.z / (k + N); sum[k].w += v.w; }} \\
    __syncthreads(); }} float4 r = float4{{}}; for (auto& s : sum) {{ r.x += s.x; r.y += s.y; r.z += s.z; r.w += s.w; }} b[threadIdx.x] = r; }}
"""


def compiler(root):
    env = dict(os.environ)
    if (root / "env.sh").exists():
        lines = subprocess.run(["bash", "-c", f". '{root}/env.sh' && env -0"], capture_output=True, check=True).stdout.decode()
        env.update(line.split("=", 1) for line in lines.split("\0") if "=" in line)
    for path in (env.get("ROCM_CXX"), root / "llvm/bin/clang++", root / "bin/clang++"):
        if path and shutil.which(str(path)):
            return str(path), env
    sys.exit(f"large_library: no clang++ below {root}")


def build(out, kernels, arch, root):
    cxx, env = compiler(root)
    path = env.get("ROCM_PATH", str(root))
    text = '#include <hip/hip_runtime.h>\n' + SOURCE.format() + "\n".join(f"KERNEL({n})" for n in range(1, kernels + 1))
    source = out.with_suffix(".hip")
    source.write_text(text)
    subprocess.run([cxx, "-x", "hip", f"--rocm-path={path}", "-isystem", f"{path}/include", f"--offload-arch={arch}",
                    "--cuda-device-only", "--no-gpu-bundle-output", "-O2", "-c", str(source), "-o", str(out)], check=True, env=env)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rocm", type=pathlib.Path, required=True)
    parser.add_argument("--kernels", type=int, default=10000)
    parser.add_argument("--arch", default="gfx942")
    parser.add_argument("--pyflame", default="build/release/bin/pyflame")
    parser.add_argument("--file", type=pathlib.Path, help="keep the code object here, and use it when it exists")
    parser.add_argument("--repeat", type=int, default=3)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        library = arguments.file or pathlib.Path(folder) / "large.co"
        if not library.exists():
            build(library, arguments.kernels, arguments.arch, arguments.rocm)
        result = {"kernels": arguments.kernels, "arch": arguments.arch, "bytes": library.stat().st_size, "cpus": os.cpu_count()}
        for name, options in (("metadata", ["--no_isa"]), ("with_isa", [])):
            seconds = []
            for _ in range(arguments.repeat):
                start = time.perf_counter()
                out = subprocess.run([arguments.pyflame, "inspect", str(library), "--json", *options], check=True, capture_output=True)
                seconds.append(round(time.perf_counter() - start, 3))
            document = json.loads(out.stdout)
            assert len(document["kernels"]) == arguments.kernels, len(document["kernels"])
            assert name == "metadata" or all("isa" in kernel for kernel in document["kernels"]), document["missing"]
            result[name] = {"median_s": sorted(seconds)[len(seconds) // 2], "all_s": seconds}
        result["peak_mib"] = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024
        print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
