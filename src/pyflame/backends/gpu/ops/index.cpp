// gather, index_select (kernels/index/take.h), scatter_add, index_add, scatter, index_put (kernels/index/put.h, fixed.h and sum.h), nonzero,
// searchsorted.
#include <algorithm>
#include <bit>
#include <optional>

#include "pyflame/backends/gpu/ops/sorter.h"
#include "pyflame/backends/gpu/shapes/walk.h"
#include "pyflame/base/error.h"
#include "pyflame/kernels/index/bag_args.h"
#include "pyflame/kernels/index/sum_args.h"

namespace pyflame::gpu {

namespace {

// The stride along dim; a 0-d operand has one element.
int64_t size_along(const Operand& o, int dim) { return o.shape.empty() ? 1 : o.shape[dim]; }
int64_t stride_along(const Operand& o, int dim) { return o.shape.empty() ? 1 : o.strides[dim]; }

const char* word_type(int64_t bytes) {
  switch (bytes) {
    case 1: return "pf::u8";
    case 2: return "pf::u16";
    case 4: return "pf::u32";
    case 8: return "pf::u64";
    default: return "pf::Word16";
  }
}

class Take final : public Executable {
 public:
  explicit Take(const Problem& p) : x_(p.root().ins[0]), index_(p.root().ins[1]), y_(p.root().outs[0]) {
    type_ = p.graph.device.type;
    dim_ = static_cast<int>(p.root().attr<DimAttrs>().dim);
    slices_ = p.root().op == OpId::index_select;
    bytes_ = dtype_size(y_.dtype);
    if (y_.numel() > 0) kernel(widest());
  }
  void run(const RunContext& ctx) override {
    if (y_.numel() == 0) return;
    void* const x = ctx.bindings[x_.binding];
    void* const y = ctx.bindings[y_.binding];
    int64_t word = widest();
    for (const void* p : {x, y})
      while (reinterpret_cast<uintptr_t>(p) % static_cast<uintptr_t>(word)) word /= 2;
    const Walk<3> w = walk(word);
    const int64_t stride = stride_along(x_, dim_) * bytes_ / word;
    kernel(word).launch(ctx.device, {groups_for(w.count, kGroupThreads * kEach), 1, 1}, ctx.bindings[index_.binding], x,
                        y, w, stride, size_along(x_, dim_), ctx.fault, ctx.site);
  }

 private:
  static constexpr int kEach = 4;
  // The largest word that can be moved: the slice and everything in front of it must consist of whole, aligned words of
  // this size.
  int64_t widest() const {
    const int last = y_.shape.size() - 1;
    if (!slices_ || last <= dim_ || x_.strides[last] != 1 || y_.strides[last] != 1) return bytes_;
    int64_t word = 16;
    for (; word > bytes_; word /= 2) {
      bool fits = y_.shape[last] * bytes_ % word == 0;
      for (int d = 0; d < last; ++d)
        fits = fits && x_.strides[d] * bytes_ % word == 0 && y_.strides[d] * bytes_ % word == 0;
      if (fits) break;
    }
    return std::max(word, bytes_);
  }
  Walk<3> walk(int64_t word) const {
    const int64_t together = word / bytes_;
    Dims shape = y_.shape, index = index_.strides, x = x_.strides, y = y_.strides;
    const int rank = shape.size();
    if (slices_) {
      index = Dims::filled(rank, 0);
      if (rank > 0) index[dim_] = index_.strides[0];
    }
    if (rank > 0) x[dim_] = 0;
    if (together > 1) {
      shape.back() /= together;
      for (int d = 0; d + 1 < rank; ++d) x[d] /= together, y[d] /= together;
    }
    return Walk<3>(shape, {index, x, y});
  }
  Kernel& kernel(int64_t word) {
    auto& k = kernels_[static_cast<size_t>(std::countr_zero(static_cast<uint64_t>(word)))];
    if (!k)
      k = std::make_unique<Kernel>(
          type_, kGroupThreads,
          kernel_source(
              {"device/divider.h", "index/walk.h", "index/take.h"}, kGroupThreads,
              fmt::format("(const pf::i64* index, const {0}* x, {0}* y, pf::Walk<3, {1}> walk, pf::i64 stride, "
                          "pf::i64 size, pf::Fault* fault, int site) "
                          "{{ pf::take<{0}, {1}, {2}, {3}>(index, x, y, walk, stride, size, fault, site); }}",
                          word_type(word), walk(word).wide(), kGroupThreads, kEach)));
    return *k;
  }
  Operand x_, index_, y_;
  DeviceType type_;
  int dim_ = 0;
  bool slices_ = false;
  int64_t bytes_ = 0;
  std::array<std::unique_ptr<Kernel>, 5> kernels_;  // by the size of the word
};

// Fills an operand of any strides with zeros, as its own kernel.
class Zeros {
 public:
  Zeros(DeviceType type, const Operand& o) : o_(o) {
    const int64_t bytes = o.numel() * dtype_size(o.dtype);
    word_ = o.contiguous ? 16 : dtype_size(o.dtype);
    while (bytes % word_) word_ /= 2;
    count_ = bytes / word_;
    const char* body = o.contiguous
                           ? "({0}* p, pf::i64 count) {{ pf::fill_zero<{0}, {1}>(p, count); }}"
                           : "({0}* p, pf::i64 count, pf::View view) {{ pf::fill_zero<{0}, {1}>(p, view, count); }}";
    kernel_ =
        std::make_unique<Kernel>(type, kGroupThreads,
                                 kernel_source({"device/divider.h", "index/walk.h", "index/fill.h"}, kGroupThreads,
                                               fmt::format(fmt::runtime(body), word_type(word_), kGroupThreads)));
  }
  void run(int device, void* p) {
    const unsigned groups = groups_for(count_, kGroupThreads * 4);
    if (o_.contiguous) kernel_->launch(device, {groups, 1, 1}, p, count_);
    else kernel_->launch(device, {groups, 1, 1}, p, count_, view_of(o_.shape, o_.strides));
  }

