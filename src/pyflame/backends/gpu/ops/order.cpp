// sort, topk, randperm (kernels/order/radix.h, topk.h), argmax, argmin (kernels/order/arg.h) and draw_tokens (kernels/order/draw.h).
#include <algorithm>
#include <bit>
#include <optional>

#include "pyflame/backends/gpu/ops/sorter.h"
#include "pyflame/base/error.h"
#include "pyflame/kernels/order/arg_args.h"
#include "pyflame/kernels/order/sort.h"

namespace pyflame::gpu {

namespace {

int key_bits(DType d) { return static_cast<int>(8 * dtype_size(d)); }
bool wide_key(DType d) { return dtype_size(d) == 8; }
const char* key_type(DType d) { return wide_key(d) ? "pf::u64" : "pf::u32"; }

// An operand as rows along its last dim; a 0-d operand is one row of one element.
struct Rows {
  Operand operand;
  Dims shape;  // of the rows
  int64_t n = 1, stride = 1;
  View view;
  explicit Rows(const Operand& o) : operand(o) {
    if (!o.shape.empty()) {
      shape = leading(o.shape, 1);
      n = o.shape.back(), stride = o.strides.back();
      view = collapsed_view(shape, leading(o.strides, 1));
    }
  }
};

// The type of the elements changes no size.
using RowKeys = pf::RowKeys<pf::u8, false>;
using OrderedRows = pf::OrderedRows<pf::u8, false>;

// The first elements of each row in sorted order: sort; and topk, by sorting what was selected from the tiles of the
// row.
class Ordered final : public Executable {
 public:
  explicit Ordered(const Problem& p)
      : x_(p.root().ins[0]),
        values_(p.root().outs[0]),
        indices_(p.root().outs.back()),
        positions_(p.root().outs.size() > 1) {
    const Node& node = p.root();
    descending_ = node.op == OpId::sort ? node.attr<SortAttrs>().descending != 0 : node.attr<TopkAttrs>().largest != 0;
    PF_CHECK(values_.n <= x_.n, Value, "{}: k is larger than the row; got {}; expected k <= {}", op_name(node.op),
             values_.n, x_.n);
    rows_ = x_.shape.numel();
    if (rows_ == 0 || values_.n == 0) return;
    const DType d = x_.operand.dtype;
    const std::string keys = fmt::format("pf::RowKeys<{}, {}>", stored_type(d), descending_),
                      pairs = fmt::format("pf::Pairs<{}>", key_type(d));
    std::string source = keys;
    int64_t n = x_.n;
    if (values_.n <= kKeepAtMost)
      for (; n > Sorter::kTile || n > kManyTimes * values_.n; source = pairs) {
        if (n <= kShort) break;
        n = add_level(p.graph.device.type, d, source, n);
      }
    sorter_.emplace(Sorter::Spec{p.graph.device.type, "order/sort.h", source,
                                 fmt::format("pf::OrderedRows<{}, {}>", stored_type(d), descending_), wide_key(d),
                                 key_bits(d), rows_, n, values_.n});
    sorter_at_ = parts_.take(static_cast<int64_t>(sorter_->workspace()));
  }
  size_t workspace() const override { return parts_.size(); }
  void run(const RunContext& ctx) override {
    if (!sorter_) return;
    const auto bytes = [&](const Rows& r) { return static_cast<pf::u8*>(ctx.bindings[r.operand.binding]); };
    const RowKeys keys{bytes(x_), x_.view, x_.stride};
    Pairs from;
    for (size_t i = 0; i < levels_.size(); ++i) {
      Level& level = levels_[i];
      const Pairs to{bytes_at(ctx.workspace, level.keys),
                     reinterpret_cast<uint32_t*>(part_of(ctx.workspace, level.ids)), level.kept};
      const auto keep = static_cast<uint32_t>(values_.n);
      const int32_t bits = key_bits(x_.operand.dtype);
      const auto launch = [&](const auto& source) {
        level.kernel->launch(ctx.device, group_each(rows_ * level.tiles), source, to, rows_, level.n, level.tiles, keep,
                             bits);
      };
      if (i == 0) launch(keys);
      else launch(from);
      from = to;
    }
    auto* const indices = positions_ ? static_cast<pf::i64*>(ctx.bindings[indices_.operand.binding]) : nullptr;
    const OrderedRows sink{bytes(x_),      x_.view, x_.stride,     bytes(values_), values_.view,
                           values_.stride, indices, indices_.view, indices_.stride};
    void* const sorting = part_of(ctx.workspace, sorter_at_);
    if (levels_.empty()) sorter_->run(ctx.device, keys, sink, sorting);
    else sorter_->run(ctx.device, from, sink, sorting);
  }

