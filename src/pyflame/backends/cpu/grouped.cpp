// grouped_mm: one product for each group. Operands are read in place where BLAS can; otherwise the matrix of a group is packed when its turn comes, so
// that the matrices of empty groups cost nothing.
#include <algorithm>
#include <type_traits>
#include <vector>

#include "pyflame/backends/cpu/common.h"
#include "pyflame/backends/cpu/dnn_gemm.h"
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

// One of the two operands: a matrix, or one for each group. Its elements are T in memory, or are packed as T.
template <class T>
class Factor {
 public:
  Factor(const Operand& o, WorkspacePlan& ws) : o_(o) {
    const int r = o.shape.size();
    rows_ = o.shape[r - 2], cols_ = o.shape[r - 1], row_stride_ = o.strides[r - 2], col_stride_ = o.strides[r - 1];
    group_stride_ = r == 3 ? o.strides[0] : 0;
    const bool by_rows = col_stride_ == 1 && row_stride_ >= std::max<int64_t>(1, cols_);
    transposed_ = !by_rows && row_stride_ == 1;
    direct_ = o.dtype == stored_dtype<T>() && (by_rows || (transposed_ && col_stride_ >= std::max<int64_t>(1, rows_)));
    if (!direct_) packed_ = ws.take(static_cast<size_t>(rows_ * cols_) * sizeof(T));
  }
  bool direct() const { return direct_; }
  bool transposed() const { return transposed_; }
  // Packs the matrix if needed, where the one before was.
  Matrix<T> get(const RunContext& ctx, int64_t group) const {
    const char* from = ctx.ptr<const char>(o_) + group * group_stride_ * dtype_size(o_.dtype);
    if (direct_) return {reinterpret_cast<const T*>(from), transposed_ ? col_stride_ : row_stride_, transposed_};
    T* to = reinterpret_cast<T*>(static_cast<char*>(ctx.workspace) + packed_);
    if constexpr (!std::is_same_v<T, bfloat16>) {  // those are never packed (accept_grouped_bf16)
      if (transposed_) load_strided(from, o_.dtype, {cols_, rows_}, {col_stride_, row_stride_}, to);
      else load_strided(from, o_.dtype, {rows_, cols_}, {row_stride_, col_stride_}, to);
    }
    return {to, transposed_ ? std::max<int64_t>(1, rows_) : std::max<int64_t>(1, cols_), transposed_};
  }

 private:
  Operand o_;
  int64_t rows_, cols_, row_stride_, col_stride_, group_stride_;
  bool transposed_ = false, direct_ = false;
  size_t packed_ = 0;
};

