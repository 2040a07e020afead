// Fused attention. A task is a block of queries of one head. Scores stay in the thread's scratch memory. Keys are
// processed in blocks with a running maximum and sum (a single block if the sequence is short). The backward pass
// recomputes the probabilities from the stored logsumexp. A task there is one head of keys and values, so each of its
// sums has one writer and one order.
#include <algorithm>
#include <cmath>
#include <limits>

#include "pyflame/backends/cpu/common.h"
#include "pyflame/backends/cpu/gemm.h"
#include "pyflame/backends/cpu/vec.h"
#include "pyflame/ops/sequences.h"

namespace pyflame::cpu {

namespace {

constexpr int64_t kQueryBlock = 64;
constexpr int64_t kKeyBlock = 512;

template <class T>
constexpr T kMinusInf = -std::numeric_limits<T>::infinity();

// An operand [B, H, T, D] whose rows are contiguous: used in place if it has type T, otherwise converted to T in a
// contiguous buffer.
template <class T>
class Heads {
 public:
  Heads() = default;
  Heads(const Operand& o, WorkspacePlan& ws) : o_(o), strides_(o.strides) {
    const bool rows = (o.shape[3] <= 1 || o.strides[3] == 1) && (o.shape[2] <= 1 || o.strides[2] >= o.shape[3]);
    direct_ = o.dtype == compute_dtype<T>() && rows;
    if (!direct_) {
      packed_ = In<T>(o, ws);
      strides_ = contiguous_strides(o.shape);
    }
    ld_ = o.shape[2] <= 1 ? std::max<int64_t>(1, o.shape[3]) : std::max<int64_t>(1, strides_[2]);
  }
  const T* get(const RunContext& ctx) const { return direct_ ? ctx.ptr<const T>(o_) : packed_.get(ctx); }
  int64_t offset(int64_t b, int64_t h, int64_t t = 0) const { return b * strides_[0] + h * strides_[1] + t * ld_; }
  int64_t ld() const { return ld_; }
  int64_t size(int d) const { return o_.shape[d]; }

 private:
  Operand o_;
  In<T> packed_;
  Dims strides_;
  bool direct_ = true;
  int64_t ld_ = 1;
};

// Where results [B, H, T, D] are written: directly to the operand if its rows are contiguous, otherwise to a buffer
// that finish() stores.
template <class T>
class HeadsOut {
 public:
  explicit HeadsOut(const Operand& o) : o_(o) {
    direct_ = o.dtype == compute_dtype<T>() && (o.shape[3] <= 1 || o.strides[3] == 1) &&
              (o.shape[2] <= 1 || o.strides[2] >= o.shape[3]);
    ld_ = std::max<int64_t>(1, direct_ && o.shape[2] > 1 ? o.strides[2] : o.shape[3]);
  }
  int64_t ld() const { return ld_; }
  bool direct() const { return direct_; }
  int64_t numel() const { return o_.numel(); }
  T* rows(const RunContext& ctx, int64_t b, int64_t h, int64_t t, T* buffer) const {
    return direct_ ? ctx.ptr<T>(o_) + offset(b, h, t) : buffer;
  }
  void finish(const RunContext& ctx, int64_t b, int64_t h, int64_t t, int64_t count, const T* buffer) const {
    if (direct_) return;
    const int64_t esize = dtype_size(o_.dtype), n = o_.shape[3];
    for (int64_t r = 0; r < count; ++r) {
      char* to = ctx.ptr<char>(o_) + offset(b, h, t + r) * esize;
      if (n <= 1 || o_.strides[3] == 1) store_run(buffer + r * n, to, o_.dtype, n);
      else
        for (int64_t i = 0; i < n; ++i) store_run(buffer + r * n + i, to + i * o_.strides[3] * esize, o_.dtype, 1);
    }
  }

