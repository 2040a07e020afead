// Which nodes of a group a vendor's library computes itself after its product: the addition of a bias and of a matrix,
// an activation (whose argument may be stored for its gradient) or the gradient of one, and the sum of one of the
// product's operands.
#pragma once
#include <optional>
#include <string>

#include "pyflame/backends/gpu/libs/blas.h"

namespace pyflame::gpu {

struct Epilogue {
  int number = kBlasEpilogueNone;
  BindingId out;    // the result
  BindingId bias;   // one number per column, added
  BindingId sum;    // the sum of an operand over the depth, written (Group::summed)
  BindingId added;  // a matrix in the product's layout, added
  BindingId
      argument;  // the activation's argument, in the product's layout: an activation writes it, a gradient reads it
};

// Empty, with the reason in `why`, if libraries have no such epilogue.
std::optional<Epilogue> epilogue_of(const Problem& p, std::string* why);

}  // namespace pyflame::gpu
