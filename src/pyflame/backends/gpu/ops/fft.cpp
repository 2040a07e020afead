// Fourier transforms: kernels/fft/fft.h, and the vendors' libraries for lines that do not fit into one kernel of these.
#include <cmath>
#include <vector>

#include "pyflame/backends/gpu/jit/kernel.h"
#include "pyflame/backends/gpu/libs/fft_library.h"
#include "pyflame/backends/gpu/ops/impls.h"
#include "pyflame/backends/gpu/shapes/layout.h"
#include "pyflame/kernels/fft/fft_args.h"

namespace pyflame::gpu {

namespace {

constexpr int64_t kMostPairs = 4096;  // float32 pairs of a line in shared memory: 32 KiB
constexpr int kFftRadices[] = {4, 2, 3, 5, 7, 11, 13};

int64_t fft_most_pairs(DType dtype) { return dtype == DType::float64 ? kMostPairs / 2 : kMostPairs; }

// The radices of the passes; empty if n has a larger prime factor.
std::vector<int> fft_radices(int64_t n) {
  std::vector<int> r;
  for (int f : kFftRadices)
    while (n % f == 0) r.push_back(f), n /= f;
  return n == 1 ? r : std::vector<int>();
}

// n as a product of two lengths up to `most`, the larger one first; {n, 1} if it is short, and {0, 0} if there are none.
std::pair<int64_t, int64_t> fft_matrix(int64_t n, int64_t most) {
  if (n == 1 || (n <= most && !fft_radices(n).empty())) return {n, 1};
  if (fft_radices(n).empty()) return {0, 0};
  std::pair<int64_t, int64_t> best{0, 0};
  for (int64_t rows = 1; rows <= most && rows * rows <= n; ++rows)
    if (n % rows == 0 && n / rows <= most) best = {n / rows, rows};
  return best;
}

// The length of the lines of Bluestein's algorithm.
int64_t fft_padded(int64_t n) {
  int64_t padded = 1;
  while (padded < 2 * n - 1) padded *= 2;
  return padded;
}

class FftKernels final : public Executable {
 public:
  explicit FftKernels(const Problem& p)
      : x_(p.root().ins[0]), y_(p.root().outs[0]), type_(p.graph.device.type), attrs_(p.root().attr<FftAttrs>()) {
    const bool pairs = attrs_.kind != 1;
    const int dims = x_.shape.size() - (pairs ? 2 : 1);
    shape_.n = attrs_.kind == 1 ? x_.shape.back() : attrs_.kind == 2 ? y_.shape.back() : x_.shape[dims];
    shape_.step = x_.strides[dims], shape_.part = pairs ? x_.strides.back() : 0;
    Dims lines, strides;
    for (int d = 0; d < dims; ++d) lines.push_back(x_.shape[d]), strides.push_back(x_.strides[d]);
    shape_.lines = lines.numel();
    shape_.x_lines = collapsed_view(lines, strides);
    const auto n = static_cast<double>(shape_.n);
    shape_.scale = attrs_.scale == 2 ? 1 / n : attrs_.scale == 1 ? 1 / std::sqrt(n) : 1;
    whole_ = plan(shape_, static_cast<int>(attrs_.kind), attrs_.inverse != 0);
    if (whole_.rows == 0) prepare_convolution();
  }

  size_t workspace() const override { return parts_.size(); }

  void run(const RunContext& ctx) override {
    const void* const x = ctx.bindings[x_.binding];
    void* const y = ctx.bindings[y_.binding];
    if (whole_.rows != 0) return launch(ctx, whole_, x, y);
    char* const padded = part_of(ctx.workspace, padded_at_);
    const auto each = [&](int64_t n) { return group_each(ceil_div(n, kGroupThreads)); };
    chirp_in_->launch(ctx.device, each((shape_.lines + 1) * shape_.padded), x, static_cast<void*>(padded), shape_);
    launch(ctx, forward_, padded, padded);
    multiply_->launch(ctx.device, each(shape_.lines * shape_.padded), static_cast<void*>(padded), shape_);
    launch(ctx, back_, padded, padded);
    chirp_out_->launch(ctx.device, each(shape_.lines * shape_.n), static_cast<void*>(padded), y, shape_);
  }

 private:
  struct Planned {
    pf::FftShape shape;
    int64_t rows = 0;  // 0: none; 1: one kernel
    size_t room = 0;
    std::unique_ptr<Kernel> first, second;
  };
  const char* type_name() const { return x_.dtype == DType::float64 ? "double" : "float"; }

  Planned plan(const pf::FftShape& shape, int kind, bool inverse) {
    Planned r{shape, 0, 0, nullptr, nullptr};
    const auto [columns, rows] = fft_matrix(shape.n, fft_most_pairs(x_.dtype));
    r.rows = rows;
    if (rows == 0) return r;
    if (rows == 1) {
      r.first = line_kernel(shape.n, 0, kind, inverse);
      return r;
    }
    r.shape.columns = columns, r.shape.rows = rows;
    r.room = parts_.take(2 * shape.lines * shape.n * dtype_size(x_.dtype));
    r.first = line_kernel(rows, 1, kind, inverse);
    r.second = line_kernel(columns, 2, kind, inverse);
    return r;
  }