 private:
  int64_t offset(int64_t b, int64_t h, int64_t t) const {
    return b * o_.strides[0] + h * o_.strides[1] + t * o_.strides[2];
  }
  Operand o_;
  bool direct_ = true;
  int64_t ld_ = 1;
};

template <class T>
void clear_rows(T* p, int64_t ld, int64_t rows, int64_t n) {
  for (int64_t r = 0; r < rows; ++r) std::fill_n(p + r * ld, n, T(0));
}

// The mask with its strides broadcast to [B, H, T, S]; null if there is none.
struct Mask {
  Operand o;
  int64_t stride[4] = {};
  bool present = false;
  Mask() = default;
  explicit Mask(const Operand& operand) : o(operand), present(true) {
    const int rank = o.shape.size();
    for (int d = 0; d < rank; ++d) stride[4 - rank + d] = o.shape[d] == 1 ? 0 : o.strides[d];
  }
  // Whether it hides n keys from all queries, as it does with padding. Asked only of bool masks with one row for all.
  bool hides(const char* base, int64_t b, int64_t h, int64_t s0, int64_t n) const {
    if (!present || stride[2] != 0 || o.dtype != DType::bool_) return false;
    const bool* m = reinterpret_cast<const bool*>(base) + b * stride[0] + h * stride[1] + s0 * stride[3];
    for (int64_t i = 0; i < n; ++i)
      if (m[i * stride[3]]) return false;
    return true;
  }
  template <class T>
  void apply(const char* base, int64_t b, int64_t h, int64_t t, int64_t s0, int64_t n, T* row) const {
    if (!present) return;
    const int64_t at = b * stride[0] + h * stride[1] + t * stride[2] + s0 * stride[3], step = stride[3];
    if (o.dtype == DType::bool_) {
      const bool* m = reinterpret_cast<const bool*>(base) + at;
      for (int64_t i = 0; i < n; ++i)
        if (!m[i * step]) row[i] = kMinusInf<T>;
      return;
    }
    const int64_t esize = dtype_size(o.dtype);
    if (step == 1) {
      T* values = scratch<T>(3, n);
      load_run(base + at * esize, o.dtype, n, values);
      return vec::add(row, values, n);
    }
    for (int64_t i = 0; i < n; ++i) {
      T value;
      load_run(base + (at + i * step) * esize, o.dtype, 1, &value);
      row[i] += value;
    }
  }
};

bool is_packed(OpId op) { return op == OpId::varlen_attn || op == OpId::varlen_attn_grad; }

// Packed sequences [T, H, D] as one batch entry [1, H, T, D]; other operands unchanged.
Operand by_heads(Operand o) {
  if (o.shape.size() != 3) return o;
  o.shape = {1, o.shape[1], o.shape[0], o.shape[2]};
  o.strides = {0, o.strides[1], o.strides[0], o.strides[2]};
  o.contiguous = o.strides == contiguous_strides(o.shape);
  return o;
}

// Queries with the keys that belong to them, and the number of valid keys: a batch entry, or one packed sequence.
struct Part {
  int64_t b, first_query, queries, first_key, kv;
};

// What forward and backward have in common: shapes, run-time numbers, and which keys a query sees.
template <class T>
struct Setup {
  int64_t batch, heads, kv_heads, queries, keys, dim, value_dim;
  bool causal, packed, padding;
  Mask mask;
  Operand offsets[2];
  ParamId scale_index, kv_index, max_index;
  // run-time
  struct Now {
    T scale;
    const char* mask;
    std::vector<Part> parts;
  };
  Setup(const Node& node, size_t first_q, size_t tensors) {
    const auto attrs = node.attr<AttentionAttrs>();
    const Operand q = by_heads(node.ins[first_q]), k = by_heads(node.ins[first_q + 1]),
                  v = by_heads(node.ins[first_q + 2]);
    packed = is_packed(node.op);
    batch = q.shape[0], heads = q.shape[1], queries = q.shape[2], dim = q.shape[3];
    kv_heads = k.shape[1], keys = k.shape[2], value_dim = v.shape[3];
    causal = attrs.causal != 0, padding = attrs.padding != 0;
    if (attrs.has_mask) mask = Mask(node.ins[tensors++]);
    if (packed)
      for (Operand& o : offsets) o = node.ins[tensors++];
    scale_index = node.ins[tensors].param;
    kv_index = node.ins[tensors + 1].param;
    if (packed) max_index = node.ins[tensors + 2].param;
  }
  Now now(const RunContext& ctx, const char* op) const {
    Now n{static_cast<T>(ctx.params[scale_index].as_f64()), mask.present ? ctx.ptr<const char>(mask.o) : nullptr, {}};
    const int64_t kv = ctx.params[kv_index].as_i64();
    if (packed) {
      const int64_t sequences = offsets[0].numel() - 1;
      const int32_t* from[2];
      for (const int i : {0, 1}) {
        from[i] = ctx.ptr<const int32_t>(offsets[i]);
        check_sequence_offsets(op, from[i], sequences, i == 0 ? queries : keys,
                               i == 0 ? kv : ctx.params[max_index].as_i64());
      }
      for (int64_t i = 0; i < sequences; ++i)
        n.parts.push_back({0, from[0][i], from[0][i + 1] - from[0][i], from[1][i], from[1][i + 1] - from[1][i]});
      return n;
    }
    PF_CHECK(kv >= 0 && kv <= keys, Value, "{}: bad kv_length; got {}; expected 0 to {}", op, kv, keys);
    for (int64_t b = 0; b < batch; ++b) n.parts.push_back({b, 0, queries, 0, kv});
    return n;
  }
  // The number of keys, from the first on, that query t may see.
  int64_t visible(const Part& p, int64_t t) const {
    return causal ? std::clamp<int64_t>(t + p.kv - p.queries + 1, 0, p.kv) : p.kv;
  }
  // The number of keys that queries t0 to t1 - 1 together see; none if they may be left out.
  int64_t reach(const Now& now, const Part& p, int64_t h, int64_t t0, int64_t t1) const {
    return padding && mask.hides(now.mask, p.b, h, t0, t1 - t0) ? 0 : visible(p, t1 - 1);
  }
  int64_t group() const { return heads / kv_heads; }
};

template <class T>
class Attention : public Exec {
 public:
  explicit Attention(const Node& node)
      : s_(node, 0, 3),
        q_(by_heads(node.ins[0]), ws_),
        k_(by_heads(node.ins[1]), ws_),
        v_(by_heads(node.ins[2]), ws_),
        out_(by_heads(node.outs[0])),
        lse_(node.outs[1]) {
    if (!s_.packed) return;
    lse_.shape = {1, lse_.shape[0], lse_.shape[1]};
    lse_.strides = {0, lse_.strides[0], lse_.strides[1]};
  }

