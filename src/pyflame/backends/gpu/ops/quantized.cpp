// quantized_linear and decode_blocks: kernels/quantized/blocks.h. Weights are rows of GGUF's blocks, or rows of planes of them, which are
// aligned (tensor/weight_planes.h); or rows of 8-bit floats: kernels/quantized/floats.h. For many rows of x the op itself decodes the weights
// (GpuBackend::most_rows_of_blocks).
#include <algorithm>
#include <optional>

#include "pyflame/backends/gpu/driver/arch.h"
#include "pyflame/backends/gpu/driver/device.h"
#include "pyflame/backends/gpu/jit/kernel.h"
#include "pyflame/backends/gpu/ops/gemm.h"
#include "pyflame/backends/gpu/ops/impls.h"
#include "pyflame/kernels/quantized/blocks_args.h"
#include "pyflame/kernels/quantized/floats_args.h"
#include "pyflame/tensor/float8_rows.h"
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

pf::FloatRows float_rows(const Float8Rows& s, int64_t outputs) {
  pf::FloatRows p;
  p.outputs = outputs, p.columns = s.columns, p.row_bytes = s.row_bytes(), p.group = s.group;
  return p;
}

// Whether the device's matrix instructions can multiply codes of this type as numbers of this one; a kernel's text is also
// made where there is no device. Codes of float8_e5m2 have values that are subnormal in float16.
bool multiplies_codes(Device d, DType codes, DType numbers) {
  if (count_devices(d.type) == 0) return true;
  const std::string& arch = arch_of(d.type, d.index).name;
  const bool subnormal = codes == DType::float8_e5m2 && numbers == DType::float16;
  return has_matrix_units(arch) && !(subnormal && matrix_units_flush(arch));
}
static_assert(pf::kCodes == kFloat8Unit);

// Multiplies rows of x with rows of 8-bit floats: the same for all rows, or with `ends` those of a row's group.
class FloatProducts final : public Executable {
 public:
  FloatProducts(const Problem& p, const Operand* ends)
      : form_(p.root().attr<BlockAttrs>().type, p.root().ins[0].shape[1]),
        type_(p.graph.device.type),
        x_(p.root().ins[0]),
        weight_(p.root().ins.back()),
        y_(p.root().outs[0]),
        output_(p) {
    if (ends) ends_ = ends->binding, groups_ = ends->numel();
    shape_ = float_rows(form_, y_.shape[1]);
    shape_.rows = x_.shape[0], shape_.x_row = x_.strides[0], shape_.x_column = x_.strides[1];
    together_ = ends ? 1 : std::min<int64_t>(shape_.rows, kMostTogether);
    if (shape_.outputs >= 1024) lines_ = 2;  // of fewer lines, two for each team would leave most of the device idle
    ahead_ = together_ == 1 ? 2 : std::max<int64_t>(1, 8 / (lines_ * together_));
    units_ = !ends && shape_.rows >= kFewestUnitRows && dtype_size(x_.dtype) == 2 &&
             multiplies_codes(p.graph.device, form_.dtype, x_.dtype) &&
             (shape_.group >= shape_.columns || shape_.group % pf::kFloatStep == 0);
    adjacent_ = (shape_.columns == 1 || shape_.x_column == 1) &&
                (shape_.rows == 1 || shape_.x_row * static_cast<int64_t>(dtype_size(x_.dtype)) % kAlignment == 0);
    kernel(adjacent_);
  }
  void run(const RunContext& ctx) override {
    const void* weight = ctx.bindings[weight_.binding];
    const void* x = ctx.bindings[x_.binding];
    const bool aligned_rows = adjacent_ && aligned(weight) && aligned(x);
    const void* ends = groups_ != 0 ? ctx.bindings[ends_] : nullptr;
    const int groups = static_cast<int>(groups_);
    const auto fault = fault_of(ctx);
    const int64_t each = kGroupThreads / kShortRowThreads * lines_;
    arguments_.clear();
    arguments_.add(weight), arguments_.add(x), arguments_.add(shape_);
    if (groups_ != 0) arguments_.add(ends), arguments_.add(groups), arguments_.add(fault), arguments_.add(ctx.site);
    output_.append(arguments_, ctx);
    const std::array<unsigned, 3> grid =
        units_ && aligned_rows ? std::array<unsigned, 3>{static_cast<unsigned>(ceil_div(shape_.outputs, 16)),
                                                         static_cast<unsigned>(ceil_div(shape_.rows, unit_rows())), 1}
                               : std::array<unsigned, 3>{static_cast<unsigned>(ceil_div(shape_.outputs, each)),
                                                         static_cast<unsigned>(ceil_div(shape_.rows, together_)), 1};
    kernel(aligned_rows).run(ctx.device, grid, arguments_.pointers.data(), arguments_.sizes);
  }

 private:
  // Of fewer rows, products without matrix cores read the weights as fast.
  static constexpr int64_t kAlignment = 16, kFewestUnitRows = 3;

