// Transposed copies in blocks. A loop along the output reads one element of each cache line of its input, and where rows are a power of two
// apart, the lines are gone before their other elements are read. So a block reads whole lines of the input, and writes whole lines.
#include "pyflame/backends/cpu/transpose.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <numeric>

#include "pyflame/backends/cpu/tile.h"
#include "pyflame/backends/cpu/vec.h"
#include "pyflame/base/threads.h"

namespace pyflame::cpu {

namespace {

constexpr int64_t kLineBytes = 64;  // bytes
constexpr int64_t kLeastRows = 16;  // of both dims; with fewer, the tile interpreter is as good
constexpr int64_t kLeastCopied = 4096;
constexpr int64_t kWrittenBytes = 128;            // bytes of an output row that a block writes
constexpr int64_t kRowsOfTask = 1024;             // elements of the input's dim that one task takes
constexpr int64_t kFarBytes = int64_t{32} << 20;  // bytes: a larger output is written past the caches

// The copy as a matrix [rows of the output, its contiguous dim] for each position of the other dims.
struct Transposition {
  int64_t rows = 0, columns = 0;  // of the output; the input is contiguous along the rows
  int64_t in_stride = 0,
          out_stride = 0;  // of the input from column to column, of the output from row to row, in elements
  int outer = 0;           // other dims
  int64_t size[kMaxDims] = {}, in_step[kMaxDims] = {}, out_step[kMaxDims] = {};
  int64_t element = 4;  // bytes
  int64_t bytes = 0;    // of the output
  int64_t reach = 0;    // bytes from the input's first element to the end of its last
};

Refusal understand(const Problem& p, Transposition& t) {
  if (p.group.kind != GroupKind::Loop || p.size() != 1 || p.root().op != OpId::cast) return "takes single copies only";
  const Operand &in = p.root().ins[0], &out = p.root().outs[0];
  if (in.dtype != out.dtype || in.shape != out.shape) return "takes copies without a conversion or broadcast only";
  t.element = static_cast<int64_t>(dtype_size(in.dtype));
  if (t.element > 8) return "takes elements of at most 8 bytes";
  if (out.numel() < kLeastCopied) return "the copy is small";
  int order[kMaxDims], dims = 0;
  for (int i = 0; i < out.shape.size(); ++i)
    if (out.shape[i] != 1) order[dims++] = i;
  std::sort(order, order + dims, [&](int a, int b) { return out.strides[a] > out.strides[b]; });
  int64_t expected = 1, fast = -1;
  for (int k = dims - 1; k >= 0; --k) {
    if (out.strides[order[k]] != expected) return "writes dense outputs only";
    expected *= out.shape[order[k]];
    if (in.strides[order[k]] == 1 && fast < 0) fast = order[k];
  }
  if (fast < 0 || fast == order[dims - 1]) return "the input is not contiguous along another dim";
  const int last = order[dims - 1];
  t.rows = out.shape[static_cast<int>(fast)], t.columns = out.shape[last];
  if (t.rows < kLeastRows || t.columns < kLeastRows) return "a dim is short";
  t.in_stride = in.strides[last], t.out_stride = out.strides[static_cast<int>(fast)];
  t.reach = 1;
  for (int k = 0; k < dims; ++k) {
    const int i = order[k];
    t.reach += (out.shape[i] - 1) * in.strides[i];
    if (i == fast || i == last) continue;
    t.size[t.outer] = out.shape[i], t.in_step[t.outer] = in.strides[i], t.out_step[t.outer++] = out.strides[i];
  }
  t.reach *= t.element;
  t.bytes = out.numel() * t.element;
  return {};
}

// Rows [row, row + height) of columns [column, column + width).
template <class T>
void copy_block(const Transposition& t, const T* x, T* y, int64_t row, int64_t height, int64_t column, int64_t width,
                bool far) {
  constexpr int64_t kRows = kLineBytes / sizeof(T), kColumns = kWrittenBytes / sizeof(T);
  alignas(64) T block[kRows][kColumns];
  for (int64_t j = 0; j < width; ++j) {
    const T* from = x + (column + j) * t.in_stride + row;
    __builtin_prefetch(from + 4 * kRows);
    if (height == kRows)
      for (int64_t i = 0; i < kRows; ++i) block[i][j] = from[i];
    else
      for (int64_t i = 0; i < height; ++i) block[i][j] = from[i];
  }
  const int64_t bytes = width * static_cast<int64_t>(sizeof(T));
  for (int64_t i = 0; i < height; ++i) {
    T* to = y + (row + i) * t.out_stride + column;
    if (far) vec::stream(to, block[i], bytes);
    else std::memcpy(to, block[i], static_cast<size_t>(bytes));
  }
}

template <class T>
void transpose(const Transposition& t, const T* x, T* y) {
  constexpr int64_t kRows = kLineBytes / sizeof(T), kColumns = kWrittenBytes / sizeof(T);
  const int64_t strips = (t.columns + kColumns - 1) / kColumns, parts = (t.rows + kRowsOfTask - 1) / kRowsOfTask;
  const int64_t matrices = std::accumulate(t.size, t.size + t.outer, int64_t{1}, std::multiplies<>());
  const bool far = t.bytes >= kFarBytes;
  const int64_t grain = std::max<int64_t>(1, 32768 / (kColumns * std::min(t.rows, kRowsOfTask)));
  parallel_for(matrices * strips * parts, grain, [&](int64_t begin, int64_t end) {
    for (int64_t task = begin; task < end; ++task) {
      int64_t matrix = task / (strips * parts);
      const int64_t part = task / strips % parts, column = task % strips * kColumns;
      const T* from = x;
      T* to = y;
      for (int k = t.outer - 1; k >= 0; --k) {
        from += matrix % t.size[k] * t.in_step[k], to += matrix % t.size[k] * t.out_step[k];
        matrix /= t.size[k];
      }
      const int64_t width = std::min(kColumns, t.columns - column), stop = std::min(t.rows, (part + 1) * kRowsOfTask);
      for (int64_t row = part * kRowsOfTask; row < stop; row += kRows)
        copy_block(t, from, to, row, std::min(kRows, stop - row), column, width, far);
    }
    if (far) vec::stream_fence();
  });
}

class Transpose final : public Executable {
 public:
  Transpose(const Transposition& t, const Problem& p)
      : t_(t), in_(p.root().ins[0]), out_(p.root().outs[0]), in_order_(tile_make(p)) {}
  void run(const RunContext& ctx) override {
    const auto x = reinterpret_cast<uintptr_t>(ctx.ptr<char>(in_)),
               y = reinterpret_cast<uintptr_t>(ctx.ptr<char>(out_));
    if (x < y + static_cast<uint64_t>(t_.bytes) && y < x + static_cast<uint64_t>(t_.reach)) return in_order_->run(ctx);
    switch (t_.element) {
      case 1: return copy<uint8_t>(ctx);
      case 2: return copy<uint16_t>(ctx);
      case 4: return copy<uint32_t>(ctx);
      default: return copy<uint64_t>(ctx);
    }
  }
  size_t workspace() const override { return in_order_->workspace(); }

 private:
  template <class T>
  void copy(const RunContext& ctx) const {
    transpose(t_, ctx.ptr<const T>(in_), ctx.ptr<T>(out_));
  }
  Transposition t_;
  Operand in_, out_;
  std::unique_ptr<Executable> in_order_;  // for an output that overlaps the input
};

}  // namespace

Refusal transpose_accepts(const Problem& p) {
  Transposition t;
  if (auto refused = understand(p, t)) return refused;
  return tile_accepts(p);
}

std::unique_ptr<Executable> transpose_make(const Problem& p) {
  Transposition t;
  understand(p, t);
  return std::make_unique<Transpose>(t, p);
}

}  // namespace pyflame::cpu
