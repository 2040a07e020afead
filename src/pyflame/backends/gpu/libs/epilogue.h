// What of a group the vendors' libraries do themselves after its product: the sum with a bias and with a matrix, an activation (of which
// the argument may be kept for its gradient), or the gradient of one; and beside the product the sum of one of its operands.
#pragma once
#include <optional>
#include <string>

#include "pyflame/backends/gpu/libs/blas.h"

namespace pyflame::gpu {

struct Epilogue {
  int number = kBlasEpilogueNone;
  // Bindings; -1: none.
  int32_t out = -1;    // the result
  int32_t bias = -1;   // one number for each column, added
  int32_t sum = -1;    // of an operand over the depth, written (Group::summed)
  int32_t added = -1;  // a matrix that lies as the product does, added
  int32_t argument =
      -1;  // of the activation, which lies as the product does: written by an activation, read by a gradient
};

// Empty, with the reason in `why`, where a library has no such epilogue.
std::optional<Epilogue> epilogue_of(const Problem& p, std::string* why);

}  // namespace pyflame::gpu
