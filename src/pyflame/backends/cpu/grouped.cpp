// grouped_mm: one product for each group. Operands are read in place where BLAS can; otherwise the matrix of a group is packed when its turn comes, so
// that the matrices of empty groups cost nothing.
#include <algorithm>

#include "pyflame/backends/cpu/common.h"
#include "pyflame/backends/cpu/gemm.h"
#include "pyflame/ops/sequences.h"

namespace pyflame::cpu {

namespace {

// A matrix in memory that BLAS reads: row-major, or transposed.
template <class T>
struct Matrix {
  const T* data;
  int64_t ld;
  bool transposed;
  Matrix from(int64_t row, int64_t col) const {
    return {data + (transposed ? col * ld + row : row * ld + col), ld, transposed};
  }
};

// One of the two operands: a matrix, or one for each group.
template <class T>
class Factor {
 public:
  Factor(const Operand& o, WorkspacePlan& ws) : o_(o) {
    const int r = o.shape.size();
    rows_ = o.shape[r - 2], cols_ = o.shape[r - 1], row_stride_ = o.strides[r - 2], col_stride_ = o.strides[r - 1];
    group_stride_ = r == 3 ? o.strides[0] : 0;
    const bool by_rows = col_stride_ == 1 && row_stride_ >= std::max<int64_t>(1, cols_);
    transposed_ = !by_rows && row_stride_ == 1;
    direct_ = o.dtype == compute_dtype<T>() && (by_rows || (transposed_ && col_stride_ >= std::max<int64_t>(1, rows_)));
    if (!direct_) packed_ = ws.take(static_cast<size_t>(rows_ * cols_) * sizeof(T));
  }
  // Packs the matrix if needed.
  Matrix<T> get(const RunContext& ctx, int64_t group) const {
    const char* from = ctx.ptr<const char>(o_) + group * group_stride_ * dtype_size(o_.dtype);
    if (direct_) return {reinterpret_cast<const T*>(from), transposed_ ? col_stride_ : row_stride_, transposed_};
    T* to = reinterpret_cast<T*>(static_cast<char*>(ctx.workspace) + packed_);
    if (transposed_) load_strided(from, o_.dtype, {cols_, rows_}, {col_stride_, row_stride_}, to);
    else load_strided(from, o_.dtype, {rows_, cols_}, {row_stride_, col_stride_}, to);
    return {to, transposed_ ? std::max<int64_t>(1, rows_) : std::max<int64_t>(1, cols_), transposed_};
  }

 private:
  Operand o_;
  int64_t rows_, cols_, row_stride_, col_stride_, group_stride_;
  bool transposed_ = false, direct_ = false;
  size_t packed_ = 0;
};

template <class T>
class GroupedMm final : public Exec {
 public:
  explicit GroupedMm(const Node& node)
      : a_(node.ins[0], ws_), b_(node.ins[1], ws_), ends_(node.ins[2]), y_(node.outs[0], ws_) {
    of_rows_ = node.ins[1].shape.size() == 3;
    m_ = node.ins[0].shape[0], k_ = node.ins[0].shape[1], n_ = node.outs[0].shape.back();
  }

  void run(const RunContext& ctx) override {
    const auto* ends = ctx.ptr<const int32_t>(ends_);
    const int64_t groups = ends_.numel();
    check_group_ends("grouped_mm", ends, groups, of_rows_ ? m_ : k_);
    T* y = y_.begin(ctx);
    if (m_ * n_ > 0) {
      const Matrix<T> a = a_.get(ctx, 0);
      const Matrix<T> b = of_rows_ ? Matrix<T>{} : b_.get(ctx, 0);
      for (int64_t g = 0, begin = 0; g < groups; begin = ends[g++]) {
        const int64_t size = ends[g] - begin;
        if (!of_rows_) multiply(a.from(0, begin), b.from(begin, 0), m_, size, y + g * m_ * n_);
        else if (size > 0) multiply(a.from(begin, 0), b_.get(ctx, g), size, k_, y + begin * n_);
      }
    }
    y_.finish(ctx);
  }

 private:
  static constexpr int64_t kRows = 256, kCols = 384;  // of a block of outputs, which one thread computes

  // y [m, n] = a [m, k] b [k, n]. The blocks depend on the shape alone, and so does the order of each sum.
  void multiply(const Matrix<T>& a, const Matrix<T>& b, int64_t m, int64_t k, T* y) const {
    if (k == 0) return std::fill(y, y + m * n_, T(0)), void();
    const int64_t across = ceil_div(n_, kCols), blocks = ceil_div(m, kRows) * across;
    const int64_t work = 2 * std::min(m, kRows) * std::min(n_, kCols) * k;
    parallel_for(blocks, std::max<int64_t>(1, kLeastWork / work), [&](int64_t first, int64_t last) {
      for (int64_t i = first; i < last; ++i) {
        const int64_t r = i / across * kRows, c = i % across * kCols;
        const Matrix<T> x = a.from(r, 0), w = b.from(0, c);
        gemm(x.transposed, w.transposed, std::min(kRows, m - r), std::min(kCols, n_ - c), k, T(1), x.data, x.ld, w.data,
             w.ld, T(0), y + r * n_ + c, n_);
      }
    });
  }
  static constexpr int64_t kLeastWork = 2'000'000;  // operations that make another thread pay off

  Factor<T> a_, b_;
  Operand ends_;
  Out<T> y_;
  bool of_rows_ = true;
  int64_t m_ = 0, k_ = 0, n_ = 0;
};

}  // namespace

// It is never recorded for a CPU, which multiplies decoded matrices (ops/scaled_mm.cpp).
std::span<const Impl> scaled_mm_impls() { return {}; }
std::span<const Impl> grouped_mm_impls() {
  static const Impl impl{"cpu.grouped_mm", accept_single, make_by_type<GroupedMm>};
  return {&impl, 1};
}

}  // namespace pyflame::cpu
