// layer_norm, rms_norm and their gradients: kernels/norm/norm.h. The kernel that keeps rows in registers is selected by
// the row's length when the step is made. At each run the addresses are checked: a view's offset may make them
// unaligned, and then the general kernel runs.
#include <algorithm>
#include <functional>
#include <optional>

#include "pyflame/backends/gpu/jit/kernel.h"
#include "pyflame/backends/gpu/ops/impls.h"
#include "pyflame/kernels/norm/norm_args.h"
#include "pyflame/ops/attrs.h"

namespace pyflame::gpu {

namespace {

constexpr int64_t kMostVecs = 8, kColumns = 16;
constexpr int64_t kRowsEach = 4, kFewSlices = 128, kMostSlices = 512;

using NormRows = pf::NormRows;

NormRows rows_of(const Operand& x, const Operand* g, const Operand* w, const Operand* b) {
  NormRows a{};
  a.rows = x.shape[0], a.n = x.shape[1];
  a.x_row = x.strides[0], a.x_step = x.strides[1];
  if (g) a.g_row = g->strides[0], a.g_step = g->strides[1];
  if (w) a.w_step = w->strides[0];
  if (b) a.b_step = b->strides[0];
  return a;
}

// How a row of n elements is distributed: `part` threads with `vecs` vectors each; vecs is 0 if it does not fit.
struct Layout {
  int part = 0, vecs = 0;
  int64_t rows_per_group() const { return kGroupThreads / part; }
};
Layout layout_of(int64_t n, int64_t itemsize, int most_vecs) {
  const int64_t each = 16 / itemsize;
  if (n % each != 0 || n == 0) return {};
  const int64_t vectors = n / each;
  for (int part = 64; part <= static_cast<int>(kGroupThreads); part *= 2) {
    const int64_t vecs = (vectors + part - 1) / part;
    // More threads rather than more vectors per thread, so that more loads are in flight.
    if (vecs <= 2 || (part == static_cast<int>(kGroupThreads) && vecs <= most_vecs))
      return {part, static_cast<int>(vecs <= 2 ? vecs : (vecs + 1) / 2 * 2)};
  }
  return {};
}

bool aligned(const RunContext& ctx, std::initializer_list<const Operand*> operands) {
  uintptr_t bits = 0;
  for (const Operand* o : operands) bits |= reinterpret_cast<uintptr_t>(ctx.bindings[o->binding]);
  return bits % 16 == 0;
}
bool plain_rows(const Operand& o) { return o.strides[1] == 1 && o.strides[0] * dtype_size(o.dtype) % 16 == 0; }

class Norm final : public Executable {
 public:
  explicit Norm(const Problem& p) {
    const Node& n = p.root();
    const auto a = n.attr<NormAttrs>();
    centered_ = n.op == OpId::layer_norm;
    x_ = n.ins[0], y_ = n.outs[0], rstd_ = n.outs[centered_ ? 2 : 1];
    // A missing weight is passed as x and ignored.
    w_ = n.ins[1], b_ = n.ins[centered_ ? 2 : 1];
    has_weight_ = a.has_weight != 0, has_bias_ = centered_ && a.has_bias != 0;
    mean_ = n.outs[1];
    eps_ = n.ins.back().param;
    rows_ = rows_of(x_, nullptr, has_weight_ ? &w_ : nullptr, has_bias_ ? &b_ : nullptr);
    layout_ = layout_of(rows_.n, dtype_size(x_.dtype), kMostVecs);
    if (!plain_rows(x_) || (has_weight_ && w_.strides[0] != 1) || (has_bias_ && b_.strides[0] != 1)) layout_ = {};
    const auto kernel = [device = p.graph.device.type, dtype = x_.dtype, centered = centered_, weight = has_weight_,
                         bias = has_bias_](const std::string& function) {
      return Kernel(device, kGroupThreads,
                    kernel_source({"norm/norm.h"}, kGroupThreads,
                                  fmt::format("(const {0}* x, const {0}* w, const {0}* b, {0}* y, pf::C<{0}>* mean, "
                                              "pf::C<{0}>* rstd, pf::NormRows a, double eps) {{ "
                                              "pf::{1}, {2}, {3}, {4}>(x, w, b, y, mean, rstd, a, eps); }}",
                                              stored_type(dtype), function, centered, weight, bias)));
    };
    const char* type = stored_type(x_.dtype);
    if (layout_.vecs > 0)
      fast_.emplace(kernel(fmt::format("norm_rows<{}, {}, {}, {}", type, kGroupThreads, layout_.part, layout_.vecs)));
    make_any_ = [=] { return kernel(fmt::format("norm_any<{}, {}", type, kGroupThreads)); };
    if (!fast_) any_.emplace(make_any_());
  }
  void run(const RunContext& ctx) override {
    if (rows_.rows == 0) return;
    const double eps = ctx.params[eps_].as_f64();
    const bool fast = fast_ && aligned(ctx, {&x_, &y_, has_weight_ ? &w_ : &x_, has_bias_ ? &b_ : &x_});
    const unsigned groups = groups_for(rows_.rows, fast ? layout_.rows_per_group() : 1);
    if (!fast && !any_) any_.emplace(make_any_());
    (fast ? *fast_ : *any_)
        .launch(ctx.device, {groups, 1, 1}, ctx.bindings[x_.binding], ctx.bindings[w_.binding],
                ctx.bindings[b_.binding], ctx.bindings[y_.binding], ctx.bindings[mean_.binding],
                ctx.bindings[rstd_.binding], rows_, eps);
  }

