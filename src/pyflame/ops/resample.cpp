// Another size along a dim: interpolation, means of windows. An element of the result is a weighted sum of adjacent elements, which a table
// gives; the gradient is the same op with the transposed table. Tables are made on the host, in the precision of the sums.
#include <algorithm>
#include <cmath>
#include <deque>
#include <mutex>

#include "pyflame/ops/family.h"
#include "pyflame/ops/helpers.h"

namespace pyflame {

namespace {

enum class Filter : int64_t { nearest, nearest_exact, linear, cubic, area };

struct Rule {
  Filter filter;
  int64_t from, to;  // sizes
  double scale;      // old over new distances; 0: by the sizes
  bool align_corners, antialias, transposed;
  bool operator==(const Rule&) const = default;
};

// Row i has the weights of the elements begin[i], begin[i] + 1, ...; all rows have `taps`.
struct Table {
  std::vector<int64_t> begin;
  std::vector<double> weight;
  int64_t taps = 1;
  int bits = 0;  // behind the point of weights that are whole numbers
};

struct Tap {
  int64_t at;
  double weight;
};
using Rows = std::vector<std::vector<Tap>>;

// Cubic convolution (Keys, 1981) for distances up to 2.
template <class T>
T cubic(T d, T a) {
  d = std::abs(d);
  if (d <= 1) return ((a + 2) * d - (a + 3)) * d * d + 1;
  return d < 2 ? ((a * d - 5 * a) * d + 8 * a) * d - 4 * a : 0;
}

// The filter is as wide as the distance between the new elements, if that is larger.
template <class T>
std::vector<Tap> antialiased(const Rule& r, T scale, int64_t i) {
  const T width = std::max<T>(scale, 1), support = (r.filter == Filter::cubic ? T(2) : T(1)) * width;
  const T centre = scale * (static_cast<T>(i) + T(0.5));
  const int64_t first = std::max<int64_t>(0, static_cast<int64_t>(centre - support + T(0.5)));
  const int64_t last = std::min<int64_t>(r.from, static_cast<int64_t>(centre + support + T(0.5)));
  std::vector<Tap> taps;
  T total = 0;
  for (int64_t j = first; j < last; ++j) {
    const T d = (static_cast<T>(j) - centre + T(0.5)) / width;
    const T w = r.filter == Filter::cubic ? cubic<T>(d, T(-0.5)) : std::max<T>(0, 1 - std::abs(d));
    taps.push_back({j, w});
    total += w;
  }
  for (Tap& t : taps) t.weight = static_cast<double>(static_cast<T>(t.weight) / total);
  return taps;
}

template <class T>
std::vector<Tap> interpolated(const Rule& r, T scale, int64_t i) {
  const T x = static_cast<T>(i);
  const auto inside = [&](int64_t j) { return std::clamp<int64_t>(j, 0, r.from - 1); };
  if (r.filter == Filter::area) {
    const int64_t begin = i * r.from / r.to, end = ((i + 1) * r.from + r.to - 1) / r.to;
    std::vector<Tap> taps;
    for (int64_t j = begin; j < end; ++j) taps.push_back({j, 1.0 / static_cast<double>(end - begin)});
    return taps;
  }
  if (r.filter == Filter::nearest) return {{inside(static_cast<int64_t>(std::floor(x * scale))), 1}};
  if (r.filter == Filter::nearest_exact) return {{inside(static_cast<int64_t>(std::floor((x + T(0.5)) * scale))), 1}};
  if (r.antialias) return antialiased<T>(r, scale, i);
  const T at = r.align_corners ? x * scale : scale * (x + T(0.5)) - T(0.5);
  if (r.filter == Filter::linear) {
    const T place = std::max<T>(at, 0);
    const int64_t low = std::min(static_cast<int64_t>(place), r.from - 1);
    const T w = std::min<T>(place - static_cast<T>(low), 1);
    return {{low, 1 - w}, {inside(low + 1), w}};
  }
  const T low = std::floor(at), t = at - low;
  std::vector<Tap> taps;
  for (int k = -1; k <= 2; ++k)
    taps.push_back({inside(static_cast<int64_t>(low) + k), cubic<T>(t - static_cast<T>(k), T(-0.75))});
  return taps;
}

template <class T>
Rows rows_of(const Rule& r) {
  const T by_size = static_cast<T>(r.from) / static_cast<T>(r.to);
  T scale = r.scale > 0 ? static_cast<T>(r.scale) : by_size;
  if (r.align_corners) scale = r.to > 1 ? static_cast<T>(r.from - 1) / static_cast<T>(r.to - 1) : 0;
  Rows rows;
  for (int64_t i = 0; i < r.to; ++i) rows.push_back(interpolated<T>(r, scale, i));
  return rows;
}

Rows transposed_rows(const Rows& rows, int64_t from) {
  Rows out(static_cast<size_t>(from));
  for (size_t i = 0; i < rows.size(); ++i)
    for (const Tap& t : rows[i]) out[static_cast<size_t>(t.at)].push_back({static_cast<int64_t>(i), t.weight});
  return out;
}

// `size`: of the dim that is read.
Table table_of(const Rows& rows, int64_t size) {
  Table t;
  const auto before = [](const Tap& a, const Tap& b) { return a.at < b.at; };
  for (const auto& row : rows) {
    if (row.empty()) continue;
    const auto [low, high] = std::minmax_element(row.begin(), row.end(), before);
    t.taps = std::max(t.taps, high->at - low->at + 1);
  }
  t.weight.assign(rows.size() * static_cast<size_t>(t.taps), 0);
  int64_t last = 0;
  for (size_t i = 0; i < rows.size(); ++i) {
    const auto low = std::min_element(rows[i].begin(), rows[i].end(), before);
    last = low == rows[i].end() ? last : std::min(low->at, size - t.taps);
    t.begin.push_back(last);
    for (const Tap& tap : rows[i])
      t.weight[i * static_cast<size_t>(t.taps) + static_cast<size_t>(tap.at - last)] += tap.weight;
  }
  return t;
}

// For images of uint8, as in PyTorch: weights are int16 with as many bits behind the point as the largest one allows, at most 22. Sums of
// products with them are exact in float64.
void to_integers(Table& t) {
  const double most = t.weight.empty() ? 0 : *std::max_element(t.weight.begin(), t.weight.end());
  while (t.bits < 22 && static_cast<int>(0.5 + most * (1 << (t.bits + 1))) < (1 << 15)) ++t.bits;
  for (double& w : t.weight) w = std::trunc(w * (1 << t.bits) + (w < 0 ? -0.5 : 0.5));
}

// A table as operands. Programs repeat few rules: the last kMostTables stay on their devices.
struct TableOperands {
  Rule rule;
  DType dtype;
  Device device;
  Tensor begin, weight;
  int bits;
};
constexpr size_t kMostTables = 64;

TableOperands make_table_operands(const Rule& rule, DType dtype, Device device) {
  Rows rows = dtype == DType::float32 ? rows_of<float>(rule) : rows_of<double>(rule);
  if (rule.transposed) rows = transposed_rows(rows, rule.from);
  Table t = table_of(rows, rule.transposed ? rule.to : rule.from);
  if (dtype == DType::uint8) to_integers(t);
  const auto n = static_cast<int64_t>(rows.size());
  const Tensor begin = from_host(t.begin.data(), {n}, DType::int64, device);
  if (dtype != DType::float32)
    return {rule, dtype, device, begin, from_host(t.weight.data(), {n, t.taps}, DType::float64, device), t.bits};
  const std::vector<float> weight(t.weight.begin(), t.weight.end());
  return {rule, dtype, device, begin, from_host(weight.data(), {n, t.taps}, dtype, device), 0};
}

TableOperands table_operands_of(const Rule& rule, DType dtype, Device device) {
  static auto& lock = *new std::mutex;  // leaked: threads may outlive static destruction
  static auto& kept = *new std::deque<TableOperands>;
  const std::lock_guard guard(lock);
  for (const TableOperands& o : kept)
    if (o.rule == rule && o.dtype == dtype && o.device == device) return o;
  if (kept.size() == kMostTables) kept.pop_front();
  return kept.emplace_back(make_table_operands(rule, dtype, device));
}

Tensor resample_op(const Tensor& x, int dim, Rule rule) {
  const TableOperands table =
      table_operands_of(rule, x.dtype() == DType::float64 ? DType::float64 : DType::float32, x.device());
  Dims shape = x.shape();
  shape[dim] = table.begin.size(0);
  Tensor out = emit(OpId::resample, {x, table.begin, table.weight}, shape, x.dtype(), DimAttrs{dim});
  rule.transposed = !rule.transposed;
  attach("resample", {out}, {x}, {},
         [dim, rule](GradNode&, const Tensors& g) -> Tensors { return {resample_op(g[0], dim, rule)}; });
  return out;
}

// Each dim is rounded to uint8, which gives PyTorch's bytes.
Tensor resample_bytes(const Tensor& x, int dim, const Rule& rule) {
  const TableOperands table = table_operands_of(rule, DType::uint8, x.device());
  Dims shape = x.shape();
  shape[dim] = rule.to;
  const Tensor wide = cast(x, DType::float64);
  const Tensor sums = emit(OpId::resample, {wide, table.begin, table.weight}, shape, DType::float64, DimAttrs{dim});
  const double unit = std::ldexp(1.0, -table.bits);
  return cast(clamp(floor(add(mul(sums, unit), 0.5)), 0, 255), DType::uint8);
}

Filter filter_of(const std::string& mode) {
  if (mode == "nearest") return Filter::nearest;
  if (mode == "nearest-exact") return Filter::nearest_exact;
  if (mode == "linear") return Filter::linear;
  if (mode == "cubic") return Filter::cubic;
  PF_CHECK(mode == "area", Value,
           "resample: no such mode; got '{}'; expected 'nearest', 'nearest-exact', 'linear', 'cubic' or 'area'", mode);
  return Filter::area;
}

}  // namespace

Tensor resample(const Tensor& x, int64_t dim, int64_t size, const std::string& mode, double scale, bool align_corners,
                bool antialias) {
  const Filter filter = filter_of(mode);
  const bool bytes = x.dtype() == DType::uint8 && (filter == Filter::linear || filter == Filter::cubic);
  if (!bytes) check_float("resample", x);
  const int d = normalize_dim("resample", dim, x.dim());
  PF_CHECK(size > 0 && x.size(d) > 0, Value, "resample: an empty size; got {} for input {}; expected 1 or more", size,
           x.shape().str());
  const Rule rule{filter, x.size(d), size, scale, align_corners, antialias, false};
  return bytes ? resample_bytes(x, d, rule) : resample_op(x, d, rule);
}

}  // namespace pyflame
