// nll_loss and its gradient: kernels/loss/nll.h.
#include <memory>

#include "pyflame/backends/gpu/impls.h"
#include "pyflame/backends/gpu/kernel.h"
#include "pyflame/base/error.h"

namespace pyflame::gpu {

namespace {

constexpr unsigned kFewThreads = 32;  // that share a short row; a power of two
constexpr unsigned kThreads = 256;

// Mirror of kernels/loss/nll.h.
struct NllShape {
  int64_t rows = 0, classes = 0, ignore = 0;
  int64_t lp_row = 0, lp_step = 0, target_step = 0, loss_step = 0, grad_step = 0;
  double smoothing = 0;
  void* fault = nullptr;
  int32_t site = 0;
};

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
        lanes_(shape_.classes > 1024 ? kThreads : kFewThreads),
        kernel_(p.graph.device.type, kThreads,
                kernel_source({"loss/nll.h"}, kThreads,
                              fmt::format("(const {0}* lp, const pf::i64* target, {0}* loss, pf::NllShape p) "
                                          "{{ pf::nll_loss<{0}, {1}, {2}>(lp, target, loss, p); }}",
                                          stored_type(node_.outs[0].dtype), kThreads, lanes_))) {
    shape_.loss_step = node_.outs[0].strides[0];
  }
  void run(const RunContext& ctx) override {
    if (shape_.rows == 0) return;
    NllShape s = shape_;
    s.smoothing = ctx.params[node_.ins[2].index].as_f64();
    s.fault = ctx.fault, s.site = ctx.site;
    kernel_.launch(ctx.device, {groups_for(s.rows, kThreads / lanes_), 1, 1}, ctx.bindings[node_.ins[0].index],
                   ctx.bindings[node_.ins[1].index], ctx.bindings[node_.outs[0].index], s);
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
        kernel_(p.graph.device.type, kThreads,
                kernel_source({"loss/nll.h"}, kThreads,
                              fmt::format("(const {0}* grad, const pf::i64* target, {0}* dx, pf::NllShape p) "
                                          "{{ pf::nll_loss_grad<{0}, {1}, {2}>(grad, target, dx, p); }}",
                                          stored_type(node_.outs[0].dtype), kThreads, vec_))) {
    shape_.grad_step = node_.ins[0].strides[0];
  }
  void run(const RunContext& ctx) override {
    const int64_t all = shape_.rows * shape_.classes;
    if (all == 0) return;
    NllShape s = shape_;
    s.smoothing = ctx.params[node_.ins[3].index].as_f64();
    s.fault = ctx.fault, s.site = ctx.site;
    kernel_.launch(ctx.device, {groups_for(all, kThreads * vec_ * 4), 1, 1}, ctx.bindings[node_.ins[0].index],
                   ctx.bindings[node_.ins[2].index], ctx.bindings[node_.outs[0].index], s);
  }

 private:
  Node node_;
  NllShape shape_;
  int vec_;
  Kernel kernel_;
};

// The gradient is a new tensor, written from its beginning to its end.
Refusal accepts_contiguous(const Problem& p) {
  if (!p.root().outs[0].contiguous) return "writes contiguous outputs only";
  return std::nullopt;
}

}  // namespace

std::span<const Impl> loss_impls(OpId op) {
  static const Impl loss{"gpu.nll_loss", accepts_all, make_of<NllLoss>};
  static const Impl grad{"gpu.nll_loss_grad", accepts_contiguous, make_of<NllLossGrad>};
  switch (op) {
    case OpId::nll_loss: return {&loss, 1};
    case OpId::nll_loss_grad: return {&grad, 1};
    default: return {};
  }
}

}  // namespace pyflame::gpu
