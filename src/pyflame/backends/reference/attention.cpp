// Scaled dot-product attention, one row of queries at a time. Keys that a query does not see (because of causality, a
// mask, or a length, or because their weight is 0) do not affect its results and gradients, not even if they are NaN.
// The gradient recomputes scores and their sum in float64 instead of reading the rounded `out` and `lse`, so it is the
// exact gradient of the forward pass.
#include <cmath>
#include <limits>
#include <optional>

#include "pyflame/backends/reference/access.h"
#include "pyflame/ops/sequences.h"
#include "pyflame/tensor/float8.h"

namespace pyflame::reference {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

// Queries with the keys that belong to them: a batch entry, or one packed sequence.
struct Part {
  int64_t first_query, queries, first_key, keys;  // keys: the number of valid ones
};

struct Attention {
  int64_t heads, kv_heads, dim, value_dim, all_queries, all_keys;  // all_*: rows per head
  bool packed;
  double scale;
  bool causal;
  std::vector<Part> parts;
  std::vector<double> q, k, v;
  std::optional<View> mask;
  Dims mask_strides;

  // `first` is the index of q among the inputs, `next` that of the mask or the offsets.
  Attention(const Call& c, int first, int next) {
    const auto a = c.node.attr<AttentionAttrs>();
    packed = c.node.op == OpId::varlen_attn || c.node.op == OpId::varlen_attn_grad;
    const View qv = c.in(first), kv = c.in(first + 1), vv = c.in(first + 2);
    const int rows = packed ? 0 : 2;
    heads = qv.shape[1], all_queries = qv.shape[rows], dim = qv.shape[qv.shape.size() - 1];
    kv_heads = kv.shape[1], all_keys = kv.shape[rows], value_dim = vv.shape[vv.shape.size() - 1];
    scale = c.number(0);
    causal = a.causal != 0;
    q = read_all<double>(qv), k = read_all<double>(kv), v = read_all<double>(vv);
    if (packed) {
      find_sequences(c, next);
      return;
    }
    const int64_t batch = qv.shape[0], kv_length = c.integer(1);
    PF_CHECK(kv_length >= 0 && kv_length <= all_keys, Value,
             "{}: kv_length out of range; got {}; expected 0 <= kv_length <= {}", c.name(), kv_length, all_keys);
    for (int64_t i = 0; i < batch; ++i) parts.push_back({0, all_queries, 0, kv_length});
    if (a.has_mask) {
      mask = c.in(next);
      mask_strides = broadcast_strides(mask->shape, mask->strides, {batch, heads, all_queries, all_keys});
    }
  }
  void find_sequences(const Call& c, int next) {
    const auto offsets = [&](int i, int64_t rows, int64_t longest) {
      const std::vector<int64_t> wide = read_all<int64_t>(c.in(i));
      const std::vector<int32_t> from(wide.begin(), wide.end());
      check_sequence_offsets(c.name(), from.data(), static_cast<int64_t>(from.size()) - 1, rows, longest);
      return from;
    };
    const std::vector<int32_t> from_q = offsets(next, all_queries, c.integer(1));
    const std::vector<int32_t> from_k = offsets(next + 1, all_keys, c.integer(2));
    for (size_t i = 0; i + 1 < from_q.size(); ++i)
      parts.push_back({from_q[i], from_q[i + 1] - from_q[i], from_k[i], from_k[i + 1] - from_k[i]});
  }

  // Rows of q and of k, and the index of a query among the logsumexps.
  int64_t query_row(int64_t b, int64_t h, int64_t t) const {
    return packed ? (parts[static_cast<size_t>(b)].first_query + t) * heads + h : (b * heads + h) * all_queries + t;
  }
  int64_t key_row(int64_t b, int64_t h, int64_t s) const {
    const int64_t kv = h / (heads / kv_heads);
    return packed ? (parts[static_cast<size_t>(b)].first_key + s) * kv_heads + kv : (b * kv_heads + kv) * all_keys + s;
  }
  int64_t lse_row(int64_t b, int64_t h, int64_t t) const {
    return packed ? h * all_queries + parts[static_cast<size_t>(b)].first_query + t : query_row(b, h, t);
  }

