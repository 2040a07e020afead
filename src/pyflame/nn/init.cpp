#include "pyflame/nn/init.h"

#include <cmath>

#include "pyflame/tensor/grad_node.h"

namespace pyflame::nn::init {

namespace {
Tensor as_leaf(const Tensor& t) {
  t.set_requires_grad(true);
  return t;
}
int64_t fan_in(const Dims& shape) {
  PF_CHECK(shape.size() >= 2, Value, "init: fan-in needs two dimensions; got shape {}", shape.str());
  return shape[0] == 0 ? 0 : shape.numel() / shape[0];
}
double inverse_sqrt(int64_t n) { return n > 0 ? 1.0 / std::sqrt(static_cast<double>(n)) : 0.0; }
}  // namespace

Tensor uniform(const Dims& shape, double low, double high) {
  grad_mode::Guard no_grad(false);
  return as_leaf(add(mul(rand(shape), high - low), low));
}

Tensor normal(const Dims& shape, double mean, double std) {
  grad_mode::Guard no_grad(false);
  return as_leaf(add(mul(randn(shape), std), mean));
}

Tensor constant(const Dims& shape, double value) { return as_leaf(full(shape, value, DType::float32)); }

Tensor kaiming_uniform(const Dims& shape) {
  const double bound = inverse_sqrt(fan_in(shape));
  return uniform(shape, -bound, bound);
}

Tensor fan_in_bias(const Dims& weight_shape, int64_t n) {
  const double bound = inverse_sqrt(fan_in(weight_shape));
  return uniform({n}, -bound, bound);
}

Tensor xavier_uniform(const Dims& shape) {
  const int64_t in = fan_in(shape);
  const int64_t out = shape[1] == 0 ? 0 : shape.numel() / shape[1];
  const double bound = std::sqrt(6.0) * inverse_sqrt(in + out);
  return uniform(shape, -bound, bound);
}

void normal_(const Tensor& t, double mean, double std) {
  grad_mode::Guard no_grad(false);
  copy_(t, add(mul(randn(t.shape()), std), mean));
}

void constant_(const Tensor& t, double value) {
  grad_mode::Guard no_grad(false);
  fill_(t, value);
}

}  // namespace pyflame::nn::init
