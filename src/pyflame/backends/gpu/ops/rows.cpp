// softmax and log_softmax: kernels/rows/softmax.h.
#include <algorithm>
#include <bit>

#include "pyflame/backends/gpu/jit/kernel.h"
#include "pyflame/backends/gpu/ops/impls.h"
#include "pyflame/backends/gpu/shapes/layout.h"
#include "pyflame/base/error.h"
#include "pyflame/kernels/rows/softmax_args.h"

namespace pyflame::gpu {

namespace {

using SoftmaxShape = pf::SoftmaxShape;

// How a row is distributed over threads: by its length and dtype alone.
struct RowPlan {
  int threads, lanes, chunks, group;  // chunks 0: too long for registers
};
RowPlan row_plan(int64_t n, int64_t bytes) {
  // Adjacent elements per thread: the largest access that rows of this length allow.
  int group = static_cast<int>(16 / bytes);
  while (n % group) group /= 2;
  const int64_t groups = std::max<int64_t>(1, (n + group - 1) / group);
  const auto power = [](int64_t x) { return static_cast<int>(std::bit_ceil(static_cast<uint64_t>(x))); };
  if (groups <= 32) return {256, power(groups), 1, group};
  if (n <= 1024) return {256, 32, power((groups + 31) / 32), group};
  const int chunks = static_cast<int>(bytes == 8 ? 16 : 32) / group;  // 32 registers per thread
  if (groups <= 128 * chunks / 2) return {128, 128, chunks / 2, group};
  for (const int threads : {128, 256, 512})
    if (groups <= threads * chunks) return {threads, threads, chunks, group};
  return {512, 512, 0, group};
}

class Softmax final : public Executable {
 public:
  explicit Softmax(const Problem& p) : x_(p.root().ins[0]), y_(p.root().outs[0]) {
    type_ = p.graph.device.type;
    log_ = p.root().op == OpId::log_softmax;
    shape_.rows = shape_.n = 1;
    if (!y_.shape.empty()) {
      const Dims rows = leading(y_.shape, 1);
      shape_.rows = rows.numel(), shape_.n = y_.shape.back();
      shape_.x_rows = collapsed_view(rows, leading(x_.strides, 1));
      shape_.y_rows = collapsed_view(rows, leading(y_.strides, 1));
      shape_.x_stride = x_.strides.back(), shape_.y_stride = y_.strides.back();
    }
    bytes_ = dtype_size(y_.dtype);
    plan_ = row_plan(shape_.n, bytes_);
    access_ = widest();
    if (y_.numel() > 0) kernel(access_);
  }
  void run(const RunContext& ctx) override {
    if (y_.numel() == 0) return;
    const void* const x = ctx.bindings[x_.binding];
    void* const y = ctx.bindings[y_.binding];
    int64_t access = access_;
    for (const void* p : {x, static_cast<const void*>(y)})
      while (reinterpret_cast<uintptr_t>(p) % static_cast<uintptr_t>(access * bytes_)) access /= 2;
    const int64_t together = plan_.threads / plan_.lanes;
    kernel(access).launch(ctx.device, group_each((shape_.rows + together - 1) / together), x, y, shape_);
  }

 private:
  // Elements per access: every row begins and ends at a multiple of it.
  int64_t widest() const {
    if (shape_.x_stride != 1 || shape_.y_stride != 1) return 1;
    int64_t access = plan_.group;
    const auto fits = [&](const View& v) {
      for (int d = 0; d < v.rank; ++d)
        if (v.strides[d] % access) return false;
      return true;
    };
    while (shape_.n % access || !fits(shape_.x_rows) || !fits(shape_.y_rows)) access /= 2;
    return access;
  }
  Kernel& kernel(int64_t access) {
    auto& k = kernels_[static_cast<size_t>(std::countr_zero(static_cast<uint64_t>(access)))];
    if (!k) {
      const std::string type = stored_type(y_.dtype);
      const std::string call =
          plan_.chunks > 0
              ? fmt::format("softmax<{}, {}, {}, {}, {}, {}, {}>", type, log_, plan_.threads, plan_.lanes, plan_.chunks,
                            plan_.group, access)
              : fmt::format("softmax_long<{}, {}, {}, {}, {}>", type, log_, plan_.threads, plan_.group, access);
      const auto threads = static_cast<unsigned>(plan_.threads);
      k = std::make_unique<Kernel>(
          type_, threads,
          kernel_source({"rows/softmax.h"}, threads,
                        fmt::format("(const {0}* x, {0}* y, pf::SoftmaxShape p) {{ pf::{1}(x, y, p); }}", type, call)));
    }
    return *k;
  }
  Operand x_, y_;
  DeviceType type_;
  bool log_ = false;
  SoftmaxShape shape_;
  int64_t bytes_ = 4, access_ = 1;
  RowPlan plan_{};
  std::array<std::unique_ptr<Kernel>, 4> kernels_;  // by the elements per access
};

}  // namespace

std::span<const Impl> softmax_impls(DeviceType) {
  static const Impl impl{"gpu.softmax", accepts_all, make_of<Softmax>};
  return {&impl, 1};
}
std::span<const Impl> log_softmax_impls(DeviceType type) { return softmax_impls(type); }

}  // namespace pyflame::gpu
