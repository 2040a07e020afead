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

double scale_of(const Node& n, size_t number, Params params) { return params[n.ins[number].param].as_f64(); }

}  // namespace

double rounding_of_exponentials(DType dtype) { return 8 * rounding_of_sums(dtype); }

double vanishing(double factor, DType dtype) {
  constexpr double kSubnormal = 0x1p-25;  // by so much a subnormal number of float16 may be rounded
  return dtype == DType::float16 ? std::min(std::fabs(factor), kSubnormal) : 0;
}

double RoundedSum::error(DType dtype) const {
  const double order = static_cast<double>(terms_) * rounding_of_sums(dtype);
  // The errors of many small factors can have one sign: all become 0.
  return std::min(errors_, kDeviations * std::sqrt(squares_)) + vanished_ +
         (order + rounding_of_exponentials(dtype)) * magnitude_;
}

double RoundedSum::allowed(DType dtype) const {
  return 2 * unit_in_last_place(value_, dtype) + rounding_to_16_bits(dtype) * std::fabs(value_) + error(dtype);
}

AttentionRows::AttentionRows(const Node& node, Pointers inputs, Params params)
    : node_(node),
      first_(node.op == OpId::attention_grad ? 1 : 0),
      q_(node.ins[first_], inputs[node.ins[first_].binding]),
      k_(node.ins[first_ + 1], inputs[node.ins[first_ + 1].binding]),
      v_(node.ins[first_ + 2], inputs[node.ins[first_ + 2].binding]) {
  const auto attrs = node.attr<AttentionAttrs>();
  const size_t mask = node.op == OpId::attention_grad ? 6 : 3, numbers = attrs.has_mask ? mask + 1 : mask;
  scale_ = scale_of(node, numbers, params);
  keys_ = std::clamp<int64_t>(params[node.ins[numbers + 1].param].as_i64(), 0, k_.shape()[2]);
  causal_ = attrs.causal != 0, padding_ = attrs.padding != 0;
  if (!attrs.has_mask) return;
  mask_operand_ = &node.ins[mask];
  mask_.emplace(*mask_operand_, inputs[mask_operand_->binding]);
  mask_strides_ = broadcast_strides(mask_operand_->shape, mask_operand_->strides,
                                    {q_.shape()[0], q_.shape()[1], q_.shape()[2], k_.shape()[2]});
}

int64_t AttentionRows::cost() const { return keys_ * (q_.shape()[3] + v_.shape()[3]); }

double AttentionRows::masked(double score, int64_t batch, int64_t head, int64_t query, int64_t key) const {
  if (!mask_) return score;
  const double value = (*mask_)[offset_of({batch, head, query, key}, mask_strides_)];
  if (mask_operand_->dtype == DType::bool_) return value != 0 ? score : -kInf;
  return score + value;
}

int64_t AttentionRows::seen(int64_t query) const {
  return causal_ ? std::clamp<int64_t>(query + (keys_ - q_.shape()[2]) + 1, 0, keys_) : keys_;
}

// Of the keys that the query sees.
std::vector<AttentionRows::Weight> AttentionRows::scores(int64_t batch, int64_t head, int64_t query) const {
  const int64_t dim = q_.shape()[3], of_head = head / (q_.shape()[1] / k_.shape()[1]);
  const SumOfProducts sum{node_.outs[0].dtype, std::max<int64_t>(1, dim), false};
  const int64_t q = batch * q_.stride(0) + head * q_.stride(1) + query * q_.stride(2);
  std::vector<Weight> all;
  for (int64_t s = 0; s < seen(query); ++s) {
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
double AttentionRows::drop_zeros(std::vector<Weight>& all) {
  constexpr double kVanishes = 745;  // exp(-kVanishes) is the least double
  double top = -kInf, at_least = -kInf;
  for (const Weight& s : all) top = std::max(top, s.value), at_least = std::max(at_least, s.value - s.error);
  std::erase_if(all, [&](const Weight& s) { return s.value + s.error < at_least - kVanishes; });
  return top;
}

AttentionWeights AttentionRows::weights(int64_t batch, int64_t head, int64_t query) const {
  AttentionWeights w;
  w.seen = scores(batch, head, query);
  const double top = drop_zeros(w.seen);
  double total = 0;
  for (Weight& s : w.seen) total += s.value = std::exp(s.value - top);
  w.lse = w.seen.empty() ? -kInf : top + std::log(total);
  w.lse_error = rounding_of_exponentials(node_.outs[0].dtype);
  for (Weight& s : w.seen) s.value /= total, w.lse_error += s.value * s.error;
  return w;
}

std::optional<AttentionRow> AttentionRows::row(int64_t batch, int64_t head, int64_t query) const {
  if (is_padding(batch, head, query)) return std::nullopt;
  const AttentionWeights w = weights(batch, head, query);
  AttentionRow row;
  row.lse = w.lse, row.lse_allowed = w.lse_error + 4 * unit_in_last_place(w.lse, DType::float32);
  add_values(row, w.seen, batch, head);
  return row;
}

void AttentionRows::add_values(AttentionRow& row, const std::vector<Weight>& weights, int64_t batch,
                               int64_t head) const {
  const DType dtype = node_.outs[0].dtype;
  const double once = rounding_to_16_bits(dtype);
  const int64_t first = batch * v_.stride(0) + head / (q_.shape()[1] / v_.shape()[1]) * v_.stride(1);
  for (int64_t i = 0; i < v_.shape()[3]; ++i) {
    const auto of = [&](int64_t key) { return v_[first + key * v_.stride(2) + i * v_.stride(3)]; };
    RoundedSum sum;
    for (const Weight& w : weights) sum.add(w.value * of(w.key));
    for (const Weight& w : weights) {
      const double value = std::fabs(of(w.key));
      sum.add_error(w.value * (std::expm1(w.error) * std::fabs(of(w.key) - sum.value()) + once * value),
                    vanishing(w.value, dtype) * value);
    }
    // Implementations may multiply the values of hidden keys by 0: there is no bound if one is not finite.
    double open = 0;
    for (int64_t s = 0; s < keys_; ++s) open += 0 * of(s);
    row.values.push_back(sum.value() + open), row.allowed.push_back(sum.allowed(dtype));
  }
}

}  // namespace pyflame::sampled
