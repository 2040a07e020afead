// Euclidean distances of all pairs of rows.
#include "pyflame/ops/autocast.h"
#include "pyflame/ops/family.h"

namespace pyflame {

namespace {

// The rows i < j of each pair, as int64. The pairs of row i begin at i (2 N - 1 - i) / 2.
std::pair<Tensor, Tensor> pairs_of(int64_t rows, Device device) {
  const Tensor row = arange(0, rows, 1, DType::int64, device),
               number = arange(0, rows * (rows - 1) / 2, 1, DType::int64, device);
  const Tensor begin = div(mul(row, sub(Scalar(2 * rows - 1), row)), Scalar(2), "floor");
  const Tensor i = sub(searchsorted(begin, number, true), Scalar(1));
  return {i, add(sub(number, index_select(begin, 0, i)), add(i, Scalar(1)))};
}

// The slope of a distance of 0 counts as 0.
Tensor pdist_grad(const Tensor& g, const Tensor& x, const Tensor& distance) {
  const auto [i, j] = pairs_of(x.size(0), x.device());
  const Tensor zero = eq(distance, 0.0), factor = where(zero, 0.0, div(g, where(zero, 1.0, distance)));
  const Tensor parts = mul(unsqueeze(factor, 1), sub(index_select(x, 0, i), index_select(x, 0, j)));
  return sub(index_add_zeros(i, parts, x.shape(), 0), index_add_zeros(j, parts, x.shape(), 0));
}

}  // namespace

Tensor pdist(const Tensor& input) {
  if (autocast::active(input)) {
    const autocast::Off off;
    return pdist(autocast::operand(OpId::pdist, input));
  }
  check_float("pdist", input);
  PF_CHECK(input.dim() == 2, Value, "pdist: not a matrix; got shape {}; expected [N, M]", input.shape().str());
  const int64_t rows = input.size(0);
  const Dims shape{rows * (rows - 1) / 2};
  Tensor out =
      shape[0] == 0 ? empty(shape, input.dtype(), input.device()) : emit(OpId::pdist, {input}, shape, input.dtype());
  attach("pdist", {out}, {input}, {input, out},
         [](GradNode& n, const Tensors& g) -> Tensors { return {pdist_grad(g[0], n.saved(0), n.saved(1))}; });
  return out;
}

}  // namespace pyflame
