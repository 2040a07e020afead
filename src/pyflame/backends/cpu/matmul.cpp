// matmul, and the groups that begin with one. A problem becomes a list of equal tasks when it is planned: batch dims
// are merged into the rows if memory allows it, operands that BLAS cannot read in place are packed, and the output is
// divided into blocks whose number depends on the shape only.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <optional>

#include "pyflame/backends/cpu/common.h"
#include "pyflame/backends/cpu/dnn_gemm.h"
#include "pyflame/backends/cpu/estimate.h"
#include "pyflame/backends/cpu/gemm.h"
#include "pyflame/backends/cpu/tile.h"
#include "pyflame/backends/cpu/vec.h"

namespace pyflame::cpu {

namespace {

// One operand of the product: a batch of matrices that BLAS can read in place, or that are packed first.
struct MatrixView {
  Dims batch, batch_strides;  // outer dims
  int64_t rows = 0, cols = 0, row_stride = 0, col_stride = 0;

  explicit MatrixView(const Operand& o) : batch(o.shape), batch_strides(o.strides) {
    cols = batch.back(), col_stride = batch_strides.back();
    batch.erase(batch.size() - 1), batch_strides.erase(batch_strides.size() - 1);
    rows = batch.back(), row_stride = batch_strides.back();
    batch.erase(batch.size() - 1), batch_strides.erase(batch_strides.size() - 1);
  }
  bool row_major() const {
    return (col_stride == 1 || cols <= 1) && (row_stride >= std::max<int64_t>(1, cols) || rows <= 1);
  }
  bool col_major() const {
    return (row_stride == 1 || rows <= 1) && (col_stride >= std::max<int64_t>(1, rows) || cols <= 1);
  }
  int64_t ld() const {  // strides of dims of size 1 are arbitrary
    return row_major() ? (rows <= 1 ? std::max<int64_t>(1, cols) : row_stride)
                       : (cols <= 1 ? std::max<int64_t>(1, rows) : col_stride);
  }
};

// Makes an operand contiguous, in the order that it has in memory; dims that are only broadcast are left out.
struct Packed {
  bool used = false;
  DType dtype{};
  Dims shape, strides;
  size_t offset = 0;
};

template <class T>
struct Side {
  Operand o;
  MatrixView view;
  Packed pack;

