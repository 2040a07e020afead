// Attention of one query for each sequence over keys and values in pages, which are read in place. A task is a sequence and a head of keys,
// with all query heads that share it; each page is read once for them. Pages of 16 or 8 bits are converted one at a time.
#include <algorithm>
#include <array>
#include <cmath>

#include "pyflame/backends/cpu/common.h"
#include "pyflame/backends/cpu/vec.h"
#include "pyflame/ops/sequences.h"
#include "pyflame/tensor/float8.h"

namespace pyflame::cpu {

namespace {

constexpr double kGrainOperations = 1e6;  // that make another thread pay off

template <class T>
class PagedAttention final : public Exec {
 public:
  explicit PagedAttention(const Node& node) : node_(node), q_(node.ins[0], ws_), out_(node.outs[0], ws_) {
    const Dims &q = node.ins[0].shape, &k = node.ins[1].shape;
    sequences_ = q[0], heads_ = q[1], dim_ = q[2];
    pages_ = k[0], page_ = k[1], kv_heads_ = k[2], columns_ = node.ins[3].shape[1];
    together_ = heads_ / kv_heads_;
    direct_ = node.ins[1].dtype == compute_dtype<T>();
    params_ = node.ins.size() - 3;
    const auto stored = static_cast<DType>(node.attr<PagedAttrs>().stored);
    scaled_ = stored != node.ins[0].dtype, coded_ = is_float8(stored);
    for (size_t i = 0; coded_ && i < values_.size(); ++i)
      values_[i] = static_cast<T>(float8_value(stored, static_cast<uint8_t>(i)));
  }

  void run(const RunContext& ctx) override {
    const T* q = q_.get(ctx);
    T* out = out_.begin(ctx);
    const auto* table = ctx.ptr<const int32_t>(node_.ins[3]);
    const auto* lengths = ctx.ptr<const int32_t>(node_.ins[4]);
    const int64_t window = ctx.params[node_.ins[params_ + 1].param].as_i64();
    std::vector<PageList> lists;
    int64_t longest = 1;
    for (int64_t s = 0; s < sequences_; ++s) {
      lists.emplace_back("paged_attention", table + s * columns_, columns_, page_, pages_, lengths[s], window);
      longest = std::max(longest, lists.back().end - lists.back().first);
    }
    const double work = 4.0 * static_cast<double>(together_ * longest * (dim_ + 8));
    parallel_for(sequences_ * kv_heads_, std::max<int64_t>(1, static_cast<int64_t>(kGrainOperations / work)),
                 [&](int64_t begin, int64_t end) {
                   for (int64_t i = begin; i < end; ++i) {
                     const int64_t s = i / kv_heads_, h = i % kv_heads_, at = (s * heads_ + h * together_) * dim_;
                     attend(ctx, q + at, out + at, table + s * columns_, lists[static_cast<size_t>(s)], h);
                   }
                 });
    out_.finish(ctx);
  }

 private:
  struct Rows {
    const T* first;
    int64_t ld, count;
  };
  // The rows of head `h` in the page with the keys from `begin` on, up to the end of the page or of the list.
  Rows rows(const RunContext& ctx, size_t operand, const int32_t* table, const PageList& list, int64_t begin, int64_t h,
            T* buffer) const {
    const int64_t count = std::min(list.end, (begin / page_ + 1) * page_) - begin;
    const int64_t ld = kv_heads_ * dim_, at = (table[begin / page_] * page_ + begin % page_) * ld + h * dim_;
    if (direct_) return {ctx.ptr<const T>(node_.ins[operand]) + at, ld, count};
    const DType dtype = node_.ins[operand].dtype;
    const char* from = ctx.ptr<const char>(node_.ins[operand]);
    for (int64_t i = 0; i < count; ++i) {
      T* const to = buffer + i * dim_;
      if (coded_) decode(reinterpret_cast<const uint8_t*>(from) + at + i * ld, to);
      else load_run(from + (at + i * ld) * dtype_size(dtype), dtype, dim_, to);
      if (scaled_)
        vec::scale(to, static_cast<T>(ctx.ptr<const float>(node_.ins[operand + 4])[(at + i * ld) / dim_]), dim_);
    }
    return {buffer, dim_, count};
  }
  void decode(const uint8_t* from, T* to) const {
    for (int64_t i = 0; i < dim_; ++i) to[i] = values_[from[i]];
  }
  template <class F>
  void for_pages(const PageList& list, const F& f) const {
    for (int64_t begin = list.first; begin < list.end; begin = (begin / page_ + 1) * page_) f(begin);
  }

  void attend(const RunContext& ctx, const T* q, T* out, const int32_t* table, const PageList& list, int64_t h) const {
    const auto scale = static_cast<T>(ctx.params[node_.ins[params_].param].as_f64());
    const auto cap = static_cast<T>(ctx.params[node_.ins[params_ + 2].param].as_f64());
    const int64_t n = list.end - list.first;
    std::fill_n(out, together_ * dim_, T(0));
    if (n == 0) return;
    T* const scores = scratch<T>(0, together_ * n);
    T* const buffer = scratch<T>(1, (page_ + 1) * dim_);
    T* const part = buffer + page_ * dim_;
    for_pages(list, [&](int64_t begin) {
      const Rows r = rows(ctx, 1, table, list, begin, h, buffer);
      for (int64_t g = 0; g < together_; ++g)
        for (int64_t i = 0; i < r.count; ++i)
          scores[g * n + begin - list.first + i] = scale * vec::dot(q + g * dim_, r.first + i * r.ld, dim_);
    });
    for (int64_t g = 0; g < together_; ++g) {
      T* const row = scores + g * n;
      for (int64_t i = 0; i < n && cap > 0; ++i) row[i] = cap * std::tanh(row[i] / cap);
      const T sum = vec::exp_shifted(row, vec::max(row, n), row, n);
      vec::scale(row, T(1) / sum, n);
    }
    for_pages(list, [&](int64_t begin) {
      const Rows r = rows(ctx, 2, table, list, begin, h, buffer);
      for (int64_t g = 0; g < together_; ++g) {
        vec::gemv_rows(scores + g * n + begin - list.first, r.first, r.ld, r.count, dim_, part);
        vec::add(out + g * dim_, part, dim_);
      }
    });
  }

  Node node_;
  In<T> q_;
  Out<T> out_;
  int64_t sequences_ = 0, heads_ = 0, dim_ = 0, pages_ = 0, page_ = 1, kv_heads_ = 1, columns_ = 0, together_ = 1;
  size_t params_ = 5;  // where they begin among the inputs
  bool direct_ = true, scaled_ = false, coded_ = false;
  std::array<T, 256> values_{};  // of the codes of an 8-bit float
};

Refusal accept_pages(const Problem& p) {
  for (const Operand& o : p.root().ins)
    if (!o.is_param && !o.contiguous) return "takes contiguous operands only";
  return accept_single(p);
}

}  // namespace

std::span<const Impl> paged_attention_impls() {
  static const Impl impl{"cpu.paged_attention", accept_pages, make_by_type<PagedAttention>};
  return {&impl, 1};
}

}  // namespace pyflame::cpu
