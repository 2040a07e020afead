// With P the weights, D = dO V^T and delta the sum of a row of P * D: dV = P^T dO, dQ = scale (P * (D - delta)) K, dK = scale (P * (D - delta))^T Q.
// Implementations compute delta as the row of O times that of dO, and weights from the stored logsumexp, or both anew. What the stored numbers differ
// from exact ones is known here.
#include "pyflame/runtime/sampled_attention_grad.h"

#include <algorithm>
#include <cmath>

#include "pyflame/runtime/sums.h"

namespace pyflame::sampled {

namespace {

// How often an implementation may round a factor of dQ and dK to 16 bits: the weight, the product with D - delta, and the scaled query.
constexpr double kRoundedFactors = 3;

// A stored output or logsumexp that is off by more than so many times its error is none of this attention.
constexpr double kUsualErrors = 8;

int64_t row_of(const Elements& x, int64_t batch, int64_t head, int64_t row) {
  return batch * x.stride(0) + head * x.stride(1) + row * x.stride(2);
}

}  // namespace

AttentionGradRows::AttentionGradRows(const Node& node, Pointers inputs, Params params)
    : rows_(node, inputs, params),
      grad_(node.ins[0], inputs[node.ins[0].binding]),
      out_(node.ins[4], inputs[node.ins[4].binding]),
      lse_(node.ins[5], inputs[node.ins[5].binding]),
      dtype_(node.outs[0].dtype),
      together_(rows_.q().shape()[1] / rows_.k().shape()[1]) {}

int64_t AttentionGradRows::cost_of_pairs() const {
  return rows_.keys() * (rows_.q().shape()[3] + rows_.v().shape()[3]);
}

int64_t AttentionGradRows::cost_of_query() const { return cost_of_pairs() + rows_.keys() * rows_.q().shape()[3]; }

int64_t AttentionGradRows::cost_of_head() const { return together_ * rows_.q().shape()[2] * cost_of_pairs(); }

int64_t AttentionGradRows::cost_of_key(int64_t batch, int64_t head, int64_t key) const {
  int64_t cost = 0;
  for (int64_t h = head * together_; h < (head + 1) * together_; ++h)
    for (int64_t t = 0; t < rows_.q().shape()[2]; ++t) {
      if (key >= rows_.seen(batch, t)) continue;
      cost += rows_.q().shape()[3] + rows_.v().shape()[3];
      if (!known_.contains({batch, h, t})) cost += cost_of_pairs();
    }
  return cost;
}

bool AttentionGradRows::is_finite(const Elements& x, int64_t batch, int64_t head, int64_t rows) const {
  double sum = 0;
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t i = 0; i < x.shape()[3]; ++i) sum += 0 * x[row_of(x, batch, head, r) + i * x.stride(3)];
  return sum == 0;
}

bool AttentionGradRows::has_finite_keys(int64_t batch, int64_t head) {
  const auto [at, added] = finite_keys_.try_emplace({batch, head});
  if (added)
    at->second = is_finite(rows_.k(), batch, head, rows_.keys()) && is_finite(rows_.v(), batch, head, rows_.keys());
  return at->second;
}

bool AttentionGradRows::has_finite_queries(int64_t batch, int64_t head) {
  const auto [at, added] = finite_queries_.try_emplace({batch, head});
  const int64_t rows = rows_.q().shape()[2];
  if (added) at->second = is_finite(rows_.q(), batch, head, rows) && is_finite(grad_, batch, head, rows);
  return at->second;
}

bool AttentionGradRows::is_zero(int64_t batch, int64_t head, int64_t query) const {
  for (int64_t i = 0; i < grad_.shape()[3]; ++i)
    if (grad_[row_of(grad_, batch, head, query) + i * grad_.stride(3)] != 0) return false;
  return true;
}