  Side(const Operand& operand, WorkspacePlan& ws) : o(operand), view(operand) {
    if (o.dtype == stored_dtype<T>() && (view.row_major() || view.col_major())) return;
    pack.used = true;
    pack.dtype = o.dtype;
    pack.shape = o.shape;
    for (int d = 0; d < o.shape.size() - 2; ++d)
      if (o.strides[d] == 0) pack.shape[d] = 1;
    pack.strides = o.strides;
    const bool transposed = !view.row_major() && view.col_major();  // keep the order in memory
    const int r = pack.shape.size() - 2;
    if (transposed) {
      std::swap(pack.shape[r], pack.shape[r + 1]);
      std::swap(pack.strides[r], pack.strides[r + 1]);
    }
    const Dims dense = contiguous_strides(pack.shape);
    for (int d = 0; d < r; ++d) view.batch_strides[d] = pack.shape[d] == 1 ? 0 : dense[d];
    view.row_stride = transposed ? 1 : dense[r];
    view.col_stride = transposed ? dense[r] : 1;
    if (view.row_stride == 0) view.row_stride = 1;
    if (view.col_stride == 0) view.col_stride = 1;
    pack.offset = ws.take(static_cast<size_t>(pack.shape.numel()) * sizeof(T));
  }
  const T* get(const RunContext& ctx) const {
    if (!pack.used) return ctx.ptr<const T>(o);
    T* dst = reinterpret_cast<T*>(static_cast<char*>(ctx.workspace) + pack.offset);
    if constexpr (!std::is_same_v<T, bfloat16>)  // those are never packed (accept_matmul_bf16)
      load_strided(ctx.ptr<const void>(o), pack.dtype, pack.shape, pack.strides, dst);
    return dst;
  }
};

// Blocks of the output of one product. A task has about 16 MFLOP. Each block of rows packs its part of B, and each block of columns its part
// of A; the library packs a transposed B three times as slowly. With an epilogue that runs on each block, a block consists of whole rows, few
// enough to stay in the L2 cache. reading: the rows whose operations take as long as reading B.
struct Blocking {
  int64_t row_block, col_block, row_blocks, col_blocks;
  Blocking(int64_t m, int64_t n, int64_t k, int64_t batch, bool b_transposed, bool whole_rows, int64_t reading = 0) {
    const double flops = 2.0 * static_cast<double>(m + reading) * static_cast<double>(n) * static_cast<double>(k);
    int64_t want = static_cast<int64_t>(flops / 16e6);
    if (want < 2 && flops >= 4e6) want = 2;
    want = std::clamp<int64_t>(want, 1, batch > 1 ? std::max<int64_t>(1, 64 / batch) : 64);
    const double best = std::sqrt(static_cast<double>(want * m) / static_cast<double>(n * (b_transposed ? 3 : 1)));
    const int64_t rows = whole_rows
                             ? std::min(want, std::max<int64_t>(1, m / kRowUnit))
                             : std::clamp<int64_t>(std::lround(best), 1, std::min(want, std::max<int64_t>(1, m / 32)));
    const int64_t cols = whole_rows ? 1 : std::min(ceil_div(want, rows), std::max<int64_t>(1, n / 96));
    row_block = ceil_div(std::max<int64_t>(m, 1), rows);
    if (whole_rows) row_block = std::min(row_block, std::max<int64_t>(kRowUnit, 65536 / std::max<int64_t>(n, 1)));
    row_block = ceil_div(row_block, kRowUnit) * kRowUnit;
    col_block = cols == 1 ? std::max<int64_t>(n, 1) : ceil_div(ceil_div(n, cols), kColUnit) * kColUnit;
    row_blocks = ceil_div(m, row_block);
    col_blocks = ceil_div(n, col_block);
  }
  // About so many blocks each way.
  Blocking(int64_t m, int64_t n, int64_t rows, int64_t cols)
      : row_block(ceil_div(ceil_div(std::max<int64_t>(m, 1), rows), kRowUnit) * kRowUnit),
        col_block(cols == 1 ? std::max<int64_t>(n, 1) : ceil_div(ceil_div(n, cols), kColUnit) * kColUnit),
        row_blocks(ceil_div(m, row_block)),
        col_blocks(ceil_div(n, col_block)) {}
  std::string name() const { return fmt::format("blocks={}x{}", row_blocks, col_blocks); }

 private:
  static constexpr int64_t kRowUnit = 8, kColUnit = 48;  // the register block of the AVX-512 kernels
};

constexpr int64_t kMostBlocks = 64;  // that a list of configurations has

// Sums of type T of products of operands whose elements are S in memory.
template <class T, class S = T>
class Matmul : public Exec {
 public:
  // configuration: the name of one of blockings(); empty: the blocking that the shape suggests.
  explicit Matmul(const Problem& p, const std::string& configuration = "") : Matmul(p.root()) {
    elided_ = !p.group.stores(out_);
    if (!configuration.empty()) blocking_ = blocking_of(configuration);
    if (p.group.kind == GroupKind::Epilogue) {
      epilogue_ = TileEpilogue::make(p, n_);
      row_major_ = row_major_ && out_.contiguous;  // the epilogue needs whole rows without gaps
      const Blocking whole_rows(m_, n_, k_, count_, tb_, true);
      apart_ = !configuration.empty() || pays_apart(whole_rows);
      row_chunk_ = whole_rows.row_block;
      if (!apart_) blocking_ = whole_rows;
      else if (!in_place()) product_ = ws_.take(static_cast<size_t>(count_ * m_ * n_) * sizeof(T));
    }
  }

