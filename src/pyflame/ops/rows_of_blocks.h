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

// The bytes of what weight_tiles makes of a matrix: of the CPU's tiles, or of the planes of a GPU. 0 where it takes none of this type, or where a
// row is no whole number of blocks.
int64_t bytes_of_products(const std::string& type, int64_t rows, int64_t columns, bool in_planes);

}  // namespace pyflame