  Kernel& kernel(bool aligned_rows) {
    std::optional<Kernel>& k = kernels_[aligned_rows ? 1 : 0];
    if (!k) k.emplace(type_, kGroupThreads, text(aligned_rows));
    return *k;
  }
  // The rows of x that a workgroup has on matrix cores.
  int64_t unit_rows() const { return shape_.rows <= 8 ? 8 : shape_.rows <= 16 ? 16 : 32; }
  std::string units_text() const {
    return kernel_source(
        {"device/mma.h", "device/float8.h", "quantized/floats.h", "quantized/float_units.h"}, kGroupThreads,
        fmt::format(
            "(const pf::u8* weight, const {0}* x, pf::FloatRows p{1}) {{ {2} pf::float_units<{0}, pf::{3}, {4}, {5}, "
            "{6}, 8, {7}>(weight, x, p, out); }}",
            stored_type(y_.dtype), output_.parameters(), output_.text(false), dtype_name(form_.dtype),
            shape_.group >= shape_.columns, unit_rows(), shape_.rows > 16 ? 1 : 2, kGroupThreads),
        "", "", Start::itself);
  }
  std::string text(bool aligned_rows) const {
    if (units_ && aligned_rows) return units_text();
    const std::string product = fmt::format(
        "pf::float_product<{}, pf::{}, {}, {}, {}, {}, {}, {}, {}>", stored_type(y_.dtype), dtype_name(form_.dtype),
        shape_.group >= shape_.columns, aligned_rows, together_, lines_, ahead_, kShortRowThreads, kGroupThreads);
    const std::string parameters =
        fmt::format("const pf::u8* weight, const {}* x, pf::FloatRows p", stored_type(y_.dtype));
    const std::string out = output_.text(false);
    if (groups_ == 0)
      return kernel_source(
          {"device/float8.h", "quantized/floats.h"}, kGroupThreads,
          fmt::format("({}{}) {{ {} {}(weight, x, p, out); }}", parameters, output_.parameters(), out, product), "", "",
          Start::itself);
    return kernel_source(
        {"device/float8.h", "device/groups.h", "quantized/floats.h"}, kGroupThreads,
        fmt::format(
            "({}, const int* ends, int groups, pf::Fault* fault, int site{}) {{ {} "
            "if (pf::group().x == 0 && pf::group().y == 0) pf::check_group_ends(ends, groups, p.rows, fault, "
            "site); "
            "{}(weight + pf::group_of_row(ends, groups, pf::group().y) * p.outputs * p.row_bytes, x, p, out); }}",
            parameters, output_.parameters(), out, product));
  }

  Float8Rows form_;
  DeviceType type_;
  Operand x_, weight_, y_;
  Output output_;
  Arguments arguments_;
  pf::FloatRows shape_;
  BindingId ends_{};
  int64_t groups_ = 0;  // 0: all rows have the same weights
  int64_t together_ = 1, lines_ = 1, ahead_ = 1;
  bool units_ = false;     // on matrix cores
  bool adjacent_ = false;  // whether vectors of 16 bytes of x are aligned where x is
  std::optional<Kernel> kernels_[2];
};

class DecodeFloats final : public Executable {
 public:
  explicit DecodeFloats(const Problem& p)
      : form_(p.root().attr<BlockAttrs>().type, p.root().outs[0].shape[1]),
        type_(p.graph.device.type),
        weight_(p.root().ins[0]),
        y_(p.root().outs[0]),
        shape_(float_rows(form_, y_.shape[0])) {
    kernel(true);
  }
  void run(const RunContext& ctx) override {
    const void* weight = ctx.bindings[weight_.binding];
    kernel(aligned(weight))
        .launch(ctx.device, {groups_for(y_.numel() / kFloat8Unit, kGroupThreads), 1, 1}, weight,
                ctx.bindings[y_.binding], shape_);
  }

 private:
  Kernel& kernel(bool aligned_rows) {
    std::optional<Kernel>& k = kernels_[aligned_rows ? 1 : 0];
    if (!k)
      k.emplace(
          type_, kGroupThreads,
          kernel_source({"device/float8.h", "quantized/floats.h"}, kGroupThreads,
                        fmt::format("(const pf::u8* weight, {0}* y, pf::FloatRows p) {{ "
                                    "pf::decode_float_rows<{0}, pf::{1}, {2}, {3}>(weight, y, p); }}",
                                    stored_type(y_.dtype), dtype_name(form_.dtype), aligned_rows, kGroupThreads)));
    return *k;
  }
  Float8Rows form_;
  DeviceType type_;
  Operand weight_, y_;
  pf::FloatRows shape_;
  std::optional<Kernel> kernels_[2];
};

template <class E>
std::unique_ptr<Executable> make_linear(const Problem& p) {
  return std::make_unique<E>(p, nullptr);
}
template <class E>
std::unique_ptr<Executable> make_groups(const Problem& p) {
  return std::make_unique<E>(p, &p.root().ins[1]);
}
// Products with 8-bit floats also compute elementwise ops on their results, those with blocks do not.
bool has_floats(const Problem& p) { return Float8Rows::has(p.root().attr<BlockAttrs>().type); }
template <auto kFloats, auto kBlocks>
std::unique_ptr<Executable> make_either(const Problem& p) {
  return has_floats(p) ? kFloats(p) : kBlocks(p);
}
Refusal accepts_products(const Problem& p) {
  if (!has_floats(p) && p.size() > 1) return "takes single nodes only";
  return std::nullopt;
}

}  // namespace

std::span<const Impl> quantized_linear_impls(DeviceType) {
  static const Impl impl{"gpu.packed_products", accepts_products,
                         make_either<make_linear<FloatProducts>, make_linear<Products>>};
  return {&impl, 1};
}
std::span<const Impl> quantized_grouped_mm_impls(DeviceType) {
  static const Impl impl{"gpu.packed_products", accepts_all,
                         make_either<make_groups<FloatProducts>, make_groups<Products>>};
  return {&impl, 1};
}
std::span<const Impl> decode_blocks_impls(DeviceType) {
  static const Impl impl{"gpu.decode_blocks", accepts_all, make_either<make_of<DecodeFloats>, make_of<DecodeBlocks>>};
  return {&impl, 1};
}

}  // namespace pyflame::gpu