  // Divisions into blocks that differ from the one that the shape suggests, those with the shortest estimates first. An epilogue comes after
  // the whole product with them.
  std::vector<std::string> other_blockings() const {
    std::vector<std::pair<int64_t, int64_t>> sizes;
    for (const int64_t cols : {1, 2, 4, 8, 16})
      for (const int64_t rows : {1, 2, 4, 8, 16, 32})
        if (rows * cols <= kMostBlocks) sizes.emplace_back(rows, cols);
    const auto us = [&](const std::pair<int64_t, int64_t>& size) {
      return blocks_us(Blocking(m_, n_, size.first, size.second), num_threads());
    };
    std::stable_sort(sizes.begin(), sizes.end(), [&](const auto& x, const auto& y) { return us(x) < us(y); });
    return names_of(sizes, epilogue_ && !apart_ ? "" : blocking_.name());
  }
  // With a few more or fewer blocks one way.
  std::vector<std::string> neighbours(const std::string& name) const {
    const Blocking b = name.empty() ? blocking_ : blocking_of(name);
    std::vector<std::pair<int64_t, int64_t>> sizes;
    const auto near = [](int64_t n) { return std::array{n + 1, n + 2, std::max<int64_t>(1, n - 1), n * 3 / 2}; };
    for (const int64_t rows : near(b.row_blocks)) sizes.emplace_back(rows, b.col_blocks);
    for (const int64_t cols : near(b.col_blocks)) sizes.emplace_back(b.row_blocks, cols);
    return names_of(sizes, b.name());
  }
  bool has(const std::string& name) const { return named(name).has_value(); }

  void run(const RunContext& ctx) override {
    if (count_ * m_ * n_ == 0) return;
    multiply(ctx);
    if (!apart_) return;
    const int64_t chunks = ceil_div(m_, row_chunk_);
    parallel_for(
        count_ * chunks, std::max<int64_t>(1, kGrainElements / (row_chunk_ * n_)), [&](int64_t begin, int64_t end) {
          for (int64_t i = begin; i < end; ++i) {
            const int64_t item = i / chunks, r0 = i % chunks * row_chunk_, rows = std::min(row_chunk_, m_ - r0);
            finish(ctx, product_at(ctx, item, r0, 0), item, r0, rows, n_);
          }
        });
  }

 private:
  // Whether the whole product is computed before the epilogue. Each block of rows packs all of the second operand; where that costs more than
  // reading the product again, blocks are as large as a product alone has them. Nanoseconds for an element, measured on one AMD EPYC.
  bool pays_apart(const Blocking& whole_rows) const {
    const double pack = tb_ ? 1.0 : 0.3, again = 1.0;
    const double packs = static_cast<double>(whole_rows.row_blocks - blocking_.row_blocks);
    return packs * pack * static_cast<double>(k_) > again * static_cast<double>(m_);
  }
  bool in_place() const { return row_major_ && !elided_; }

  // By arithmetic. Each block reads its rows of one operand and its columns of the other one.
  double blocks_us(const Blocking& b, int threads) const {
    constexpr double kRate = 50e3;  // operations of a thread in a microsecond
    const auto number = [](int64_t x) { return static_cast<double>(x); };
    const double depth = number(std::max<int64_t>(k_, 1)), count = number(count_);
    const double rows = number(std::min(m_, b.row_block)), cols = number(std::min(n_, b.col_block));
    Tasks t;
    t.number = count * number(b.row_blocks * b.col_blocks);
    t.computes_us = 2 * rows * cols * depth / kRate;
    t.bytes = (rows + cols) * depth * sizeof(S) + rows * cols * sizeof(T);
    t.all_bytes = count * (number(m_ + n_) * depth * sizeof(S) + number(m_ * n_) * sizeof(T));
    return tasks_us(t, threads);
  }