// What implementations compute that take delta from the stored output.
double AttentionGradRows::dot_of_output(int64_t batch, int64_t head, int64_t query, double& error) const {
  double value = 0, magnitude = 0;
  for (int64_t i = 0; i < grad_.shape()[3]; ++i) {
    const double term = grad_[row_of(grad_, batch, head, query) + i * grad_.stride(3)] *
                        out_[row_of(out_, batch, head, query) + i * out_.stride(3)];
    value += term, magnitude += std::fabs(term);
  }
  error = error_of_terms({dtype_, std::max<int64_t>(1, grad_.shape()[3]), false}, magnitude);
  return value;
}

void AttentionGradRows::add_pairs(Query& q, const AttentionWeights& weights, int64_t batch, int64_t head,
                                  int64_t query) const {
  const Elements& v = rows_.v();
  const SumOfProducts dots{dtype_, std::max<int64_t>(1, v.shape()[3]), false};
  for (const AttentionWeights::Weight& w : weights.seen) {
    double dot = 0, magnitude = 0;
    for (int64_t i = 0; i < v.shape()[3]; ++i) {
      const double term = grad_[row_of(grad_, batch, head, query) + i * grad_.stride(3)] *
                          v[row_of(v, batch, keys_head(head), w.key) + i * v.stride(3)];
      dot += term, magnitude += std::fabs(term);
    }
    q.seen.push_back({w.value, w.error, dot, error_of_terms(dots, magnitude), w.key});
  }
}

const AttentionGradRows::Query& AttentionGradRows::known(int64_t batch, int64_t head, int64_t query) {
  const auto [at, added] = known_.try_emplace({batch, head, query});
  Query& q = at->second;
  if (!added) return q;
  const AttentionWeights weights = rows_.weights(batch, head, query);
  add_pairs(q, weights, batch, head, query);
  RoundedSum delta;
  for (const Pair& p : q.seen) delta.add(p.weight * p.dot);
  for (const Pair& p : q.seen)
    delta.add_error(p.weight * (std::expm1(p.score_error) * std::fabs(p.dot - delta.value()) + p.dot_error +
                                rounding_to_16_bits(dtype_) * std::fabs(p.dot)),
                    vanishing(p.weight, dtype_) * std::fabs(p.dot));
  double stored_error = 0;
  const double stored = dot_of_output(batch, head, query, stored_error);
  const double lse = lse_[batch * lse_.stride(0) + head * lse_.stride(1) + query * lse_.stride(2)];
  const double delta_off = std::fabs(stored - delta.value()),
               lse_off = q.seen.empty() ? 0 : std::fabs(lse - weights.lse);
  const double lse_allowed = weights.lse_error + 4 * unit_in_last_place(weights.lse, DType::float32);
  q.follows = delta_off <= kUsualErrors * (delta.error(dtype_) + stored_error) && lse_off <= kUsualErrors * lse_allowed;
  q.delta = delta.value();
  q.delta_error = std::max(delta.error(dtype_), delta_off + stored_error);
  // The stored one is float32, with which a gradient in float64 does not compute.
  q.lse_error = dtype_ == DType::float64 ? weights.lse_error : std::max(weights.lse_error, lse_off);
  return q;
}

std::optional<AttentionGradRows::Row> AttentionGradRows::query(int64_t batch, int64_t head, int64_t query) {
  if (rows_.is_padding(batch, head, query) || !has_finite_keys(batch, keys_head(head))) return std::nullopt;
  const Query& q = known(batch, head, query);
  if (!q.follows) return std::nullopt;
  const Elements& k = rows_.k();
  const double scale = rows_.scale(), once = rounding_to_16_bits(dtype_);
  Row row;
  for (int64_t i = 0; i < k.shape()[3]; ++i) {
    RoundedSum sum;
    double keys = 0;  // what delta is multiplied by
    for (const Pair& p : q.seen) {
      const double x = k[row_of(k, batch, keys_head(head), p.key) + i * k.stride(3)], apart = p.dot - q.delta,
                   slope = scale * p.weight * apart;
      sum.add(slope * x), keys += p.weight * x;
      sum.add_error(std::fabs(x) * (std::fabs(slope) * (std::expm1(p.score_error) + kRoundedFactors * once) +
                                    std::fabs(scale) * p.weight * p.dot_error),
                    std::fabs(x * scale) *
                            (vanishing(p.weight, dtype_) * std::fabs(apart) + vanishing(p.weight * apart, dtype_)) +
                        std::fabs(x) * vanishing(slope, dtype_));
    }
    // The errors of delta and of the logsumexp are the same for all keys.
    row.values.push_back(sum.value());
    row.allowed.push_back(sum.allowed(dtype_) + std::fabs(scale * keys) * q.delta_error +
                          std::expm1(q.lse_error) * std::fabs(sum.value()));
  }
  return row;
}

