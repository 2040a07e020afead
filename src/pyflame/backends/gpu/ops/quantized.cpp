// quantized_linear and decode_blocks: kernels/quantized/blocks.h. Weights are rows of GGUF's blocks, or rows of planes of them, which are
// aligned (tensor/weight_planes.h). For many rows of x the op itself decodes the weights (GpuBackend::most_rows_of_blocks).
#include <algorithm>
#include <optional>

#include "pyflame/backends/gpu/jit/kernel.h"
#include "pyflame/backends/gpu/ops/impls.h"
#include "pyflame/kernels/quantized/blocks_args.h"
#include "pyflame/tensor/weight_planes.h"

namespace pyflame::gpu {

namespace {

constexpr int64_t kUnit = 32;         // weights that are read at once
constexpr int64_t kMostTogether = 8;  // rows of x for which the weights are read once

// Where the parts of blocks are, in rows of blocks or of planes.
pf::BlockParts parts_of(const PlaneShape& s, bool planes) {
  pf::BlockParts parts;
  int64_t begin = 0;
  for (size_t i = 0; i < s.form->parts.size(); ++i) {
    const BlockPart& part = s.form->parts[i];
    parts.at[i] = planes ? begin : part.at;
    parts.step[i] = planes ? part.bytes : s.type->bytes;
    begin += s.blocks() * part.bytes;
  }
  return parts;
}

bool aligned(const void* p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; }

class Blocks : public Executable {
 protected:
  Blocks(const Problem& p, const Operand& weight, int64_t outputs, int64_t columns)
      : weight_(weight), type_(p.graph.device.type), attrs_(p.root().attr<BlockAttrs>()) {
    const gguf::Type& type = *gguf::find_type(static_cast<uint32_t>(attrs_.type));
    const PlaneShape s{&type, plane_form(type), outputs, columns};
    shape_.outputs = outputs, shape_.columns = columns;
    shape_.row_bytes = attrs_.rows != 0 ? s.row_bytes() : s.blocks() * type.bytes;
    shape_.parts = parts_of(s, attrs_.rows != 0);
  }
  // Kernels for weights whose parts are aligned, and for others, which are made at the first need.
  Kernel& kernel(bool aligned_parts) {
    std::optional<Kernel>& k = kernels_[aligned_parts ? 1 : 0];
    if (!k) k.emplace(type_, kGroupThreads, text(aligned_parts));
    return *k;
  }
  bool aligned_parts(const RunContext& ctx) const { return attrs_.rows != 0 && aligned(ctx.bindings[weight_.binding]); }
  virtual std::string text(bool aligned_parts) const = 0;
  std::string source(const std::string& body, Start start = Start::awaits) const {
    return kernel_source({"device/dot4.h", "device/permute.h", "quantized/blocks.h"}, kGroupThreads, body, "", "",
                         start);
  }

  Operand weight_;
  DeviceType type_;
  BlockAttrs attrs_;
  pf::Quantized shape_;

 private:
  std::optional<Kernel> kernels_[2];
};

// Rounds x and multiplies its rows with weights: the same for all rows, or with `ends` those of a row's group.
class Products final : public Blocks {
 public:
  Products(const Problem& p, const Operand* ends)
      : Blocks(p, p.root().ins.back(), p.root().outs[0].shape[1], p.root().ins[0].shape[1]),
        x_(p.root().ins[0]),
        y_(p.root().outs[0]) {
    if (ends) ends_ = ends->binding, groups_ = ends->numel();
    shape_.rows = x_.shape[0], shape_.x_row = x_.strides[0], shape_.x_column = x_.strides[1];
    together_ = ends ? 1 : std::min<int64_t>(shape_.rows, kMostTogether);
    // Lines that share what they read of x. Few lines would leave most of the device idle.
    if (shape_.outputs >= 1024) lines_ = 2;
    if (shape_.outputs >= 8192 && together_ >= 4) lines_ = 4;
    ahead_ = lines_ * together_ >= 8 ? 1 : 2;
    rounded_at_ = parts_.take(shape_.rows * shape_.columns);
    blocks_at_ = parts_.take(shape_.rows * shape_.columns / kUnit * kRoundedBytes);
    round_.emplace(type_, kGroupThreads,
                   source(fmt::format("(const {0}* x, pf::u32* q, pf::RoundedBlock* blocks, pf::Quantized p) {{ "
                                      "pf::round_rows<{0}, {1}>(x, q, blocks, p); }}",
                                      stored_type(x_.dtype), kGroupThreads)));
    kernel(attrs_.rows != 0);
  }
  size_t workspace() const override { return parts_.size(); }
  void run(const RunContext& ctx) override {
    pf::u8* const q = bytes_at(ctx.workspace, rounded_at_);
    pf::u8* const blocks = bytes_at(ctx.workspace, blocks_at_);
    round_->launch(ctx.device, {groups_for(shape_.rows * shape_.columns / 4, kGroupThreads), 1, 1},
                   ctx.bindings[x_.binding], q, blocks, shape_);
    const int64_t each = kGroupThreads / kShortRowThreads * lines_;
    const std::array<unsigned, 3> grid{static_cast<unsigned>(ceil_div(shape_.outputs, each)),
                                       static_cast<unsigned>(ceil_div(shape_.rows, together_)), 1};
    const void* weight = ctx.bindings[weight_.binding];
    void* y = ctx.bindings[y_.binding];
    if (groups_ == 0) return kernel(aligned_parts(ctx)).launch(ctx.device, grid, weight, q, blocks, y, shape_);
    kernel(aligned_parts(ctx))
        .launch(ctx.device, grid, weight, q, blocks, y, shape_, ctx.bindings[ends_], static_cast<int>(groups_),
                fault_of(ctx), ctx.site);
  }

