// What plans for a convolution are tried on: random data, since the time of a kernel depends on its data, and the result that a correct plan
// computes from them.
#pragma once
#include <array>
#include <string>
#include <vector>

#include "pyflame/backends/gpu/driver/device.h"
#include "pyflame/backends/gpu/shapes/conv_case.h"

namespace pyflame::gpu {

class ConvTrial {
 public:
  // Tensors are in the order image, weight, result, each dense.
  explicit ConvTrial(const ConvCase& c);
  // Fills the two tensors that are read, and the third one with NaN.
  void fill(GpuDevice& device, const std::array<void*, 3>& tensors) const;
  void spoil(GpuDevice& device, const std::array<void*, 3>& tensors) const;
  // Empty if the third one is correct, else the first difference. It compares a sample of elements, the corners among them, with sums that are
  // computed here in double; the limit is the formula of python/pyflame/testing/tolerance.py.
  std::string difference(GpuDevice& device, const std::array<void*, 3>& tensors) const;

 private:
  struct Sample {
    Dims index;
    int64_t at;  // in elements
    double value, limit;
  };
  double read(size_t tensor, const Dims& index) const;
  // Value and magnitude: the sum of the terms, and of their absolute values.
  std::array<double, 2> sum(const Dims& index) const;
  int64_t terms() const;

  ConvCase case_;
  std::array<const Operand*, 3> tensors_;
  size_t made_;
  std::vector<Sample> samples_;
};

}  // namespace pyflame::gpu
