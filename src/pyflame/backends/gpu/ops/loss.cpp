// nll_loss, cross_entropy and their gradients: kernels/loss.
#include <algorithm>
#include <bit>
#include <memory>

#include "pyflame/backends/gpu/jit/kernel.h"
#include "pyflame/backends/gpu/ops/impls.h"
#include "pyflame/backends/gpu/shapes/layout.h"
#include "pyflame/base/error.h"
#include "pyflame/kernels/loss/cross_entropy_args.h"
#include "pyflame/kernels/loss/nll_args.h"

namespace pyflame::gpu {

namespace {

// The same struct as in kernels/loss/nll.h.
using NllShape = pf::NllShape;

NllShape shape_of(const Operand& log_probs, const Operand& target, const Node& node) {
  NllShape s;
  s.rows = log_probs.shape[0], s.classes = log_probs.shape[1], s.ignore = node.attr<NllAttrs>().ignore_index;
  s.lp_row = log_probs.strides[0], s.lp_step = log_probs.strides[1], s.target_step = target.strides[0];
  return s;
}

class NllLoss final : public Executable {
 public:
  explicit NllLoss(const Problem& p)
      : node_(p.root()),
        shape_(shape_of(node_.ins[0], node_.ins[1], node_)),
        lanes_(shape_.classes > 1024 ? kGroupThreads : kShortRowThreads),
        kernel_(p.graph.device.type, kGroupThreads,
                kernel_source({"loss/nll.h"}, kGroupThreads,
                              fmt::format("(const {0}* lp, const pf::i64* target, {0}* loss, pf::NllShape p) "
                                          "{{ pf::nll_loss<{0}, {1}, {2}>(lp, target, loss, p); }}",
                                          stored_type(node_.outs[0].dtype), kGroupThreads, lanes_))) {
    shape_.loss_step = node_.outs[0].strides[0];
  }
  void run(const RunContext& ctx) override {
    if (shape_.rows == 0) return;
    NllShape s = shape_;
    s.smoothing = ctx.params[node_.ins[2].param].as_f64();
    s.fault = fault_of(ctx), s.site = ctx.site;
    kernel_.launch(ctx.device, {groups_for(s.rows, kGroupThreads / lanes_), 1, 1}, ctx.bindings[node_.ins[0].binding],
                   ctx.bindings[node_.ins[1].binding], ctx.bindings[node_.outs[0].binding], s);
  }

 private:
  Node node_;
  NllShape shape_;
  unsigned lanes_;
  Kernel kernel_;
};

class NllLossGrad final : public Executable {
 public:
  explicit NllLossGrad(const Problem& p)
      : node_(p.root()),
        shape_(shape_of(node_.ins[1], node_.ins[2], node_)),
        vec_(static_cast<int>(16 / dtype_size(node_.outs[0].dtype))),
        kernel_(p.graph.device.type, kGroupThreads,
                kernel_source({"loss/nll.h"}, kGroupThreads,
                              fmt::format("(const {0}* grad, const pf::i64* target, {0}* dx, pf::NllShape p) "
                                          "{{ pf::nll_loss_grad<{0}, {1}, {2}>(grad, target, dx, p); }}",
                                          stored_type(node_.outs[0].dtype), kGroupThreads, vec_))) {
    shape_.grad_step = node_.ins[0].strides[0];
  }
  void run(const RunContext& ctx) override {
    const int64_t all = shape_.rows * shape_.classes;
    if (all == 0) return;
    NllShape s = shape_;
    s.smoothing = ctx.params[node_.ins[3].param].as_f64();
    s.fault = fault_of(ctx), s.site = ctx.site;
    kernel_.launch(ctx.device, {groups_for(all, kGroupThreads * vec_ * 4), 1, 1}, ctx.bindings[node_.ins[0].binding],
                   ctx.bindings[node_.ins[2].binding], ctx.bindings[node_.outs[0].binding], s);
  }

