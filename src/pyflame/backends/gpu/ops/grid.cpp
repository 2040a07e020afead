// grid_sample and its gradients (kernels/grid/sample.h).
#include <algorithm>
#include <bit>
#include <optional>

#include "pyflame/backends/gpu/ops/sorter.h"
#include "pyflame/base/error.h"
#include "pyflame/kernels/grid/sample_args.h"
#include "pyflame/kernels/grid/taps.h"

namespace pyflame::gpu {

namespace {

constexpr int64_t kGridEach = 8;  // channels of a thread

// The places of an operand [N, .., places ..] without the dim `without`.
View places_of(const Operand& o, int without) {
  Dims shape = o.shape, strides = o.strides;
  shape.erase(without), strides.erase(without);
  return collapsed_view(shape, strides);
}

// What the kernels share: the shapes, and the text of a call of one of them.
struct GridCall {
  GridCall(const Problem& p, const Operand& image, const Operand& grid) : type(p.graph.device.type), dtype(grid.dtype) {
    const auto& a = p.root().attr<GridAttrs>();
    dims = grid.shape.size() - 2, mode = static_cast<int>(a.mode);
    s.images = image.shape[0], s.channels = image.shape[1], s.elements = 1, s.places = 1;
    s.image = image.strides[0], s.channel = image.strides[1];
    for (int d = 0; d < dims; ++d) {
      s.size[d] = image.shape[d + 2], s.step[d] = image.strides[d + 2];
      s.elements *= s.size[d], s.places *= grid.shape[d + 1];
    }
    s.grid_step = grid.strides[dims + 1], s.grid = places_of(grid, dims + 1);
    s.padding = static_cast<int>(a.padding), s.align = a.align_corners != 0;
    s.each = std::clamp<int64_t>(s.channels, 1, kGridEach), s.parts = ceil_div(s.channels, s.each);
    corners = pf::grid_corners(mode, dims);
  }
  // {0}: the dtype, {1}: mode, dims
  std::unique_ptr<Kernel> kernel(const char* body) const {
    return std::make_unique<Kernel>(
        type, kGroupThreads,
        kernel_source({"grid/taps.h", "grid/sample.h"}, kGroupThreads,
                      fmt::format(fmt::runtime(body), stored_type(dtype), fmt::format("{}, {}", mode, dims),
                                  kGroupThreads, corners, kGridEach)));
  }
  static std::array<unsigned, 3> grid(int64_t n) { return group_each(ceil_div(n, kGroupThreads)); }
  DeviceType type;
  DType dtype;
  int dims = 2, mode = 0;
  int64_t corners = 1;
  pf::GridShape s;
};

class GridSample final : public Executable {
 public:
  explicit GridSample(const Problem& p)
      : x_(p.root().ins[0]), grid_(p.root().ins[1]), y_(p.root().outs[0]), call_(p, x_, grid_) {
    call_.s.to = places_of(y_, 1), call_.s.to_channel = y_.strides[1];
    kernel_ = call_.kernel(
        "(const {0}* x, const {0}* grid, {0}* y, pf::GridShape p) "
        "{{ pf::grid_sample<{1}, {0}, {2}>(x, grid, y, p); }}");
  }
  void run(const RunContext& ctx) override {
    if (y_.numel() == 0) return;
    kernel_->launch(ctx.device, GridCall::grid(call_.s.images * call_.s.parts * call_.s.places),
                    ctx.bindings[x_.binding], ctx.bindings[grid_.binding], ctx.bindings[y_.binding], call_.s);
  }

 private:
  Operand x_, grid_, y_;
  GridCall call_;
  std::unique_ptr<Kernel> kernel_;
};

class GridSampleGradGrid final : public Executable {
 public:
  explicit GridSampleGradGrid(const Problem& p)
      : g_(p.root().ins[0]), x_(p.root().ins[1]), grid_(p.root().ins[2]), out_(p.root().outs[0]), call_(p, x_, grid_) {
    pf::GridShape& s = call_.s;
    s.from = places_of(g_, 1), s.from_channel = g_.strides[1];
    s.to = places_of(out_, call_.dims + 1), s.to_step = out_.strides[call_.dims + 1];
    kernel_ = call_.kernel(
        "(const {0}* g, const {0}* x, const {0}* grid, {0}* to, pf::GridShape p) "
        "{{ pf::grid_sample_grad_grid<{1}, {0}, {2}>(g, x, grid, to, p); }}");
  }
  void run(const RunContext& ctx) override {
    if (out_.numel() == 0) return;
    kernel_->launch(ctx.device, GridCall::grid(call_.s.images * call_.s.places), ctx.bindings[g_.binding],
                    ctx.bindings[x_.binding], ctx.bindings[grid_.binding], ctx.bindings[out_.binding], call_.s);
  }

