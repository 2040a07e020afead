// grouped_mm: the kernels of matmul for the rows or the terms of groups (kernels/matmul/groups.h). The device reads where the groups end. For few rows,
// each row is multiplied with its group's matrix by itself.
#include <algorithm>
#include <array>
#include <optional>

#include "pyflame/backends/gpu/ops/gemm.h"
#include "pyflame/backends/gpu/ops/matmul_tiles.h"
#include "pyflame/kernels/matmul/gemv_args.h"
#include "pyflame/kernels/matmul/tile_args.h"

namespace pyflame::gpu {

namespace {

class GroupedMm final : public Executable {
 public:
  GroupedMm(const Problem& p, bool units)
      : output_(p), units_(units), type_(p.graph.device.type), stored_(stored_type(p.root().outs[0].dtype)) {
    const Operand &a = p.root().ins[0], &b = p.root().ins[1], &out = p.root().outs[0];
    a_ = a.binding, b_ = b.binding, ends_ = p.root().ins[2].binding;
    of_rows_ = b.shape.size() == 3;
    vec_ = 16 / dtype_size(out.dtype);
    groups_ = p.root().ins[2].numel();
    const int r = b.shape.size();
    shape_.m = a.shape[0], shape_.k = a.shape[1], shape_.n = out.shape.back();
    shape_.batches = of_rows_ ? 1 : groups_;
    shape_.a_row = a.strides[0], shape_.a_col = a.strides[1];
    shape_.b_row = b.strides[r - 2], shape_.b_col = b.strides[r - 1];
    shape_.depth = shape_.k, shape_.splits = 1;
    const Dims each{groups_}, of_a{0}, of_b{of_rows_ ? b.strides[0] : 0};
    shape_.a_batch = view_of(each, of_a), shape_.b_batch = view_of(each, of_b);
    tile_ = tile(out.dtype);
    // A group begins at any row or at any term, which may be unaligned.
    side_a_.emplace(shape_.m, shape_.k, shape_.a_row, shape_.a_col, Dims{}, vec_);
    side_b_.emplace(shape_.n, shape_.k, shape_.b_col, shape_.b_row, of_b, vec_);
    if (side_a_->along != of_rows_) side_a_->vectors = false;
    if (!of_rows_ && side_b_->along) side_b_->vectors = false;
    kernel(side_a_->vectors, side_b_->vectors);
  }

  void run(const RunContext& ctx) override {
    if (shape_.m * shape_.n == 0) return;
    const void *a = ctx.bindings[a_], *b = ctx.bindings[b_], *ends = ctx.bindings[ends_], *fault = fault_of(ctx);
    const int64_t slots = ceil_div(shape_.m, tile_.rows) + (of_rows_ ? groups_ - 1 : 0);
    arguments_.clear();
    arguments_.add(a), arguments_.add(b), arguments_.add(shape_), arguments_.add(ends), arguments_.add(groups_),
        arguments_.add(fault), arguments_.add(ctx.site);
    output_.append(arguments_, ctx);
    kernel(side_a_->vectors && aligned(a), side_b_->vectors && aligned(b))
        .run(ctx.device, tile_grid(slots * ceil_div(shape_.n, tile_.cols), shape_.batches), arguments_.pointers.data(),
             arguments_.sizes);
  }