  std::vector<std::string> names_of(const std::vector<std::pair<int64_t, int64_t>>& sizes,
                                    const std::string& without) const {
    std::vector<std::string> names;
    for (const auto& [rows, cols] : sizes)
      if (std::string name = Blocking(m_, n_, rows, cols).name();
          name != without && std::find(names.begin(), names.end(), name) == names.end())
        names.push_back(std::move(name));
    return names;
  }
  // None if there is no such division: a block has whole units of rows and columns.
  std::optional<Blocking> named(const std::string& name) const {
    int rows = 0, cols = 0;
    if (std::sscanf(name.c_str(), "blocks=%dx%d", &rows, &cols) != 2 || rows < 1 || cols < 1) return std::nullopt;
    const Blocking b(m_, n_, rows, cols);
    return b.name() == name ? std::optional(b) : std::nullopt;
  }
  Blocking blocking_of(const std::string& name) const {
    const std::optional<Blocking> b = named(name);
    PF_CHECK(b, Value, "matmul: no such configuration; got '{}' for {} x {} x {}; expected {}", name, m_, k_, n_,
             one_of(other_blockings()));
    return *b;
  }

  void multiply(const RunContext& ctx) {
    const S* a = a_.get(ctx);
    const S* b = b_.get(ctx);
    const int64_t blocks = count_ * blocking_.row_blocks * blocking_.col_blocks;
    const double work = 2.0 * static_cast<double>(std::min(m_, blocking_.row_block)) *
                        static_cast<double>(std::min(n_, blocking_.col_block)) *
                        static_cast<double>(std::max<int64_t>(k_, 1));
    if (blocks == 1) return block(ctx, a, b, 0);
    parallel_for(blocks, std::max<int64_t>(1, static_cast<int64_t>(2e6 / work)), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) block(ctx, a, b, i);
    });
  }

  explicit Matmul(const Node& node) : a_(node.ins[0], ws_), b_(node.ins[1], ws_), out_(node.outs[0]), c_(node.outs[0]) {
    row_major_ = out_.dtype == compute_dtype<T>() && c_.row_major();
    m_ = c_.rows, n_ = c_.cols, k_ = a_.view.cols;
    batch_ = c_.batch;
    fold_batch();
    count_ = batch_.numel();
    ta_ = !a_.view.row_major();
    tb_ = !b_.view.row_major();
    blocking_ = Blocking(m_, n_, k_, count_, tb_, false, std::is_same_v<S, bfloat16> ? 16 : 0);
  }

  // [B.., M, K] x [K, N] is one product of B*M rows if the rows are evenly spaced in memory.
  void fold_batch() {
    while (!batch_.empty()) {
      const int d = batch_.size() - 1;
      const int64_t size = batch_[d];
      if (size != 1) {
        const int64_t as = a_.view.batch_strides[d], cs = c_.batch_strides[d];
        const bool rows_follow = m_ == 1 || (as == m_ * a_.view.row_stride && cs == m_ * c_.row_stride);
        const bool plain = a_.view.row_major() && as >= k_ && cs >= n_ && b_.view.batch_strides[d] == 0;
        if (!rows_follow || !plain) break;
        if (m_ == 1) a_.view.row_stride = as, c_.row_stride = cs;
        m_ *= size;
        a_.view.rows = c_.rows = m_;
      }
      for (Dims* dims : {&batch_, &a_.view.batch_strides, &b_.view.batch_strides, &c_.batch_strides}) dims->erase(d);
    }
  }

  void block(const RunContext& ctx, const S* a, const S* b, int64_t i) const {
    const int64_t per = blocking_.row_blocks * blocking_.col_blocks;
    const int64_t item = i / per, r0 = i % per / blocking_.col_blocks * blocking_.row_block,
                  c0 = i % blocking_.col_blocks * blocking_.col_block;
    const int64_t rows = std::min(blocking_.row_block, m_ - r0), cols = std::min(blocking_.col_block, n_ - c0);
    int64_t rest = item;
    for (int d = batch_.size() - 1; d >= 0; --d) {
      const int64_t x = rest % batch_[d];
      rest /= batch_[d];
      a += x * a_.view.batch_strides[d];
      b += x * b_.view.batch_strides[d];
    }
    const int64_t lda = a_.view.ld(), ldb = b_.view.ld();
    const bool own = !in_place() && !apart_;
    T* c = own ? scratch<T>(1, rows * cols) : product_at(ctx, item, r0, c0);
    const int64_t ldc = own ? cols : in_place() ? c_.ld() : n_;
    a += ta_ ? r0 : r0 * lda, b += tb_ ? c0 * ldb : c0;
    if constexpr (std::is_same_v<S, bfloat16>) gemm(ta_, tb_, rows, cols, k_, a, lda, b, ldb, c, ldc);
    else gemm(ta_, tb_, rows, cols, k_, T(1), a, lda, b, ldb, T(0), c, ldc);
    if (!apart_) finish(ctx, c, item, r0, rows, cols, c0);
  }

