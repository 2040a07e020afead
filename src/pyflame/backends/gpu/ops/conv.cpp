// Convolutions by our own kernels (kernels/conv/conv.h) and by the vendors' libraries.
#include "pyflame/backends/gpu/ops/conv.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <optional>

#include "pyflame/backends/gpu/driver/arch.h"
#include "pyflame/backends/gpu/jit/kernel.h"
#include "pyflame/backends/gpu/libs/dnn.h"
#include "pyflame/backends/gpu/libs/transpose.h"
#include "pyflame/backends/gpu/ops/conv_output.h"
#include "pyflame/backends/gpu/ops/impls.h"
#include "pyflame/base/error.h"

namespace pyflame::gpu {

namespace {

constexpr unsigned kFlatThreads = 256;

// The tile of a product: its sizes, and the number of results per thread along each side.
struct ConvTile {
  int rows, columns, depth, each;
  unsigned threads() const { return static_cast<unsigned>(rows / each * (columns / each)); }
};
constexpr ConvTile kSmall{64, 64, 16, 4}, kLarge{128, 128, 8, 8};

// Each kernel's parameters end with the result, the Conv struct, and the arguments of the fused ops; `out` is the
// functor for these.
struct OutText {
  explicit OutText(DType d, const ConvOutput* output = nullptr)
      : parameters(output ? output->parameters() : ""),
        make(output ? "(void)c; " + output->text()
                    : fmt::format("const pf::ConvStore<{}> out = {{c}};", stored_type(d))) {}
  std::string parameters, make;
};

std::string tile_source(DType d, bool weight, const ConvTile& t, const OutText& out) {
  return kernel_source(
      {"conv/conv.h"}, t.threads(),
      fmt::format("(const {0}* a, const {0}* b, pf::C<{0}>* slices, {0}* c, pf::Conv p{6}) {{ {7} "
                  "pf::conv<{0}, {1}, {2}, {3}, {4}, {5}>(a, b, slices, p, out); }}",
                  stored_type(d), weight, t.rows, t.columns, t.depth, t.each, out.parameters, out.make));
}
// Matrix cores: pieces of eight along k if k runs over channels; otherwise along the lines.
constexpr unsigned kUnitsThreads = 256;
constexpr int kUnitsColumns = 128;
std::string units_source(DType d, ConvPass pass, int rows, const OutText& out) {
  return kernel_source({"device/mma.h", "conv/conv.h", "conv/matrix_cores.h"}, kUnitsThreads,
                       fmt::format("(const {0}* a, const {0}* b, float* slices, {0}* c, pf::Conv p{6}) {{ {7} "
                                   "pf::conv_units<{0}, {1}, {2}, {3}, {4}, {5}>(a, b, slices, p, out); }}",
                                   stored_type(d), pass == ConvPass::grad_weight, rows, kUnitsColumns,
                                   pass == ConvPass::forward, pass != ConvPass::grad_weight, out.parameters, out.make));
}

std::string join_source(DType d) {
  return kernel_source(
      {"conv/conv.h"}, kFlatThreads,
      fmt::format("(const pf::C<{0}>* slices, {0}* c, pf::Conv p) {{ pf::conv_join<{0}>(slices, c, p); }}",
                  stored_type(d)));
}
std::string direct_source(DType d, ConvPass pass, const OutText& out) {
  const std::string body =
      pass == ConvPass::grad_weight
          ? fmt::format(
                "(const {0}* a, const {0}* b, {0}* c, pf::Conv p) {{ pf::conv_direct_weight<{0}, {1}>(a, b, c, p); }}",
                stored_type(d), kFlatThreads)
          : fmt::format(
                "(const {0}* a, const {0}* b, {0}* c, pf::Conv p{1}) {{ {2} pf::conv_direct<{0}, {3}>(a, b, p, out); "
                "}}",
                stored_type(d), out.parameters, out.make, pass == ConvPass::grad_input);
  return kernel_source({"conv/conv.h"}, kFlatThreads, body);
}

constexpr int64_t kMostDown = 65535;  // workgroups along y and z

// Workgroups for the tiles of a convolution: along columns, along rows, and groups with their phases or splits.
std::array<int64_t, 3> tiles(const ConvCase& c, const pf::Conv& k, int64_t rows, int64_t columns) {
  const int64_t taps = int64_t{k.kernel_h} * k.kernel_w * k.read_channels;
  const int64_t pixels = k.images * ceil_div(k.made_h, k.phases_h) * ceil_div(k.made_w, k.phases_w);
  return {ceil_div(c.pass == ConvPass::grad_weight ? taps : pixels, columns), ceil_div(k.made_channels, rows),
          int64_t{k.groups} * k.phases_h * k.phases_w * k.splits};
}

// The gradient of a weight has few results and long sums, so the sum is split until there are enough workgroups for a
// large device. This depends on the shape alone, so every device adds in the same order.
void split(const ConvCase& c, pf::Conv& k, int64_t rows, int64_t columns) {
  constexpr int64_t kEnough = 512, kLeastDepth = 512;
  if (c.pass != ConvPass::grad_weight) return;
  const auto t = tiles(c, k, rows, columns);
  const int64_t depth = k.images * k.made_h * k.made_w;
  const int64_t most = std::max<int64_t>(1, depth / kLeastDepth);
  const int64_t parts = std::clamp<int64_t>(kEnough / std::max<int64_t>(1, t[0] * t[1] * t[2]), 1, most);
  constexpr int64_t kWhole = 128;  // a multiple of the depths of all tiles
  k.split_depth = std::max<int64_t>(1, ceil_div(ceil_div(depth, parts), kWhole)) * kWhole;
  k.splits = static_cast<int>(std::max<int64_t>(1, ceil_div(depth, k.split_depth)));
}

std::array<unsigned, 3> grid(const std::array<int64_t, 3>& t) {
  PF_CHECK(t[0] <= std::numeric_limits<int>::max() && t[1] <= kMostDown && t[2] <= kMostDown, NotImplemented,
           "conv2d: too many tiles for one launch; got {} x {} x {}; expected at most {} in the last two", t[0], t[1],
           t[2], kMostDown);
  return {static_cast<unsigned>(t[0]), static_cast<unsigned>(t[1]), static_cast<unsigned>(t[2])};
}

Refusal accepts_sizes(const Problem& p) {
  if (!ConvCase(p).fits_int()) return "a size or the weight has more than 2^31 elements";
  return std::nullopt;
}

// How the elements of the result are processed and stored, and the launch with the arguments for it.
class GroupOutput {
 public:
  explicit GroupOutput(const Problem& p) {
    if (p.size() > 1) output_.emplace(p);
  }
  OutText text(DType d) const { return OutText(d, output_ ? &*output_ : nullptr); }
  template <class... Args>
  void launch(Kernel& kernel, const RunContext& ctx, std::array<unsigned, 3> grid, const Args&... args) {
    arguments_.clear();
    (arguments_.add(args), ...);
    if (output_) output_->append(arguments_, ctx);
    kernel.run(ctx.device, grid, arguments_.pointers.data(), arguments_.sizes);
  }