 private:
  Operand o_;
  int64_t word_ = 0, count_ = 0;
  std::unique_ptr<Kernel> kernel_;
};

// scatter_add and index_add write onto zeros, scatter and index_put onto what is there. What their implementations share: the layout of
// kernels/index/sum.h, in which lines are all dims except the indexed one, and the last dim behind that belongs to the source where there is an
// index for each slice.
struct PutLayout {
  explicit PutLayout(const Problem& p)
      : index(p.root().ins[p.root().ins.size() - 2]), src(p.root().ins.back()), out(p.root().outs[0]) {
    const OpId op = p.root().op;
    slices = op == OpId::index_add || op == OpId::index_put;
    onto = op == OpId::scatter || op == OpId::index_put;
    dim = static_cast<int>(onto ? p.root().attr<ScatterAttrs>().dim : p.root().attr<DimAttrs>().dim);
    if (onto) how = static_cast<Combine>(p.root().attr<ScatterAttrs>().combine);
    const Dims& walked = slices ? src.shape : index.shape;
    nothing = out.numel() == 0 || walked.numel() == 0;
    if (nothing) return;
    size = size_along(out, dim);
    const int rank = walked.size(), last = rank - 1;
    shape.shared_keys = slices ? 1 : 0;
    shape.count = rank > 0 ? walked[dim] : 1;
    shape.from_stride = stride_along(src, dim), shape.to_stride = stride_along(out, dim);
    index_stride = index.shape.empty() ? 1 : slices ? index.strides[0] : index.strides[dim];
    Dims lines, from, to, at;
    for (int d = 0; d < rank; ++d) {
      if (d == dim) continue;
      if (slices && d == last) {
        shape.width = walked[d], shape.from_step = src.strides[d], shape.to_step = out.strides[d];
        continue;
      }
      lines.push_back(walked[d]), from.push_back(src.strides[d]), to.push_back(out.strides[d]);
      if (!slices) at.push_back(index.strides[d]);
    }
    shape.lines = lines.numel();
    shape.from_lines = collapsed_view(lines, from), shape.to_lines = collapsed_view(lines, to);
    if (!slices) index_lines = collapsed_view(lines, at);
  }
  int64_t key_lines() const { return shape.shared_keys ? 1 : shape.lines; }
  // Whether neighbours in memory are the sources of neighbouring lines.
  bool across() const {
    const View& from = shape.from_lines;
    return shape.width == 1 && from.rank > 0 && from.strides[from.rank - 1] == 1 && shape.from_stride != 1;
  }
  // One line with few destinations of one element, and many sources for each: workgroups combine them in shared memory.
  bool into_few() const {
    return shape.lines == 1 && shape.width == 1 && size <= kFew && shape.count > kEachOfFew * size;
  }
  static constexpr int64_t kFew = 2048, kEachOfFew = 16;
  pf::IndexKeys keys(const RunContext& ctx) const {
    return {static_cast<const pf::i64*>(ctx.bindings[index.binding]),
            index_lines,
            index_stride,
            size,
            fault_of(ctx),
            ctx.site};
  }
  // Whether `n` adjacent elements can be moved together: sources and destinations are rows whose length is a multiple of that.
  bool in_groups_of(int64_t n) const {
    if (shape.from_step != 1 || shape.to_step != 1 || shape.width % n || shape.from_stride % n || shape.to_stride % n)
      return false;
    for (const View* v : {&shape.from_lines, &shape.to_lines})
      for (int d = 0; d < v->rank; ++d)
        if (v->strides[d] % n) return false;
    return true;
  }