  // Of the output, in elements.
  int64_t place(int64_t item, int64_t r0, int64_t c0) const {
    int64_t at = r0 * c_.row_stride + c0 * c_.col_stride;
    for (int d = batch_.size() - 1; d >= 0; --d) {
      at += item % batch_[d] * c_.batch_strides[d];
      item /= batch_[d];
    }
    return at;
  }
  T* product_at(const RunContext& ctx, int64_t item, int64_t r0, int64_t c0) const {
    if (in_place()) return ctx.ptr<T>(out_) + place(item, r0, c0);
    return at<T>(ctx, product_) + (item * m_ + r0) * n_ + c0;
  }
  // What follows the product of some rows: the conversion to the output's dtype, the epilogue.
  void finish(const RunContext& ctx, const T* c, int64_t item, int64_t r0, int64_t rows, int64_t cols,
              int64_t c0 = 0) const {
    const int64_t to = place(item, r0, c0);
    if (!in_place() && !elided_) store_block(c, ctx.ptr<char>(out_), to, rows, cols);
    if (epilogue_) epilogue_->run(ctx, rounded(ctx, c, to, rows), item * m_ + r0, rows);
  }

  void store_block(const T* c, char* out, int64_t at, int64_t rows, int64_t cols) const {
    const int64_t esize = dtype_size(out_.dtype);
    for (int64_t r = 0; r < rows; ++r) {
      const int64_t row = at + r * c_.row_stride;
      if (c_.col_stride == 1) store_run(c + r * cols, out + row * esize, out_.dtype, cols);
      else
        for (int64_t j = 0; j < cols; ++j)
          store_run(c + r * cols + j, out + (row + j * c_.col_stride) * esize, out_.dtype, 1);
    }
  }

  // The block in the root's own dtype, for the epilogue.
  const void* rounded(const RunContext& ctx, const T* c, int64_t at, int64_t rows) const {
    if (out_.dtype == compute_dtype<T>()) return c;
    const int64_t esize = dtype_size(out_.dtype);
    if (!elided_ && out_.contiguous) return ctx.ptr<char>(out_) + at * esize;
    void* block = scratch_bytes(2, static_cast<size_t>(rows * n_ * esize));
    store_run(c, block, out_.dtype, rows * n_);
    return block;
  }

  Side<S> a_, b_;
  Operand out_;
  MatrixView c_;
  bool row_major_ = false, elided_ = false, ta_ = false, tb_ = false, apart_ = false;
  int64_t row_chunk_ = 1;
  size_t product_ = 0;  // in the workspace
  int64_t m_ = 0, n_ = 0, k_ = 0, count_ = 0;
  Dims batch_;
  Blocking blocking_{1, 1, 1, 1};
  std::unique_ptr<TileEpilogue> epilogue_;
};