  void run(const RunContext& ctx) override {
    const auto now = s_.now(ctx, s_.packed ? "varlen_attn" : "attention");
    const T *q = q_.get(ctx), *k = k_.get(ctx), *v = v_.get(ctx);
    std::vector<int64_t> ends;  // number of blocks up to and including each part
    double keys = 1;
    for (const Part& p : now.parts) {
      ends.push_back((ends.empty() ? 0 : ends.back()) + ceil_div(p.queries, kQueryBlock));
      keys = std::max(keys, static_cast<double>(p.kv + 1));
    }
    const int64_t blocks = ends.empty() ? 0 : ends.back();
    const double work =
        4.0 * static_cast<double>(std::min(kQueryBlock, s_.queries)) * keys * static_cast<double>(s_.dim + 8);
    parallel_for(s_.heads * blocks, std::max<int64_t>(1, static_cast<int64_t>(1e6 / work)),
                 [&](int64_t begin, int64_t end) {
                   for (int64_t i = begin; i < end; ++i) {
                     const int64_t at = i / s_.heads, h = i % s_.heads, hk = h / s_.group();
                     const auto part = std::upper_bound(ends.begin(), ends.end(), at) - ends.begin();
                     const Part& p = now.parts[static_cast<size_t>(part)];
                     const int64_t t0 = (at - (part ? ends[static_cast<size_t>(part - 1)] : 0)) * kQueryBlock;
                     queries(ctx, now, p, q + q_.offset(p.b, h, p.first_query), k + k_.offset(p.b, hk, p.first_key),
                             v + v_.offset(p.b, hk, p.first_key), h, t0, std::min(p.queries, t0 + kQueryBlock));
                   }
                 });
  }

 private:
  using Now = typename Setup<T>::Now;

  void scores(const T* q, const T* k, int64_t rows, int64_t n, T scale, T* s) const {
    if (rows == 1) {  // decoding: saves the set-up of a library call
      for (int64_t j = 0; j < n; ++j) s[j] = scale * vec::dot(q, k + j * k_.ld(), s_.dim);
      return;
    }
    gemm(false, true, rows, n, s_.dim, scale, q, q_.ld(), k, k_.ld(), T(0), s, n);
  }