  Operand index, src, out;
  bool slices = false, onto = false, nothing = false;
  int dim = 0;
  Combine how = Combine::Sum;
  int64_t size = 0, index_stride = 1;  // size: destinations of a line
  pf::SumShape shape;
  View index_lines;
};

bool is_aligned(std::initializer_list<const void*> pointers, int64_t bytes) {
  return std::all_of(pointers.begin(), pointers.end(), [&](const void* p) {
    return reinterpret_cast<uintptr_t>(p) % static_cast<uintptr_t>(bytes) == 0;
  });
}

// Sums and other ways to combine, by a sort (kernels/index/sum.h).
class PutSorted final : public Executable {
 public:
  explicit PutSorted(const Problem& p) : at_(p), s_(at_.shape), type_(p.graph.device.type) {
    if (at_.out.numel() == 0) return;
    if (!at_.onto) zeros_.emplace(type_, at_.out);
    if (at_.nothing) return;
    PF_CHECK(at_.size < 0xffffffff, NotImplemented, "{}: the dim is too long; got {}; expected less than 2^32 - 1",
             op_name(p.root().op), at_.size);
    s_.pieces = (s_.count + kPiece - 1) / kPiece;
    // There is one more key than destinations, so a bad index is sorted last.
    const int bits = 64 - std::countl_zero(static_cast<uint64_t>(at_.size));
    const int64_t sorted = at_.key_lines();
    sorter_.emplace(Sorter::Spec{type_, "index/sum.h", "pf::IndexKeys", "pf::Pairs<pf::u32>", false, bits, sorted,
                                 s_.count, s_.count});
    sorter_at_ = parts_.take(static_cast<int64_t>(sorter_->workspace()));
    keys_ = parts_.take(sorted * s_.count * 4);
    ids_ = parts_.take(sorted * s_.count * 4);
    partial_ = parts_.take(s_.lines * s_.pieces * 2 * s_.width * std::max<int64_t>(4, dtype_size(at_.out.dtype)));
    const int64_t some = dtype_size(at_.out.dtype) == 8 ? 2 : 4;
    vec_ = at_.in_groups_of(some) ? some : 1;
    kernels(vec_);
  }
  size_t workspace() const override { return parts_.size(); }
  void run(const RunContext& ctx) override {
    void* const out = ctx.bindings[at_.out.binding];
    if (zeros_) zeros_->run(ctx.device, out);
    if (!sorter_) return;
    const Pairs sorted{bytes_at(ctx.workspace, keys_), reinterpret_cast<uint32_t*>(part_of(ctx.workspace, ids_)),
                       s_.count};
    sorter_->run(ctx.device, at_.keys(ctx), sorted, part_of(ctx.workspace, sorter_at_));
    void* const partial = part_of(ctx.workspace, partial_);
    const void* const src = ctx.bindings[at_.src.binding];
    const int64_t vec = is_aligned({src, out}, vec_ * dtype_size(at_.out.dtype)) ? vec_ : 1;
    Sums& k = kernels(vec);
    const auto grid = group_each(ceil_div(s_.lines * s_.pieces * s_.width / vec, kGroupThreads));
    k.sum->launch(ctx.device, grid, sorted.keys, sorted.ids, src, out, partial, s_);
    if (k.join) k.join->launch(ctx.device, grid, sorted.keys, out, partial, s_);
  }