// Matrix times vector (either operand may be the vector), at the speed at which memory can be read.
template <class T>
class Gemv : public Exec {
 public:
  explicit Gemv(const Problem& p) : a_(p.root().ins[0], ws_), b_(p.root().ins[1], ws_) {
    const Operand& out = p.root().outs[0];
    elided_ = !p.group.stores(out);
    if (!elided_) y_ = Out<T>(out, ws_);
    const MatrixView c(out);
    vector_first_ = c.rows == 1;
    k_ = a_.view.cols;
    n_ = vector_first_ ? c.cols : c.rows;
    const MatrixView& w = vector_first_ ? b_.view : a_.view;
    const MatrixView& x = vector_first_ ? a_.view : b_.view;
    // Element (k, j) of the matrix, where k runs along the vector.
    k_stride_ = vector_first_ ? w.row_stride : w.col_stride;
    j_stride_ = vector_first_ ? w.col_stride : w.row_stride;
    x_stride_ = k_ <= 1 ? 1 : vector_first_ ? x.col_stride : x.row_stride;
    if (n_ <= 1) j_stride_ = k_stride_ == 1 || k_ <= 1 ? k_ : 1;
    if (k_ <= 1) k_stride_ = j_stride_ == 1 ? n_ : 1;
    batch_ = c.batch;
    if (elided_) product_ = ws_.take(static_cast<size_t>(batch_.numel() * n_) * sizeof(T));
    if (p.group.kind == GroupKind::Epilogue) epilogue_ = TileEpilogue::make(p, n_);
  }

  void run(const RunContext& ctx) override {
    const int64_t count = batch_.numel();
    if (count * n_ == 0) return;
    const T* a = a_.get(ctx);
    const T* b = b_.get(ctx);
    T* y = elided_ ? this->template at<T>(ctx, product_) : y_.begin(ctx);
    // Strips of whole cache lines; their bounds do not affect the order of any sum.
    const int64_t strip = 128, strips = ceil_div(n_, strip);
    parallel_for(count * strips, std::max<int64_t>(1, 4 * kGrainElements / (strip * std::max<int64_t>(k_, 1))),
                 [&](int64_t begin, int64_t end) {
                   for (int64_t i = begin; i < end;) {
                     const int64_t item = i / strips, first = i % strips, last = std::min(strips, first + end - i);
                     one(a, b, y + item * n_, item, first * strip, std::min(n_, last * strip));
                     i += last - first;
                   }
                 });
    if (!elided_) y_.finish(ctx);
    if (epilogue_)
      parallel_for(count, std::max<int64_t>(1, kGrainElements / n_),
                   [&](int64_t begin, int64_t end) { epilogue_->run(ctx, y + begin * n_, begin, end - begin); });
  }

 private:
  void one(const T* a, const T* b, T* y, int64_t item, int64_t j0, int64_t j1) const {
    for (int d = batch_.size() - 1; d >= 0; --d) {
      a += item % batch_[d] * a_.view.batch_strides[d];
      b += item % batch_[d] * b_.view.batch_strides[d];
      item /= batch_[d];
    }
    const T* x = vector_first_ ? a : b;
    const T* w = (vector_first_ ? b : a) + j0 * j_stride_;
    if (x_stride_ != 1) {
      T* packed = scratch<T>(0, k_);
      for (int64_t i = 0; i < k_; ++i) packed[i] = x[i * x_stride_];
      x = packed;
    }
    if (j_stride_ == 1) return vec::gemv_rows(x, w, k_stride_, k_, j1 - j0, y + j0);
    for (int64_t j = j0; j < j1; ++j) y[j] = vec::dot(x, w + (j - j0) * j_stride_, k_);
  }

  Side<T> a_, b_;
  Out<T> y_;
  bool elided_ = false, vector_first_ = false;
  size_t product_ = 0;  // in the workspace, if it is not an output
  std::unique_ptr<TileEpilogue> epilogue_;
  int64_t k_ = 0, n_ = 0, k_stride_ = 0, j_stride_ = 0, x_stride_ = 0;
  Dims batch_;
};