  void queries(const RunContext& ctx, const Now& now, const Part& p, const T* q, const T* k, const T* v, int64_t h,
               int64_t t0, int64_t t1) const {
    const int64_t rows = t1 - t0, dv = s_.value_dim;
    const int64_t reach = s_.reach(now, p, h, t0, t1);
    T* s = scratch<T>(0, rows * std::min(kKeyBlock, std::max<int64_t>(1, reach)));
    T* buffer = scratch<T>(1, rows * (dv + 3));
    T* acc = out_.rows(ctx, p.b, h, p.first_query + t0, buffer);
    T* top = buffer + rows * dv;
    const int64_t ld = out_.ld();
    T *sum = top + rows, *shrink = sum + rows;
    int64_t seen[kQueryBlock];
    std::fill_n(top, rows, kMinusInf<T>);
    std::fill_n(sum, rows, T(0));
    bool first = true;
    for (int64_t s0 = 0; s0 < reach; s0 += kKeyBlock) {
      const int64_t n = std::min(kKeyBlock, reach - s0);
      if (s_.mask.hides(now.mask, p.b, h, s0, n)) continue;
      scores(q + t0 * q_.ld(), k + s0 * k_.ld(), rows, n, now.scale, s);
      for (int64_t r = 0; r < rows; ++r) {
        seen[r] = std::clamp<int64_t>(s_.visible(p, t0 + r) - s0, 0, n);
        s_.mask.apply(now.mask, p.b, h, t0 + r, s0, seen[r], s + r * n);
      }
      vec::softmax_block(s, rows, n, seen, top, sum, shrink);
      for (int64_t r = 0; r < rows && !first; ++r)
        if (shrink[r] != T(1)) vec::scale(acc + r * ld, shrink[r], dv);
      if (rows == 1 && first) vec::gemv_rows(s, v + s0 * v_.ld(), v_.ld(), n, dv, acc);
      else gemm(false, false, rows, dv, n, T(1), s, n, v + s0 * v_.ld(), v_.ld(), first ? T(0) : T(1), acc, ld);
      first = false;
    }
    if (first) clear_rows(acc, ld, rows, dv);
    finish(ctx, p.b, h, p.first_query + t0, rows, acc, top, sum);
    out_.finish(ctx, p.b, h, p.first_query + t0, rows, buffer);
  }

  void finish(const RunContext& ctx, int64_t b, int64_t h, int64_t t0, int64_t rows, T* acc, const T* top,
              const T* sum) const {
    char* lse = ctx.ptr<char>(lse_);
    for (int64_t r = 0; r < rows; ++r) {
      T* row = acc + r * out_.ld();
      if (sum[r] == T(0)) std::fill_n(row, s_.value_dim, T(0));
      else vec::scale(row, T(1) / sum[r], s_.value_dim);
      const T value = sum[r] == T(0) ? kMinusInf<T> : top[r] + std::log(sum[r]);
      const int64_t at = b * lse_.strides[0] + h * lse_.strides[1] + (t0 + r) * lse_.strides[2];
      store_run(&value, lse + at * dtype_size(lse_.dtype), lse_.dtype, 1);
    }
  }

  Setup<T> s_;
  Heads<T> q_, k_, v_;
  HeadsOut<T> out_;
  Operand lse_;
};

// (grad, q, k, v, out, lse, mask? or offsets) -> dq, dk, dv
template <class T>
class AttentionGrad : public Exec {
 public:
  explicit AttentionGrad(const Node& node)
      : s_(node, 1, 6),
        g_(by_heads(node.ins[0]), ws_),
        q_(by_heads(node.ins[1]), ws_),
        k_(by_heads(node.ins[2]), ws_),
        v_(by_heads(node.ins[3]), ws_),
        out_(by_heads(node.ins[4]), ws_),
        lse_(node.ins[5], ws_),
        dq_(by_heads(node.outs[0])),
        dk_(by_heads(node.outs[1])),
        dv_(by_heads(node.outs[2])) {
    if (!dk_.direct()) dk_sums_ = ws_.take(static_cast<size_t>(dk_.numel()) * sizeof(T));
    if (!dv_.direct()) dv_sums_ = ws_.take(static_cast<size_t>(dv_.numel()) * sizeof(T));
  }