 private:
  // The largest tile that an average group fills and that gives enough workgroups; otherwise the smallest.
  MatmulTile tile(DType dtype) const {
    const std::span<const MatmulTile> all = matmul_tiles(dtype, units_);
    const int64_t rows = of_rows_ ? ceil_div(shape_.m, groups_) : shape_.m;
    for (size_t i = 0; i + 1 < all.size(); ++i) {
      const int64_t tiles = groups_ * ceil_div(rows, all[i].rows) * ceil_div(shape_.n, all[i].cols);
      if (all[i + 1].rows < rows && tiles >= kEnough) return all[i];
    }
    return all.back();
  }
  Kernel& kernel(bool va, bool vb) {
    std::optional<Kernel>& k = kernels_[(va ? 1 : 0) + (vb ? 2 : 0)];
    if (!k) k.emplace(type_, kGroupThreads, text(va, vb));
    return *k;
  }
  std::string text(bool va, bool vb) const {
    const std::string body = fmt::format(
        "(const {0}* a, const {0}* b, pf::MatmulShape p, const int* ends, pf::i64 groups, pf::Fault* fault, int "
        "site{1}) "
        "{{ if (pf::group().x == 0 && pf::group().y == 0) pf::check_group_ends(ends, groups, {2}, fault, site); {3} "
        "const pf::{4} parts{{ends{15}}}; "
        "pf::{5}<{0}, {6}, {7}, {8}, {9}, {10}, {11}, {12}, {13}, {14}>(a, b, p, out, parts); }}",
        stored_, output_.parameters(), of_rows_ ? "p.m" : "p.k", output_.text(false, units_),
        of_rows_ ? "GroupsOfRows" : "GroupsOfTerms", units_ ? "matmul_units" : "matmul_tile", tile_.rows, tile_.cols,
        tile_.depth, units_ ? fmt::format("{}, 1, 1", tile_.rest) : tile_.rest, kGroupThreads, side_a_->along,
        side_b_->along, va ? vec_ : 1, vb ? vec_ : 1, of_rows_ ? ", groups" : "");
    if (units_)
      return kernel_source(
          {"device/mma.h", "device/groups.h", "matmul/tile.h", "matmul/matrix_cores.h", "matmul/groups.h"},
          kGroupThreads, body);
    return kernel_source({"device/groups.h", "matmul/tile.h", "matmul/groups.h"}, kGroupThreads, body);
  }

  Output output_;
  bool units_, of_rows_ = true;
  DeviceType type_;
  std::string stored_;
  BindingId a_, b_, ends_;
  int64_t vec_ = 1, groups_ = 1;
  pf::MatmulShape shape_{};
  MatmulTile tile_{};
  std::optional<Side> side_a_, side_b_;
  std::array<std::optional<Kernel>, 4> kernels_;
  Arguments arguments_;
};

// Each row by itself, so a group's matrix is read once for each of its rows.
class GroupedGemv final : public Executable {
 public:
  explicit GroupedGemv(const Problem& p)
      : output_(p), type_(p.graph.device.type), stored_(stored_type(p.root().outs[0].dtype)) {
    const Operand &a = p.root().ins[0], &b = p.root().ins[1], &out = p.root().outs[0];
    a_ = a.binding, b_ = b.binding, ends_ = p.root().ins[2].binding;
    groups_ = static_cast<int>(p.root().ins[2].numel());
    vec_ = 16 / dtype_size(out.dtype);
    shape_.n = out.shape[1], shape_.k = a.shape[1], shape_.batches = a.shape[0];
    shape_.w_line = b.strides[2], shape_.w_depth = b.strides[1], shape_.x_line = 0, shape_.x_depth = a.strides[1];
    shape_.w_batch = view_of({int64_t{groups_}}, {b.strides[0]});
    shape_.x_batch = view_of({shape_.batches}, {a.strides[0]});
    vectors_ = shape_.x_depth == 1 && by_vectors(shape_.k, shape_.w_line, {b.strides[0], a.strides[0]}, vec_);
    lines_ = shape_.n >= 4096 ? 2 : 1;
    ahead_ = std::clamp<int64_t>(ceil_div(shape_.k, kTeam * vec_), 1, lines_ == 1 ? 4 : 3);
    shape_.depth = shape_.k, shape_.splits = 1;
    kernel(vectors_);
  }
  void run(const RunContext& ctx) override {
    if (shape_.n * shape_.batches == 0) return;
    const void *a = ctx.bindings[a_], *b = ctx.bindings[b_], *ends = ctx.bindings[ends_], *fault = fault_of(ctx);
    arguments_.clear();
    arguments_.add(b), arguments_.add(a), arguments_.add(shape_), arguments_.add(ends), arguments_.add(groups_),
        arguments_.add(fault), arguments_.add(ctx.site);
    output_.append(arguments_, ctx);
    const int64_t blocks = ceil_div(shape_.n, kGroupThreads / kTeam * lines_);
    kernel(vectors_ && aligned(a) && aligned(b))
        .run(ctx.device, tile_grid(blocks, shape_.batches), arguments_.pointers.data(), arguments_.sizes);
  }

