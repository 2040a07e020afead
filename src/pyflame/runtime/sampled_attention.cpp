// One row at a time: scores of the keys that the query sees, their softmax, and the sum of the values. A score's error is that of its sum of products, where
// the query may be rounded to 16 bits once more when it is scaled; a probability may be rounded to 16 bits before it is multiplied by values.
#include "pyflame/runtime/sampled_attention.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "pyflame/ops/attrs.h"
#include "pyflame/runtime/sums.h"

namespace pyflame::sampled {

namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

// Of an exponential, whose argument was computed in the type of the sums: GPUs have fast ones.
double rounding_of_exponentials(DType d) { return 8 * rounding_of_sums(d); }

// By so much a subnormal number of float16 may be rounded. The errors of many small probabilities can have one sign: all become 0.
constexpr double kSubnormal = 0x1p-25;

double scale_of(const Node& n, int tensors, Params params) {
  return params[n.ins[static_cast<size_t>(tensors)].param].as_f64();
}

}  // namespace

AttentionRows::AttentionRows(const Node& node, Pointers inputs, Params params)
    : node_(node),
      q_(node.ins[0], inputs[node.ins[0].binding]),
      k_(node.ins[1], inputs[node.ins[1].binding]),
      v_(node.ins[2], inputs[node.ins[2].binding]) {
  const auto attrs = node.attr<AttentionAttrs>();
  const int tensors = attrs.has_mask ? 4 : 3;
  scale_ = scale_of(node, tensors, params);
  keys_ = std::clamp<int64_t>(params[node.ins[static_cast<size_t>(tensors) + 1].param].as_i64(), 0, k_.shape()[2]);
  causal_ = attrs.causal != 0, padding_ = attrs.padding != 0;
  if (!attrs.has_mask) return;
  const Operand& mask = node.ins[3];
  mask_.emplace(mask, inputs[mask.binding]);
  mask_strides_ =
      broadcast_strides(mask.shape, mask.strides, {q_.shape()[0], q_.shape()[1], q_.shape()[2], k_.shape()[2]});
}

int64_t AttentionRows::cost() const { return keys_ * (q_.shape()[3] + v_.shape()[3]); }

double AttentionRows::masked(double score, int64_t batch, int64_t head, int64_t query, int64_t key) const {
  if (!mask_) return score;
  const double value = (*mask_)[offset_of({batch, head, query, key}, mask_strides_)];
  if (node_.ins[3].dtype == DType::bool_) return value != 0 ? score : -kInf;
  return score + value;
}

// Of the keys that the query sees.
std::vector<AttentionRows::Score> AttentionRows::scores(int64_t batch, int64_t head, int64_t query) const {
  const int64_t dim = q_.shape()[3], queries = q_.shape()[2], of_head = head / (q_.shape()[1] / k_.shape()[1]);
  const int64_t seen = causal_ ? std::min(keys_, query + (keys_ - queries) + 1) : keys_;
  const SumOfProducts sum{node_.outs[0].dtype, std::max<int64_t>(1, dim), false};
  const int64_t q = batch * q_.stride(0) + head * q_.stride(1) + query * q_.stride(2);
  std::vector<Score> all;
  for (int64_t s = 0; s < seen; ++s) {
    const int64_t k = batch * k_.stride(0) + of_head * k_.stride(1) + s * k_.stride(2);
    double value = 0, magnitude = 0;
    for (int64_t i = 0; i < dim; ++i) {
      const double term = q_[q + i * q_.stride(3)] * k_[k + i * k_.stride(3)] * scale_;
      value += term, magnitude += std::fabs(term);
    }
    const double score = masked(value, batch, head, query, s);
    if (score != -kInf)
      all.push_back({score, error_of_terms(sum, magnitude) + std::fabs(score) * rounding_of_sums(sum.dtype), s});
  }
  return all;
}

bool AttentionRows::is_padding(int64_t batch, int64_t head, int64_t query) const {
  return has_padding() && masked(0, batch, head, query, query) == -kInf;
}

// Drops keys whose weight is 0 in any case, such as those that a mask with the least number of a dtype hides. The largest score.
double AttentionRows::drop_zeros(std::vector<Score>& all) {
  constexpr double kVanishes = 745;  // exp(-kVanishes) is the least double
  double top = -kInf, at_least = -kInf;
  for (const Score& s : all) top = std::max(top, s.value), at_least = std::max(at_least, s.value - s.error);
  std::erase_if(all, [&](const Score& s) { return s.value + s.error < at_least - kVanishes; });
  return top;
}

std::optional<AttentionRow> AttentionRows::row(int64_t batch, int64_t head, int64_t query) const {
  if (is_padding(batch, head, query)) return std::nullopt;
  const DType dtype = node_.outs[0].dtype;
  std::vector<Score> all = scores(batch, head, query);
  AttentionRow row;
  const double top = drop_zeros(all);
  double total = 0;
  for (Score& s : all) total += s.value = std::exp(s.value - top);
  row.lse = all.empty() ? -kInf : top + std::log(total);
  row.lse_allowed = rounding_of_exponentials(dtype) + 4 * unit_in_last_place(row.lse, DType::float32);
  for (Score& s : all) s.value /= total, row.lse_allowed += s.value * s.error;
  add_values(row, all, batch, head);
  return row;
}

void AttentionRows::add_values(AttentionRow& row, const std::vector<Score>& weights, int64_t batch,
                               int64_t head) const {
  const DType dtype = node_.outs[0].dtype;
  const double once = rounding_to_16_bits(dtype), exponential = rounding_of_exponentials(dtype);
  const double order = static_cast<double>(weights.size()) * rounding_of_sums(dtype);
  const int64_t first = batch * v_.stride(0) + head / (q_.shape()[1] / v_.shape()[1]) * v_.stride(1);
  for (int64_t i = 0; i < v_.shape()[3]; ++i) {
    double value = 0, magnitude = 0, errors = 0, squares = 0, vanished = 0;
    const auto of = [&](const Score& w) { return v_[first + w.key * v_.stride(2) + i * v_.stride(3)]; };
    for (const Score& w : weights) value += w.value * of(w), magnitude += w.value * std::fabs(of(w));
    // Implementations may multiply the values of hidden keys by 0: there is no bound if one is not finite.
    for (int64_t s = 0; s < keys_; ++s) value += 0 * v_[first + s * v_.stride(2) + i * v_.stride(3)];
    for (const Score& w : weights) {
      const double error = w.value * (std::expm1(w.error) * std::fabs(of(w) - value) + once * std::fabs(of(w)));
      errors += error, squares += error * error;
      if (dtype == DType::float16) vanished += std::min(w.value, kSubnormal) * std::fabs(of(w));
    }
    row.values.push_back(value);
    row.allowed.push_back(2 * unit_in_last_place(value, dtype) + once * std::fabs(value) +
                          std::min(errors, kDeviations * std::sqrt(squares)) + vanished +
                          (order + exponential) * magnitude);
  }
}

}  // namespace pyflame::sampled