 private:
  std::optional<ConvOutput> output_;
  Arguments arguments_;
};

// Any convolution. Its kernels are made when it first runs, or at once if it is known to run.
class Implicit final : public Executable {
 public:
  Implicit(const Problem& p, bool at_once)
      : case_(p), type_(p.graph.device.type), tile_(choose(case_)), shape_(case_.kernel_case()), output_(p) {
    split(case_, shape_, tile_.rows, tile_.columns);
    if (at_once) prepare();
  }
  size_t workspace() const override {
    return shape_.splits > 1 ? static_cast<size_t>(shape_.splits * case_.weight.numel()) *
                                   (case_.dtype == DType::float64 ? sizeof(double) : sizeof(float))
                             : 0;
  }
  void run(const RunContext& ctx) override {
    if (case_.made().numel() == 0) return;
    if (!kernel_) prepare();
    const bool weight = case_.pass == ConvPass::grad_weight, image = case_.pass == ConvPass::grad_input;
    const void* a = ctx.bindings[weight ? case_.result.binding : case_.weight.binding];
    const void* b = ctx.bindings[image ? case_.result.binding : case_.image.binding];
    void* c = ctx.bindings[case_.made().binding];
    output_.launch(*kernel_, ctx, grid(tiles(case_, shape_, tile_.rows, tile_.columns)), a, b, ctx.workspace, c,
                   shape_);
    if (join_)
      join_->launch(ctx.device, {groups_for(case_.weight.numel(), kFlatThreads), 1, 1}, ctx.workspace, c, shape_);
  }