 private:
  static constexpr int64_t kRoundedBytes = 16;  // of a RoundedBlock

  std::string text(bool aligned_parts) const override {
    const std::string product =
        fmt::format("pf::quantized_product<{}, {}, {}, {}, {}, {}, {}, {}>", stored_type(y_.dtype), attrs_.type,
                    aligned_parts, together_, lines_, ahead_, kShortRowThreads, kGroupThreads);
    if (groups_ == 0)
      return source(fmt::format("(const pf::u8* weight, const pf::u8* q, const pf::RoundedBlock* blocks, {0}* y, "
                                "pf::Quantized p) {{ {1}(weight, q, blocks, y, p); }}",
                                stored_type(y_.dtype), product),
                    Start::itself);
    return kernel_source(
        {"device/dot4.h", "device/groups.h", "device/permute.h", "quantized/blocks.h"}, kGroupThreads,
        fmt::format("(const pf::u8* weight, const pf::u8* q, const pf::RoundedBlock* blocks, {0}* y, pf::Quantized p, "
                    "const int* ends, int groups, pf::Fault* fault, int site) {{ "
                    "if (pf::group().x == 0 && pf::group().y == 0) pf::check_group_ends(ends, groups, p.rows, fault, "
                    "site); "
                    "{1}(weight + pf::group_of_row(ends, groups, pf::group().y) * p.outputs * p.row_bytes, q, blocks, "
                    "y, p); }}",
                    stored_type(y_.dtype), product));
  }

  Operand x_, y_;
  BindingId ends_{};
  int64_t groups_ = 0;  // 0: all rows have the same weights
  int64_t together_ = 1, lines_ = 1, ahead_ = 1;
  Parts parts_;
  size_t rounded_at_ = 0, blocks_at_ = 0;
  std::optional<Kernel> round_;
};

std::unique_ptr<Executable> make_linear(const Problem& p) { return std::make_unique<Products>(p, nullptr); }
std::unique_ptr<Executable> make_groups(const Problem& p) { return std::make_unique<Products>(p, &p.root().ins[1]); }

class DecodeBlocks final : public Blocks {
 public:
  explicit DecodeBlocks(const Problem& p)
      : Blocks(p, p.root().ins[0], p.root().outs[0].shape[0], p.root().outs[0].shape[1]), y_(p.root().outs[0]) {
    kernel(attrs_.rows != 0);
  }
  void run(const RunContext& ctx) override {
    kernel(aligned_parts(ctx))
        .launch(ctx.device, {groups_for(y_.numel() / kUnit, kGroupThreads), 1, 1}, ctx.bindings[weight_.binding],
                ctx.bindings[y_.binding], shape_);
  }

 private:
  std::string text(bool aligned_parts) const override {
    return source(
        fmt::format("(const pf::u8* weight, {0}* y, pf::Quantized p) {{ pf::decode_units<{0}, {1}, {2}, {3}>("
                    "weight, y, p); }}",
                    stored_type(y_.dtype), attrs_.type, aligned_parts, kGroupThreads));
  }
  Operand y_;
};

}  // namespace

std::span<const Impl> quantized_linear_impls(DeviceType) {
  static const Impl impl{"gpu.integer_products", accepts_all, make_linear};
  return {&impl, 1};
}
std::span<const Impl> quantized_grouped_mm_impls(DeviceType) {
  static const Impl impl{"gpu.integer_products", accepts_all, make_groups};
  return {&impl, 1};
}
std::span<const Impl> decode_blocks_impls(DeviceType) {
  static const Impl impl{"gpu.decode_blocks", accepts_all, make_of<DecodeBlocks>};
  return {&impl, 1};
}

}  // namespace pyflame::gpu