 private:
  static constexpr int64_t kTeam = kShortRowThreads;

  Kernel& kernel(bool v) {
    std::optional<Kernel>& k = kernels_[v ? 1 : 0];
    if (!k) k.emplace(type_, kGroupThreads, text(v));
    return *k;
  }
  std::string text(bool v) const {
    return kernel_source(
        {"device/groups.h", "matmul/tile.h", "matmul/gemv.h", "matmul/groups.h"}, kGroupThreads,
        fmt::format(
            "(const {0}* b, const {0}* a, pf::GemvShape p, const int* ends, int groups, pf::Fault* fault, int site{1}) "
            "{{ if (pf::group().x == 0 && pf::group().y == 0) pf::check_group_ends(ends, groups, p.batches, fault, "
            "site); {2} const pf::MatrixOfGroup matrix{{ends, groups}}; "
            "struct Row {{ const Out& out; PF_DEVICE void operator()(pf::i64 z, pf::i64 line, pf::i64, pf::C<{0}> x) "
            "const {{ out(0, z, line, x); }} }}; const Row row{{out}}; "
            "pf::gemv_along<{0}, 1, {3}, {4}, {5}, {6}, {7}>(b, a, p, row, matrix); }}",
            stored_, output_.parameters(), output_.text(false), kTeam, lines_, ahead_, kGroupThreads, v ? vec_ : 1));
  }

  Output output_;
  DeviceType type_;
  std::string stored_;
  BindingId a_, b_, ends_;
  int groups_ = 1;
  int64_t vec_ = 1, lines_ = 1, ahead_ = 1;
  bool vectors_ = false;
  pf::GemvShape shape_{};
  std::array<std::optional<Kernel>, 2> kernels_;
  Arguments arguments_;
};

Refusal accepts_gemv(const Problem& p) {
  const Operand &a = p.root().ins[0], &b = p.root().ins[1];
  if (b.shape.size() != 3) return "takes groups of rows";
  if (2 * a.shape[0] > p.root().ins[2].numel())
    return fmt::format("reads a matrix once for each row; got {} rows in {} groups", a.shape[0],
                       p.root().ins[2].numel());
  if (b.strides[1] != 1) return "the matrices are not contiguous along the sum";
  return std::nullopt;
}
Refusal accepts_units(const Problem& p) {
  if (!by_units(p.root().outs[0].dtype)) return "takes float16 and bfloat16";
  if (!has_units(p)) return "the architecture has no matrix cores";
  return std::nullopt;
}
std::unique_ptr<Executable> make_units(const Problem& p) { return std::make_unique<GroupedMm>(p, true); }
std::unique_ptr<Executable> make_gemv(const Problem& p) { return std::make_unique<GroupedGemv>(p); }
std::unique_ptr<Executable> make_tile(const Problem& p) { return std::make_unique<GroupedMm>(p, false); }

}  // namespace

std::span<const Impl> grouped_mm_impls(DeviceType) {
  static const Impl impls[] = {{"gpu.grouped_gemv", accepts_gemv, make_gemv},
                               {"gpu.grouped_units", accepts_units, make_units},
                               {"gpu.grouped_mm", accepts_all, make_tile}};
  return impls;
}

}  // namespace pyflame::gpu