  void run(const RunContext& ctx) override {
    const auto now = s_.now(ctx, s_.packed ? "varlen_attn_grad" : "attention_grad");
    const Pointers p{g_.get(ctx), q_.get(ctx), k_.get(ctx), v_.get(ctx), out_.get(ctx), lse_.get(ctx)};
    parallel_for(static_cast<int64_t>(now.parts.size()) * s_.kv_heads, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i)
        kv_head(ctx, now, now.parts[static_cast<size_t>(i / s_.kv_heads)], p, i % s_.kv_heads);
    });
  }

 private:
  using Now = typename Setup<T>::Now;
  struct Pointers {
    const T *g, *q, *k, *v, *out, *lse;
  };

  void kv_head(const RunContext& ctx, const Now& now, const Part& p, const Pointers& ptr, int64_t hk) const {
    const int64_t item = (p.b * s_.kv_heads + hk) * s_.keys + p.first_key;
    const int64_t keys = s_.packed ? p.kv : s_.keys;
    T* dk_buffer = at<T>(ctx, dk_sums_) + (dk_.direct() ? 0 : item * s_.dim);
    T* dv_buffer = at<T>(ctx, dv_sums_) + (dv_.direct() ? 0 : item * s_.value_dim);
    T* dk = dk_.rows(ctx, p.b, hk, p.first_key, dk_buffer);
    T* dv = dv_.rows(ctx, p.b, hk, p.first_key, dv_buffer);
    clear_rows(dk, dk_.ld(), keys, s_.dim);
    clear_rows(dv, dv_.ld(), keys, s_.value_dim);
    for (int64_t h = hk * s_.group(); h < (hk + 1) * s_.group(); ++h)
      for (int64_t t0 = 0; t0 < p.queries; t0 += kQueryBlock)
        queries(ctx, now, p, ptr, h, hk, t0, std::min(p.queries, t0 + kQueryBlock), dk, dv);
    dk_.finish(ctx, p.b, hk, p.first_key, keys, dk_buffer);
    dv_.finish(ctx, p.b, hk, p.first_key, keys, dv_buffer);
  }

  void queries(const RunContext& ctx, const Now& now, const Part& part, const Pointers& ptr, int64_t h, int64_t hk,
               int64_t t0, int64_t t1, T* dk, T* dv) const {
    const int64_t rows = t1 - t0, d = s_.dim, e = s_.value_dim;
    const int64_t reach = s_.reach(now, part, h, t0, t1), block = std::min(kKeyBlock, std::max<int64_t>(1, reach));
    const T* g = ptr.g + g_.offset(part.b, h, part.first_query + t0);
    const T* q = ptr.q + q_.offset(part.b, h, part.first_query + t0);
    const T* out = ptr.out + out_.offset(part.b, h, part.first_query + t0);
    T* p = scratch<T>(0, 2 * rows * block);
    T* ds = p + rows * block;
    T* buffer = scratch<T>(1, rows * (d + 2));
    T* dq = dq_.rows(ctx, part.b, h, part.first_query + t0, buffer);
    T* delta = buffer + rows * d;
    int64_t seen[kQueryBlock];
    const T* lse = ptr.lse + (part.b * s_.heads + h) * s_.queries + part.first_query + t0;
    if (lse_.operand().dtype != compute_dtype<T>()) {  // a float32 logsumexp would make float64 gradients inexact
      recompute_lse(now, part, ptr, h, hk, t0, rows, p, delta + rows);
      lse = delta + rows;
    }
    for (int64_t r = 0; r < rows; ++r) delta[r] = vec::dot(g + r * g_.ld(), out + r * out_.ld(), e);
    bool first = true;
    for (int64_t s0 = 0; s0 < reach; s0 += kKeyBlock) {
      const int64_t n = std::min(kKeyBlock, reach - s0);
      if (s_.mask.hides(now.mask, part.b, h, s0, n)) continue;
      const T* k = ptr.k + k_.offset(part.b, hk, part.first_key + s0);
      const T* v = ptr.v + v_.offset(part.b, hk, part.first_key + s0);
      gemm(false, true, rows, n, d, now.scale, q, q_.ld(), k, k_.ld(), T(0), p, n);
      gemm(false, true, rows, n, e, T(1), g, g_.ld(), v, v_.ld(), T(0), ds, n);
      for (int64_t r = 0; r < rows; ++r) {
        seen[r] = std::clamp<int64_t>(s_.visible(part, t0 + r) - s0, 0, n);
        s_.mask.apply(now.mask, part.b, h, t0 + r, s0, seen[r], p + r * n);
      }
      vec::softmax_grad_block(p, ds, rows, n, seen, lse, delta, now.scale);
      gemm(true, false, n, e, rows, T(1), p, n, g, g_.ld(), T(1), dv + s0 * dv_.ld(), dv_.ld());
      gemm(true, false, n, d, rows, T(1), ds, n, q, q_.ld(), T(1), dk + s0 * dk_.ld(), dk_.ld());
      gemm(false, false, rows, d, n, T(1), ds, n, k, k_.ld(), first ? T(0) : T(1), dq, dq_.ld());
      first = false;
    }
    if (first) clear_rows(dq, dq_.ld(), rows, d);
    dq_.finish(ctx, part.b, h, part.first_query + t0, rows, buffer);
  }

