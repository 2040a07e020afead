// Reductions: for each element of the output one loop over the reduced axes, in row-major order.
#include <algorithm>
#include <cmath>
#include <limits>

#include "pyflame/backends/reference/access.h"

namespace pyflame::reference {
namespace {

template <class T>
T start_of(OpId op) {
  return static_cast<T>(op == OpId::prod || op == OpId::all ? 1 : 0);
}

template <class T>
T combine(OpId op, T acc, T x, bool first) {
  switch (op) {
    case OpId::sum: return add(acc, x);
    case OpId::prod: return mul(acc, x);
    case OpId::any: return static_cast<T>(acc != 0 || x != 0);
    case OpId::all: return static_cast<T>(acc != 0 && x != 0);
    case OpId::amax: return first || is_nan(x) || x > acc ? x : acc;
    case OpId::amin: return first || is_nan(x) || x < acc ? x : acc;
    default: PF_FAIL(NotImplemented, "{}: the reference has no kernel for it", op_name(op));
  }
}

template <class T>
T reduce_one(const Call& c, const View& in, const Dims& shape, const Dims& strides, int64_t base) {
  constexpr int64_t kChunk = 256;
  std::array<T, kChunk> block;
  T acc = start_of<T>(c.node.op);
  bool first = true;
  for_lines<1>(shape, {strides}, [&](const auto& offset, int64_t line, const auto& step) {
    for (int64_t at = 0; at < line; at += kChunk) {
      const int64_t n = std::min(kChunk, line - at);
      load(in, base + offset[0] + at * step[0], step[0], n, block.data());
      for (int64_t i = 0; i < n; ++i, first = false)
        acc = combine(c.node.op, acc, block[static_cast<size_t>(i)], first);
    }
  });
  return acc;
}

template <class T>
void run_reduce_in(const Call& c) {
  const View in = c.in(0), out = c.out(0);
  const int64_t axes = c.node.attr<ReduceAttrs>().axes;
  Dims reduced_shape, reduced_strides, kept_strides = in.strides;
  for (int d = 0; d < in.shape.size(); ++d) {
    if (!(axes >> d & 1)) continue;
    reduced_shape.push_back(in.shape[d]);
    reduced_strides.push_back(in.strides[d]);
    kept_strides[d] = 0;
  }
  const bool needs_elements = c.node.op == OpId::amax || c.node.op == OpId::amin;
  PF_CHECK(!needs_elements || out.numel() == 0 || reduced_shape.numel() > 0, Value,
           "{}: reduction over no elements; got shape {}; expected at least one element in each reduced dim", c.name(),
           in.shape.str());
  for_lines<2>(out.shape, {out.strides, kept_strides}, [&](const auto& offset, int64_t n, const auto& step) {
    for (int64_t i = 0; i < n; ++i) {
      const T value = reduce_one<T>(c, in, reduced_shape, reduced_strides, offset[1] + i * step[1]);
      store(out, offset[0] + i * step[0], 1, 1, &value);
    }
  });
}

// First index of the largest (smallest) element; the first NaN wins.
template <class T>
int64_t arg_of(bool largest, const std::vector<T>& line) {
  size_t best = 0;
  for (size_t i = 1; i < line.size() && !is_nan(line[best]); ++i)
    if (is_nan(line[i]) || (largest ? line[i] > line[best] : line[i] < line[best])) best = i;
  return static_cast<int64_t>(best);
}

template <class T>
void run_arg(const Call& c) {
  const View in = c.in(0);
  View out = c.out(0);
  const int64_t dim = c.node.attr<ArgAttrs>().dim;
  const bool largest = c.node.op == OpId::argmax;
  const bool flat = dim < 0 || in.shape.empty();
  PF_CHECK(out.numel() == 0 || (flat ? in.numel() : in.shape[static_cast<int>(dim)]) > 0, Value,
           "{}: reduction over no elements; got shape {}; expected at least one element in the reduced dim", c.name(),
           in.shape.str());
  if (flat) {
    const int64_t index = arg_of<T>(largest, read_all<T>(in));
    return store(out, 0, 1, 1, &index);
  }
  const int d = static_cast<int>(dim);
  const View lines = without_dim(in, d);
  if (out.shape.size() == in.shape.size()) out = without_dim(out, d);  // keepdim
  std::vector<T> line(static_cast<size_t>(in.shape[d]));
  std::vector<int64_t> indices;
  for_lines<1>(lines.shape, {lines.strides}, [&](const auto& offset, int64_t n, const auto& step) {
    for (int64_t i = 0; i < n; ++i) {
      load(in, offset[0] + i * step[0], in.strides[d], in.shape[d], line.data());
      indices.push_back(arg_of<T>(largest, line));
    }
  });
  write_all(out, indices);
}

// f(elements of a line in the order of the scan, results in the same order) for each line.
template <class T, class F>
void each_line(const Call& c, F f) {
  const View in = c.in(0), out = c.out(0);
  const auto [dim, reverse] = c.node.attr<ScanAttrs>();
  const int d = static_cast<int>(dim);
  const auto n = static_cast<size_t>(in.shape[d]);
  View dense = out;
  dense.strides = contiguous_strides(out.shape);
  const View lines = without_dim(in, d), sums = without_dim(dense, d);
  const auto count = static_cast<size_t>(out.numel());
  std::vector<T> line(n), result(n), all(count);
  std::vector<int64_t> index(n), all_indices(count);
  for_lines<2>(lines.shape, {lines.strides, sums.strides}, [&](const auto& offset, int64_t length, const auto& step) {
    for (int64_t e = 0; e < length; ++e) {
      load(in, offset[0] + e * step[0], in.strides[d], in.shape[d], line.data());
      if (reverse) std::reverse(line.begin(), line.end());
      f(line, result, index);
      for (size_t k = 0; k < n; ++k) {
        const auto i = static_cast<int64_t>(reverse ? n - 1 - k : k);
        const auto at = static_cast<size_t>(offset[1] + e * step[1] + i * dense.strides[d]);
        all[at] = result[k], all_indices[at] = index[k];
      }
    }
  });
  write_all(out, all);
  if (c.outputs() > 1) write_all(c.out(1), all_indices);
}

template <class T>
T log_add(T a, T b) {
  const auto x = static_cast<double>(a), y = static_cast<double>(b);
  const double most = x > y || std::isnan(x) ? x : y, difference = x == y ? 0 : std::abs(x - y);
  return static_cast<T>(most + std::log1p(std::exp(-difference)));
}

template <class T, class F>
void run_scan(const Call& c, T start, F f) {
  each_line<T>(c, [&](const auto& line, auto& result, auto&) {
    T sum = start;
    for (size_t k = 0; k < line.size(); ++k) result[k] = sum = f(sum, line[k]);
  });
}

void run_extremes(const Call& c, bool largest) {
  with_compute_type(c.in(0).dtype, [&]<class T>() {
    each_line<T>(c, [&](const auto& line, auto& result, auto& index) {
      for (size_t k = 0; k < line.size(); ++k) {
        const bool wins = k == 0 || is_nan(line[k]) || (largest ? line[k] >= result[k - 1] : line[k] <= result[k - 1]);
        result[k] = wins ? line[k] : result[k - 1];
        index[k] = wins ? static_cast<int64_t>(k) : index[k - 1];
      }
    });
  });
}

}  // namespace

void run_cumsum(const Call& c) {
  with_compute_type(c.out(0).dtype, [&]<class T>() { run_scan<T>(c, T{0}, [](T a, T b) { return add(a, b); }); });
}
void run_cumprod(const Call& c) {
  with_compute_type(c.out(0).dtype, [&]<class T>() { run_scan<T>(c, T{1}, [](T a, T b) { return mul(a, b); }); });
}
void run_logcumsumexp(const Call& c) { run_scan<double>(c, -std::numeric_limits<double>::infinity(), log_add<double>); }
void run_cummax(const Call& c) { run_extremes(c, true); }
void run_cummin(const Call& c) { run_extremes(c, false); }

void run_reduce(const Call& c) {
  with_compute_type(c.in(0).dtype, [&]<class T>() { run_reduce_in<T>(c); });
}

void run_argmax(const Call& c) {
  with_compute_type(c.in(0).dtype, [&]<class T>() { run_arg<T>(c); });
}
void run_argmin(const Call& c) { run_argmax(c); }

void run_pdist(const Call& c) {
  const View in = c.in(0), out = c.out(0);
  const std::vector<double> x = read_all<double>(in);
  std::vector<double> y;
  const auto rows = static_cast<size_t>(in.shape[0]), width = static_cast<size_t>(in.shape[1]);
  for (size_t i = 0; i < rows; ++i)
    for (size_t j = i + 1; j < rows; ++j) {
      double squares = 0;
      for (size_t k = 0; k < width; ++k) squares += std::pow(x[i * width + k] - x[j * width + k], 2);
      y.push_back(std::sqrt(squares));
    }
  write_all(out, y);
}

}  // namespace pyflame::reference
