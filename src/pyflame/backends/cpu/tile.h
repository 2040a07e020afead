// The engine for fused loops on the CPU. A Loop group becomes a list of vector instructions, which run over tiles that
// fit the L1 cache. So memory is read once, and no compiler is needed at run time.
//
// Results depend on shapes only: never on tiles, on threads, or on what is fused.
#pragma once
#include <cstdint>
#include <memory>

#include "pyflame/backends/backend.h"

namespace pyflame::cpu {

namespace tile {
struct TileProgram;
}

Refusal tile_accepts(const Problem& p);
std::unique_ptr<Executable> tile_make(const Problem& p);

// The Map nodes after a matmul or convolution. The kernel of the root calls run() on a block of rows while it is in the
// cache.
class TileEpilogue {
 public:
  static Refusal accepts(const Problem& p);
  // `row_length`: how many of the root's values (in row-major order) make one row: N of a matmul, H * W of a
  // convolution.
  static std::unique_ptr<TileEpilogue> make(const Problem& p, int64_t row_length);
  ~TileEpilogue();

  // root_out: rows * row_length values of the root, contiguous, in the root's dtype: the rows [first_row, first_row +
  // rows). It may be the memory of one of the outputs. Several threads may call this at once for different rows.
  void run(const RunContext& ctx, const void* root_out, int64_t first_row, int64_t rows) const;

 private:
  TileEpilogue() = default;
  std::unique_ptr<tile::TileProgram> program_;
  int64_t row_length_ = 0;
};

}  // namespace pyflame::cpu