// Integers wrap around; the sum has the output's type.
class IntegerMatmul : public Exec {
 public:
  explicit IntegerMatmul(const Node& node) : a_(node.ins[0]), b_(node.ins[1]), c_(node.outs[0]) {}
  void run(const RunContext& ctx) override {
    dispatch(c_.dtype, [&]<class T>() {
      if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) multiply<T>(ctx);
    });
  }

 private:
  template <class T>
  void multiply(const RunContext& ctx) const {
    using U = std::make_unsigned_t<T>;
    const MatrixView va(a_), vb(b_), vc(c_);
    const T* pa = ctx.ptr<const T>(a_);
    const T* pb = ctx.ptr<const T>(b_);
    T* pc = ctx.ptr<T>(c_);
    const int64_t rows = vc.batch.numel() * vc.rows;
    if (rows * vc.cols == 0) return;
    parallel_for(rows, std::max<int64_t>(1, kGrainElements / std::max<int64_t>(1, vc.cols * va.cols)),
                 [&](int64_t begin, int64_t end) {
                   for (int64_t r = begin; r < end; ++r) {
                     const T *a = pa, *b = pb;
                     T* c = pc;
                     int64_t item = r / vc.rows;
                     for (int d = vc.batch.size() - 1; d >= 0; --d) {
                       const int64_t x = item % vc.batch[d];
                       item /= vc.batch[d];
                       a += x * va.batch_strides[d], b += x * vb.batch_strides[d], c += x * vc.batch_strides[d];
                     }
                     a += r % vc.rows * va.row_stride, c += r % vc.rows * vc.row_stride;
                     U* acc = scratch<U>(0, vc.cols);
                     std::fill_n(acc, vc.cols, U(0));
                     for (int64_t k = 0; k < va.cols; ++k) {
                       // NOLINTNEXTLINE(bugprone-signed-char-misuse): sign extension is what two's complement wants
                       const uint64_t x = static_cast<uint64_t>(a[k * va.col_stride]);
                       const T* bk = b + k * vb.row_stride;
                       for (int64_t j = 0; j < vc.cols; ++j)
                         acc[j] = static_cast<U>(acc[j] + x * static_cast<uint64_t>(bk[j * vb.col_stride]));
                     }
                     for (int64_t j = 0; j < vc.cols; ++j) c[j * vc.col_stride] = static_cast<T>(acc[j]);
                   }
                 });
  }
  Operand a_, b_, c_;
};

bool is_matmul_group(const Problem& p) { return p.root().op == OpId::matmul; }

Refusal accept_matmul_float32(const Problem& p) {
  if (!is_matmul_group(p)) return "takes matmul";
  const DType d = p.root().outs[0].dtype;
  if (!is_float(d) || d == DType::float64) return "takes float32 and 16-bit floats";
  if (p.group.kind == GroupKind::Epilogue) return TileEpilogue::accepts(p);
  return accept_single(p);
}

Refusal accept_matmul_float64(const Problem& p) {
  if (!is_matmul_group(p)) return "takes matmul";
  if (p.root().outs[0].dtype != DType::float64) return "takes float64";
  if (p.group.kind == GroupKind::Epilogue) return TileEpilogue::accepts(p);
  return accept_single(p);
}

Refusal accept_matmul_bf16(const Problem& p) {
  if (!is_matmul_group(p)) return "takes matmul";
  for (int i = 0; i < 2; ++i) {
    const Operand& o = p.root().ins[static_cast<size_t>(i)];
    if (o.dtype != DType::bfloat16) return "takes bfloat16";
    const MatrixView v(o);
    if (!v.row_major() && !v.col_major()) return "the library cannot read the operands in place";
  }
  const MatrixView a(p.root().ins[0]), c(p.root().outs[0]);
  // A kernel of the library is made for each shape, in 0.2 ms.
  constexpr int64_t kLeastColumns = 16, kLeastWork = 1 << 18, kLeastTotal = 1 << 21;
  const int64_t work = 2 * c.rows * c.cols * a.cols, total = work * c.batch.numel();
  if (c.cols < kLeastColumns || total < kLeastTotal ||
      (work < kLeastWork && p.root().ins[1].shape.numel() > a.cols * c.cols))
    return "takes larger products";
  if (!has_bf16_gemm()) return "the processor has no instructions for bfloat16";
  if (p.group.kind == GroupKind::Epilogue) {
    constexpr int64_t kLeastRows = 8;  // fewer are divided by columns, and an epilogue needs whole rows
    if (c.rows * c.batch.numel() < kLeastRows) return "takes more rows with an epilogue";
    return TileEpilogue::accepts(p);
  }
  return accept_single(p);
}