  void launch(const RunContext& ctx, Planned& p, const void* x, void* y) const {
    void* const room = part_of(ctx.workspace, p.room);
    if (p.rows == 1) {
      p.first->launch(ctx.device, group_each(p.shape.lines), x, y, room, p.shape);
      return;
    }
    p.first->launch(ctx.device, group_each(p.shape.lines * p.shape.columns), x, y, room, p.shape);
    p.second->launch(ctx.device, group_each(p.shape.lines * p.shape.rows), x, y, room, p.shape);
  }

  static unsigned threads_for(int64_t n) { return n > 1024 ? 256 : n > 256 ? 128 : 64; }

  std::unique_ptr<Kernel> line_kernel(int64_t n, int role, int kind, bool inverse) const {
    const unsigned threads = threads_for(n);
    std::string passes;
    int64_t s = 1;
    for (const int r : fft_radices(n)) {
      passes += fmt::format(" pf::fft_pass<{}, {}, {}, {}>(re, im);", r, n, s, threads);
      s *= r;
    }
    const char* t = type_name();
    const std::string body = fmt::format(
        "(const {0}* x, {0}* y, {0}* room, pf::FftShape s) {{\n  PF_SHARED {0} re[{1}], im[{1}];\n"
        "  pf::fft_line<{0}, {1}, {2}, {3}, {4}, {5}>(x, y, room, s, re, im, [&] {{{6} }});\n}}",
        t, n, role, kind, inverse, threads, passes);
    return std::make_unique<Kernel>(type_, threads, kernel_source({"fft/fft.h"}, threads, body, "", "fft_line"));
  }

  void prepare_convolution() {
    shape_.padded = fft_padded(shape_.n);
    padded_at_ = parts_.take(2 * (shape_.lines + 1) * shape_.padded * dtype_size(x_.dtype));
    pf::FftShape inner;
    inner.lines = shape_.lines + 1, inner.n = shape_.padded, inner.step = 2, inner.part = 1;
    inner.x_lines = collapsed_view({inner.lines}, {2 * inner.n});
    forward_ = plan(inner, 0, false);
    inner.lines = shape_.lines, inner.scale = 1.0 / static_cast<double>(inner.n);
    back_ = plan(inner, 0, true);
    const std::string kinds = fmt::format("{}, {}, {}", type_name(), attrs_.kind, attrs_.inverse != 0);
    chirp_in_ = element_kernel(
        fmt::format("(const {0}* x, {0}* y, pf::FftShape s) {{ pf::chirp_in<{1}>(x, y, s); }}", type_name(), kinds));
    multiply_ =
        element_kernel(fmt::format("({0}* y, pf::FftShape s) {{ pf::chirp_multiply<{0}>(y, s); }}", type_name()));
    chirp_out_ = element_kernel(
        fmt::format("(const {0}* x, {0}* y, pf::FftShape s) {{ pf::chirp_out<{1}>(x, y, s); }}", type_name(), kinds));
  }
  std::unique_ptr<Kernel> element_kernel(const std::string& body) const {
    return std::make_unique<Kernel>(type_, kGroupThreads, kernel_source({"fft/fft.h"}, kGroupThreads, body));
  }

  Operand x_, y_;
  DeviceType type_;
  FftAttrs attrs_;
  pf::FftShape shape_;
  Parts parts_;
  Planned whole_, forward_, back_;
  size_t padded_at_ = 0;
  std::unique_ptr<Kernel> chirp_in_, multiply_, chirp_out_;
};

// Elements of a line, and the most pairs of them in shared memory.
std::pair<int64_t, int64_t> fft_line_of(const Problem& p) {
  const Operand &x = p.root().ins[0], &y = p.root().outs[0];
  const int64_t kind = p.root().attr<FftAttrs>().kind;
  const int64_t n = kind == 1 ? x.shape.back() : kind == 2 ? y.shape.back() : x.shape[x.shape.size() - 2];
  return {n, fft_most_pairs(x.dtype)};
}

Refusal refuses_fft_length(const Problem& p) {
  const auto [n, most] = fft_line_of(p);
  if (fft_matrix(n, most).second != 0 || fft_matrix(fft_padded(n), most).second != 0) return std::nullopt;
  return fmt::format("a line has {} elements; PyFlame's own kernels take up to {}", n, most * most / 2);
}
std::unique_ptr<Executable> make_own_fft(const Problem& p) {
  return refuses_fft_length(p) ? nullptr : std::make_unique<FftKernels>(p);
}
Refusal refuses_fft_library(const Problem& p) {
  const auto [n, most] = fft_line_of(p);
  if (fft_matrix(n, most).second == 1) return "a line fits into one kernel of PyFlame's own";
  return fft_library_refuses(p);
}
std::unique_ptr<Executable> make_with_library(const Problem& p) { return make_fft_library(p, make_own_fft(p)); }

}  // namespace

std::span<const Impl> fft_impls(DeviceType) {
  static const Impl impls[] = {{"gpu.fft", refuses_fft_library, make_with_library},
                               {"gpu.stockham", refuses_fft_length, make_own_fft}};
  return impls;
}

}  // namespace pyflame::gpu
