// Indexing. All indices are read and checked before anything is written, so a bad index changes no memory.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "pyflame/backends/reference/access.h"

namespace pyflame::reference {
namespace {

std::vector<int64_t> read_indices(const Call& c, int input, int64_t n) {
  std::vector<int64_t> all = read_all<int64_t>(c.in(input));
  for (int64_t i : all)
    PF_CHECK(i >= 0 && i < n, Index, "{}: index out of range; got {}; expected 0 <= index < {}", c.name(), i, n);
  return all;
}

// Iterates over `shape` in row-major order: calls f(i, coordinates) for the i-th position.
template <class F>
void for_positions(const Dims& shape, F&& f) {
  Dims at = Dims::filled(shape.size(), 0);
  const int64_t n = shape.numel();
  for (int64_t i = 0; i < n; ++i) {
    f(static_cast<size_t>(i), at);
    for (int d = shape.size() - 1; d >= 0 && ++at[d] == shape[d]; --d) at[d] = 0;
  }
}

int64_t offset_of(const Dims& at, const Dims& strides) {
  return std::inner_product(at.begin(), at.end(), strides.begin(), int64_t{0});
}

// The dim an op works along, and its size; a 0-d operand counts as one element along dim 0.
int dim_of(const Call& c) { return static_cast<int>(c.node.attr<DimAttrs>().dim); }
int64_t size_along(const View& v, int dim) { return v.shape.empty() ? 1 : v.shape[dim]; }

// gather and index_select: out[..] = x[.., index, ..].
template <class T>
void take(const Call& c, bool one_index_per_slice) {
  const View x = c.in(0), out = c.out(0);
  const int dim = dim_of(c);
  const std::vector<int64_t> index = read_indices(c, 1, size_along(x, dim));
  std::vector<T> y(static_cast<size_t>(out.numel()));
  for_positions(out.shape, [&](size_t i, Dims at) {
    if (!at.empty()) at[dim] = index[one_index_per_slice ? static_cast<size_t>(at[dim]) : i];
    load(x, offset_of(at, x.strides), 1, 1, &y[i]);
  });
  write_all(out, y);
}

// scatter_add and index_add: zeros, plus src at its index. The iteration is over the shape `positions`.
template <class T>
void put_add(const Call& c, const Dims& positions, bool one_index_per_slice) {
  const View src = c.in(1), out = c.out(0);
  const int dim = dim_of(c);
  const std::vector<int64_t> index = read_indices(c, 0, size_along(out, dim));
  const Dims out_strides = contiguous_strides(out.shape);
  std::vector<T> y(static_cast<size_t>(out.numel()));
  for_positions(positions, [&](size_t i, Dims at) {
    T value{};
    load(src, offset_of(at, src.strides), 1, 1, &value);
    if (!at.empty()) at[dim] = index[one_index_per_slice ? static_cast<size_t>(at[dim]) : i];
    T& sum = y[static_cast<size_t>(offset_of(at, out_strides))];
    sum = add(sum, value);
  });
  write_all(out, y);
}

// Largest and smallest: NaN wins.
template <class T>
T combine(Combine how, T a, T b) {
  switch (how) {
    case Combine::Replace: return b;
    case Combine::Sum: return add(a, b);
    case Combine::Product: return mul(a, b);
    case Combine::Largest: return is_nan(a) || a > b ? a : b;
    default: return is_nan(a) || a < b ? a : b;
  }
}

// scatter and index_put: x, combined with src at its index. The iteration is over the shape `positions`.
template <class T>
void put(const Call& c, const Dims& positions, bool one_index_per_slice) {
  const View src = c.in(2), out = c.out(0);
  const auto [attr_dim, how] = c.node.attr<ScatterAttrs>();
  const int dim = static_cast<int>(attr_dim);
  const std::vector<int64_t> index = read_indices(c, 1, size_along(out, dim));
  const Dims out_strides = contiguous_strides(out.shape);
  const bool is_bool = out.dtype == DType::bool_;
  std::vector<T> y = read_all<T>(c.in(0));
  for_positions(positions, [&](size_t i, Dims at) {
    T value{};
    load(src, offset_of(at, src.strides), 1, 1, &value);
    if (!at.empty()) at[dim] = index[one_index_per_slice ? static_cast<size_t>(at[dim]) : i];
    T& to = y[static_cast<size_t>(offset_of(at, out_strides))];
    to = combine(static_cast<Combine>(how), to, value);
    if (is_bool) to = to != T(0);
  });
  write_all(out, y);
}

// Row lengths along the last dim; a 0-d tensor is one row of one element.
int64_t last_of(const View& v) { return v.shape.empty() ? 1 : v.shape.back(); }

// The first k elements of each row in sorted order. NaN is the largest value; equal elements keep their order.
template <class T>
void order_rows(const Call& c, bool descending) {
  const View in = c.in(0), values = c.out(0);
  const int64_t n = last_of(in), k = last_of(values);
  PF_CHECK(k <= n, Value, "{}: k is larger than the row; got {}; expected k <= {}", c.name(), k, n);
  const std::vector<T> x = read_all<T>(in);
  std::vector<T> y(static_cast<size_t>(values.numel()));
  std::vector<int64_t> index(y.size()), order(static_cast<size_t>(n));
  const int64_t rows = k == 0 ? 0 : values.numel() / k;
  for (int64_t r = 0; r < rows; ++r) {
    const T* row = x.data() + r * n;
    const auto less = [&](int64_t a, int64_t b) { return row[a] < row[b] || (is_nan(row[b]) && !is_nan(row[a])); };
    std::iota(order.begin(), order.end(), 0);
    if (descending) std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return less(b, a); });
    else std::stable_sort(order.begin(), order.end(), less);
    for (int64_t i = 0; i < k; ++i) {
      const auto to = static_cast<size_t>(r * k + i);
      index[to] = order[static_cast<size_t>(i)];
      y[to] = row[index[to]];
    }
  }
  write_all(values, y);
  if (c.outputs() > 1) write_all(c.out(1), index);
}

}  // namespace