std::unique_ptr<Executable> make_blocked(const Problem& p, const std::string& configuration) {
  if (p.root().ins[0].dtype == DType::float64) return std::make_unique<Matmul<double>>(p, configuration);
  return std::make_unique<Matmul<float>>(p, configuration);
}
std::unique_ptr<Executable> make_matmul(const Problem& p) { return make_blocked(p, ""); }
std::unique_ptr<Executable> make_matmul_bf16(const Problem& p) { return std::make_unique<Matmul<float, bfloat16>>(p); }
class BlockConfigurations final : public Configurations {
 public:
  std::vector<std::string> list(const Problem& p) const override { return Matmul<float>(p).other_blockings(); }
  std::unique_ptr<Executable> make(const Problem& p, const std::string& name) const override {
    return make_blocked(p, name);
  }
  bool has(const Problem& p, const std::string& name) const override { return Matmul<float>(p).has(name); }
  std::vector<std::string> neighbours(const Problem& p, const std::string& name) const override {
    return Matmul<float>(p).neighbours(name);
  }
  bool for_any_size() const override { return true; }
};
constexpr BlockConfigurations kBlocks;

Refusal accept_gemv(const Problem& p) {
  if (!is_matmul_group(p)) return "takes matmul";
  const Operand& out = p.root().outs[0];
  const MatrixView c(out);
  if (p.group.kind == GroupKind::Epilogue) {
    if (auto r = TileEpilogue::accepts(p)) return r;
    if (out.dtype != DType::float32 && out.dtype != DType::float64) return "takes float32 and float64 with an epilogue";
    if (c.rows != 1 || !out.contiguous) return "takes a vector times a matrix with an epilogue";
  } else if (auto r = accept_float(p)) {
    return r;
  }
  if (c.rows != 1 && c.cols != 1) return "takes a matrix times a vector; both sides are matrices here";
  const int64_t rank = p.root().ins[0].shape.size();
  if (rank > 2 && c.batch.numel() > 1) {
    const Operand& b = p.root().ins[1];
    for (int d = 0; d < rank - 2; ++d)
      if (b.shape[d] > 1 && b.strides[d] == 0) return "one matrix for many vectors is a matrix product";
  }
  const Operand& w = c.rows == 1 ? p.root().ins[1] : p.root().ins[0];
  const MatrixView v(w);
  if (!v.row_major() && !v.col_major()) return "the matrix has no dense dimension";
  return {};
}

std::unique_ptr<Executable> make_gemv(const Problem& p) {
  if (p.root().outs[0].dtype == DType::float64) return std::make_unique<Gemv<double>>(p);
  return std::make_unique<Gemv<float>>(p);
}

Refusal accept_matmul_integer(const Problem& p) {
  if (!is_matmul_group(p)) return "takes matmul";
  if (auto r = accept_single(p)) return r;
  const DType d = p.root().outs[0].dtype;
  if (dtype_category(d) != Category::Integer) return "takes integers";
  for (int i = 0; i < 2; ++i)
    if (p.root().ins[static_cast<size_t>(i)].dtype != d) return "inputs and output must have one integer type";
  return {};
}

std::unique_ptr<Executable> make_matmul_integer(const Problem& p) { return std::make_unique<IntegerMatmul>(p.root()); }

}  // namespace

std::span<const Impl> matmul_impls() {
  static const Impl impls[] = {{"onednn.bf16", accept_matmul_bf16, make_matmul_bf16},
                               {"cpu.gemv", accept_gemv, make_gemv},
                               {"onednn.sgemm", accept_matmul_float32, make_matmul, &kBlocks},
                               {"openblas.dgemm", accept_matmul_float64, make_matmul, &kBlocks},
                               {"cpu.matmul_integer", accept_matmul_integer, make_matmul_integer}};
  return impls;
}

}  // namespace pyflame::cpu