 private:
  // The large tile computes more per element that it reads; it is used if there is enough work.
  static ConvTile choose(const ConvCase& c) {
    const pf::Conv k = c.kernel_case();
    const auto t = tiles(c, k, kLarge.rows, kLarge.columns);
    const bool wide = k.made_channels > kSmall.rows && (c.pass == ConvPass::grad_weight || t[0] * t[1] * t[2] >= 256);
    return wide && c.dtype != DType::float64 ? kLarge : kSmall;
  }
  void prepare() {
    kernel_.emplace(type_, tile_.threads(),
                    tile_source(case_.dtype, case_.pass == ConvPass::grad_weight, tile_, output_.text(case_.dtype)));
    if (shape_.splits > 1) join_.emplace(type_, kFlatThreads, join_source(case_.dtype));
  }
  ConvCase case_;
  DeviceType type_;
  ConvTile tile_;
  pf::Conv shape_;
  GroupOutput output_;
  std::optional<Kernel> kernel_, join_;
};

class Direct final : public Executable {
 public:
  explicit Direct(const Problem& p)
      : case_(p),
        output_(p),
        kernel_(p.graph.device.type, kFlatThreads, direct_source(case_.dtype, case_.pass, output_.text(case_.dtype))),
        shape_(case_.kernel_case()) {}
  void run(const RunContext& ctx) override {
    const int64_t n = case_.made().numel();
    if (n == 0) return;
    if (case_.pass == ConvPass::grad_weight)
      kernel_.launch(ctx.device, {static_cast<unsigned>(n), 1, 1}, ctx.bindings[case_.result.binding],
                     ctx.bindings[case_.image.binding], ctx.bindings[case_.weight.binding], shape_);
    else
      output_.launch(kernel_, ctx, {groups_for(n, kFlatThreads), 1, 1}, ctx.bindings[case_.weight.binding],
                     ctx.bindings[case_.pass == ConvPass::grad_input ? case_.result.binding : case_.image.binding],
                     ctx.bindings[case_.made().binding], shape_);
  }

 private:
  ConvCase case_;
  GroupOutput output_;
  Kernel kernel_;
  pf::Conv shape_;
};

// On matrix cores. An input that is not channels-last is transposed first.
class Units final : public Executable {
 public:
  explicit Units(const Problem& p)
      : case_(p),
        type_(p.graph.device.type),
        rows_(rows_of(case_)),
        output_(p),
        kernel_(type_, kUnitsThreads, units_source(case_.dtype, case_.pass, rows_, output_.text(case_.dtype))),
        own_(p, false) {
    ConvCase transposed = case_;
    for (size_t i = 0; i < 2; ++i) {
      Operand& o = operand(transposed, i);
      transposed_[i] = !has_format(o, MemoryFormat::channels_last);
      if (transposed_[i]) o.strides = strides_of(o.shape, MemoryFormat::channels_last);
    }
    shape_ = transposed.kernel_case();
    split(transposed, shape_, rows_, kUnitsColumns);
    if (transposed_[0] || transposed_[1]) transpose_.emplace(type_, 2);
    if (shape_.splits > 1) join_.emplace(type_, kFlatThreads, join_source(case_.dtype));
  }
  static int rows_of(const ConvCase& c) { return c.kernel_case().made_channels > 64 ? 128 : 64; }
  // What the kernel's operands a and b are.
  static Operand& operand(ConvCase& c, size_t i) {
    if (i == 0) return c.pass == ConvPass::grad_weight ? c.result : c.weight;
    return c.pass == ConvPass::grad_input ? c.result : c.image;
  }
  size_t workspace() const override {
    ConvCase c = case_;
    size_t bytes = slices();
    for (size_t i = 0; i < 2; ++i)
      if (transposed_[i]) bytes += room(operand(c, i));
    return std::max(bytes, own_.workspace());
  }
  void run(const RunContext& ctx) override {
    char* workspace = static_cast<char*>(ctx.workspace);
    void* parts = workspace;
    workspace += slices();
    const void* at[2];
    for (size_t i = 0; i < 2; ++i) {
      const Operand& o = operand(case_, i);
      at[i] = ctx.bindings[o.binding];
      if (!transposed_[i] && reinterpret_cast<uintptr_t>(at[i]) % 16 != 0) return own_.run(ctx);
    }
    for (size_t i = 0; i < 2; ++i) {
      if (!transposed_[i]) continue;
      const Operand& o = operand(case_, i);
      transpose_->run(ctx.device, o.shape, at[i], workspace, MemoryFormat::channels_last);
      at[i] = workspace;
      workspace += room(o);
    }
    void* c = ctx.bindings[case_.made().binding];
    output_.launch(kernel_, ctx, grid(tiles(case_, shape_, rows_, kUnitsColumns)), at[0], at[1], parts, c, shape_);
    if (join_) join_->launch(ctx.device, {groups_for(case_.weight.numel(), kFlatThreads), 1, 1}, parts, c, shape_);
  }

