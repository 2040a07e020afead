// Elementwise nodes behind a product, for a list of its elements.
#pragma once
#include <optional>
#include <vector>

#include "pyflame/backends/backend.h"
#include "pyflame/runtime/sampled_inputs.h"
#include "pyflame/tensor/layout.h"

namespace pyflame::sampled {

class Epilogue {
 public:
  // Nothing: a node computes other elements than the product's, or is no continuous function from floats to floats (OpInfo::jumps_in). What follows
  // from a comparison, a rounding or a random number has no bound.
  static std::optional<Epilogue> of(const Problem& p);

  // Nodes over channels-last images may have their dims in the order of memory (Backend::loops_in_memory_order). The index in the nodes' results of an
  // element of the product, and the other way round.
  Dims from_product(const Dims& index) const { return in_memory_order_ ? nhwc(index) : index; }
  Dims to_product(const Dims& index) const {
    return in_memory_order_ ? nhwc(nhwc(index)) : index;  // three such turns of the last three dims are none
  }

  // The nodes, in order. A node whose sums are taken beside the product (Group::summed) is not among them.
  const std::vector<const Node*>& nodes() const { return nodes_; }
  // What each node computes where the product has these values at these indices. Rounded: each value to its dtype. Otherwise all are float64.
  std::vector<std::vector<double>> run(const std::vector<double>& product, const std::vector<Dims>& at, bool rounded,
                                       Pointers inputs, Params params) const;

  // How far each of them may be off because of the roundings of these functions alone: near a zero of one this is much more than a unit in the last place.
  // For each function, 4 units in the last place of the largest value that leads to the element, and what it makes of the errors of its arguments: of those
  // of the functions before it, and of 4 units in their own last place.
  std::vector<std::vector<double>> roundings(const std::vector<double>& product, const std::vector<Dims>& at,
                                             Pointers inputs, Params params) const;

 private:
  static std::optional<Epilogue> over(const Problem& p, const Operand& product);
  std::vector<Dims> from_product(const std::vector<Dims>& at) const;

  const Node* root_ = nullptr;
  bool in_memory_order_ = false;
  size_t bindings_ = 0;  // of the graph
  std::vector<const Node*> nodes_;
};

}  // namespace pyflame::sampled