  void recompute_lse(const Now& now, const Part& part, const Pointers& ptr, int64_t h, int64_t hk, int64_t t0,
                     int64_t rows, T* s, T* lse) const {
    std::fill_n(lse, rows, kMinusInf<T>);
    const int64_t reach = s_.visible(part, t0 + rows - 1);
    for (int64_t s0 = 0; s0 < reach; s0 += kKeyBlock) {
      const int64_t n = std::min(kKeyBlock, reach - s0);
      gemm(false, true, rows, n, s_.dim, now.scale, ptr.q + q_.offset(part.b, h, part.first_query + t0), q_.ld(),
           ptr.k + k_.offset(part.b, hk, part.first_key + s0), k_.ld(), T(0), s, n);
      for (int64_t r = 0; r < rows; ++r) {
        const int64_t seen = std::clamp<int64_t>(s_.visible(part, t0 + r) - s0, 0, n);
        if (seen == 0) continue;
        s_.mask.apply(now.mask, part.b, h, t0 + r, s0, seen, s + r * n);
        const T top = std::max(lse[r], vec::max(s + r * n, seen));
        if (top == kMinusInf<T>) {  // nothing seen so far, or only NaN, which is never a maximum
          for (int64_t i = 0; i < seen; ++i)
            if (std::isnan(s[r * n + i])) lse[r] = s[r * n + i];
          continue;
        }
        lse[r] = top + std::log(std::exp(lse[r] - top) + vec::sum_exp_shifted(s + r * n, top, seen));
      }
    }
  }

  Setup<T> s_;
  Heads<T> g_, q_, k_, v_, out_;
  In<T> lse_;
  HeadsOut<T> dq_, dk_, dv_;
  size_t dk_sums_ = 0, dv_sums_ = 0;
};

Refusal accept_attention(const Problem& p) {
  const Node& n = p.root();
  if (auto r = is_packed(n.op) ? accept_single(p) : accept_float(p)) return r;  // offsets are int32
  const size_t q = n.op == OpId::attention || n.op == OpId::varlen_attn ? 0 : 1;
  for (size_t i = q; i < q + 3; ++i)
    if (n.ins[i].shape.size() != (is_packed(n.op) ? 3 : 4)) return "takes q, k and v of four dimensions, or packed";
  if (n.ins[q].shape[1] == 0 || n.ins[q + 1].shape[1] == 0) return "there are no heads";
  return {};
}

std::unique_ptr<Executable> make_attention(const Problem& p) { return make_by_type<Attention>(p); }
std::unique_ptr<Executable> make_attention_grad(const Problem& p) { return make_by_type<AttentionGrad>(p); }

}  // namespace

std::span<const Impl> attention_impls() {
  static const Impl impl{"cpu.attention", accept_attention, make_attention};
  return {&impl, 1};
}
std::span<const Impl> varlen_attn_impls() { return attention_impls(); }
std::span<const Impl> attention_grad_impls() {
  static const Impl impl{"cpu.attention", accept_attention, make_attention_grad};
  return {&impl, 1};
}
std::span<const Impl> varlen_attn_grad_impls() { return attention_grad_impls(); }

}  // namespace pyflame::cpu
