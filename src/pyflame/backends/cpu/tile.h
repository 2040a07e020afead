// The fused-loop engine of the CPU: a Loop group becomes a list of vector instructions that is run over tiles which fit in the
// L1 cache, so that memory is touched once and no compiler is needed at run time.
//
// Numbers depend on shapes only: never on tiles, threads or on what is fused with what.
#pragma once
#include <cstdint>
#include <memory>

#include "pyflame/backends/backend.h"

namespace pyflame::cpu {

namespace tile {
struct Program;
}

Refusal tile_accepts(const Problem& p);
std::unique_ptr<Executable> tile_make(const Problem& p);

// The Map nodes behind a matmul or convolution. Whoever computes the root calls run() on a block of rows while it is in cache.
class TileEpilogue {
 public:
  static Refusal accepts(const Problem& p);
  // `row_length`: how many of the root's values (in row-major order) make one row: N of a matmul, H * W of a convolution.
  static std::unique_ptr<TileEpilogue> make(const Problem& p, int64_t row_length);
  ~TileEpilogue();

  // root_out: rows * row_length values of the root, contiguous, in the root's dtype: rows [first_row, first_row + rows) of the
  // whole. It may be the place of one of the outputs. May be called from several threads at once on different rows.
  void run(const RunContext& ctx, const void* root_out, int64_t first_row, int64_t rows) const;

 private:
  TileEpilogue() = default;
  std::unique_ptr<tile::Program> program_;
  int64_t row_length_ = 0;
};

}  // namespace pyflame::cpu