 private:
  Operand g_, x_, grid_, out_;
  GridCall call_;
  std::unique_ptr<Kernel> kernel_;
};

class GridSampleGradInput final : public Executable {
 public:
  explicit GridSampleGradInput(const Problem& p)
      : g_(p.root().ins[0]), grid_(p.root().ins[1]), out_(p.root().outs[0]), call_(p, out_, grid_) {
    if (out_.numel() == 0) return;
    pf::GridShape& s = call_.s;
    const int64_t items = s.places * call_.corners, all = s.images * items;
    PF_CHECK(s.elements < 0xffffffff && items < 0xffffffff, NotImplemented,
             "grid_sample: the gradient is too large; got {} elements and {} places; expected less than 2^32",
             s.elements, s.places);
    for (int64_t d = call_.dims - 1, step = 1; d >= 0; --d) s.step[d] = step, step *= s.size[d];
    if (items > 0) s.from = places_of(g_, 1);  // a kernel must not divide by a size of 0
    s.from_channel = g_.strides[1];
    s.to = places_of(out_, 1), s.to_channel = out_.strides[1];
    // One more key than elements, for corners outside.
    const int bits = 64 - std::countl_zero(static_cast<uint64_t>(s.elements));
    sorter_.emplace(Sorter::Spec{call_.type, "index/sum.h", "pf::Pairs<pf::u32>", "pf::Pairs<pf::u32>", false, bits,
                                 s.images, items, items});
    sorter_at_ = parts_.take(static_cast<int64_t>(sorter_->workspace()));
    for (size_t* at : {&keys_, &ids_, &sorted_keys_, &sorted_ids_}) *at = parts_.take(all * 4);
    weights_ = parts_.take(all * std::max<int64_t>(4, dtype_size(call_.dtype)));
    corners_ = call_.kernel(
        "(const {0}* grid, pf::u32* keys, pf::u32* ids, pf::C<{0}>* weights, pf::GridShape p) "
        "{{ pf::grid_corners_of<{1}, {0}, {2}>(grid, keys, ids, weights, p); }}");
    sum_ = call_.kernel(
        "(const pf::u32* keys, const pf::u32* ids, const pf::C<{0}>* weights, const {0}* g, {0}* to, pf::GridShape p) "
        "{{ pf::grid_sample_grad_input<{3}, {0}, {2}, {4}>(keys, ids, weights, g, to, p); }}");
  }
  size_t workspace() const override { return parts_.size(); }
  void run(const RunContext& ctx) override {
    if (out_.numel() == 0) return;
    const pf::GridShape& s = call_.s;
    const auto words = [&](size_t at) { return reinterpret_cast<uint32_t*>(part_of(ctx.workspace, at)); };
    void* const weights = part_of(ctx.workspace, weights_);
    const int64_t items = s.places * call_.corners;
    if (items > 0) {
      corners_->launch(ctx.device, GridCall::grid(s.images * s.places), ctx.bindings[grid_.binding], words(keys_),
                       words(ids_), weights, s);
      sorter_->run(ctx.device, Pairs{bytes_at(ctx.workspace, keys_), words(ids_), items},
                   Pairs{bytes_at(ctx.workspace, sorted_keys_), words(sorted_ids_), items},
                   part_of(ctx.workspace, sorter_at_));
    }
    sum_->launch(ctx.device, GridCall::grid(s.images * s.parts * s.elements), words(sorted_keys_), words(sorted_ids_),
                 weights, ctx.bindings[g_.binding], ctx.bindings[out_.binding], s);
  }

 private:
  Operand g_, grid_, out_;
  GridCall call_;
  Parts parts_;
  size_t sorter_at_ = 0, keys_ = 0, ids_ = 0, sorted_keys_ = 0, sorted_ids_ = 0, weights_ = 0;
  std::optional<Sorter> sorter_;
  std::unique_ptr<Kernel> corners_, sum_;
};

}  // namespace

std::span<const Impl> grid_sample_impls(DeviceType) {
  static const Impl impl{"gpu.grid_sample", accepts_all, make_of<GridSample>};
  return {&impl, 1};
}
std::span<const Impl> grid_sample_grad_grid_impls(DeviceType) {
  static const Impl impl{"gpu.grid_sample_grad_grid", accepts_all, make_of<GridSampleGradGrid>};
  return {&impl, 1};
}
std::span<const Impl> grid_sample_grad_input_impls(DeviceType) {
  static const Impl impl{"gpu.grid_sample_grad_input", accepts_all, make_of<GridSampleGradInput>};
  return {&impl, 1};
}

}  // namespace pyflame::gpu