 private:
  static constexpr int kPiece = 16;
  struct Sums {
    std::unique_ptr<Kernel> sum, join;
  };
  // `vec`: elements per access.
  Sums& kernels(int64_t vec) {
    Sums& k = vec > 1 ? several_ : single_;
    const auto kernel = [&](const char* body) {
      return std::make_unique<Kernel>(
          type_, kGroupThreads,
          kernel_source({"order/keys.h", "order/radix.h", "index/sum.h"}, kGroupThreads,
                        fmt::format(fmt::runtime(body), stored_type(at_.out.dtype), kGroupThreads, kPiece, vec,
                                    static_cast<int>(at_.how), at_.onto)));
    };
    if (!k.sum)
      k.sum = kernel(
          "(const pf::u32* keys, const pf::u32* ids, const {0}* from, {0}* to, pf::C<{0}>* partial, pf::SumShape p) "
          "{{ pf::sum_pieces<{0}, {1}, {2}, {3}, {4}, {5}>(keys, ids, from, to, partial, p); }}");
    if (!k.join && s_.pieces > 1)
      k.join = kernel(
          "(const pf::u32* keys, {0}* to, const pf::C<{0}>* partial, pf::SumShape p) "
          "{{ pf::join_pieces<{0}, {1}, {2}, {3}, {4}, {5}>(keys, to, partial, p); }}");
    return k;
  }
  PutLayout at_;
  pf::SumShape s_;
  DeviceType type_;
  Parts parts_;
  size_t sorter_at_ = 0, keys_ = 0, ids_ = 0, partial_ = 0;
  std::optional<Zeros> zeros_;
  std::optional<Sorter> sorter_;
  int64_t vec_ = 1;
  Sums single_, several_;
};

constexpr int64_t kMostInGroup = 8192;  // destinations, of 4 bytes in shared memory

std::unique_ptr<Kernel> put_kernel(DeviceType type, const std::string& body, unsigned threads = kGroupThreads) {
  return std::make_unique<Kernel>(type, threads,
                                  kernel_source({"device/divider.h", "index/walk.h", "index/fill.h", "order/keys.h",
                                                 "order/radix.h", "index/sum.h", "index/put.h"},
                                                threads, body));
}

// How many adjacent lines a workgroup writes by put_last_in_groups; 0: the numbers of their sources do not fit into shared memory, or there are
// too few lines for a workgroup each.
int64_t lines_of_group(const PutLayout& at) {
  constexpr int64_t kFewLines = 64, kSmall = 1 << 16;
  if (at.shape.width != 1 || at.shape.shared_keys) return 0;
  for (const int64_t lines : at.across() ? std::vector<int64_t>{8, 4} : std::vector<int64_t>{1})
    if (at.size * lines <= kMostInGroup)
      return at.shape.lines >= kFewLines * lines || at.shape.lines * at.shape.count <= kSmall ? lines : 0;
  return 0;
}

// Replaces (kernels/index/put.h).
class PutLast final : public Executable {
 public:
  explicit PutLast(const Problem& p) : at_(p), type_(p.graph.device.type), bytes_(dtype_size(at_.out.dtype)) {
    if (at_.nothing) return;
    last_bytes_ = ceil_div(at_.key_lines() * at_.size * 4, 16) * 16;
    word_ = 16;
    while (word_ > bytes_ && !at_.in_groups_of(word_ / bytes_)) word_ /= 2;
    clear_ = put_kernel(
        type_,
        fmt::format("(pf::Word16* p, pf::i64 count) {{ pf::fill_zero<pf::Word16, {}>(p, count); }}", kGroupThreads));
    find_ = put_kernel(type_, fmt::format("(pf::IndexKeys keys, pf::u32* last, pf::i64 lines, pf::i64 count) "
                                          "{{ pf::find_last<{}, {}>(keys, last, lines, count); }}",
                                          kGroupThreads, at_.across()));
    kernel(word_);
  }
  size_t workspace() const override { return static_cast<size_t>(last_bytes_); }
  void run(const RunContext& ctx) override {
    if (at_.nothing) return;
    void* const last = ctx.workspace;
    void *const src = ctx.bindings[at_.src.binding], *const out = ctx.bindings[at_.out.binding];
    const auto grid = [](int64_t n) { return std::array<unsigned, 3>{groups_for(n, kGroupThreads), 1, 1}; };
    pf::SumShape s = at_.shape;
    clear_->launch(ctx.device, grid(last_bytes_ / 16), last, last_bytes_ / 16);
    const pf::IndexKeys keys = at_.keys(ctx);
    find_->launch(ctx.device, grid(at_.key_lines() * s.count), keys, last, at_.key_lines(), s.count);
    int64_t word = word_;
    while (!is_aligned({src, out}, word)) word /= 2;
    if (const int64_t together = word / bytes_; together > 1) {
      s.width /= together, s.from_stride /= together, s.to_stride /= together;
      for (View* v : {&s.from_lines, &s.to_lines})
        for (pf::i64& stride : v->strides) stride /= together;
    }
    kernel(word).launch(ctx.device, grid(s.lines * s.count * s.width), keys, last, src, out, s);
  }