 private:
  static constexpr int64_t kKeepAtMost = Sorter::kTile / 4;  // a level keeps at most a quarter
  static constexpr int64_t kManyTimes = 16, kShort = 1024;   // for longer rows, selecting is faster than sorting
  struct Level {
    int64_t n, tiles, kept;
    size_t keys, ids;
    std::unique_ptr<Kernel> kernel;
  };
  int64_t add_level(DeviceType type, DType d, const std::string& source, int64_t n) {
    Level level;
    level.n = n;
    level.tiles = (n + Sorter::kTile - 1) / Sorter::kTile;
    level.kept = (level.tiles - 1) * values_.n + std::min(values_.n, n - (level.tiles - 1) * Sorter::kTile);
    level.keys = parts_.take(rows_ * level.kept * (wide_key(d) ? 8 : 4));
    level.ids = parts_.take(rows_ * level.kept * 4);
    constexpr unsigned kKeepThreads = 512;
    level.kernel = std::make_unique<Kernel>(
        type, kKeepThreads,
        kernel_source({"order/keys.h", "order/radix.h", "order/sort.h", "order/topk.h"}, kKeepThreads,
                      fmt::format("({0} source, pf::Pairs<{1}> kept, pf::i64 rows, pf::i64 n, pf::i64 tiles, "
                                  "pf::u32 first, int bits) "
                                  "{{ pf::keep_first<{2}, {3}, {1}>(source, kept, rows, n, tiles, first, bits); }}",
                                  source, key_type(d), kKeepThreads, Sorter::kTile / kKeepThreads)));
    const int64_t kept = level.kept;
    levels_.push_back(std::move(level));
    return kept;
  }
  Rows x_, values_, indices_;
  bool positions_;  // whether they are wanted
  bool descending_ = false;
  int64_t rows_ = 0;
  Parts parts_;
  std::vector<Level> levels_;
  std::optional<Sorter> sorter_;
  size_t sorter_at_ = 0;
};

class Randperm final : public Executable {
 public:
  explicit Randperm(const Problem& p)
      : node_(p.root()),
        sorter_({p.graph.device.type, "order/sort.h", "pf::RandomKeys", "pf::Positions", true, 64, 1,
                 node_.outs[0].numel(), node_.outs[0].numel()}) {}
  size_t workspace() const override { return sorter_.workspace(); }
  void run(const RunContext& ctx) override {
    const pf::RandomKeys keys{static_cast<pf::u64>(ctx.params[node_.ins[0].param].as_i64()),
                              static_cast<pf::u64>(ctx.params[node_.ins[1].param].as_i64())};
    const Operand& out = node_.outs[0];
    const pf::Positions positions{static_cast<pf::i64*>(ctx.bindings[out.binding]), out.strides.back()};
    sorter_.run(ctx.device, keys, positions, ctx.workspace);
  }