 private:
  Node node_;
  NllShape shape_;
  int vec_;
  Kernel kernel_;
};

// The same struct as in kernels/loss/cross_entropy.h.
using CrossEntropyShape = pf::CrossEntropyShape;

// cross_entropy, and with the loss's gradient as its first input cross_entropy_grad.
class CrossEntropy final : public Executable {
 public:
  explicit CrossEntropy(const Problem& p)
      : node_(p.root()), grad_(node_.op == OpId::cross_entropy_grad), type_(p.graph.device.type) {
    const Operand &x = this->x(), &target = node_.ins[grad_ ? 2 : 1];
    shape_.rows = target.numel(), shape_.classes = x.shape.back(), shape_.ignore = node_.attr<NllAttrs>().ignore_index;
    shape_.x_rows = collapsed_view(target.shape, leading(x.strides, 1));
    shape_.target_step = row_step(target);
    if (grad_) shape_.grad_step = row_step(node_.ins[0]);
    shape_.x_step = x.strides.back();
    // Two float64 exponentials at a time would need too many registers.
    if (x.strides.back() == 1 && x.dtype != DType::float64) widest_ = static_cast<int>(16 / dtype_size(x.dtype));
    // Vectors of the logits and of the gradient must begin at the same elements.
    if (grad_ && shape_.rows > 1 && (shape_.x_rows.rank > 1 || (shape_.x_rows.strides[0] - shape_.classes) % widest_))
      widest_ = 1;
    if (shape_.rows > 0) kernel(widest_);
  }
  void run(const RunContext& ctx) override {
    if (shape_.rows == 0) return;
    CrossEntropyShape s = shape_;
    s.smoothing = ctx.params[node_.ins.back().param].as_f64();
    s.fault = fault_of(ctx), s.site = ctx.site;
    const auto in = [&](size_t i) { return ctx.ptr<const void>(node_.ins[i]); };
    const auto out = [&](size_t i) { return ctx.ptr<void>(node_.outs[i]); };
    const auto past = [](const void* p) { return reinterpret_cast<uintptr_t>(p) % 16; };
    const int vec = !grad_ || past(in(1)) == past(out(0)) ? widest_ : 1;
    const std::array<unsigned, 3> grid{groups_for(s.rows, kGroupThreads / lanes(vec)), 1, 1};
    if (grad_) kernel(vec).launch(ctx.device, grid, in(0), in(1), in(2), in(3), in(4), out(0), s);
    else kernel(vec).launch(ctx.device, grid, in(0), in(1), out(0), out(1), out(2), s);
  }

 private:
  // Several dims are contiguous (ops/loss.cpp).
  static int64_t row_step(const Operand& o) { return o.shape.size() == 1 ? o.strides[0] : 1; }
  const Operand& x() const { return node_.ins[grad_ ? 1 : 0]; }
  // Threads that share a row.
  unsigned lanes(int vec) const {
    const int64_t parts = std::max<int64_t>(1, (shape_.classes + vec - 1) / vec);
    if (parts <= kShortRowThreads) return std::bit_ceil(static_cast<unsigned>(parts));
    return shape_.classes > 1024 ? kGroupThreads : kShortRowThreads;
  }
  Kernel& kernel(int vec) {
    auto& k = kernels_[vec == 1 ? 0 : 1];
    if (!k) {
      const char* const parameters =
          grad_ ? "const pf::C<{0}>* grad, const {0}* x, const pf::i64* target, const pf::C<{0}>* tops, "
                  "const pf::C<{0}>* log_sums, {0}* dx"
                : "const {0}* x, const pf::i64* target, pf::C<{0}>* loss, pf::C<{0}>* tops, pf::C<{0}>* log_sums";
      const char* const call = grad_ ? "cross_entropy_grad<{0}, {1}, {2}, {3}>(grad, x, target, tops, log_sums, dx, p)"
                                     : "cross_entropy<{0}, {1}, {2}, {3}>(x, target, loss, tops, log_sums, p)";
      const std::string type = stored_type(x().dtype);
      k = std::make_unique<Kernel>(
          type_, kGroupThreads,
          kernel_source(
              {"rows/softmax.h", "loss/nll.h", "loss/cross_entropy.h"}, kGroupThreads,
              fmt::format("({}, pf::CrossEntropyShape p) {{ pf::{}; }}", fmt::format(fmt::runtime(parameters), type),
                          fmt::format(fmt::runtime(call), type, kGroupThreads, lanes(vec), vec))));
    }
    return *k;
  }
  Node node_;
  bool grad_;
  DeviceType type_;
  CrossEntropyShape shape_;
  int widest_ = 1;
  std::array<std::unique_ptr<Kernel>, 2> kernels_;  // element by element, and 16 bytes at a time
};

// The gradient is a new tensor without gaps.
Refusal accepts_contiguous(const Problem& p) {
  if (!p.root().outs[0].contiguous) return "writes contiguous outputs only";
  return std::nullopt;
}

}  // namespace

std::span<const Impl> nll_loss_impls(DeviceType) {
  static const Impl impl{"gpu.nll_loss", accepts_all, make_of<NllLoss>};
  return {&impl, 1};
}
std::span<const Impl> nll_loss_grad_impls(DeviceType) {
  static const Impl impl{"gpu.nll_loss_grad", accepts_contiguous, make_of<NllLossGrad>};
  return {&impl, 1};
}
std::span<const Impl> cross_entropy_impls(DeviceType) {
  static const Impl impl{"gpu.cross_entropy", accepts_all, make_of<CrossEntropy>};
  return {&impl, 1};
}
std::span<const Impl> cross_entropy_grad_impls(DeviceType) {
  static const Impl impl{"gpu.cross_entropy_grad", accepts_contiguous, make_of<CrossEntropy>};
  return {&impl, 1};
}

}  // namespace pyflame::gpu