 private:
  Kernel& kernel(int64_t word) {
    auto& k = kernels_[static_cast<size_t>(std::countr_zero(static_cast<uint64_t>(word)))];
    if (!k)
      k = put_kernel(type_, fmt::format("(pf::IndexKeys keys, const pf::u32* last, const {0}* from, {0}* to, "
                                        "pf::SumShape p) {{ pf::put_last<{0}, {1}, {2}>(keys, last, from, to, p); }}",
                                        word_type(word), kGroupThreads, at_.across()));
    return *k;
  }
  PutLayout at_;
  DeviceType type_;
  int64_t bytes_, word_ = 0, last_bytes_ = 0;
  std::unique_ptr<Kernel> clear_, find_;
  std::array<std::unique_ptr<Kernel>, 5> kernels_;  // by the size of the word
};

// Replaces in short lines, with one launch (kernels/index/put.h).
class PutLastInGroups final : public Executable {
 public:
  explicit PutLastInGroups(const Problem& p) : at_(p) {
    if (at_.nothing) return;
    const int64_t lines = lines_of_group(at_);
    const unsigned threads = lines > 1 ? 1024 : kGroupThreads;
    groups_ = ceil_div(at_.shape.lines, lines);
    kernel_ = put_kernel(p.graph.device.type,
                         fmt::format("(pf::IndexKeys keys, const {0}* from, {0}* to, pf::SumShape p) "
                                     "{{ pf::put_last_in_groups<{0}, {1}, {2}, {3}>(keys, from, to, p); }}",
                                     word_type(dtype_size(at_.out.dtype)), threads, lines, kMostInGroup),
                         threads);
  }
  void run(const RunContext& ctx) override {
    if (!kernel_) return;
    kernel_->launch(ctx.device, group_each(groups_), at_.keys(ctx), ctx.bindings[at_.src.binding],
                    ctx.bindings[at_.out.binding], at_.shape);
  }

 private:
  PutLayout at_;
  int64_t groups_ = 0;
  std::unique_ptr<Kernel> kernel_;
};

// Sums of 16-bit floats and float32 (kernels/index/fixed.h).
class PutFixed final : public Executable {
 public:
  explicit PutFixed(const Problem& p) : at_(p), type_(p.graph.device.type) {
    if (at_.out.numel() == 0) return;
    if (at_.nothing) {
      zeros_.emplace(type_, at_.out);
      return;
    }
    places_ = at_.shape.lines * at_.size;
    spare_ = spare_bits(at_.shape.count);
    few_ = at_.into_few();
    sums_ = parts_.take(places_ * 8), tops_ = parts_.take(places_ * 4);
    const std::string s = stored_type(at_.out.dtype), sources = fmt::format("{}, {}, {}, {}", s, kGroupThreads,
                                                                            at_.across(), few_ ? PutLayout::kFew : 0);
    clear_ = kernel("(pf::Word16* p, pf::i64 count) {{ pf::fill_zero<pf::Word16, {1}>(p, count); }}", sources);
    find_ = kernel(
        "(pf::IndexKeys keys, const {0}* from, pf::u32* tops, pf::SumShape p) "
        "{{ pf::find_tops<{2}>(keys, from, tops, p); }}",
        sources);
    add_ = kernel(
        "(pf::IndexKeys keys, const {0}* from, const pf::u32* tops, pf::u64* sums, pf::SumShape p, int spare) "
        "{{ pf::add_fixed<{2}>(keys, from, tops, sums, p, spare); }}",
        sources);
    store_ = kernel(
        "(const pf::u32* tops, const pf::u64* sums, {0}* to, pf::SumShape p, pf::i64 size, int spare) "
        "{{ pf::store_fixed<{0}, {1}>(tops, sums, to, p, size, spare); }}",
        sources);
  }
  size_t workspace() const override { return parts_.size(); }
  void run(const RunContext& ctx) override {
    void *const src = ctx.bindings[at_.src.binding], *const out = ctx.bindings[at_.out.binding];
    if (zeros_) zeros_->run(ctx.device, out);
    if (!clear_) return;
    void *const sums = part_of(ctx.workspace, sums_), *const tops = part_of(ctx.workspace, tops_);
    const auto grid = [](int64_t n) { return std::array<unsigned, 3>{groups_for(n, kGroupThreads), 1, 1}; };
    const int64_t words = ceil_div(static_cast<int64_t>(parts_.size()), 16);
    clear_->launch(ctx.device, grid(words), ctx.workspace, words);
    const auto sources = grid(ceil_div(at_.shape.lines * at_.shape.count, few_ ? PutLayout::kEachOfFew : 1));
    const pf::IndexKeys keys = at_.keys(ctx);
    find_->launch(ctx.device, sources, keys, src, tops, at_.shape);
    add_->launch(ctx.device, sources, keys, src, tops, sums, at_.shape, spare_);
    store_->launch(ctx.device, grid(places_), tops, sums, out, at_.shape, at_.size, spare_);
  }
  // The bits that 64-bit sums of `count` sources have beside the sign, the 24 of a source and those of the count.
  static int spare_bits(int64_t count) { return 38 - std::bit_width(static_cast<uint64_t>(count - 1)); }