 private:
  Node node_;
  Sorter sorter_;
};

class ArgBest final : public Executable {
 public:
  explicit ArgBest(const Problem& p) : x_(p.root().ins[0]), out_(p.root().outs[0]) {
    const int64_t dim = p.root().attr<ArgAttrs>().dim;
    const bool flat = dim < 0 || x_.shape.empty();
    Dims lines, line_strides, inner = x_.shape, inner_strides = x_.strides, to_strides;
    if (!flat) {
      const int d = static_cast<int>(dim);
      lines = inner, line_strides = inner_strides;
      lines.erase(d), line_strides.erase(d);
      inner = {x_.shape[d]}, inner_strides = {x_.strides[d]};
      to_strides = out_.strides;
      if (to_strides.size() == x_.shape.size()) to_strides.erase(d);  // the dim was kept
    }
    shape_.lines = lines.numel();
    shape_.n = inner.numel();
    PF_CHECK(shape_.lines == 0 || shape_.n > 0, Value,
             "{}: reduction over no elements; got shape {}; expected at least one element in the reduced dim",
             op_name(p.root().op), x_.shape.str());
    if (shape_.lines == 0) return;
    collapse(inner, inner_strides);
    to_ = collapsed_view(lines, to_strides);
    lines_ = collapsed_view(lines, line_strides);
    inner_ = view_of(inner, inner_strides);
    const bool neighbours = !lines.empty() && lines.back() > 1 && line_strides.back() == 1;
    rows_ = inner.size() == 1 && inner_strides[0] == 1;
    type_ = p.graph.device.type;
    smallest_ = p.root().op == OpId::argmin;
    vec_ = widest();
    choose(shape_.lines >= 32 && neighbours && !rows_);
    best(vec_);
    if (shape_.parts > 1)
      join_ = kernel("pf::ArgParts", fmt::format("ReadParts<{}>", key_type(x_.dtype)), "pf::ArgIndex", "WriteIndex",
                     join_lanes_);
  }
  size_t workspace() const override {
    return shape_.parts > 1 ? static_cast<size_t>(shape_.lines * shape_.parts * 16) : 0;
  }
  void run(const RunContext& ctx) override {
    if (shape_.lines == 0) return;
    const pf::ArgValues values{ctx.bindings[x_.binding], lines_, inner_};
    const pf::ArgIndex index{static_cast<pf::i64*>(ctx.bindings[out_.binding]), to_};
    const pf::ArgParts parts{ctx.workspace, shape_.parts};
    int64_t vec = vec_;
    while (reinterpret_cast<uintptr_t>(values.x) % static_cast<uintptr_t>(vec * dtype_size(x_.dtype))) vec /= 2;
    Kernel& first = best(vec == vec_ ? vec : 1);
    if (!join_) {
      first.launch(ctx.device, grid(shape_, lanes_), values, index, shape_);
      return;
    }
    first.launch(ctx.device, grid(shape_, lanes_), values, parts, shape_);
    const Shape joined{shape_.lines, shape_.parts, 1, shape_.parts};
    join_->launch(ctx.device, grid(joined, join_lanes_), parts, index, joined);
  }