  // Scores of one query with all keys, -inf for keys that it does not see.
  void scores(int64_t b, int64_t h, int64_t t, std::vector<double>& to) const {
    const Part& part = parts[static_cast<size_t>(b)];
    to.assign(static_cast<size_t>(part.keys), -kInf);
    const int64_t seen = causal ? std::min(part.keys, t + (part.keys - part.queries) + 1) : part.keys;
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

  // Turns scores into probabilities, in place; returns log(sum(exp(scores))). If the query sees no key: zeros and -inf.
  static double softmax(std::vector<double>& row) {
    double top = -kInf;
    for (double x : row) top = is_nan(x) || x > top ? x : top;
    if (top == -kInf) {
      std::fill(row.begin(), row.end(), 0.0);
      return -kInf;
    }
    double total = 0;
    for (double& x : row) total += x = x == -kInf ? 0 : std::exp(x - top);
    for (double& x : row) x = x == 0 ? 0 : x / total;  // hidden keys are not affected by a NaN in the row
    return top + std::log(total);
  }

  // Calls f(b, h, t, probabilities, lse) for every query.
  template <class F>
  void for_queries(F&& f) const {
    std::vector<double> row;
    for (int64_t b = 0; b < static_cast<int64_t>(parts.size()); ++b)
      for (int64_t h = 0; h < heads; ++h)
        for (int64_t t = 0; t < parts[static_cast<size_t>(b)].queries; ++t) {
          scores(b, h, t, row);
          const double lse = softmax(row);
          f(b, h, t, row, lse);
        }
  }
};

}  // namespace

void run_attention(const Call& c) {
  const Attention a(c, 0, 3);
  std::vector<double> out(static_cast<size_t>(c.out(0).numel()));
  int64_t rows = 1;  // of q, which may have width 0
  for (int i = 0; i + 1 < c.in(0).shape.size(); ++i) rows *= c.in(0).shape[i];
  std::vector<double> lse(static_cast<size_t>(rows));
  a.for_queries([&](int64_t b, int64_t h, int64_t t, const std::vector<double>& p, double row_lse) {
    const int64_t row = a.query_row(b, h, t);
    lse[static_cast<size_t>(a.lse_row(b, h, t))] = row_lse;
    for (int64_t s = 0; s < static_cast<int64_t>(p.size()); ++s) {
      if (p[static_cast<size_t>(s)] == 0) continue;  // keys with weight 0 do not count, not even if they are NaN
      for (int64_t i = 0; i < a.value_dim; ++i)
        out[static_cast<size_t>(row * a.value_dim + i)] +=
            p[static_cast<size_t>(s)] * a.v[static_cast<size_t>(a.key_row(b, h, s) * a.value_dim + i)];
    }
  });
  write_all(c.out(0), out);
  if (c.outputs() > 1) write_all(c.out(1), lse);
}
void run_varlen_attn(const Call& c) { run_attention(c); }

void run_attention_grad(const Call& c) {
  const Attention a(c, 1, 6);
  const std::vector<double> grad = read_all<double>(c.in(0));
  std::vector<double> dq(a.q.size()), dk(a.k.size()), dv(a.v.size()), dp(static_cast<size_t>(a.all_keys));
  a.for_queries([&](int64_t b, int64_t h, int64_t t, const std::vector<double>& p, double) {
    const int64_t row = a.query_row(b, h, t);
    const double* g = grad.data() + row * a.value_dim;
    double delta = 0;
    for (int64_t s = 0; s < static_cast<int64_t>(p.size()); ++s) {
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
    for (int64_t s = 0; s < static_cast<int64_t>(p.size()); ++s) {
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
void run_varlen_attn_grad(const Call& c) { run_attention_grad(c); }

// Keys (1) or values (2) of paged_attention; those of 8 bits times their scales.
std::vector<double> read_pages(const Call& c, int i) {
  std::vector<double> x = read_all<double>(c.in(i));
  const auto stored = static_cast<DType>(c.node.attr<PagedAttrs>().stored);
  if (stored == c.in(0).dtype) return x;
  const std::vector<double> scale = read_all<double>(c.in(i + 4));
  const size_t dim = x.size() / std::max<size_t>(1, scale.size());
  for (size_t at = 0; at < x.size(); ++at) {
    if (is_float8(stored)) x[at] = static_cast<double>(float8_value(stored, static_cast<uint8_t>(x[at])));
    x[at] *= scale[at / dim];
  }
  return x;
}

void run_paged_attention(const Call& c) {
  const View qv = c.in(0), kv = c.in(1);
  const int64_t heads = qv.shape[1], dim = qv.shape[2], page = kv.shape[1], kv_heads = kv.shape[2];
  const std::vector<double> q = read_all<double>(qv), k = read_pages(c, 1), v = read_pages(c, 2);
  const std::vector<int64_t> table = read_all<int64_t>(c.in(3)), lengths = read_all<int64_t>(c.in(4));
  const int64_t columns = c.in(3).shape[1], window = c.integer(1);
  const double scale = c.number(0), cap = c.number(2);
  std::vector<double> out(q.size());
  for (int64_t s = 0; s < qv.shape[0]; ++s) {
    const PageList list(c.name(), table.data() + s * columns, columns, page, kv.shape[0],
                        lengths[static_cast<size_t>(s)], window);
    for (int64_t h = 0; h < heads; ++h) {
      const auto row_of = [&](int64_t i) {
        return ((table[static_cast<size_t>(s * columns + i / page)] * page + i % page) * kv_heads +
                h / (heads / kv_heads)) *
               dim;
      };
      std::vector<double> row;
      for (int64_t i = list.first; i < list.end; ++i) {
        double sum = 0;
        for (int64_t d = 0; d < dim; ++d)
          sum += q[static_cast<size_t>((s * heads + h) * dim + d)] * k[static_cast<size_t>(row_of(i) + d)];
        sum *= scale;
        row.push_back(cap > 0 ? cap * std::tanh(sum / cap) : sum);
      }
      Attention::softmax(row);
      for (int64_t i = list.first; i < list.end; ++i)
        for (int64_t d = 0; d < dim; ++d)
          out[static_cast<size_t>((s * heads + h) * dim + d)] +=
              row[static_cast<size_t>(i - list.first)] * v[static_cast<size_t>(row_of(i) + d)];
    }
  }
  write_all(c.out(0), out);
}

void run_rotary_store(const Call& c) {
  const View qv = c.in(0), kv = c.in(1), table = c.in(3), cache = c.in(7);
  const int64_t rows = qv.shape[0], dim = qv.shape[2], kv_heads = kv.shape[1], rotary_dim = table.shape[1],
                half = rotary_dim / 2;
  const std::vector<double> cos = read_all<double>(table), sin = read_all<double>(c.in(4));
  const std::vector<int64_t> positions = read_all<int64_t>(c.in(5)), slots = read_all<int64_t>(c.in(6));
  const auto check = [&](int64_t i, int64_t least, int64_t n) {
    PF_CHECK(i >= least && i < n, Index, "{}: index out of range; got {}; expected {} <= index < {}", c.name(), i,
             least, n);
  };
  for (const int64_t i : positions) check(i, 0, table.shape[0]);
  for (const int64_t i : slots) check(i, -1, cache.shape[0]);
  const auto rotated = [&](const View& from) {
    std::vector<double> x = read_all<double>(from), y = x;
    for (size_t line = 0; line < x.size() / static_cast<size_t>(dim); ++line) {
      const auto at = static_cast<size_t>(positions[line / static_cast<size_t>(from.shape[1])] * rotary_dim);
      for (int64_t i = 0; i < rotary_dim; ++i) {
        const auto d = static_cast<size_t>(i), first = line * static_cast<size_t>(dim);
        const double other =
            i < half ? -x[first + d + static_cast<size_t>(half)] : x[first + d - static_cast<size_t>(half)];
        y[first + d] = x[first + d] * cos[at + d] + other * sin[at + d];
      }
    }
    return y;
  };
  const std::vector<double> q = rotated(qv), k = rotated(kv), v = read_all<double>(c.in(2));
  const auto each = static_cast<size_t>(kv_heads * dim);
  const auto put = [&](int in, int out, const std::vector<double>& from) {
    std::vector<double> all = read_all<double>(c.in(in));
    for (int64_t t = 0; t < rows; ++t)
      if (const int64_t slot = slots[static_cast<size_t>(t)]; slot >= 0)
        std::copy_n(from.begin() + static_cast<std::ptrdiff_t>(static_cast<size_t>(t) * each), each,
                    all.begin() + static_cast<std::ptrdiff_t>(static_cast<size_t>(slot) * each));
    write_all(c.out(out), all);
  };
  put(7, 1, k);
  put(8, 2, v);
  write_all(c.out(0), q);
}

}  // namespace pyflame::reference
