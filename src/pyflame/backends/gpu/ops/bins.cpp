// bin_sums: kernels/index/bins.h.
#include <algorithm>
#include <optional>

#include "pyflame/backends/gpu/jit/kernel.h"
#include "pyflame/backends/gpu/ops/impls.h"
#include "pyflame/backends/gpu/shapes/layout.h"
#include "pyflame/kernels/index/bins_args.h"

namespace pyflame::gpu {

namespace {

constexpr int kBinThreads = 512;

// What both executables share: operands, the shape, the statistics of each workgroup.
class BinSums : public Executable {
 public:
  explicit BinSums(const Problem& p)
      : values_(p.root().ins[0]),
        weights_(p.root().ins[1]),
        scale_(p.root().ins[2]),
        start_(p.root().ins[3]),
        sums_(p.root().outs[0]),
        stats_(p.root().outs[1]),
        type_(p.graph.device.type),
        divide_(p.root().attr<BinAttrs>().divide != 0) {
    shape_.count = values_.numel(), shape_.bins = sums_.numel();
    shape_.value_step = values_.strides[0], shape_.weight_step = weights_.strides[0];
    join_ = kernel(kGroupThreads, fmt::format("(const pf::BinStats* stats, pf::i64 count, pf::BinStats* to) "
                                              "{{ pf::join_bin_stats<{}>(stats, count, to); }}",
                                              kGroupThreads));
  }
  size_t workspace() const override { return parts_.size(); }

 protected:
  std::unique_ptr<Kernel> kernel(unsigned threads, const std::string& body, unsigned shared = 0) const {
    return std::make_unique<Kernel>(type_, threads, kernel_source({"index/fill.h", "index/bins.h"}, threads, body),
                                    shared);
  }
  pf::BinShape shape(const RunContext& ctx) const {
    pf::BinShape s = shape_;
    s.scale = ctx.param(scale_).as_f64(), s.start = ctx.param(start_).as_i64();
    return s;
  }
  void join(const RunContext& ctx, int64_t groups) const {
    join_->launch(ctx.device, {1, 1, 1}, part_of(ctx.workspace, group_stats_), groups, ctx.bindings[stats_.binding]);
  }
  Operand values_, weights_, scale_, start_, sums_, stats_;
  DeviceType type_;
  bool divide_;
  pf::BinShape shape_;
  Parts parts_;
  size_t group_stats_ = 0;
  std::unique_ptr<Kernel> join_;
};

class BinIntegers final : public BinSums {
 public:
  explicit BinIntegers(const Problem& p) : BinSums(p) {
    in_shared_ = shape_.bins <= kMostShared;
    groups_ = std::min<int64_t>(groups_for(shape_.count, kBinThreads * kEach), kMostWorkgroups);
    group_stats_ = parts_.take(groups_ * static_cast<int64_t>(sizeof(pf::BinStats)));
    clear_ =
        kernel(kGroupThreads,
               fmt::format("(pf::u64* p, pf::i64 count) {{ pf::fill_zero<pf::u64, {}>(p, count); }}", kGroupThreads));
    for (const bool wide : {false, true}) add_[wide] = adding(wide);
  }
  void run(const RunContext& ctx) override {
    void *const values = ctx.bindings[values_.binding], *const weights = ctx.bindings[weights_.binding];
    void* const to = ctx.bindings[sums_.binding];
    clear_->launch(ctx.device, {groups_for(shape_.bins, kGroupThreads * 4), 1, 1}, to, shape_.bins);
    const bool wide = values_.contiguous && weights_.contiguous && reinterpret_cast<uintptr_t>(values) % 16 == 0 &&
                      reinterpret_cast<uintptr_t>(weights) % 16 == 0;
    add_[wide]->launch(ctx.device, {static_cast<unsigned>(groups_), 1, 1}, values, weights, to,
                       part_of(ctx.workspace, group_stats_), shape(ctx));
    join(ctx, groups_);
  }

 private:
  // With the 4 KiB for the statistics, 48 KiB of shared memory.
  static constexpr int64_t kMostShared = 5632, kEach = 16, kMostWorkgroups = 1024;
  std::unique_ptr<Kernel> adding(bool wide) const {
    return kernel(
        kBinThreads,
        fmt::format("(const {0}* values, const {1}* weights, pf::u64* to, pf::BinStats* stats, pf::BinShape p) "
                    "{{ pf::{2}<{0}, {1}, {3}, {4}, {5}>(values, weights, to, stats, p); }}",
                    stored_type(values_.dtype), stored_type(weights_.dtype),
                    in_shared_ ? "add_to_shared_bins" : "add_to_bins", divide_, wide, kBinThreads),
        in_shared_ ? static_cast<unsigned>(shape_.bins) * 8 : 0);
  }
  bool in_shared_ = false;
  int64_t groups_ = 1;
  std::unique_ptr<Kernel> clear_;
  std::array<std::unique_ptr<Kernel>, 2> add_;  // whether it loads 16 bytes at a time
};

class BinFloats final : public BinSums {
 public:
  explicit BinFloats(const Problem& p) : BinSums(p) {
    constexpr int64_t kMostParts = 1024, kLeast = 2048, kMostSums = int64_t{64} << 17;  // 64 MiB
    const int64_t most = std::clamp<int64_t>(kMostSums / shape_.bins, 1, kMostParts);
    groups_ = std::clamp<int64_t>(ceil_div(shape_.count, kLeast), 1, most);
    shape_.part = ceil_div(ceil_div(shape_.count, groups_), kGroupThreads) * kGroupThreads;
    group_stats_ = parts_.take(groups_ * static_cast<int64_t>(sizeof(pf::BinStats)));
    group_sums_ = parts_.take(groups_ * shape_.bins * 8);
    add_ = kernel(
        kGroupThreads,
        fmt::format("(const {0}* values, const {1}* weights, double* parts, pf::BinStats* stats, pf::BinShape p) "
                    "{{ pf::add_in_order<{0}, {1}, {2}, {3}>(values, weights, parts, stats, p); }}",
                    stored_type(values_.dtype), stored_type(weights_.dtype), divide_, kGroupThreads));
    sum_ = kernel(kGroupThreads, fmt::format("(const double* parts, double* to, pf::i64 bins, pf::i64 count) "
                                             "{{ pf::sum_parts_of_bins<{}>(parts, to, bins, count); }}",
                                             kGroupThreads));
  }
  void run(const RunContext& ctx) override {
    void* const sums = part_of(ctx.workspace, group_sums_);
    add_->launch(ctx.device, {static_cast<unsigned>(groups_), 1, 1}, ctx.bindings[values_.binding],
                 ctx.bindings[weights_.binding], sums, part_of(ctx.workspace, group_stats_), shape(ctx));
    sum_->launch(ctx.device, {groups_for(shape_.bins, kGroupThreads), 1, 1}, sums, ctx.bindings[sums_.binding],
                 shape_.bins, groups_);
    join(ctx, groups_);
  }

 private:
  int64_t groups_ = 1;
  size_t group_sums_ = 0;
  std::unique_ptr<Kernel> add_, sum_;
};

std::unique_ptr<Executable> make_bin_sums(const Problem& p) {
  if (is_float(p.root().ins[1].dtype)) return std::make_unique<BinFloats>(p);
  return std::make_unique<BinIntegers>(p);
}

}  // namespace

std::span<const Impl> bin_sums_impls(DeviceType) {
  static const Impl impl{"gpu.bin_sums", accepts_all, make_bin_sums};
  return {&impl, 1};
}

}  // namespace pyflame::gpu
