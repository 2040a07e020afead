// cumsum: kernels/scan/scan.h.
#include <algorithm>

#include "pyflame/backends/gpu/jit/kernel.h"
#include "pyflame/backends/gpu/ops/impls.h"
#include "pyflame/backends/gpu/shapes/layout.h"

namespace pyflame::gpu {

namespace {

constexpr int64_t kEach = 4;

// How lines are distributed over threads. This depends on the shape and the dim alone, because it determines the order
// of additions.
struct ScanPlan {
  int64_t lanes = 1;  // threads per line; 1: scan_lines
  int64_t segments = 1, segment = 0;
};
ScanPlan scan_plan(const Dims& shape, int dim) {
  constexpr int64_t kFew = 8, kSome = 4 * kFew;  // threads per line
  constexpr int64_t kFewLines = 512, kGroups = 1024, kLeastSegment = 16 * kGroupThreads * kEach;
  const int64_t n = shape[dim], lines = shape.numel() / n;
  int64_t inner = 1;  // adjacent lines
  for (int d = dim + 1; d < shape.size(); ++d) inner *= shape[d];
  if (n <= kEach || (inner >= kSome && lines >= 4096)) return {};
  ScanPlan plan;
  plan.lanes = n <= kFew * kEach ? kFew : n <= kSome * kEach ? kSome : kGroupThreads;
  if (lines < kFewLines && n >= 2 * kLeastSegment)
    plan.segments = std::min((kGroups + lines - 1) / lines, n / kLeastSegment);
  const int64_t tile = plan.lanes * kEach, part = (n + plan.segments - 1) / plan.segments;
  plan.segment = (part + tile - 1) / tile * tile;
  plan.segments = (n + plan.segment - 1) / plan.segment;
  return plan;
}

class CumSum final : public Executable {
 public:
  explicit CumSum(const Problem& p)
      : x_(p.root().ins[0]), y_(p.root().outs[0]), type_(p.graph.device.type), empty_(y_.numel() == 0) {
    if (empty_) return;
    const auto& attrs = p.root().attr<ScanAttrs>();
    const int d = static_cast<int>(attrs.dim);
    plan_ = scan_plan(x_.shape, d);
    n_ = x_.shape[d], lines_ = x_.numel() / n_;
    x_step_ = x_.strides[d], y_step_ = y_.strides[d];
    Dims shape = x_.shape, x_strides = x_.strides, y_strides = y_.strides;
    shape.erase(d), x_strides.erase(d), y_strides.erase(d);
    x_lines_ = collapsed_view(shape, x_strides), y_lines_ = collapsed_view(shape, y_strides);
    const char* const from = stored_type(x_.dtype);
    const char* const to = stored_type(y_.dtype);
    const std::string sum = fmt::format("pf::C<{}>", to);
    const bool reverse = attrs.reverse != 0;
    if (plan_.lanes == 1) {
      scan_ = kernel(from, to,
                     "pf::View x_lines, pf::View y_lines, pf::i64 lines, pf::i64 n, pf::i64 x_step, pf::i64 y_step",
                     fmt::format("scan_lines<{}, {}, {}, {}, {}>(x, y, x_lines, y_lines, lines, n, x_step, y_step)",
                                 from, to, sum, reverse, kGroupThreads));
      return;
    }
    scan_ = rows(from, to, sum, reverse, false, plan_.lanes);
    if (plan_.segments == 1) return;
    totals_ = rows(from, to, sum, reverse, true, plan_.lanes);
    join_ = rows(sum, sum, sum, false, false, kGroupThreads);
    parts_lines_ = collapsed_view({lines_}, {plan_.segments});
  }
  size_t workspace() const override { return join_ ? static_cast<size_t>(lines_ * plan_.segments * 8) : 0; }
  void run(const RunContext& ctx) override {
    if (empty_) return;
    const void* const x = ctx.bindings[x_.binding];
    void* const y = ctx.bindings[y_.binding];
    if (plan_.lanes == 1) {
      scan_->launch(ctx.device, group_each((lines_ + kGroupThreads - 1) / kGroupThreads), x, y, x_lines_, y_lines_,
                    lines_, n_, x_step_, y_step_);
      return;
    }
    const auto each = [&](Kernel& k) {
      k.launch(ctx.device, groups(lines_ * plan_.segments, plan_.lanes), x, y, ctx.workspace, x_lines_, y_lines_,
               lines_, n_, x_step_, y_step_, plan_.segments, plan_.segment);
    };
    if (join_) {
      constexpr int64_t kTile = kGroupThreads * kEach, kOne = 1;
      each(*totals_);
      join_->launch(ctx.device, groups(lines_, kGroupThreads), ctx.workspace, ctx.workspace, ctx.workspace,
                    parts_lines_, parts_lines_, lines_, plan_.segments, kOne, kOne, kOne,
                    (plan_.segments + kTile - 1) / kTile * kTile);
    }
    each(*scan_);
  }

 private:
  static std::array<unsigned, 3> groups(int64_t lines, int64_t lanes) {
    const int64_t together = kGroupThreads / lanes;
    return group_each((lines + together - 1) / together);
  }
  std::unique_ptr<Kernel> kernel(const std::string& from, const std::string& to, const std::string& parameters,
                                 const std::string& call) const {
    return std::make_unique<Kernel>(
        type_, kGroupThreads,
        kernel_source({"scan/scan.h"}, kGroupThreads,
                      fmt::format("(const {}* x, {}* y, {}) {{ pf::{}; }}", from, to, parameters, call)));
  }
  std::unique_ptr<Kernel> rows(const std::string& from, const std::string& to, const std::string& sum, bool reverse,
                               bool totals, int64_t lanes) const {
    return kernel(from, to,
                  sum +
                      "* parts, pf::View x_lines, pf::View y_lines, pf::i64 lines, pf::i64 n, pf::i64 x_step, "
                      "pf::i64 y_step, pf::i64 segments, pf::i64 segment",
                  fmt::format("scan_rows<{}, {}, {}, {}, {}, {}, {}, {}>(x, y, parts, x_lines, y_lines, lines, n, "
                              "x_step, y_step, segments, segment)",
                              from, to, sum, reverse, totals, kGroupThreads, lanes, kEach));
  }
  Operand x_, y_;
  DeviceType type_;
  bool empty_;
  ScanPlan plan_;
  int64_t n_ = 1, lines_ = 1, x_step_ = 1, y_step_ = 1;
  View x_lines_, y_lines_, parts_lines_;
  std::unique_ptr<Kernel> scan_, totals_, join_;
};

}  // namespace

std::span<const Impl> cumsum_impls(DeviceType) {
  static const Impl impl{"gpu.scan", accepts_all, make_of<CumSum>};
  return {&impl, 1};
}

}  // namespace pyflame::gpu
