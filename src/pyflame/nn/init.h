// Initial values, with PyTorch's formulas. Each function makes exactly one random call, and constructors of layers call
// them in the order in which their tensors are declared. So with the same seed, the Python classes get the same
// numbers.
#pragma once
#include "pyflame/ops/ops.h"

namespace pyflame::nn::init {

// New leaf tensors that require gradients.
Tensor uniform(const Dims& shape, double low, double high);
Tensor normal(const Dims& shape, double mean, double std);
Tensor constant(const Dims& shape, double value);
// kaiming_uniform with a = sqrt(5), which is U(-1/sqrt(fan_in), 1/sqrt(fan_in)); fan_in is numel / size(0).
Tensor kaiming_uniform(const Dims& shape);
Tensor xavier_uniform(const Dims& shape);
// The bias that belongs to kaiming_uniform.
Tensor fan_in_bias(const Dims& weight_shape, int64_t n);

// Overwrites an existing parameter.
void normal_(const Tensor& t, double mean, double std);
void constant_(const Tensor& t, double value);

}  // namespace pyflame::nn::init