 private:
  std::unique_ptr<Kernel> kernel(const char* body, const std::string& sources) {
    return std::make_unique<Kernel>(
        type_, kGroupThreads,
        kernel_source({"device/divider.h", "index/walk.h", "index/fill.h", "order/keys.h", "order/radix.h",
                       "index/sum.h", "index/put.h", "index/fixed.h"},
                      kGroupThreads,
                      fmt::format(fmt::runtime(body), stored_type(at_.out.dtype), kGroupThreads, sources)));
  }
  PutLayout at_;
  DeviceType type_;
  int64_t places_ = 0;
  int spare_ = 0;
  bool few_ = false;
  Parts parts_;
  size_t sums_ = 0, tops_ = 0;
  std::optional<Zeros> zeros_;
  std::unique_ptr<Kernel> clear_, find_, add_, store_;
};

// Sums of int32 and int64 (kernels/index/put.h).
class PutInteger final : public Executable {
 public:
  explicit PutInteger(const Problem& p) : at_(p) {
    const DeviceType type = p.graph.device.type;
    if (!at_.onto && at_.out.numel() > 0) zeros_.emplace(type, at_.out);
    if (at_.nothing) return;
    const char* word = at_.out.dtype == DType::int64 ? "pf::u64" : "pf::u32";
    few_ = at_.into_few();
    kernel_ = put_kernel(
        type,
        fmt::format("(pf::IndexKeys keys, const {0}* from, {0}* to, pf::SumShape p) {{ pf::{1}(keys, from, to, p); }}",
                    word,
                    few_ ? fmt::format("add_in_groups<{}, {}, {}>", word, kGroupThreads, PutLayout::kFew)
                         : fmt::format("add_atomically<{}, {}, {}>", word, kGroupThreads, at_.across())));
  }
  void run(const RunContext& ctx) override {
    void *const src = ctx.bindings[at_.src.binding], *const out = ctx.bindings[at_.out.binding];
    if (zeros_) zeros_->run(ctx.device, out);
    if (!kernel_) return;
    const int64_t count = at_.shape.lines * at_.shape.count * at_.shape.width;
    const unsigned groups = groups_for(count, kGroupThreads * (few_ ? PutLayout::kEachOfFew : 1));
    kernel_->launch(ctx.device, {groups, 1, 1}, at_.keys(ctx), src, out, at_.shape);
  }