 private:
  static size_t whole(size_t bytes) { return (bytes + 255) / 256 * 256; }
  static size_t room(const Operand& o) { return whole(static_cast<size_t>(o.numel()) * 2); }
  size_t slices() const { return shape_.splits > 1 ? whole(shape_.splits * case_.weight.numel() * sizeof(float)) : 0; }
  ConvCase case_;
  DeviceType type_;
  int rows_;
  GroupOutput output_;
  Kernel kernel_;
  Implicit own_;  // used for unaligned pointers
  std::array<bool, 2> transposed_{};
  pf::Conv shape_{};
  std::optional<Transpose> transpose_;
  std::optional<Kernel> join_;
};

// Our kernel for the convolution without the group's other nodes.
std::unique_ptr<Executable> make_alone(const Problem& p) {
  Group alone;
  alone.nodes = {p.group.nodes[0]};
  if (ConvCase(p).few_channels()) return std::make_unique<Direct>(Problem{p.graph, alone});
  return std::make_unique<Implicit>(Problem{p.graph, alone}, false);
}

// Groups of few channels, where the library is known to be faster than our kernel.
Refusal library_of_few_channels(const Problem& p) {
  if (!ConvCase(p).few_channels() || !dnn_is_fast_for_few_channels(p.graph.device.type)) return std::nullopt;
  if (dnn_refuses(p, make_alone)) return std::nullopt;
  return "the library is faster for groups of few channels, also with a loop after it";
}

// Estimates two alternatives in microseconds: our kernel for the group, and the library's convolution followed by a
// loop. Only the comparison matters; the figures are those of a large GPU. The loop reads and writes the result once
// more.
Refusal better_cut(const Problem& p) {
  if (p.size() == 1) return std::nullopt;
  if (Refusal no = ConvOutput(p).refused()) return no;
  if (dnn_refuses(p, make_alone)) return std::nullopt;  // our kernel in any case
  if (Refusal no = library_of_few_channels(p)) return no;
  const ConvCase c(p);
  constexpr double kLaunch = 2, kLibrary = 5, kBandwidth = 2.5e6, kOwnBandwidth = 1.5e6;  // bytes per microsecond
  const bool half = dtype_size(c.dtype) == 2;
  const double own_rate = half ? 100e6 : 10e6, rate = half ? 500e6 : 40e6;  // operations per microsecond
  const auto count = [](const Operand& o) { return static_cast<double>(o.numel()); };
  const double flops = 2 * count(c.result) * count(c.weight) / static_cast<double>(c.weight.shape[0]);
  const double bytes = (count(c.image) + count(c.weight) + count(c.result)) * static_cast<double>(dtype_size(c.dtype));
  const double own = kLaunch + flops / own_rate + bytes / kOwnBandwidth;
  const double cut = kLibrary + std::max(flops / rate, bytes / kBandwidth) + kLaunch +
                     2 * count(c.result) * static_cast<double>(dtype_size(c.dtype)) / kBandwidth;
  if (own <= cut) return std::nullopt;
  return fmt::format("{:.1f} us by estimate; the library and a loop after it {:.1f} us", own, cut);
}

Refusal accepts_conv_units(const Problem& p) {
  if (Refusal no = accepts_sizes(p)) return no;
  if (Refusal no = better_cut(p)) return no;
  if (const std::string& arch = device(p.graph.device.type, p.graph.device.index).arch().name; !has_matrix_units(arch))
    return arch + " has no matrix cores";
  ConvCase c(p);
  if (c.dtype != DType::float16 && c.dtype != DType::bfloat16) return "matrix cores take float16 and bfloat16";
  if (c.image.numel() == 0 || c.result.numel() == 0) return "a tensor has no elements";
  if (c.weight.shape[1] % 8 != 0 || c.weight.shape[0] / c.attrs.groups % 8 != 0)
    return "a group's channels are no multiple of 8";
  for (size_t i = 0; i < 2; ++i)
    if (const Operand& o = Units::operand(c, i);
        !has_format(o, MemoryFormat::contiguous) && !has_format(o, MemoryFormat::channels_last))
      return "a tensor is laid out neither channels-first nor channels-last";
  return std::nullopt;
}

std::unique_ptr<Executable> make_implicit(const Problem& p) { return std::make_unique<Implicit>(p, true); }

// The library may need an alignment that not every operand has; then our own kernel runs.
std::unique_ptr<Executable> make_conv_library(const Problem& p) {
  return make_dnn(p, std::make_unique<Implicit>(p, false));
}

std::unique_ptr<Executable> make_conv_plan(const Problem& p, const std::string& plan) {
  return make_dnn(p, std::make_unique<Implicit>(p, false), plan);
}
constexpr LibraryConfigurations kPlans{dnn_plans, make_conv_plan};

Refusal accepts_conv_library(const Problem& p) {
  if (Refusal no = accepts_sizes(p)) return no;
  if (p.size() > 1) return "a library's convolution stands alone";
  return dnn_refuses(p, make_alone);
}

Refusal accepts_direct(const Problem& p) {
  if (Refusal no = accepts_sizes(p)) return no;
  if (!ConvCase(p).few_channels()) return "groups of many channels are products of matrices";
  if (Refusal no = library_of_few_channels(p)) return no;
  return p.size() > 1 ? ConvOutput(p).refused() : std::nullopt;
}

Refusal accepts_implicit(const Problem& p) {
  if (Refusal no = accepts_sizes(p)) return no;
  return better_cut(p);
}

}  // namespace

std::vector<std::pair<std::string, std::string>> conv_sources(DType dtype) {
  std::vector<std::pair<std::string, std::string>> all;
  const OutText plain(dtype);
  for (const bool weight : {false, true}) {
    const std::string pass = weight ? "_weight" : "";
    all.emplace_back("conv" + pass + "_small", tile_source(dtype, weight, kSmall, plain));
    if (dtype != DType::float64) all.emplace_back("conv" + pass + "_large", tile_source(dtype, weight, kLarge, plain));
  }
  for (const auto& [name, pass] : {std::pair{"conv_direct", ConvPass::forward},
                                   {"conv_image_direct", ConvPass::grad_input},
                                   {"conv_weight_direct", ConvPass::grad_weight}})
    all.emplace_back(name, direct_source(dtype, pass, plain));
  if (dtype_size(dtype) == 2)
    for (const int rows : {64, 128})
      for (const ConvPass pass : {ConvPass::forward, ConvPass::grad_input, ConvPass::grad_weight})
        all.emplace_back(fmt::format("conv_units_{}_{}", static_cast<int>(pass), rows),
                         units_source(dtype, pass, rows, plain));
  all.emplace_back("conv_join", join_source(dtype));
  all.emplace_back("format_transpose", Transpose::source(static_cast<int>(dtype_size(dtype))));
  return all;
}

std::span<const Impl> conv2d_impls(DeviceType) {
  static const Impl impls[] = {{"gpu.conv.direct", accepts_direct, make_of<Direct>},
                               {"gpu.dnn", accepts_conv_library, make_conv_library, &kPlans},
                               {"gpu.conv.units", accepts_conv_units, make_of<Units>},
                               {"gpu.conv", accepts_implicit, make_implicit}};
  return impls;
}
std::span<const Impl> conv2d_grad_input_impls(DeviceType type) { return conv2d_impls(type); }
std::span<const Impl> conv2d_grad_weight_impls(DeviceType type) { return conv2d_impls(type); }

}  // namespace pyflame::gpu
