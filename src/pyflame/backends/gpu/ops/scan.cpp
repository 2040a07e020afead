// cumsum, cumprod, cummax, cummin, logcumsumexp: kernels/scan/scan.h.
#include <algorithm>

#include "pyflame/backends/gpu/jit/kernel.h"
#include "pyflame/backends/gpu/ops/impls.h"
#include "pyflame/backends/gpu/shapes/layout.h"
#include "pyflame/kernels/scan/scan_args.h"

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
  constexpr int64_t kShortLine = 8, kMediumLine = 4 * kShortLine;  // threads per line
  constexpr int64_t kFewLines = 512, kGroups = 1024, kLeastSegment = 16 * kGroupThreads * kEach;
  const int64_t n = shape[dim], lines = shape.numel() / n;
  int64_t inner = 1;  // adjacent lines
  for (int d = dim + 1; d < shape.size(); ++d) inner *= shape[d];
  if (n <= kEach || (inner >= kMediumLine && lines >= 4096)) return {};
  ScanPlan plan;
  plan.lanes = n <= kShortLine * kEach ? kShortLine : n <= kMediumLine * kEach ? kMediumLine : kGroupThreads;
  if (lines < kFewLines && n >= 2 * kLeastSegment)
    plan.segments = std::min((kGroups + lines - 1) / lines, n / kLeastSegment);
  const int64_t tile = plan.lanes * kEach, part = (n + plan.segments - 1) / plan.segments;
  plan.segment = (part + tile - 1) / tile * tile;
  plan.segments = (n + plan.segment - 1) / plan.segment;
  return plan;
}

// The operation of the kernels. Extremes have a second result, the indices.
std::string operation(OpId op, const std::string& from, const std::string& to) {
  const std::string types = fmt::format("{}, {}, pf::C<{}>", from, to, to);
  switch (op) {
    case OpId::cumprod: return fmt::format("pf::ScanProducts<{}>", types);
    case OpId::logcumsumexp: return fmt::format("pf::ScanLogSums<{}>", types);
    case OpId::cummax: return fmt::format("pf::ScanExtremes<{}, true>", types);
    case OpId::cummin: return fmt::format("pf::ScanExtremes<{}, false>", types);
    default: return fmt::format("pf::ScanSums<{}>", types);
  }
}

class Scan final : public Executable {
 public:
  explicit Scan(const Problem& p)
      : x_(p.root().ins[0]),
        y_(p.root().outs[0]),
        index_(p.root().outs.back()),
        type_(p.graph.device.type),
        empty_(y_.numel() == 0),
        indices_(p.root().outs.size() > 1) {
    if (empty_) return;
    const auto& attrs = p.root().attr<ScanAttrs>();
    const int d = static_cast<int>(attrs.dim);
    plan_ = scan_plan(x_.shape, d);
    shape_.n = x_.shape[d], shape_.lines = x_.numel() / shape_.n;
    shape_.x_step = x_.strides[d], shape_.y_step = y_.strides[d];
    shape_.segments = plan_.segments, shape_.segment = plan_.segment;
    Dims shape = x_.shape, x_strides = x_.strides, y_strides = y_.strides;
    shape.erase(d), x_strides.erase(d), y_strides.erase(d);
    shape_.x_lines = collapsed_view(shape, x_strides), shape_.y_lines = collapsed_view(shape, y_strides);
    const char* const from = stored_type(x_.dtype);
    const char* const to = stored_type(y_.dtype);
    const std::string op = operation(p.root().op, from, to), total = op + "::A";
    const bool reverse = attrs.reverse != 0;
    if (plan_.lanes == 1) {
      scan_ =
          kernel(from, to, "",
                 fmt::format("scan_lines<{}, {}, {}, {}, {}>(x, y, index, p)", op, from, to, reverse, kGroupThreads));
      return;
    }
    scan_ = rows(op, from, to, reverse, false, plan_.lanes);
    if (plan_.segments == 1) return;
    totals_ = rows(op, from, to, reverse, true, plan_.lanes);
    join_ = rows(fmt::format("pf::ScanTotals<{}>", op), total, total, false, false, kGroupThreads);
    constexpr int64_t kTile = kGroupThreads * kEach;
    parts_.lines = shape_.lines, parts_.n = plan_.segments;
    parts_.segment = (plan_.segments + kTile - 1) / kTile * kTile;
    parts_.x_lines = parts_.y_lines = collapsed_view({shape_.lines}, {plan_.segments});
  }
  size_t workspace() const override {
    return join_ ? static_cast<size_t>(shape_.lines * plan_.segments * (indices_ ? 16 : 8)) : 0;
  }
  void run(const RunContext& ctx) override {
    if (empty_) return;
    const void* const x = ctx.bindings[x_.binding];
    void* const y = ctx.bindings[y_.binding];
    void* const index = indices_ ? ctx.bindings[index_.binding] : nullptr;
    if (plan_.lanes == 1) {
      scan_->launch(ctx.device, group_each((shape_.lines + kGroupThreads - 1) / kGroupThreads), x, y, index, shape_);
      return;
    }
    const auto each = [&](Kernel& k) {
      k.launch(ctx.device, groups(shape_.lines * plan_.segments, plan_.lanes), x, y, index, ctx.workspace, shape_);
    };
    if (join_) {
      each(*totals_);
      join_->launch(ctx.device, groups(shape_.lines, kGroupThreads), ctx.workspace, ctx.workspace, nullptr,
                    ctx.workspace, parts_);
    }
    each(*scan_);
  }

 private:
  static std::array<unsigned, 3> groups(int64_t lines, int64_t lanes) {
    const int64_t together = kGroupThreads / lanes;
    return group_each((lines + together - 1) / together);
  }
  std::unique_ptr<Kernel> kernel(const std::string& from, const std::string& to, const std::string& parts,
                                 const std::string& call) const {
    return std::make_unique<Kernel>(
        type_, kGroupThreads,
        kernel_source({"scan/scan.h"}, kGroupThreads,
                      fmt::format("(const {}* x, {}* y, pf::i64* index, {}pf::ScanShape p) {{ pf::{}; }}", from, to,
                                  parts, call)));
  }
  std::unique_ptr<Kernel> rows(const std::string& op, const std::string& from, const std::string& to, bool reverse,
                               bool totals, int64_t lanes) const {
    return kernel(from, to, op + "::A* parts, ",
                  fmt::format("scan_rows<{}, {}, {}, {}, {}, {}, {}, {}>(x, y, index, parts, p)", op, from, to, reverse,
                              totals, kGroupThreads, lanes, kEach));
  }
  Operand x_, y_, index_;
  DeviceType type_;
  bool empty_, indices_;
  ScanPlan plan_;
  pf::ScanShape shape_, parts_;  // of the operands, and of the segments' totals
  std::unique_ptr<Kernel> scan_, totals_, join_;
};

}  // namespace

#define PF_SCAN(op)                                                 \
  std::span<const Impl> op##_impls(DeviceType) {                    \
    static const Impl impl{"gpu.scan", accepts_all, make_of<Scan>}; \
    return {&impl, 1};                                              \
  }
PF_SCAN(cumsum)
PF_SCAN(cumprod)
PF_SCAN(cummax)
PF_SCAN(cummin)
PF_SCAN(logcumsumexp)

}  // namespace pyflame::gpu
