// Scaled dot-product attention, one query row at a time. The gradient recomputes scores and their sum in float64
// instead of reading the rounded `out` and `lse`, so that it is the exact gradient of the forward pass.
#include <cmath>
#include <limits>
#include <optional>

#include "pyflame/backends/reference/access.h"

namespace pyflame::reference {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

struct Attention {
  int64_t batch, heads, queries, keys, dim, kv_heads, value_dim, kv_length;
  double scale;
  bool causal;
  std::vector<double> q, k, v;
  std::optional<View> mask;
  Dims mask_strides;

  // `first` is the index of q among the inputs, `mask_at` that of the mask.
  Attention(const Call& c, int first, int mask_at) {
    const auto a = c.node.attr<AttentionAttrs>();
    const View qv = c.in(first), kv = c.in(first + 1), vv = c.in(first + 2);
    batch = qv.shape[0], heads = qv.shape[1], queries = qv.shape[2], dim = qv.shape[3];
    kv_heads = kv.shape[1], keys = kv.shape[2], value_dim = vv.shape[3];
    scale = c.number(0);
    kv_length = c.integer(1);
    causal = a.causal != 0;
    PF_CHECK(kv_length >= 0 && kv_length <= keys, Value,
             "{}: kv_length out of range; got {}; expected 0 <= kv_length <= {}", c.name(), kv_length, keys);
    q = read_all<double>(qv), k = read_all<double>(kv), v = read_all<double>(vv);
    if (a.has_mask) {
      mask = c.in(mask_at);
      mask_strides = broadcast_strides(mask->shape, mask->strides, {batch, heads, queries, keys});
    }
  }

  int64_t query_row(int64_t b, int64_t h, int64_t t) const { return (b * heads + h) * queries + t; }
  int64_t key_row(int64_t b, int64_t h, int64_t s) const { return (b * kv_heads + h / (heads / kv_heads)) * keys + s; }

  // Scores of one query against all keys, -inf where it may not look.
  void scores(int64_t b, int64_t h, int64_t t, std::vector<double>& to) const {
    std::fill(to.begin(), to.end(), -kInf);
    const int64_t seen = causal ? std::min(kv_length, t + (kv_length - queries) + 1) : kv_length;
    for (int64_t s = 0; s < seen; ++s) {
      double sum = 0;
      for (int64_t i = 0; i < dim; ++i)
        sum +=
            q[static_cast<size_t>(query_row(b, h, t) * dim + i)] * k[static_cast<size_t>(key_row(b, h, s) * dim + i)];
      to[static_cast<size_t>(s)] = sum * scale;
      if (!mask) continue;
      const Dims& m = mask_strides;
      double value = 0;
      load(*mask, b * m[0] + h * m[1] + t * m[2] + s * m[3], 1, 1, &value);
      if (mask->dtype != DType::bool_) to[static_cast<size_t>(s)] += value;
      else if (value == 0) to[static_cast<size_t>(s)] = -kInf;
    }
  }

  // Scores to probabilities, in place; returns log(sum(exp(scores))). Without any key to look at: zeros and -inf.
  static double softmax(std::vector<double>& row) {
    double top = -kInf;
    for (double x : row) top = is_nan(x) || x > top ? x : top;
    if (top == -kInf) {
      std::fill(row.begin(), row.end(), 0.0);
      return -kInf;
    }
    double total = 0;
    for (double& x : row) total += x = std::exp(x - top);
    for (double& x : row) x /= total;
    return top + std::log(total);
  }

  // Calls f(b, h, t, probabilities, lse) for every query.
  template <class F>
  void for_queries(F&& f) const {
    std::vector<double> row(static_cast<size_t>(keys));
    for (int64_t b = 0; b < batch; ++b)
      for (int64_t h = 0; h < heads; ++h)
        for (int64_t t = 0; t < queries; ++t) {
          scores(b, h, t, row);
          const double lse = softmax(row);
          f(b, h, t, row, lse);
        }
  }
};

}  // namespace

void run_attention(const Call& c) {
  const Attention a(c, 0, 3);
  std::vector<double> out(static_cast<size_t>(a.batch * a.heads * a.queries * a.value_dim));
  std::vector<double> lse(static_cast<size_t>(a.batch * a.heads * a.queries));
  a.for_queries([&](int64_t b, int64_t h, int64_t t, const std::vector<double>& p, double row_lse) {
    const int64_t row = a.query_row(b, h, t);
    lse[static_cast<size_t>(row)] = row_lse;
    for (int64_t s = 0; s < a.keys; ++s) {
      if (p[static_cast<size_t>(s)] == 0) continue;  // what is not looked at does not count, not even a NaN
      for (int64_t i = 0; i < a.value_dim; ++i)
        out[static_cast<size_t>(row * a.value_dim + i)] +=
            p[static_cast<size_t>(s)] * a.v[static_cast<size_t>(a.key_row(b, h, s) * a.value_dim + i)];
    }
  });
  write_all(c.out(0), out);
  if (c.outputs() > 1) write_all(c.out(1), lse);
}

void run_attention_grad(const Call& c) {
  const Attention a(c, 1, 6);
  const std::vector<double> grad = read_all<double>(c.in(0));
  std::vector<double> dq(a.q.size()), dk(a.k.size()), dv(a.v.size()), dp(static_cast<size_t>(a.keys));
  a.for_queries([&](int64_t b, int64_t h, int64_t t, const std::vector<double>& p, double) {
    const int64_t row = a.query_row(b, h, t);
    const double* g = grad.data() + row * a.value_dim;
    double delta = 0;
    for (int64_t s = 0; s < a.keys; ++s) {
      const auto at = static_cast<size_t>(s);
      if (p[at] == 0) continue;
      const int64_t value = a.key_row(b, h, s) * a.value_dim;
      dp[at] = 0;
      for (int64_t i = 0; i < a.value_dim; ++i) {
        dp[at] += g[i] * a.v[static_cast<size_t>(value + i)];
        dv[static_cast<size_t>(value + i)] += p[at] * g[i];
      }
      delta += p[at] * dp[at];
    }
    for (int64_t s = 0; s < a.keys; ++s) {
      const auto at = static_cast<size_t>(s);
      if (p[at] == 0) continue;
      const double ds = p[at] * (dp[at] - delta) * a.scale;
      const int64_t key = a.key_row(b, h, s) * a.dim;
      for (int64_t i = 0; i < a.dim; ++i) {
        dq[static_cast<size_t>(row * a.dim + i)] += ds * a.k[static_cast<size_t>(key + i)];
        dk[static_cast<size_t>(key + i)] += ds * a.q[static_cast<size_t>(row * a.dim + i)];
      }
    }
  });
  write_all(c.out(0), dq);
  write_all(c.out(1), dk);
  write_all(c.out(2), dv);
}

}  // namespace pyflame::reference
