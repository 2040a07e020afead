#!/bin/sh
# Makes the code objects of this folder from ../../isa_kernels.hip. CXX: a clang with the AMDGPU target; ROCM_PATH: where HIP's headers
# and device libraries are.
set -eu
cd "$(dirname "$0")"
for gfx in ${ARCHS:-gfx90a gfx942 gfx950 gfx1030 gfx1100 gfx1201}; do
  "${CXX:-clang++}" -x hip --rocm-path="$ROCM_PATH" -isystem "$ROCM_PATH/include" --offload-arch="$gfx" --cuda-device-only \
    --no-gpu-bundle-output -O3 -c ../../isa_kernels.hip -o "isa_$gfx.co"
done
# One with line tables.
"${CXX:-clang++}" -x hip --rocm-path="$ROCM_PATH" -isystem "$ROCM_PATH/include" --offload-arch=gfx942 --cuda-device-only \
  --no-gpu-bundle-output -O3 -gline-tables-only \
  -ffile-compilation-dir=. -c ../../isa_lines.hip -o isa_lines.co
