#!/bin/bash
# Makes tests/inspect/data/co from tests/inspect/kernels.hip: code objects of six architectures and the containers that they come in.
# Needs a clang with the AMDGPU target and its tools (ROCM_LLVM, or those on PATH); no headers and no libraries of ROCm. The files are
# committed, because tests must run without a compiler for GPUs.
set -euo pipefail
cd "$(dirname "$0")/../tests/inspect"
bin=${ROCM_LLVM:+$ROCM_LLVM/}
hip() { "${bin}clang++" -x hip -nogpuinc -nogpulib -O2 -std=c++17 -ffile-prefix-map="$PWD"=. -fno-ident "$@"; }
rm -rf data/co && mkdir -p data/co
for arch in gfx90a gfx942 gfx950 gfx1030 gfx1100 gfx1201; do
  hip --cuda-device-only --offload-arch=$arch --no-gpu-bundle-output kernels.hip -o "data/co/$arch.co"
  "${bin}llvm-objcopy" --remove-section=.comment "data/co/$arch.co"
done
# As they are shipped: a host object with a fat binary, plain and compressed, alone and in an archive.
archs=(--offload-arch=gfx942 --offload-arch=gfx1100)
hip "${archs[@]}" -c kernels.hip -o data/co/fat.o
hip "${archs[@]}" --offload-compress -c kernels.hip -o data/co/fat_compressed.o
hip "${archs[@]}" --cuda-device-only --offload-compress --gpu-bundle-output kernels.hip -o data/co/compressed.hipfb
"${bin}llvm-objcopy" --strip-debug data/co/fat.o
(cd data/co && "${bin}llvm-ar" rcsD archive.a fat.o gfx90a.co && "${bin}llvm-ar" rcsDT thin.a gfx90a.co gfx1030.co)
# Without metadata: what the kernel descriptors alone say.
"${bin}llvm-objcopy" --remove-section=.note data/co/gfx942.co data/co/no_metadata.co
ls -l data/co
