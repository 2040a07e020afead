// Single elements of a product (of 8-bit floats, too), a convolution or one of its gradients, directly from the definition and in double.
#pragma once
#include <array>

#include "pyflame/backends/backend.h"
#include "pyflame/runtime/sampled_inputs.h"

namespace pyflame::sampled {

struct Sum {
  double value = 0, magnitude = 0;  // the sum of the terms, and of their absolute values
  void add(double term) {
    value += term;
    magnitude += term < 0 ? -term : term;
  }
};

class Sums {
 public:
  // Of the two factors of a product: how to get at their lines, where these are on a device.
  using Far = std::array<Fetch, 2>;
  // The node is one for which sum_of_products() has an answer (runtime/sums.h). All must live as long as this object.
  Sums(const Node& node, Pointers inputs, const Far& far);
  // The element of the result at an index.
  Sum operator()(const Dims& index) const;

 private:
  Sum product(const Dims& index) const;
  Sum forward(const Dims& index) const;
  Sum input_gradient(const Dims& index) const;
  Sum weight_gradient(const Dims& index) const;

  const Node& node_;
  const Far& far_;
  Elements a_, b_;
  double scale_ = 1;                                  // of a product of 8-bit floats
  Dims a_strides_, b_strides_;                        // of a product: of the result's batches
  Dims step_, pad_, dilation_, image_, taps_, made_;  // of a convolution: one number for each dim of an image
  int64_t groups_ = 1;
};

}  // namespace pyflame::sampled
