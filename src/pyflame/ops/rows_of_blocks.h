// Matrices in GGUF's blocks whose rows follow each other in one order of products, without a copy in between.
#pragma once
#include <string>
#include <vector>

#include "pyflame/tensor/tensor.h"

namespace pyflame {

// blocks: uint8 [rows, bytes of a row]. heads: 0, or the rows are those of so many heads in pairs (2i, 2i + 1), and go in halves (i, i + n/2).
struct RowsOfBlocks {
  Tensor blocks;
  int64_t heads = 0;
};

// weight_tiles of the rows of all pieces. The CPU reads each row once, where it is.
Tensor tiles_of_rows(const std::vector<RowsOfBlocks>& pieces, const std::string& type);

}  // namespace pyflame