// Sums of type T of products of operands whose elements are S in memory.
template <class T, class S = T>
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
      const Matrix<S> a = a_.get(ctx, 0);
      Matrix<S> b{};
      if (!of_rows_) b = b_.get(ctx, 0);
      std::vector<Product> products;
      for (int64_t g = 0, begin = 0; g < groups; begin = ends[g++]) {
        const int64_t size = ends[g] - begin;
        if (!of_rows_) products.push_back({a.from(0, begin), b.from(begin, 0), m_, size, y + g * m_ * n_});
        else if (size > 0) products.push_back({a.from(begin, 0), b_.get(ctx, g), size, k_, y + begin * n_});
        if (of_rows_ && !b_.direct()) compute(products);  // the next matrix is packed in the same place
      }
      compute(products);
    }
    y_.finish(ctx);
  }

 private:
  static constexpr int64_t kRows = 256, kCols = 384;  // of a block of outputs, which one thread computes

  // y [m, n] = a [m, k] b [k, n].
  struct Product {
    Matrix<S> a, b;
    int64_t m, k;
    T* y;
    int64_t first = 0;  // the number of its first block
  };

  // All threads share the blocks of all products. Blocks depend on the shape alone, and so does the order of each sum. Empties the list.
  void compute(std::vector<Product>& products) const {
    int64_t blocks = 0, work = 0;
    for (Product& p : products) {
      p.first = blocks;
      blocks += ceil_div(p.m, kRows) * across();
      work += 2 * (p.m + kReading) * n_ * p.k;
    }
    const int64_t least = blocks == 0 ? 1 : std::max<int64_t>(1, kLeastWork / std::max<int64_t>(1, work / blocks));
    parallel_for(blocks, least, [&](int64_t begin, int64_t end) {
      auto p = std::upper_bound(products.begin(), products.end(), begin,
                                [](int64_t i, const Product& x) { return i < x.first; }) -
               1;
      for (int64_t i = begin; i < end; ++i) {
        while (p + 1 != products.end() && i >= (p + 1)->first) ++p;
        block(*p, i - p->first);
      }
    });
    products.clear();
  }

  void block(const Product& p, int64_t i) const {
    const int64_t r = i / across() * kRows, c = i % across() * kCols;
    const int64_t rows = std::min(kRows, p.m - r), cols = std::min(kCols, n_ - c);
    const Matrix<S> x = p.a.from(r, 0), w = p.b.from(0, c);
    T* y = p.y + r * n_ + c;
    if constexpr (std::is_same_v<S, bfloat16>)
      gemm(x.transposed, w.transposed, rows, cols, p.k, x.data, x.ld, w.data, w.ld, y, n_);
    else gemm(x.transposed, w.transposed, rows, cols, p.k, T(1), x.data, x.ld, w.data, w.ld, T(0), y, n_);
  }
  int64_t across() const { return ceil_div(n_, kCols); }

  static constexpr int64_t kLeastWork = 2'000'000;  // operations that make another thread pay off
  static constexpr int64_t kReading = 16;           // rows whose operations take as long as reading the second operand

  Factor<S> a_, b_;
  Operand ends_;
  Out<T> y_;
  bool of_rows_ = true;
  int64_t m_ = 0, k_ = 0, n_ = 0;
};

// A kernel of the library is made for each number of rows, in 0.2 ms; groups of the summed dim would need one for each length.
Refusal accept_grouped_bf16(const Problem& p) {
  if (auto r = accept_single(p)) return r;
  const Node& node = p.root();
  if (node.ins[0].dtype != DType::bfloat16 || node.ins[1].dtype != DType::bfloat16) return "takes bfloat16";
  if (node.ins[1].shape.size() != 3) return "takes groups of rows";
  WorkspacePlan unused;
  const Factor<bfloat16> a(node.ins[0], unused), b(node.ins[1], unused);
  if (!a.direct() || !b.direct() || a.transposed()) return "the library cannot read the operands in place";
  constexpr int64_t kLeastColumns = 16, kLeastWork = 1 << 18;
  if (node.outs[0].shape.back() < kLeastColumns || 2 * node.outs[0].shape.back() * node.ins[0].shape[1] < kLeastWork)
    return "takes larger products";
  if (!has_bf16_gemm()) return "the processor has no instructions for bfloat16";
  return {};
}
std::unique_ptr<Executable> make_grouped_bf16(const Problem& p) {
  return std::make_unique<GroupedMm<float, bfloat16>>(p.root());
}

}  // namespace

// It is never recorded for a CPU, which multiplies decoded matrices (ops/scaled_mm.cpp).
std::span<const Impl> scaled_mm_impls() { return {}; }
// Neither are whole recurrent layers: the steps of one are recorded (ops/recurrent.h).
std::span<const Impl> recurrent_impls() { return {}; }
std::span<const Impl> recurrent_grad_impls() { return {}; }
std::span<const Impl> grouped_mm_impls() {
  static const Impl impls[] = {{"onednn.grouped_bf16", accept_grouped_bf16, make_grouped_bf16},
                               {"cpu.grouped_mm", accept_single, make_by_type<GroupedMm>}};
  return impls;
}

}  // namespace pyflame::cpu