 private:
  Operand x_, w_, b_, y_, mean_, rstd_;
  bool centered_ = false, has_weight_ = false, has_bias_ = false;
  ParamId eps_;
  NormRows rows_{};
  Layout layout_;
  std::optional<Kernel> fast_, any_;
  std::function<Kernel()> make_any_;  // used for unaligned rows
};

class NormGrad final : public Executable {
 public:
  explicit NormGrad(const Problem& p) {
    const Node& n = p.root();
    const auto a = n.attr<NormAttrs>();
    centered_ = n.op == OpId::layer_norm_grad;
    g_ = n.ins[0], x_ = n.ins[1], mean_ = n.ins[2], rstd_ = n.ins[centered_ ? 3 : 2], w_ = n.ins[centered_ ? 4 : 3];
    dx_ = n.outs[0], dw_ = n.outs[1], db_ = n.outs.back();
    has_weight_ = a.has_weight != 0, totals_ = has_weight_ || (centered_ && a.has_bias != 0);
    rows_ = rows_of(x_, &g_, has_weight_ ? &w_ : nullptr, nullptr);
    layout_ = layout_of(rows_.n, dtype_size(x_.dtype), kMostVecs / 2);
    if (!plain_rows(x_) || !plain_rows(g_) || (has_weight_ && w_.strides[0] != 1)) layout_ = {};
    // Slices of rows, each summed separately: enough to keep a GPU busy, but few enough to be summed quickly.
    const int64_t together = layout_.vecs > 0 ? layout_.rows_per_group() : 1;
    const auto slices_of = [&](int64_t rows_each) { return (rows_.rows + rows_each - 1) / rows_each; };
    slices_ = std::clamp<int64_t>(slices_of(together * kRowsEach),
                                  std::clamp<int64_t>(slices_of(together), 1, kFewSlices), kMostSlices);
    device_ = p.graph.device.type;
    make_kernels();
  }
  size_t workspace() const override {
    return totals_ ? static_cast<size_t>((centered_ ? 2 : 1) * slices_ * rows_.n * (x_.dtype == DType::float64 ? 8 : 4))
                   : 0;
  }
  void run(const RunContext& ctx) override {
    if (rows_.n == 0) return;
    void* const g = ctx.bindings[g_.binding];
    void* const x = ctx.bindings[x_.binding];
    void* const mean = ctx.bindings[mean_.binding];
    void* const rstd = ctx.bindings[rstd_.binding];
    void* const dx = ctx.bindings[dx_.binding];
    void* const w = ctx.bindings[w_.binding];
    if (fast_ && aligned(ctx, {&x_, &g_, &dx_, has_weight_ ? &w_ : &x_})) {
      fast_->launch(ctx.device, {static_cast<unsigned>(slices_), 1, 1}, g, x, mean, rstd, w, dx, ctx.workspace, rows_);
    } else {
      if (!any_) make_general_kernels();
      if (rows_.rows > 0) any_->launch(ctx.device, {groups_for(rows_.rows, 1), 1, 1}, g, x, mean, rstd, w, dx, rows_);
      if (totals_)
        slice_totals_->launch(ctx.device, {groups_for(rows_.n, kGroupThreads), static_cast<unsigned>(slices_), 1}, g, x,
                              mean, rstd, ctx.workspace, rows_);
    }
    if (totals_)
      sum_->launch(ctx.device, {groups_for(rows_.n, kColumns), centered_ ? 2u : 1u, 1}, ctx.workspace,
                   ctx.bindings[dw_.binding], ctx.bindings[db_.binding], slices_, rows_.n);
  }

