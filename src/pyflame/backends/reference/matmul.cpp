// Matrix product: one batch entry at a time, both matrices widened to float64 (or int64, which wraps).
#include "pyflame/backends/reference/access.h"
#include "pyflame/ops/sequences.h"
#include "pyflame/tensor/float8.h"

namespace pyflame::reference {
namespace {

// The matrix at `offset` of the last two dims, row-major.
template <class T>
void read_matrix(const View& v, int64_t offset, std::vector<T>& to) {
  const int r = v.shape.size();
  const int64_t rows = v.shape[r - 2], cols = v.shape[r - 1];
  for (int64_t i = 0; i < rows; ++i)
    load(v, offset + i * v.strides[r - 2], v.strides[r - 1], cols, to.data() + i * cols);
}

template <class T>
void run_matmul_in(const Call& c) {
  const View a = c.in(0), b = c.in(1), out = c.out(0);
  const int r = out.shape.size();
  const int64_t m = out.shape[r - 2], n = out.shape[r - 1], k = a.shape.back();
  if (out.numel() == 0) return;
  const auto batch = [](const Dims& d) { return Dims(std::span(d.begin(), static_cast<size_t>(d.size() - 2))); };
  const auto batch_strides = [&](const View& v) {
    return broadcast_strides(batch(v.shape), batch(v.strides), batch(out.shape));
  };
  std::vector<T> x(static_cast<size_t>(m * k)), y(static_cast<size_t>(k * n)), all(static_cast<size_t>(out.numel()));
  T* row = all.data();
  const std::array<Dims, 2> strides{batch_strides(a), batch_strides(b)};
  for_lines<2>(batch(out.shape), strides, [&](const auto& offset, int64_t count, const auto& step) {
    for (int64_t e = 0; e < count; ++e) {
      if (e == 0 || step[0] != 0) read_matrix(a, offset[0] + e * step[0], x);
      if (e == 0 || step[1] != 0) read_matrix(b, offset[1] + e * step[1], y);
      for (int64_t i = 0; i < m; ++i, row += n) {
        for (int64_t p = 0; p < k; ++p) {
          const T factor = x[static_cast<size_t>(i * k + p)];
          const T* from = y.data() + p * n;
          for (int64_t j = 0; j < n; ++j) row[j] = add(row[j], mul(factor, from[j]));
        }
      }
    }
  });
  write_all(out, all);
}

// The matrix `item` of a view with leading dims, row-major.
std::vector<double> matrix_of(const View& v, int64_t item) {
  const int r = v.shape.size();
  std::vector<double> all(static_cast<size_t>(v.shape[r - 2] * v.shape[r - 1]));
  read_matrix(v, r == 3 ? item * v.strides[0] : 0, all);
  return all;
}

}  // namespace

void run_scaled_mm(const Call& c) {
  const auto attrs = c.node.attr<ScaledAttrs>();
  const View a = c.in(0), b = c.in(1), out = c.out(0);
  const int64_t m = out.shape[0], n = out.shape[1], k = a.shape[1];
  const std::vector<int64_t> x = read_all<int64_t>(a), w = read_all<int64_t>(b);
  const double scale = read_all<double>(c.in(2))[0] * read_all<double>(c.in(3))[0];
  const auto value = [](int64_t dtype, int64_t code) {
    return static_cast<double>(float8_value(static_cast<DType>(dtype), static_cast<uint8_t>(code)));
  };
  std::vector<double> y(static_cast<size_t>(m * n));
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j) {
      double sum = 0;
      for (int64_t p = 0; p < k; ++p)
        sum += value(attrs.a, x[static_cast<size_t>(i * k + p)]) * value(attrs.b, w[static_cast<size_t>(p * n + j)]);
      y[static_cast<size_t>(i * n + j)] = sum * scale;
    }
  write_all(out, y);
}

void run_grouped_mm(const Call& c) {
  const View out = c.out(0);
  const std::vector<int64_t> list = read_all<int64_t>(c.in(2));
  const std::vector<int32_t> ends(list.begin(), list.end());
  const bool of_rows = c.in(1).shape.size() == 3;
  const int64_t m = c.in(0).shape[0], k = c.in(0).shape[1], n = out.shape.back();
  const auto groups = static_cast<int64_t>(ends.size());
  check_group_ends(c.name(), ends.data(), groups, of_rows ? m : k);
  const std::vector<double> a = matrix_of(c.in(0), 0);
  std::vector<double> y(static_cast<size_t>(out.numel()));
  for (int64_t g = 0; g < groups; ++g) {
    const int64_t from = g == 0 ? 0 : ends[static_cast<size_t>(g - 1)], to = ends[static_cast<size_t>(g)];
    const std::vector<double> b = matrix_of(c.in(1), g);
    double* const first = y.data() + (of_rows ? 0 : g * m * n);
    for (int64_t i = of_rows ? from : 0; i < (of_rows ? to : m); ++i)
      for (int64_t p = of_rows ? 0 : from; p < (of_rows ? k : to); ++p)
        for (int64_t j = 0; j < n; ++j)
          first[i * n + j] += a[static_cast<size_t>(i * k + p)] * b[static_cast<size_t>(p * n + j)];
  }
  write_all(out, y);
}

void run_matmul(const Call& c) {
  for (int i = 0; i < 2; ++i)
    PF_CHECK(c.in(i).shape.size() >= 2, Runtime, "matmul: not a matrix; got shape {}; expected at least 2 dimensions",
             c.in(i).shape.str());
  with_compute_type(c.out(0).dtype, [&]<class T>() { run_matmul_in<T>(c); });
}

}  // namespace pyflame::reference
