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

AttentionRows::AttentionRows(const Node& node, Pointers inputs, Params params, double cap)
    : node_(node),
      packed_(node.op == OpId::varlen_attn),
      first_(node.op == OpId::attention_grad ? 1 : 0),
      q_(node.ins[first_], inputs[node.ins[first_].binding]),
      k_(node.ins[first_ + 1], inputs[node.ins[first_ + 1].binding]),
      v_(node.ins[first_ + 2], inputs[node.ins[first_ + 2].binding]),
      cap_(cap) {
  const auto attrs = node.attr<AttentionAttrs>();
  causal_ = attrs.causal != 0, padding_ = attrs.padding != 0;
  if (packed_) {
    scale_ = scale_of(node, 5, params);
    find_sequences(node.ins[3], node.ins[4], inputs);
    return;
  }
  const size_t mask = node.op == OpId::attention_grad ? 6 : 3, numbers = attrs.has_mask ? mask + 1 : mask;
  scale_ = scale_of(node, numbers, params);
  keys_ = std::clamp<int64_t>(params[node.ins[numbers + 1].param].as_i64(), 0, k_.shape()[2]);
  parts_.assign(static_cast<size_t>(q_.shape()[0]), Part{0, q_.shape()[2], 0, keys_});
  if (!attrs.has_mask) return;
  mask_operand_ = &node.ins[mask];
  mask_.emplace(*mask_operand_, inputs[mask_operand_->binding]);
  mask_strides_ = broadcast_strides(mask_operand_->shape, mask_operand_->strides,
                                    {q_.shape()[0], q_.shape()[1], q_.shape()[2], k_.shape()[2]});
}

// Wrong offsets are an error of the op, so there are no sequences then.
void AttentionRows::find_sequences(const Operand& queries, const Operand& keys, Pointers inputs) {
  const Elements from_q(queries, inputs[queries.binding]), from_k(keys, inputs[keys.binding]);
  const auto at = [](const Elements& x, int64_t i) { return static_cast<int64_t>(x[i * x.stride(0)]); };
  int64_t q = 0, k = 0;  // where the next sequence begins
  bool right = at(from_q, 0) == 0 && at(from_k, 0) == 0;
  for (int64_t i = 1; i < queries.shape[0]; ++i) {
    const int64_t end_q = at(from_q, i), end_k = at(from_k, i);
    right = right && end_q >= q && end_k >= k;
    parts_.push_back({q, end_q - q, k, end_k - k});
    keys_ = std::max(keys_, end_k - k);
    q = end_q, k = end_k;
  }
  if (!right || q != q_.shape()[0] || k != k_.shape()[0]) parts_.clear();
}

std::vector<AttentionRows::Part>::const_iterator AttentionRows::sequence_of(int64_t row) const {
  return std::find_if(parts_.begin(), parts_.end(),
                      [&](const Part& p) { return row >= p.first_query && row < p.first_query + p.queries; });
}

int64_t AttentionRows::last_of_sequence(int64_t row) const {
  const auto part = sequence_of(row);
  return part == parts_.end() ? row : part->first_query + part->queries - 1;
}

int64_t AttentionRows::query_at(int64_t batch, int64_t head, int64_t query) const {
  const int64_t row = parts_[static_cast<size_t>(batch)].first_query + query;
  return packed_ ? row * q_.stride(0) + head * q_.stride(1)
                 : batch * q_.stride(0) + head * q_.stride(1) + row * q_.stride(2);
}

int64_t AttentionRows::key_at(const Elements& x, int64_t batch, int64_t head, int64_t key) const {
  const int64_t row = parts_[static_cast<size_t>(batch)].first_key + key,
                of_head = head / (q_.shape()[1] / x.shape()[1]);
  return packed_ ? row * x.stride(0) + of_head * x.stride(1)
                 : batch * x.stride(0) + of_head * x.stride(1) + row * x.stride(2);
}

int64_t AttentionRows::cost() const { return keys_ * (q_.shape().back() + v_.shape().back()); }

double AttentionRows::masked(double score, int64_t batch, int64_t head, int64_t query, int64_t key) const {
  if (!mask_) return score;
  const double value = (*mask_)[offset_of({batch, head, query, key}, mask_strides_)];
  if (mask_operand_->dtype == DType::bool_) return value != 0 ? score : -kInf;
  return score + value;
}

int64_t AttentionRows::seen(int64_t batch, int64_t query) const {
  const Part& part = parts_[static_cast<size_t>(batch)];
  return causal_ ? std::clamp<int64_t>(query + (part.keys - part.queries) + 1, 0, part.keys) : part.keys;
}

// A cap is increasing, so the ends of the interval around a score become the ends of the one around what it is capped to. The quotient, the hyperbolic
// tangent and the product round to a part of that.
AttentionRows::Weight AttentionRows::capped(double score, double error) const {
  if (cap_ <= 0) return {score, error, 0};
  const auto of = [&](double x) { return cap_ * std::tanh(x / cap_); };
  const double value = of(score), off = std::max(of(score + error) - value, value - of(score - error));
  return {value, off + std::fabs(value) * rounding_of_exponentials(node_.outs[0].dtype), 0};
}

// Of the keys that the query sees.
std::vector<AttentionRows::Weight> AttentionRows::scores(int64_t batch, int64_t head, int64_t query) const {
  const int64_t dim = q_.shape().back(), q = query_at(batch, head, query);
  const int64_t q_step = q_.stride(q_.shape().size() - 1), k_step = k_.stride(k_.shape().size() - 1);
  const SumOfProducts sum{node_.outs[0].dtype, std::max<int64_t>(1, dim), false};
  std::vector<Weight> all;
  for (int64_t s = 0; s < seen(batch, query); ++s) {
    const int64_t k = key_at(k_, batch, head, s);
    double value = 0, magnitude = 0;
    for (int64_t i = 0; i < dim; ++i) {
      const double term = q_[q + i * q_step] * k_[k + i * k_step] * scale_;
      value += term, magnitude += std::fabs(term);
    }
    const Weight own = capped(value, error_of_terms(sum, magnitude));
    const double score = masked(own.value, batch, head, query, s);
    if (score != -kInf) all.push_back({score, own.error + std::fabs(score) * rounding_of_sums(sum.dtype), s});
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

std::optional<AttentionRow> AttentionRows::row(const Dims& at) const {
  int64_t batch = at[0], query = packed_ ? at[0] : at[2];
  const int64_t head = at[1];
  if (packed_) {
    const auto part = sequence_of(query);
    if (part == parts_.end()) return std::nullopt;
    batch = part - parts_.begin(), query -= part->first_query;
  }
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
  const int64_t keys = parts_[static_cast<size_t>(batch)].keys, step = v_.stride(v_.shape().size() - 1);
  for (int64_t i = 0; i < v_.shape().back(); ++i) {
    const auto of = [&](int64_t key) { return v_[key_at(v_, batch, head, key) + i * step]; };
    RoundedSum sum;
    for (const Weight& w : weights) sum.add(w.value * of(w.key));
    for (const Weight& w : weights) {
      const double value = std::fabs(of(w.key));
      sum.add_error(w.value * (std::expm1(w.error) * std::fabs(of(w.key) - sum.value()) + once * value),
                    vanishing(w.value, dtype) * value);
    }
    // Implementations may multiply the values of hidden keys by 0: there is no bound if one is not finite.
    double open = 0;
    for (int64_t s = 0; s < keys; ++s) open += 0 * of(s);
    row.values.push_back(sum.value() + open), row.allowed.push_back(sum.allowed(dtype));
  }
}

}  // namespace pyflame::sampled
