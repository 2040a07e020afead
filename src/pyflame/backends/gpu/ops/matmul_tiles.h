// The tiles of the kernels in kernels/matmul, and how these read their operands.
#pragma once
#include <span>

#include "pyflame/backends/gpu/driver/arch.h"
#include "pyflame/backends/gpu/shapes/layout.h"

namespace pyflame::gpu {

// Workgroups that keep a large GPU busy.
constexpr int64_t kEnough = 128;

// In the kernel's template, a configuration's own numbers follow rows, cols and depth. waves: of a workgroup; 0: kGroupThreads
// threads. stages: see UnitsTile in kernels/matmul/matrix_cores.h.
struct MatmulTile {
  int rows, cols, depth;
  const char* rest;
  int waves = 0, stages = 1;
  bool large_blocks = false;  // a wave computes 64 x 64 outputs: too many registers for waves of 32 on RDNA
};
// The tiles for multiply-adds, or for matrix cores (`units`), largest first.
inline std::span<const MatmulTile> matmul_tiles(DType dtype, bool units) {
  static constexpr MatmulTile kTiles[] = {
      {128, 128, 16, "8, 8"}, {64, 64, 16, "4, 4"}, {32, 32, 64, "4, 4"}, {16, 16, 256, "4, 4"}};
  static constexpr MatmulTile kWide[] = {{64, 64, 16, "4, 4"}, {32, 32, 32, "4, 4"}, {16, 16, 128, "4, 4"}};
  static constexpr MatmulTile kUnits[] = {{128, 128, 32, "4, 2, 1"}, {64, 64, 64, "2, 2, 2"}, {16, 64, 128, "1, 1, 4"}};
  if (units) return kUnits;
  if (dtype_size(dtype) == 8) return kWide;
  return kTiles;
}
// Tiles for matrix cores that no rule chooses; they can be measured. Static shared memory is at most 48 KiB.
inline constexpr MatmulTile kMoreUnitTiles[] = {
    {128, 128, 32, "4, 4, 1", 4, 2, true}, {256, 128, 32, "4, 4, 1", 8, 1, true}, {128, 128, 32, "4, 4, 1", 4, 1, true},
    {128, 128, 32, "4, 2, 1", 0, 2},       {128, 64, 32, "4, 2, 1", 4, 2},        {64, 64, 32, "2, 2, 1", 4, 2}};

// The dtypes that our kernels multiply on matrix cores.
inline bool by_units(DType d) { return d == DType::float16 || d == DType::bfloat16; }
inline bool has_units(const Problem& p) {
  if (p.graph.device.type != DeviceType::rocm || count_devices(DeviceType::rocm) == 0) return true;
  return has_matrix_units(arch_of(DeviceType::rocm, p.graph.device.index).name);
}

// Whether a matrix can be read `vec` elements at a time along its contiguous dim, if its first element is aligned.
inline bool by_vectors(int64_t along, int64_t stride, const Dims& batch_strides, int64_t vec) {
  bool ok = along % vec == 0 && stride % vec == 0;
  for (const int64_t s : batch_strides) ok &= s % vec == 0;
  return ok;
}
inline bool aligned(const void* p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; }

// A matrix as the kernels see it: contiguous along the depth, or otherwise across the lines.
struct Side {
  bool along = false, vectors = false;
  Side(int64_t lines, int64_t depth, int64_t line_stride, int64_t depth_stride, const Dims& batch, int64_t vec) {
    along = depth_stride == 1 && (line_stride != 1 || depth >= lines);
    if (along) vectors = by_vectors(depth, lines > 1 ? line_stride : 0, batch, vec);
    else vectors = line_stride == 1 && by_vectors(lines, depth > 1 ? depth_stride : 0, batch, vec);
  }
};

}  // namespace pyflame::gpu