 private:
  PutLayout at_;
  bool few_ = false;
  std::optional<Zeros> zeros_;
  std::unique_ptr<Kernel> kernel_;
};

Refusal refuses_last(const Problem& p) {
  constexpr int64_t kFew = 1 << 20;  // destinations
  const PutLayout at(p);
  if (at.how != Combine::Replace) return "only replaces";
  if (at.nothing) return std::nullopt;
  const int64_t destinations = at.key_lines() * at.size, sources = at.key_lines() * at.shape.count;
  if (at.shape.count >= 0xffffffff || at.size >= 0xffffffff) return "the dim is too long";
  if (destinations > kFew && destinations / 8 > sources)
    return "needs a number for each destination, of which few are written";
  return std::nullopt;
}
Refusal refuses_last_in_groups(const Problem& p) {
  const PutLayout at(p);
  if (at.how != Combine::Replace) return "only replaces";
  if (at.nothing) return std::nullopt;
  if (at.shape.count >= 0xffffffff) return "the dim is too long";
  if (!lines_of_group(at)) return "only writes many short lines of sources with one element";
  return std::nullopt;
}
Refusal refuses_fixed(const Problem& p) {
  constexpr int kFewestSpare = 8;
  const PutLayout at(p);
  if (at.how != Combine::Sum || at.onto) return "only adds onto zeros";
  if (!is_float(at.out.dtype) || at.out.dtype == DType::float64) return "only adds 16-bit floats and float32";
  if (at.nothing) return std::nullopt;
  if (at.shape.width != 1) return "only adds sources of one element";
  const int64_t places = at.shape.lines * at.size;
  if (places != at.out.numel()) return "needs sources in every line of the destination";
  if (places > 2 * at.shape.lines * at.shape.count)
    return "needs a number for each destination, of which few are written";
  if (PutFixed::spare_bits(at.shape.count) < kFewestSpare) return "the dim is too long";
  return std::nullopt;
}
Refusal refuses_integers(const Problem& p) {
  const PutLayout at(p);
  if (at.how != Combine::Sum) return "only adds";
  if (at.out.dtype != DType::int32 && at.out.dtype != DType::int64)
    return "only adds int32 and int64, whose sums do not depend on the order";
  if (at.size >= 0xffffffff) return "the dim is too long";
  return std::nullopt;
}

class EmbeddingBag final : public Executable {
 public:
  explicit EmbeddingBag(const Problem& p)
      : table_(p.root().ins[0]), index_(p.root().ins[1]), offsets_(p.root().ins[2]), out_(p.root().outs[0]) {
    s_.bags = offsets_.shape[0], s_.rows = index_.shape[0], s_.width = table_.shape[1], s_.size = table_.shape[0];
    s_.row = table_.strides[0], s_.column = table_.strides[1];
    s_.index_step = index_.strides[0], s_.begin = offsets_.strides[0];
    s_.to_row = out_.strides[0], s_.to_column = out_.strides[1];
    kernel_ = std::make_unique<Kernel>(
        p.graph.device.type, kGroupThreads,
        kernel_source({"index/bag.h"}, kGroupThreads,
                      fmt::format("(const {0}* table, const pf::i64* index, const pf::i64* offsets, {0}* to, "
                                  "pf::BagShape p, pf::Fault* fault, int site) "
                                  "{{ pf::sum_bags<{0}, {1}>(table, index, offsets, to, p, fault, site); }}",
                                  stored_type(table_.dtype), kGroupThreads)));
  }
  void run(const RunContext& ctx) override {
    if (out_.numel() == 0) return;
    kernel_->launch(ctx.device, {groups_for(out_.numel(), kGroupThreads), 1, 1}, ctx.bindings[table_.binding],
                    ctx.bindings[index_.binding], ctx.bindings[offsets_.binding], ctx.bindings[out_.binding], s_,
                    fault_of(ctx), ctx.site);
  }

 private:
  Operand table_, index_, offsets_, out_;
  pf::BagShape s_;
  std::unique_ptr<Kernel> kernel_;
};

class Nonzero final : public Executable {
 public:
  explicit Nonzero(const Problem& p) : mask_(p.root().ins[0]), fill_(p.root().ins[1]), out_(p.root().outs[0]) {
    n_ = mask_.numel();
    PF_CHECK(n_ < int64_t{1} << 32, NotImplemented, "nonzero: too many elements; got {}; expected less than 2^32", n_);
    tiles_ = std::max<int64_t>(1, (n_ + kTile - 1) / kTile);
    counts_ = parts_.take(tiles_ * 4), total_ = parts_.take(4);
    const auto kernel = [&](const char* body) {
      return std::make_unique<Kernel>(p.graph.device.type, kGroupThreads,
                                      kernel_source({"order/radix.h", "index/nonzero.h"}, kGroupThreads,
                                                    fmt::format(fmt::runtime(body), kGroupThreads, kItems)));
    };
    count_ = kernel(
        "(const pf::u8* mask, pf::u32* counts, pf::i64 n, pf::i64 step) "
        "{{ pf::count_true<{0}, {1}>(mask, counts, n, step); }}");
    sum_ = kernel(
        "(pf::u32* counts, pf::u32* totals, pf::i64 lines, pf::i64 tiles) "
        "{{ pf::sum_counts<{0}>(counts, totals, lines, tiles); }}");
    put_ = kernel(
        "(const pf::u8* mask, const pf::u32* counts, const pf::u32* total, pf::i64* to, pf::i64 n, "
        "pf::i64 step, pf::i64 size, pf::i64 fill) "
        "{{ pf::put_true<{0}, {1}>(mask, counts, total, to, n, step, size, fill); }}");
  }
  size_t workspace() const override { return parts_.size(); }
  void run(const RunContext& ctx) override {
    if (out_.numel() == 0) return;
    const void* const mask = ctx.bindings[mask_.binding];
    void* const counts = part_of(ctx.workspace, counts_);
    void* const total = part_of(ctx.workspace, total_);
    const int64_t step = stride_along(mask_, 0);
    count_->launch(ctx.device, group_each(tiles_), mask, counts, n_, step);
    sum_->launch(ctx.device, {1, 1, 1}, counts, total, int64_t{1}, tiles_);
    put_->launch(ctx.device, group_each(tiles_), mask, counts, total, ctx.bindings[out_.binding], n_, step,
                 out_.numel(), ctx.param(fill_).as_i64());
  }