 private:
  Kernel kernel(const std::string& body) const {
    return Kernel(device_, kGroupThreads, kernel_source({"norm/norm.h"}, kGroupThreads, body));
  }
  std::string inputs() const {
    return fmt::format(
        "const {0}* g, const {0}* x, const pf::C<{0}>* mean, const pf::C<{0}>* rstd, const {0}* w, {0}* dx",
        stored_type(x_.dtype));
  }
  void make_kernels() {
    const char* type = stored_type(x_.dtype);
    if (layout_.vecs > 0)
      fast_.emplace(kernel(fmt::format(
          "({}, pf::C<{}>* totals, pf::NormRows a) {{ pf::norm_grad_rows<{}, {}, {}, {}, "
          "{}, {}, {}>(g, x, mean, rstd, w, dx, totals, a); }}",
          inputs(), type, type, kGroupThreads, layout_.part, layout_.vecs, centered_, has_weight_, totals_)));
    else make_general_kernels();
    if (totals_)
      sum_.emplace(
          kernel(fmt::format("(const pf::C<{0}>* totals, {0}* dw, {0}* db, pf::i64 slices, pf::i64 n) {{ "
                             "pf::sum_slices<{0}, {1}, {2}>(totals, dw, db, slices, n); }}",
                             type, kGroupThreads, kColumns)));
  }
  void make_general_kernels() {
    const char* type = stored_type(x_.dtype);
    any_.emplace(
        kernel(fmt::format("({}, pf::NormRows a) {{ pf::norm_grad_any<{}, {}, {}, {}>(g, x, mean, rstd, w, dx, a); }}",
                           inputs(), type, kGroupThreads, centered_, has_weight_)));
    if (totals_)
      slice_totals_.emplace(kernel(fmt::format(
          "(const {0}* g, const {0}* x, const pf::C<{0}>* mean, const pf::C<{0}>* rstd, pf::C<{0}>* totals, "
          "pf::NormRows a) {{ pf::norm_slice_totals<{0}, {1}, {2}>(g, x, mean, rstd, totals, a); }}",
          type, kGroupThreads, centered_)));
  }

  DeviceType device_{};
  Operand g_, x_, mean_, rstd_, w_, dx_, dw_, db_;
  bool centered_ = false, has_weight_ = false, totals_ = false;
  NormRows rows_{};
  Layout layout_;
  int64_t slices_ = 1;
  std::optional<Kernel> fast_, any_, slice_totals_, sum_;
};

// The engine makes the outputs for this op, so they are contiguous; the statistics have x's rank.
Refusal accepts_norm(const Problem& p) {
  for (const Operand& o : p.root().outs)
    if (!o.contiguous) return "an output is not contiguous";
  const Node& n = p.root();
  const bool grad = n.op == OpId::layer_norm_grad || n.op == OpId::rms_norm_grad;
  if (n.ins[grad ? 1 : 0].shape.size() != 2) return "not rows";
  if (grad)
    for (size_t i = 2; i < (n.op == OpId::layer_norm_grad ? 4u : 3u); ++i)
      if (!n.ins[i].contiguous) return "the statistics are not contiguous";
  return std::nullopt;
}

}  // namespace

std::span<const Impl> layer_norm_impls(DeviceType) {
  static const Impl impl{"gpu.norm", accepts_norm, make_of<Norm>};
  return {&impl, 1};
}
std::span<const Impl> rms_norm_impls(DeviceType type) { return layer_norm_impls(type); }
std::span<const Impl> layer_norm_grad_impls(DeviceType) {
  static const Impl impl{"gpu.norm_grad", accepts_norm, make_of<NormGrad>};
  return {&impl, 1};
}
std::span<const Impl> rms_norm_grad_impls(DeviceType type) { return layer_norm_grad_impls(type); }

}  // namespace pyflame::gpu