 private:
  using Shape = pf::ArgShape;
  static std::array<unsigned, 3> grid(const Shape& s, int lanes) {
    const int64_t together = kGroupThreads / lanes;
    return group_each((s.lines * s.parts + together - 1) / together);
  }
  // Elements per access: every line begins at a multiple of it.
  int64_t widest() const {
    if (!rows_) return 1;
    int64_t vec = 16 / dtype_size(x_.dtype);
    for (int d = 0; d < lines_.rank; ++d)
      while (lines_.strides[d] % vec) vec /= 2;
    return vec;
  }
  // Threads per part of a line, and enough parts to fill a device; each part consists of whole accesses.
  void choose(bool a_line_each) {
    constexpr int64_t kGroups = 2048, kLeast = 32;  // elements per thread
    const auto threads = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>((shape_.n + vec_ - 1) / vec_)));
    lanes_ = a_line_each        ? 1
             : shape_.n >= 2048 ? static_cast<int>(kGroupThreads)
                                : static_cast<int>(std::min<int64_t>(threads, 32));
    const int64_t groups = (shape_.lines * lanes_ + kGroupThreads - 1) / kGroupThreads;
    const int64_t parts =
        std::max<int64_t>(1, std::min<int64_t>((kGroups + groups - 1) / groups, shape_.n / (lanes_ * kLeast)));
    shape_.part = ((shape_.n + parts - 1) / parts + vec_ - 1) / vec_ * vec_;
    shape_.parts = (shape_.n + shape_.part - 1) / shape_.part;
    join_lanes_ = shape_.parts > 256 ? static_cast<int>(kGroupThreads) : kShortRowThreads;
  }
  // With the arguments `from` and `to`, and the types that read and write them.
  std::unique_ptr<Kernel> kernel(const std::string& from, const std::string& reader, const std::string& to,
                                 const std::string& writer, int lanes) const {
    return std::make_unique<Kernel>(
        type_, kGroupThreads,
        kernel_source({"order/keys.h", "order/arg.h"}, kGroupThreads,
                      fmt::format("({0} from, {2} to, pf::ArgShape p) "
                                  "{{ pf::arg_best<{4}, {5}, {6}>(pf::{1}{{from}}, pf::{3}{{to}}, p); }}",
                                  from, reader, to, writer, key_type(x_.dtype), kGroupThreads, lanes)));
  }
  // With accesses of `vec` elements, or of one element if the operand is not aligned.
  Kernel& best(int64_t vec) {
    auto& k = vec == vec_ ? best_ : single_;
    if (!k)
      k = kernel("pf::ArgValues", fmt::format("ReadValues<{}, {}, {}>", stored_type(x_.dtype), smallest_, vec),
                 shape_.parts > 1 ? "pf::ArgParts" : "pf::ArgIndex",
                 shape_.parts > 1 ? fmt::format("WritePart<{}>", key_type(x_.dtype)) : "WriteIndex", lanes_);
    return *k;
  }
  Operand x_, out_;
  Shape shape_;
  View lines_, inner_, to_;
  DeviceType type_{};
  bool rows_ = false, smallest_ = false;
  int64_t vec_ = 1;
  int lanes_ = kShortRowThreads, join_lanes_ = kShortRowThreads;
  std::unique_ptr<Kernel> best_, single_, join_;
};

class DrawTokens final : public Executable {
 public:
  explicit DrawTokens(const Problem& p)
      : node_(p.root()),
        kernel_(p.graph.device.type, kThreads,
                kernel_source({"order/draw.h"}, kThreads,
                              fmt::format("(const float* logits, const float* settings, pf::i64* ids, float* highest, "
                                          "pf::i64 width, pf::i64 known) {{ pf::draw_tokens<{}>(logits, settings, ids, "
                                          "highest, width, known); }}",
                                          kThreads))) {}
  void run(const RunContext& ctx) override {
    const Operand& x = node_.ins[0];
    const int64_t width = x.strides[0], known = x.shape[1];
    kernel_.launch(ctx.device, {static_cast<unsigned>(x.shape[0]), 1, 1}, ctx.bindings[x.binding],
                   ctx.bindings[node_.ins[1].binding], ctx.bindings[node_.outs[0].binding],
                   ctx.bindings[node_.outs[1].binding], width, known);
  }

 private:
  static constexpr unsigned kThreads = 1024;  // a row is long
  Node node_;
  Kernel kernel_;
};

}  // namespace

std::span<const Impl> draw_tokens_impls(DeviceType) {
  static const Impl impl{"gpu.draw_tokens", accepts_all, make_of<DrawTokens>};
  return {&impl, 1};
}
std::span<const Impl> sort_impls(DeviceType) {
  static const Impl impl{"gpu.order", accepts_all, make_of<Ordered>};
  return {&impl, 1};
}
std::span<const Impl> topk_impls(DeviceType type) { return sort_impls(type); }
std::span<const Impl> randperm_impls(DeviceType) {
  static const Impl impl{"gpu.randperm", accepts_all, make_of<Randperm>};
  return {&impl, 1};
}
std::span<const Impl> argmax_impls(DeviceType) {
  static const Impl impl{"gpu.arg", accepts_all, make_of<ArgBest>};
  return {&impl, 1};
}
std::span<const Impl> argmin_impls(DeviceType type) { return argmax_impls(type); }

}  // namespace pyflame::gpu