std::optional<AttentionGradRows::KeyRows> AttentionGradRows::key(int64_t batch, int64_t head, int64_t key) {
  if (!has_finite_keys(batch, head)) return std::nullopt;
  const Elements& q = rows_.q();
  const double scale = rows_.scale(), once = rounding_to_16_bits(dtype_);
  struct Sums {
    RoundedSum all;
    double parts = 0;  // the absolute values of those of each head, which may be rounded before they are added
  };
  std::vector<Sums> keys(static_cast<size_t>(q.shape()[3])), values(static_cast<size_t>(grad_.shape()[3]));
  for (int64_t h = head * together_; h < (head + 1) * together_; ++h) {
    if (!has_finite_queries(batch, h)) return std::nullopt;
    const auto values_before = values, keys_before = keys;
    for (int64_t t = 0; t < q.shape()[2]; ++t) {
      if (key >= rows_.seen(batch, t)) continue;
      if (rows_.is_padding(batch, h, t)) {  // which need not be computed
        if (!is_zero(batch, h, t)) return std::nullopt;
        continue;
      }
      const Query& of = known(batch, h, t);
      if (!of.follows) return std::nullopt;
      const auto at = std::lower_bound(of.seen.begin(), of.seen.end(), key,
                                       [](const Pair& p, int64_t wanted) { return p.key < wanted; });
      if (at == of.seen.end() || at->key != key) continue;
      const double off = std::expm1(at->score_error + of.lse_error), apart = at->dot - of.delta,
                   slope = scale * at->weight * apart, vanished = vanishing(at->weight, dtype_);
      for (size_t i = 0; i < values.size(); ++i) {
        const double g = grad_[row_of(grad_, batch, h, t) + static_cast<int64_t>(i) * grad_.stride(3)];
        values[i].all.add(at->weight * g);
        values[i].all.add_error(at->weight * std::fabs(g) * (off + once), vanished * std::fabs(g));
      }
      for (size_t i = 0; i < keys.size(); ++i) {
        const double x = q[row_of(q, batch, h, t) + static_cast<int64_t>(i) * q.stride(3)];
        keys[i].all.add(slope * x);
        keys[i].all.add_error(
            std::fabs(x) * (std::fabs(slope) * (off + kRoundedFactors * once) +
                            std::fabs(scale) * at->weight * (at->dot_error + of.delta_error)),
            std::fabs(x * scale) * (vanished * std::fabs(apart) + vanishing(at->weight * apart, dtype_)) +
                std::fabs(x) * vanishing(slope, dtype_));
      }
    }
    const auto add_parts = [](std::vector<Sums>& to, const std::vector<Sums>& before) {
      for (size_t i = 0; i < to.size(); ++i) to[i].parts += std::fabs(to[i].all.value() - before[i].all.value());
    };
    add_parts(keys, keys_before), add_parts(values, values_before);
  }
  KeyRows rows;
  const auto finish = [&](const std::vector<Sums>& from, Row& to) {
    for (const Sums& s : from) {
      to.values.push_back(s.all.value());
      to.allowed.push_back(s.all.allowed(dtype_) + (together_ > 1 ? once * s.parts : 0));
    }
  };
  finish(keys, rows.key), finish(values, rows.value);
  return rows;
}

}  // namespace pyflame::sampled
