// max_pool2d, avg_pool2d and their gradients: kernels/pool/pool.h.
#include "pyflame/backends/gpu/ops/pool.h"

#include "pyflame/backends/gpu/jit/kernel.h"
#include "pyflame/backends/gpu/ops/impls.h"
#include "pyflame/base/error.h"

// The kernels' headers are included in this order, because run-time compilers see them as one text.
#include "pyflame/kernels/device/launch.h"

#include "pyflame/kernels/device/scalar.h"

#include "pyflame/kernels/device/divider.h"

#include "pyflame/kernels/pool/pool.h"

namespace pyflame::gpu {

namespace {

constexpr unsigned kPoolThreads = 256;

std::string pool_source(OpId op, DType d) {
  const char* type = stored_type(d);
  if (op == OpId::max_pool2d_grad)
    return kernel_source(
        {"device/divider.h", "pool/pool.h"}, kPoolThreads,
        fmt::format(
            "(const {0}* g, const pf::i64* at, {0}* dx, pf::Pool p) {{ pf::max_pool_grad<{0}>(g, at, dx, p); }}",
            type));
  if (op == OpId::max_pool2d)
    return kernel_source(
        {"device/divider.h", "pool/pool.h"}, kPoolThreads,
        fmt::format("(const {0}* x, {0}* y, pf::i64* at, pf::Pool p) {{ pf::max_pool<{0}>(x, y, at, p); }}", type));
  return kernel_source({"device/divider.h", "pool/pool.h"}, kPoolThreads,
                       fmt::format("(const {0}* x, {0}* y, pf::Pool p) {{ pf::{1}<{0}>(x, y, p); }}", type,
                                   op == OpId::avg_pool2d ? "avg_pool" : "avg_pool_grad"));
}

// Whether every window has a tap in the plane. (Dilated windows may skip a narrow plane.)
bool meets_plane(int64_t windows, int64_t kernel, int64_t stride, int64_t pad, int64_t dilation, int64_t size) {
  for (int64_t o = 0; o < windows; ++o) {
    bool met = false;
    for (int64_t k = 0; k < kernel && !met; ++k) {
      const int64_t i = o * stride - pad + k * dilation;
      met = i >= 0 && i < size;
    }
    if (!met) return false;
  }
  return true;
}

class Pooling final : public Executable {
 public:
  explicit Pooling(const Problem& p)
      : op_(p.root().op),
        from_(p.root().ins[0]),
        outs_(p.root().outs),
        kernel_(p.graph.device.type, kPoolThreads, pool_source(op_, outs_[0].dtype)) {
    const auto a = p.root().attr<PoolAttrs>();
    const Operand& to = outs_[0];
    const bool grad = op_ == OpId::avg_pool2d_grad || op_ == OpId::max_pool2d_grad;
    const Dims &windows = grad ? from_.shape : to.shape, &plane = grad ? to.shape : from_.shape;
    const auto number = [](int64_t n) {
      PF_CHECK(n < (int64_t{1} << 31), NotImplemented, "pool: a size is too large; got {}; expected less than 2^31", n);
      return static_cast<int>(n);
    };
    const auto place = [](const Operand& o) {
      return pf::PoolPlace{o.strides[0], o.strides[1], o.strides[2], o.strides[3]};
    };
    shape_.from = place(from_), shape_.to = place(to);
    if (outs_.size() > 1) shape_.at = place(outs_[1]);
    if (op_ == OpId::max_pool2d_grad) {
      taken_ = p.root().ins[1];
      shape_.at = place(taken_);
    }
    shape_.images = plane[0], shape_.channels = plane[1];
    shape_.height = number(plane[2]), shape_.width = number(plane[3]);
    shape_.windows_h = number(windows[2]), shape_.windows_w = number(windows[3]);
    shape_.kernel_h = number(a.kernel_h), shape_.kernel_w = number(a.kernel_w);
    shape_.stride_h = number(a.stride_h), shape_.stride_w = number(a.stride_w);
    shape_.pad_h = number(a.pad_h), shape_.pad_w = number(a.pad_w);
    shape_.dilation_h = number(a.dilation_h), shape_.dilation_w = number(a.dilation_w);
    shape_.count_padding = a.count_include_pad != 0;
    if (to.numel() > 0 && to.numel() < int64_t{1} << 31) {
      const auto by = [&to](int dim) { return pf::divider_of(static_cast<uint32_t>(to.shape[dim])); };
      shape_.by_channels = by(1), shape_.by_h = by(2), shape_.by_w = by(3), shape_.narrow = 1;
    }
    PF_CHECK(op_ != OpId::max_pool2d || to.numel() == 0 ||
                 (meets_plane(windows[2], a.kernel_h, a.stride_h, a.pad_h, a.dilation_h, plane[2]) &&
                  meets_plane(windows[3], a.kernel_w, a.stride_w, a.pad_w, a.dilation_w, plane[3])),
             Runtime, "max_pool2d: a window is entirely in the padding; got padding ({}, {}) and kernel ({}, {})",
             a.pad_h, a.pad_w, a.kernel_h, a.kernel_w);
  }
  void run(const RunContext& ctx) override {
    const int64_t n = outs_[0].numel();
    if (n == 0) return;
    const std::array<unsigned, 3> grid{groups_for(n, kPoolThreads), 1, 1};
    void *from = ctx.bindings[from_.binding], *to = ctx.bindings[outs_[0].binding];
    if (op_ == OpId::max_pool2d_grad) {
      kernel_.launch(ctx.device, grid, from, ctx.bindings[taken_.binding], to, shape_);
    } else if (op_ == OpId::max_pool2d) {
      void* at = outs_.size() > 1 ? ctx.bindings[outs_[1].binding] : nullptr;
      kernel_.launch(ctx.device, grid, from, to, at, shape_);
    } else {
      kernel_.launch(ctx.device, grid, from, to, shape_);
    }
  }

 private:
  OpId op_;
  Operand from_, taken_;  // taken: the index of max_pool2d, for its gradient
  std::vector<Operand> outs_;
  Kernel kernel_;
  pf::Pool shape_{};
};

}  // namespace

std::vector<std::pair<std::string, std::string>> pool_sources(DType dtype) {
  return {{"max_pool", pool_source(OpId::max_pool2d, dtype)},
          {"max_pool_grad", pool_source(OpId::max_pool2d_grad, dtype)},
          {"avg_pool", pool_source(OpId::avg_pool2d, dtype)},
          {"avg_pool_grad", pool_source(OpId::avg_pool2d_grad, dtype)}};
}

std::span<const Impl> max_pool2d_impls(DeviceType) {
  static const Impl impl{"gpu.pool", accepts_all, make_of<Pooling>};
  return {&impl, 1};
}
std::span<const Impl> max_pool2d_grad_impls(DeviceType type) { return max_pool2d_impls(type); }
std::span<const Impl> avg_pool2d_impls(DeviceType type) { return max_pool2d_impls(type); }
std::span<const Impl> avg_pool2d_grad_impls(DeviceType type) { return max_pool2d_impls(type); }

}  // namespace pyflame::gpu