void run_gather(const Call& c) {
  with_compute_type(c.out(0).dtype, [&]<class T>() { take<T>(c, false); });
}
void run_index_select(const Call& c) {
  with_compute_type(c.out(0).dtype, [&]<class T>() { take<T>(c, true); });
}
void run_embedding_bag(const Call& c) {
  const View table = c.in(0), out = c.out(0);
  const std::vector<int64_t> index = read_indices(c, 1, table.shape[0]), offsets = read_all<int64_t>(c.in(2));
  const auto n = static_cast<int64_t>(index.size()), width = table.shape[1];
  with_compute_type(out.dtype, [&]<class T>() {
    const std::vector<T> rows = read_all<T>(table);
    std::vector<T> y(static_cast<size_t>(out.numel()));
    for (size_t b = 0; b < offsets.size(); ++b) {
      const int64_t begin = offsets[b], end = b + 1 < offsets.size() ? offsets[b + 1] : n;
      PF_CHECK((b > 0 || begin == 0) && begin >= 0 && begin <= end && end <= n, Index,
               "embedding_bag: index out of range; got offset {}; expected ascending offsets from 0 to {}", begin, n);
      for (int64_t i = begin; i < end; ++i)
        for (int64_t j = 0; j < width; ++j) {
          T& sum = y[static_cast<size_t>(static_cast<int64_t>(b) * width + j)];
          sum = add(sum, rows[static_cast<size_t>(index[static_cast<size_t>(i)] * width + j)]);
        }
    }
    write_all(out, y);
  });
}
void run_scatter_add(const Call& c) {
  with_compute_type(c.out(0).dtype, [&]<class T>() { put_add<T>(c, c.in(0).shape, false); });
}
void run_index_add(const Call& c) {
  with_compute_type(c.out(0).dtype, [&]<class T>() { put_add<T>(c, c.in(1).shape, true); });
}
void run_scatter(const Call& c) {
  with_compute_type(c.out(0).dtype, [&]<class T>() { put<T>(c, c.in(1).shape, false); });
}
void run_index_put(const Call& c) {
  with_compute_type(c.out(0).dtype, [&]<class T>() { put<T>(c, c.in(2).shape, true); });
}
void run_nonzero(const Call& c) {
  const std::vector<int64_t> mask = read_all<int64_t>(c.in(0));
  std::vector<int64_t> y(static_cast<size_t>(c.out(0).numel()), c.integer(0));
  size_t k = 0;
  for (size_t i = 0; i < mask.size() && k < y.size(); ++i)
    if (mask[i]) y[k++] = static_cast<int64_t>(i);
  write_all(c.out(0), y);
}
void run_searchsorted(const Call& c) {
  const View values = c.in(1);
  const int64_t n = c.in(0).shape.back(), m = values.shape.empty() ? 1 : values.shape.back();
  const bool right = c.node.attr<SearchAttrs>().right != 0, shared = c.in(0).shape.size() == 1;
  std::vector<int64_t> y(static_cast<size_t>(values.numel()));
  with_compute_type(values.dtype, [&]<class T>() {
    const std::vector<T> sorted = read_all<T>(c.in(0)), all = read_all<T>(values);
    for (size_t i = 0; i < all.size(); ++i) {  // a NaN comes after everything
      const auto begin = sorted.begin() + (shared ? 0 : static_cast<int64_t>(i) / m * n), end = begin + n;
      const T v = all[i];
      y[i] = std::partition_point(begin, end, [&](T here) { return is_nan(v) || here < v || (right && here == v); }) -
             begin;
    }
  });
  write_all(c.out(0), y);
}
// The kept tokens' probabilities relative to the likeliest, 0 for the others.
std::vector<double> kept_weights(const double* x, size_t n, const double* set) {
  std::vector<size_t> order(n);
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return x[a] > x[b]; });
  const double highest = x[order[0]];
  const auto weight = [&](size_t i) { return std::exp((x[i] - highest) / set[0]); };
  const double top_k = set[1];
  if (top_k >= 1 && top_k < static_cast<double>(n)) order.resize(static_cast<size_t>(top_k));
  if (set[2] < 1) {
    double all = 0, sum = 0;
    for (const size_t i : order) all += weight(i);
    size_t count = 0;
    while (count < order.size() && (count == 0 || sum < set[2] * all)) sum += weight(order[count++]);
    order.resize(count);
  }
  std::vector<double> w(n);
  for (const size_t i : order)
    if (weight(i) >= set[3]) w[i] = weight(i);
  return w;
}
size_t drawn_token(const std::vector<double>& w, double drawn) {
  const double target = std::accumulate(w.begin(), w.end(), 0.0) * drawn;
  double sum = 0;
  size_t last = 0;  // where rounding leads beyond the sum
  for (size_t i = 0; i < w.size(); ++i) {
    if (w[i] == 0) continue;
    last = i;
    if ((sum += w[i]) > target) break;
  }
  return last;
}
void run_draw_tokens(const Call& c) {
  const std::vector<double> logits = read_all<double>(c.in(0)), settings = read_all<double>(c.in(1));
  const auto rows = static_cast<size_t>(c.in(0).shape[0]), n = static_cast<size_t>(c.in(0).shape[1]);
  std::vector<int64_t> ids(rows);
  std::vector<double> highest(rows);
  for (size_t row = 0; row < rows; ++row) {
    const double *const x = logits.data() + row * n, *const set = settings.data() + row * 5;
    const double* const best = std::max_element(x, x + n);
    const bool is_nan = std::any_of(x, x + n, [](double v) { return std::isnan(v); });
    highest[row] = is_nan ? std::numeric_limits<double>::quiet_NaN() : *best;
    if (!std::isfinite(highest[row])) continue;
    ids[row] = set[0] < 1e-30 ? best - x : static_cast<int64_t>(drawn_token(kept_weights(x, n, set), set[4]));
  }
  write_all(c.out(0), ids);
  write_all(c.out(1), highest);
}
void run_bin_sums(const Call& c) {
  constexpr double kMost = 1125899906842624.0;  // 2^50
  const std::vector<double> values = read_all<double>(c.in(0));
  const double scale = c.number(0);
  const int64_t start = c.integer(1), bins = c.out(0).numel();
  const bool divide = c.node.attr<BinAttrs>().divide != 0;
  int64_t lowest = std::numeric_limits<int64_t>::max(), highest = std::numeric_limits<int64_t>::min();
  int64_t most = 0, unusable = 0;
  with_compute_type(c.out(0).dtype, [&]<class T>() {
    const std::vector<T> weights = read_all<T>(c.in(1));
    std::vector<T> sums(static_cast<size_t>(bins));
    for (size_t i = 0; i < values.size(); ++i) {
      const double at = divide ? values[i] / scale : values[i] * scale;
      if (!(std::abs(at) < kMost && weights[i] >= T{0} && weights[i] - weights[i] == T{0})) {
        ++unusable;
        continue;
      }
      const auto bin = static_cast<int64_t>(std::nearbyint(at));
      lowest = std::min(lowest, bin), highest = std::max(highest, bin);
      if constexpr (std::is_integral_v<T>) most = std::max(most, weights[i]);
      if (bin < start || bin - start >= bins) continue;
      T& sum = sums[static_cast<size_t>(bin - start)];
      sum = add(sum, weights[i]);
    }
    write_all(c.out(0), sums);
  });
  write_all(c.out(1), std::vector<int64_t>{lowest, highest, most, unusable});
}
void run_topk(const Call& c) {
  with_compute_type(c.in(0).dtype, [&]<class T>() { order_rows<T>(c, c.node.attr<TopkAttrs>().largest != 0); });
}
void run_sort(const Call& c) {
  with_compute_type(c.in(0).dtype, [&]<class T>() { order_rows<T>(c, c.node.attr<SortAttrs>().descending != 0); });
}

}  // namespace pyflame::reference