 private:
  static constexpr int kItems = 16;
  static constexpr int64_t kTile = int64_t{kGroupThreads} * kItems;
  Operand mask_, fill_, out_;
  int64_t n_ = 0, tiles_ = 0;
  Parts parts_;
  size_t counts_ = 0, total_ = 0;
  std::unique_ptr<Kernel> count_, sum_, put_;
};

class SearchSorted final : public Executable {
 public:
  explicit SearchSorted(const Problem& p) : sorted_(p.root().ins[0]), values_(p.root().ins[1]), out_(p.root().outs[0]) {
    const int rows = sorted_.shape.size() - 1;
    Dims lines, strides;
    for (int d = 0; d < rows; ++d) lines.push_back(sorted_.shape[d]), strides.push_back(sorted_.strides[d]);
    lines_ = collapsed_view(lines, strides);
    each_ = rows > 0 ? std::max<int64_t>(1, values_.shape.back()) : std::max<int64_t>(1, values_.numel());
    where_ = collapsed_view(values_.shape, values_.strides);
    const bool right = p.root().attr<SearchAttrs>().right != 0;
    kernel_ = std::make_unique<Kernel>(
        p.graph.device.type, kGroupThreads,
        kernel_source({"index/search.h"}, kGroupThreads,
                      fmt::format("(const {0}* sorted, const {0}* values, pf::i64* to, pf::View lines, pf::View where, "
                                  "pf::i64 n, pf::i64 step, pf::i64 each, pf::i64 count) "
                                  "{{ pf::search_sorted<{0}, {1}, {2}, {3}, {4}>(sorted, values, to, lines, where, n, "
                                  "step, each, count); }}",
                                  stored_type(sorted_.dtype), right, kGroupThreads,
                                  sorted_.shape.back() < int64_t{1} << 31 ? "pf::u32" : "pf::i64", rows > 0)));
  }
  void run(const RunContext& ctx) override {
    const int64_t count = out_.numel();
    if (count == 0) return;
    kernel_->launch(ctx.device, {groups_for(count, kGroupThreads), 1, 1}, ctx.bindings[sorted_.binding],
                    ctx.bindings[values_.binding], ctx.bindings[out_.binding], lines_, where_, sorted_.shape.back(),
                    sorted_.strides.back(), each_, count);
  }

 private:
  Operand sorted_, values_, out_;
  View lines_, where_;
  int64_t each_ = 1;
  std::unique_ptr<Kernel> kernel_;
};

}  // namespace

std::span<const Impl> gather_impls(DeviceType) {
  static const Impl impl{"gpu.take", accepts_all, make_of<Take>};
  return {&impl, 1};
}
std::span<const Impl> index_select_impls(DeviceType type) { return gather_impls(type); }
std::span<const Impl> scatter_add_impls(DeviceType) {
  static const Impl impls[] = {{"gpu.put_last_in_groups", refuses_last_in_groups, make_of<PutLastInGroups>},
                               {"gpu.put_last", refuses_last, make_of<PutLast>},
                               {"gpu.put_integers", refuses_integers, make_of<PutInteger>},
                               {"gpu.put_fixed", refuses_fixed, make_of<PutFixed>},
                               {"gpu.put_sorted", accepts_all, make_of<PutSorted>}};
  return impls;
}
std::span<const Impl> index_add_impls(DeviceType type) { return scatter_add_impls(type); }
std::span<const Impl> scatter_impls(DeviceType type) { return scatter_add_impls(type); }
std::span<const Impl> index_put_impls(DeviceType type) { return scatter_add_impls(type); }
std::span<const Impl> embedding_bag_impls(DeviceType) {
  static const Impl impl{"gpu.bag", accepts_all, make_of<EmbeddingBag>};
  return {&impl, 1};
}
std::span<const Impl> nonzero_impls(DeviceType) {
  static const Impl impl{"gpu.nonzero", accepts_all, make_of<Nonzero>};
  return {&impl, 1};
}
std::span<const Impl> searchsorted_impls(DeviceType) {
  static const Impl impl{"gpu.searchsorted", accepts_all, make_of<SearchSorted>};
  return {&impl, 1};
}

}  // namespace pyflame::gpu
