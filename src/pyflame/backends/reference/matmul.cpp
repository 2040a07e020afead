// Matrix product: one batch entry at a time, both matrices widened to float64 (or int64, which wraps).
#include "pyflame/backends/reference/access.h"

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

}  // namespace

void run_matmul(const Call& c) {
  for (int i = 0; i < 2; ++i)
    PF_CHECK(c.in(i).shape.size() >= 2, Runtime, "matmul: not a matrix; got shape {}; expected at least 2 dimensions",
             c.in(i).shape.str());
  with_compute_type(c.out(0).dtype, [&]<class T>() { run_matmul_in<T>(c); });
}

}  // namespace pyflame::reference
