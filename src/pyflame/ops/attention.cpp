// Attention is one op if a fused kernel can compute it. Otherwise it is composed of public ops, softmax(q kᵀ) v: with
// dropout, with a mask that requires a gradient, or if values and keys have different widths. The gradient is one
// kernel too, or, if it will be differentiated again, the gradient of the composition.
//
// is_causal means PyTorch's mask tril(ones(T, S)): query t sees keys s <= t. With kv_length (decoding against a cache),
// the queries are the last T of kv_length positions: query t sees keys s <= t + kv_length - T. The op knows only the
// second form. Both agree for T == S; otherwise the first one becomes a mask.
#include <cmath>
#include <limits>

#include "pyflame/ops/autocast.h"
#include "pyflame/ops/family.h"
#include "pyflame/ops/helpers.h"
#include "pyflame/ops/sequences.h"
#include "pyflame/record/float8.h"
#include "pyflame/tensor/alias.h"

namespace pyflame {

namespace {

constexpr const char* kName = "scaled_dot_product_attention";

// The arguments of an attention call besides its tensors.
struct Setup {
  double scale;
  int64_t kv_length;
  bool causal, has_mask;
};

Dims leading(const Tensor& x, int keep) {
  return Dims(std::span<const int64_t>(x.shape().begin(), x.shape().end() - keep));
}

// k or v [B, Hk, S, D], with each head repeated for the heads of the queries that use it: [B, H, S, D].
Tensor repeat_heads(const Tensor& x, int64_t heads) {
  const int64_t groups = x.size(1);
  if (groups == heads) return x;
  const Dims s = x.shape();
  return reshape(expand(unsqueeze(x, 2), {s[0], groups, heads / groups, s[2], s[3]}), {s[0], heads, s[2], s[3]});
}
// The adjoint of repeat_heads, a sum: [B, H, S, D] -> [B, Hk, S, D].
Tensor sum_heads(const Tensor& x, int64_t groups) {
  if (x.size(1) == groups) return x;
  const Dims s = x.shape();
  return sum(reshape(x, {s[0], groups, s[1] / groups, s[2], s[3]}), {2});
}

Tensor positions(int64_t n, Device device) { return arange(0, n, 1, DType::int64, device); }

// softmax(scale q kᵀ + mask) in the accumulation dtype, [B, H, T, S]; rows that see no key are 0. k has q's heads.
Tensor probabilities(const Tensor& q, const Tensor& k, const Tensor& mask, const Setup& s) {
  const int64_t t = q.size(2), keys = k.size(2);
  const double none = -std::numeric_limits<double>::infinity();
  Tensor scores = mul(matmul(q, transpose(k, -2, -1)), s.scale);
  bool hides = s.causal || s.kv_length < keys;
  if (s.has_mask) {
    hides = true;
    scores = mask.dtype() == DType::bool_ ? where(mask, scores, none) : add(scores, widen(mask));
  }
  const Tensor at = positions(keys, q.device());
  if (s.kv_length < keys) scores = where(lt(at, s.kv_length), scores, none);
  if (s.causal) scores = where(le(at, add(unsqueeze(positions(t, q.device()), 1), s.kv_length - t)), scores, none);
  if (!hides || keys == 0) return softmax(scores, -1);
  const Tensor blind = eq(amax(scores.detach(), {-1}, true), none);
  return where(blind, 0.0, softmax(where(blind, 0.0, scores), -1));
}

Tensor attend_composed(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& mask, const Setup& s,
                       double dropout_p) {
  const int64_t heads = q.size(1);
  Tensor p = probabilities(widen(q), repeat_heads(widen(k), heads), mask, s);
  if (dropout_p > 0) p = dropout(p, dropout_p, true);
  return cast(matmul(p, repeat_heads(widen(v), heads)), q.dtype());
}

Tensors grad_composed(const Tensor& grad, const Tensor& q0, const Tensor& k0, const Tensor& v0, const Tensor& mask,
                      const Setup& s) {
  const int64_t heads = q0.size(1);
  const Tensor g = widen(grad), q = widen(q0), k = repeat_heads(widen(k0), heads), v = repeat_heads(widen(v0), heads);
  const Tensor p = probabilities(q, k, mask, s);
  const Tensor dv = matmul(transpose(p, -2, -1), g);
  const Tensor dp = matmul(g, transpose(v, -2, -1));
  const Tensor ds = mul(mul(p, sub(dp, sum(mul(dp, p), {-1}, true))), s.scale);
  const Tensor dk = matmul(transpose(ds, -2, -1), q);
  return {cast(matmul(ds, k), q0.dtype()), cast(sum_heads(dk, k0.size(1)), k0.dtype()),
          cast(sum_heads(dv, v0.size(1)), v0.dtype())};
}

// A result with x's shape, and with its layout if that is [B, T, H, D], the layout of a linear layer's output. The
// following op can then read it without a copy.
OutSpec lying_as(const Tensor& x) {
  const Dims &s = x.shape(), &t = x.strides();
  if (s.numel() > 0 && t[3] == 1 && t[1] >= s[3] && t[2] >= s[1] * t[1])
    return {s, x.dtype(), Dims{s[2] * s[1] * s[3], s[3], s[1] * s[3], 1}};
  return {s, x.dtype()};
}

// If q, k and v are the three parts of one layer's output, allocates their gradients as three parts of one tensor in
// the same layout. That tensor is then the gradient of the layer's output, without a copy. Empty if q, k and v are not
// such parts.
Tensors lying_together(const Tensor& q, const Tensor& k, const Tensor& v) {
  if (q.storage() != k.storage() || q.storage() != v.storage() || q.shape() != k.shape() ||
      q.strides() != k.strides() || q.shape() != v.shape() || q.strides() != v.strides() || q.dtype() != k.dtype() ||
      q.dtype() != v.dtype())
    return {};
  const Dims &s = q.shape(), &t = q.strides();
  const int64_t row = s[1] * s[3];
  const bool split = s.numel() > 0 && t == Dims{s[2] * 3 * row, s[3], 3 * row, 1};
  if (!split || k.offset() != q.offset() + row || v.offset() != k.offset() + row) return {};
  const Tensor all = empty({s[0], s[2], 3 * row}, q.dtype(), q.device());
  return {alias(all, s, t, 0), alias(all, s, t, row), alias(all, s, t, 2 * row)};
}

// q [B, H, T, D], k and v [B, Hk, S, D], mask [B, H, T, S] or undefined.
Tensor attend(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& mask, const Setup& s) {
  const AttentionAttrs a{s.causal ? 1 : 0, s.has_mask ? 1 : 0};
  std::vector<Arg> ins{q, k, v};
  if (s.has_mask) ins.emplace_back(mask);
  ins.emplace_back(Scalar(s.scale), DType::float64);
  ins.emplace_back(Scalar(s.kv_length), DType::int64);
  const OutSpec outs[] = {lying_as(q), {leading(q, 1), DType::float32}};
  const Tensors r = emit_many(OpId::attention, ins, outs, a);
  // Without a mask, the query takes its place among the saved tensors.
  attach("scaled_dot_product_attention", {r[0]}, {q, k, v}, {q, k, v, r[0], r[1], s.has_mask ? mask : q},
         [a, s](GradNode& n, const Tensors& g) -> Tensors {
           const Tensor q0 = n.saved(0), k0 = n.saved(1), v0 = n.saved(2);
           const Tensor mask0 = s.has_mask ? n.saved(5) : Tensor();
           if (grad_mode::enabled()) return grad_composed(g[0], q0, k0, v0, mask0, s);
           const Tensor out = n.saved(3), lse = n.saved(4);
           AttentionAttrs asked = a;
           asked.any_order = any_order(q0.device());
           std::vector<Arg> args{g[0], q0, k0, v0, out, lse};
           if (s.has_mask) args.emplace_back(mask0);
           args.emplace_back(Scalar(s.scale), DType::float64);
           args.emplace_back(Scalar(s.kv_length), DType::int64);
           if (const Tensors grads = lying_together(q0, k0, v0); !grads.empty()) {
             emit_into(OpId::attention_grad, args, grads, asked);
             return grads;
           }
           const OutSpec specs[] = {lying_as(q0), lying_as(k0), lying_as(v0)};
           return emit_many(OpId::attention_grad, args, specs, asked);
         });
  return r[0];
}

void check_heads(const Tensor& q, const Tensor& k, const Tensor& v, bool enable_gqa) {
  const int64_t h = q.dim() > 2 ? q.size(-3) : 1, hk = k.dim() > 2 ? k.size(-3) : 1, hv = v.dim() > 2 ? v.size(-3) : 1;
  PF_CHECK(hk == hv, Value, "{}: keys and values have different heads; got {} and {}; expected as many", kName, hk, hv);
  if (h == hk || hk == 1) return;
  PF_CHECK(enable_gqa, Value,
           "{}: the heads differ; got {} query heads and {} key heads; expected as many; hint: enable_gqa", kName, h,
           hk);
  PF_CHECK(hk > 0 && h % hk == 0, Value,
           "{}: the heads do not group; got {} query heads and {} key heads; expected a multiple", kName, h, hk);
}

void check_operands(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& mask) {
  check_same_device(kName, {q, k, v});
  check_float(kName, q);
  check_same_dtype(kName, q, k);
  check_same_dtype(kName, q, v);
  PF_CHECK(q.dim() >= 2 && k.dim() >= 2 && v.dim() >= 2, Value,
           "{}: wrong rank; got q {}, k {}, v {}; expected (..., H, T, D) and (..., H, S, D)", kName, q.shape().str(),
           k.shape().str(), v.shape().str());
  PF_CHECK(q.size(-1) == k.size(-1), Value,
           "{}: queries and keys differ in width; got q {} and k {}; expected equal last sizes", kName, q.shape().str(),
           k.shape().str());
  PF_CHECK(k.size(-2) == v.size(-2), Value, "{}: keys and values differ in length; got k {} and v {}; expected equal S",
           kName, k.shape().str(), v.shape().str());
  if (!mask) return;
  check_same_device(kName, {q, mask});
  PF_CHECK(mask.dtype() == DType::bool_ || mask.dtype() == DType::float32 || mask.dtype() == q.dtype(), Type,
           "{}: the mask has the wrong dtype; got {}; expected bool, float32 or {}", kName, dtype_name(mask.dtype()),
           dtype_name(q.dtype()));
}

// Reshapes any number of leading dims to [B, H, L, D].
Tensor as_4d(const Tensor& x, const Dims& batch) {
  const int64_t heads = x.dim() > 2 ? x.size(-3) : 1;
  const Dims own = x.dim() > 3 ? leading(x, 3) : Dims();
  Dims full = batch;
  for (int64_t v : {heads, x.size(-2), x.size(-1)}) full.push_back(v);
  return reshape(own == batch && x.dim() > 2 ? x : expand(x.dim() > 2 ? x : unsqueeze(x, 0), full),
                 {batch.numel(), heads, x.size(-2), x.size(-1)});
}

}  // namespace

Tensor scaled_dot_product_attention(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& attn_mask,
                                    double dropout_p, bool is_causal, std::optional<double> scale, bool enable_gqa,
                                    std::optional<int64_t> kv_length) {
  if (autocast::active(q)) {
    const autocast::Off off;
    const Tensor mask =
        attn_mask && attn_mask.is_floating_point() ? autocast::operand(OpId::attention, attn_mask) : attn_mask;
    return scaled_dot_product_attention(autocast::operand(OpId::attention, q), autocast::operand(OpId::attention, k),
                                        autocast::operand(OpId::attention, v), mask, dropout_p, is_causal, scale,
                                        enable_gqa, kv_length);
  }
  check_operands(q, k, v, attn_mask);
  check_heads(q, k, v, enable_gqa);
  PF_CHECK(!(is_causal && attn_mask), Value, "{}: is_causal and attn_mask exclude each other; got both; expected one",
           kName);
  PF_CHECK(dropout_p >= 0 && dropout_p <= 1, Value, "{}: dropout_p is not a probability; got {}; expected 0 <= p <= 1",
           kName, dropout_p);
  const int64_t heads = q.dim() > 2 ? q.size(-3) : 1, t = q.size(-2), keys = k.size(-2);
  const int64_t seen = kv_length.value_or(keys);
  PF_CHECK(seen >= 0 && seen <= keys, Value,
           "{}: kv_length is out of range; got {} for {} keys; expected 0 <= kv_length <= {}", kName, seen, keys, keys);
  Dims batch = q.dim() > 3 ? leading(q, 3) : Dims();
  for (const Tensor* x : {&k, &v}) batch = broadcast_shapes(kName, batch, x->dim() > 3 ? leading(*x, 3) : Dims());
  Dims out_shape = batch, mask_shape = batch;
  if (q.dim() > 2 || k.dim() > 2) out_shape.push_back(heads);
  for (int64_t n : {t, v.size(-1)}) out_shape.push_back(n);
  for (int64_t n : {heads, t, keys}) mask_shape.push_back(n);
  Tensor mask = attn_mask;
  if (mask) {
    if (mask.is_floating_point()) mask = cast(mask, q.dtype());
    PF_CHECK(broadcast_shapes(kName, mask.shape(), mask_shape) == mask_shape, Value,
             "{}: the mask does not broadcast to the scores; got {}; expected {}", kName, mask.shape().str(),
             mask_shape.str());
    mask = reshape(expand(mask, mask_shape), {batch.numel(), heads, t, keys});
  }

  Setup s{scale.value_or(1 / std::sqrt(static_cast<double>(q.size(-1)))), seen, is_causal, static_cast<bool>(mask)};
  if (s.causal && t != keys && !kv_length) {  // aligned to the top left: see above
    const Tensor visible = le(positions(keys, q.device()), unsqueeze(positions(t, q.device()), 1));
    mask = expand(visible, {batch.numel(), heads, t, keys});
    s.causal = false;
    s.has_mask = true;
  }
  const Tensor q4 = as_4d(q, batch), k4 = as_4d(k, batch), v4 = as_4d(v, batch);
  const bool mask_learns = mask && grad_mode::enabled() && mask.requires_grad();
  const bool fused = dropout_p == 0 && !mask_learns && v.size(-1) == q.size(-1);
  const Tensor out = fused ? attend(q4, k4, v4, mask, s) : attend_composed(q4, k4, v4, mask, s, dropout_p);
  return out_shape == out.shape() ? out : reshape(out, out_shape);
}

namespace {

constexpr const char* kPackedName = "varlen_attn";

// Checks the offsets only if their values are already computed; the kernels check them again.
void check_offsets(const Tensor& offsets, int64_t rows, int64_t longest, const char* what) {
  if (const auto* values = static_cast<const int32_t*>(values_at_hand(offsets)))
    check_sequence_offsets(kPackedName, values, offsets.numel() - 1, rows, longest, what);
}

void check_packed(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& cu_q, const Tensor& cu_k) {
  check_same_device(kPackedName, {q, k, v, cu_q, cu_k});
  check_float(kPackedName, q);
  check_same_dtype(kPackedName, q, k);
  check_same_dtype(kPackedName, q, v);
  PF_CHECK(
      q.dim() == 3 && k.dim() == 3 && k.shape() == v.shape() && q.size(2) == k.size(2), Value,
      "{}: the shapes do not fit; got query {}, key {}, value {}; expected (Tq, H, D), (Tk, Hk, D) and (Tk, Hk, D)",
      kPackedName, q.shape().str(), k.shape().str(), v.shape().str());
  for (const Tensor* c : {&cu_q, &cu_k})
    PF_CHECK(c->dtype() == DType::int32, Type,
             "{}: the offsets have the wrong dtype; got {}; expected int32; hint: cast them", kPackedName,
             dtype_name(c->dtype()));
  PF_CHECK(cu_q.dim() == 1 && cu_k.shape() == cu_q.shape() && cu_q.numel() > 0, Value,
           "{}: the offsets do not fit; got cu_seq_q {} and cu_seq_k {}; expected two vectors of (sequences + 1)",
           kPackedName, cu_q.shape().str(), cu_k.shape().str());
  PF_CHECK(cu_q.numel() > 1 || (q.size(0) == 0 && k.size(0) == 0), Value,
           "{}: rows without a sequence; got {} queries and {} keys with one offset; expected none", kPackedName,
           q.size(0), k.size(0));
}

// A mask of the keys that each query sees, [Tq, Tk]: those of its own sequence; if causal, only the first ones of them.
Tensor visible(const Tensor& cu_q, const Tensor& cu_k, int64_t queries, int64_t keys, bool causal) {
  struct Rows {
    Tensor sequence, to_end;
  };
  const auto rows = [](const Tensor& offsets, int64_t n) -> Rows {
    const Tensor ends = cast(narrow(offsets, 0, 1, offsets.numel() - 1), DType::int64);
    const Tensor at = positions(n, offsets.device());
    const Tensor sequence = sum(cast(ge(unsqueeze(at, 1), unsqueeze(ends, 0)), DType::int64), {1});
    return {sequence, sub(at, index_select(ends, 0, sequence))};
  };
  const Rows q = rows(cu_q, queries), k = rows(cu_k, keys);
  const Tensor same = eq(unsqueeze(q.sequence, 1), unsqueeze(k.sequence, 0));
  return causal ? logical_and(same, le(unsqueeze(k.to_end, 0), unsqueeze(q.to_end, 1))) : same;
}

// Moves the heads to the front for the composition, [T, H, D] to [1, H, T, D], and back.
Tensor heads_first(const Tensor& x) { return unsqueeze(transpose(x, 0, 1), 0); }
Tensor rows_first(const Tensor& x) { return transpose(squeeze(x, 0), 0, 1); }

Tensors packed_grad_composed(const Tensor& grad, const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& cu_q,
                             const Tensor& cu_k, double scale, bool causal) {
  const Tensor mask = expand(visible(cu_q, cu_k, q.size(0), k.size(0), causal), {1, q.size(1), q.size(0), k.size(0)});
  const Tensors g = grad_composed(heads_first(grad), heads_first(q), heads_first(k), heads_first(v), mask,
                                  {scale, k.size(0), false, true});
  return {rows_first(g[0]), rows_first(g[1]), rows_first(g[2])};
}

}  // namespace

Tensor varlen_attn(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& cu_seq_q, const Tensor& cu_seq_k,
                   int64_t max_q, int64_t max_k, bool is_causal, std::optional<double> scale, bool enable_gqa) {
  if (autocast::active(q)) {
    const autocast::Off off;
    return varlen_attn(autocast::operand(OpId::varlen_attn, q), autocast::operand(OpId::varlen_attn, k),
                       autocast::operand(OpId::varlen_attn, v), cu_seq_q, cu_seq_k, max_q, max_k, is_causal, scale,
                       enable_gqa);
  }
  check_packed(q, k, v, cu_seq_q, cu_seq_k);
  const int64_t h = q.size(1), hk = k.size(1);
  PF_CHECK(h == hk || enable_gqa, Value,
           "{}: the heads differ; got {} query heads and {} key heads; expected as many; hint: enable_gqa", kPackedName,
           h, hk);
  PF_CHECK(h == hk || (hk > 0 && h % hk == 0), Value,
           "{}: the heads do not group; got {} query heads and {} key heads; expected a multiple", kPackedName, h, hk);
  check_offsets(cu_seq_q, q.size(0), max_q, "cu_seq_q");
  check_offsets(cu_seq_k, k.size(0), max_k, "cu_seq_k");
  const double factor = scale.value_or(1 / std::sqrt(static_cast<double>(q.size(2))));
  const AttentionAttrs a{is_causal ? 1 : 0, 0};
  const Tensor cu_q = contiguous(cu_seq_q), cu_k = contiguous(cu_seq_k);
  const auto numbers = [=](std::vector<Arg> args) {
    args.emplace_back(Scalar(factor), DType::float64);
    args.emplace_back(Scalar(max_q), DType::int64);
    args.emplace_back(Scalar(max_k), DType::int64);
    return args;
  };
  const OutSpec outs[] = {{q.shape(), q.dtype()}, {{h, q.size(0)}, DType::float32}};
  const Tensors r = emit_many(OpId::varlen_attn, numbers({q, k, v, cu_q, cu_k}), outs, a);
  attach(kPackedName, {r[0]}, {q, k, v}, {q, k, v, r[0], r[1], cu_q, cu_k},
         [=](GradNode& n, const Tensors& g) -> Tensors {
           const Tensor q0 = n.saved(0), k0 = n.saved(1), v0 = n.saved(2), from_q = n.saved(5), from_k = n.saved(6);
           if (grad_mode::enabled()) return packed_grad_composed(g[0], q0, k0, v0, from_q, from_k, factor, is_causal);
           const Tensor out = n.saved(3), lse = n.saved(4);
           const OutSpec specs[] = {{q0.shape(), q0.dtype()}, {k0.shape(), k0.dtype()}, {v0.shape(), v0.dtype()}};
           return emit_many(OpId::varlen_attn_grad, numbers({g[0], q0, k0, v0, out, lse, from_q, from_k}), specs, a);
         });
  return r[0];
}

namespace {

constexpr const char* kPagedName = "paged_attention";

// Keys and values of 8 bits, and their scales. Returns whether they are of 8 bits.
bool check_scaled_pages(const Tensor& q, const Tensor& keys, const Tensor& values, const Tensor& key_scale,
                        const Tensor& value_scale) {
  if (keys.dtype() != DType::int8 && !is_float8(keys.dtype())) {
    check_same_dtype(kPagedName, q, keys);
    check_same_dtype(kPagedName, q, values);
    PF_CHECK(!key_scale && !value_scale, Type,
             "{}: keys without 8 bits have no scales; got {} keys and scales; expected none; hint: int8 or float8 keys",
             kPagedName, dtype_name(keys.dtype()));
    return false;
  }
  check_same_dtype(kPagedName, keys, values);
  PF_CHECK(key_scale && value_scale, Type,
           "{}: keys and values of 8 bits have no scales; got {} keys; expected key_scale and value_scale", kPagedName,
           dtype_name(keys.dtype()));
  const Dims &k = keys.shape(), rows{k[0], k[1], k[2]};
  check_same_device(kPagedName, {q, key_scale, value_scale});
  for (const Tensor* s : {&key_scale, &value_scale}) {
    PF_CHECK(s->dtype() == DType::float32, Type, "{}: the scales have the wrong dtype; got {}; expected float32",
             kPagedName, dtype_name(s->dtype()));
    PF_CHECK(s->shape() == rows, Value, "{}: the scales do not fit; got {} for keys {}; expected (pages, P, Hk)",
             kPagedName, s->shape().str(), k.str());
  }
  return true;
}

// What the kernels see of them: no kernel knows float8.
Tensor stored_pages(const Tensor& x) { return contiguous(is_float8(x.dtype()) ? as_codes(x) : x); }

}  // namespace

Tensor paged_attention(const Tensor& q, const Tensor& keys, const Tensor& values, const Tensor& block_table,
                       const Tensor& lengths, std::optional<double> scale, std::optional<int64_t> window,
                       std::optional<double> softcap, const Tensor& key_scale, const Tensor& value_scale) {
  constexpr const char* kOp = kPagedName;
  if (autocast::active(q)) {
    const autocast::Off off;
    return paged_attention(autocast::operand(OpId::paged_attention, q), autocast::operand(OpId::paged_attention, keys),
                           autocast::operand(OpId::paged_attention, values), block_table, lengths, scale, window,
                           softcap, key_scale, value_scale);
  }
  check_same_device(kOp, {q, keys, values, block_table, lengths});
  check_float(kOp, q);
  PF_CHECK(q.dim() == 3 && keys.dim() == 4 && keys.shape() == values.shape() && q.size(2) == keys.size(3), Value,
           "{}: the shapes do not fit; got query {}, keys {}, values {}; expected (S, H, D), (pages, P, Hk, D) and "
           "(pages, P, Hk, D)",
           kOp, q.shape().str(), keys.shape().str(), values.shape().str());
  const bool scaled = check_scaled_pages(q, keys, values, key_scale, value_scale);
  const int64_t sequences = q.size(0), h = q.size(1), page = keys.size(1), hk = keys.size(2);
  PF_CHECK(hk > 0 && h % hk == 0, Value,
           "{}: the heads do not group; got {} query heads and {} key heads; expected a multiple", kOp, h, hk);
  PF_CHECK(page > 0 && (page & (page - 1)) == 0, Value,
           "{}: a page has the wrong size; got {} keys; expected a power of two", kOp, page);
  for (const Tensor* t : {&block_table, &lengths})
    PF_CHECK(t->dtype() == DType::int32, Type,
             "{}: the block table and the lengths have the wrong dtype; got {}; expected int32; hint: cast them", kOp,
             dtype_name(t->dtype()));
  PF_CHECK(block_table.dim() == 2 && block_table.size(0) == sequences && lengths.shape() == Dims{sequences}, Value,
           "{}: the block table or the lengths do not fit; got {} and {} for {} sequences; expected (S, N) and (S)",
           kOp, block_table.shape().str(), lengths.shape().str(), sequences);
  PF_CHECK(!window || *window > 0, Value, "{}: the window is out of range; got {}; expected at least 1", kOp,
           window.value_or(0));
  PF_CHECK(!softcap || *softcap > 0, Value, "{}: the soft cap is out of range; got {}; expected more than 0", kOp,
           softcap.value_or(0));
  PF_CHECK(
      !any_requires_grad({q, keys, values}), NotImplemented,
      "{}: there are no gradients; got an input that requires one; expected inference; hint: call it under no_grad",
      kOp);
  if (q.numel() == 0) return empty(q.shape(), q.dtype(), q.device());
  const Tensor q0 = contiguous(q), k0 = stored_pages(keys), v0 = stored_pages(values), table = contiguous(block_table),
               ends = contiguous(lengths), k_scale = scaled ? contiguous(key_scale) : Tensor(),
               v_scale = scaled ? contiguous(value_scale) : Tensor();
  std::vector<Arg> args{q0, k0, v0, table, ends};  // they do not keep tensors alive
  if (scaled) args.insert(args.end(), {Arg(k_scale), Arg(v_scale)});
  args.emplace_back(Scalar(scale.value_or(1 / std::sqrt(static_cast<double>(q.size(2))))), DType::float64);
  args.emplace_back(Scalar(window.value_or(0)), DType::int64);
  args.emplace_back(Scalar(softcap.value_or(0)), DType::float64);
  const OutSpec outs[] = {{q.shape(), q.dtype()}};
  return emit_many(OpId::paged_attention, args, outs, PagedAttrs{static_cast<int64_t>(keys.dtype())})[0];
}

Tensor rotary_store(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& cos, const Tensor& sin,
                    const Tensor& positions, const Tensor& slots, const Tensor& keys, const Tensor& values) {
  constexpr const char* kOp = "rotary_store";
  check_same_device(kOp, {q, k, v, cos, sin, positions, slots, keys, values});
  check_float(kOp, q);
  for (const Tensor* t : {&k, &v, &cos, &sin, &keys, &values}) check_same_dtype(kOp, q, *t);
  PF_CHECK(q.dim() == 3 && k.dim() == 3 && k.shape() == v.shape() && q.size(0) == k.size(0) && q.size(2) == k.size(2),
           Value, "{}: the shapes do not fit; got q {}, k {}, v {}; expected (T, H, D), (T, Hk, D) and (T, Hk, D)", kOp,
           q.shape().str(), k.shape().str(), v.shape().str());
  PF_CHECK(keys.dim() == 3 && keys.shape() == values.shape() && keys.size(1) == k.size(1) && keys.size(2) == k.size(2),
           Value, "{}: the cache does not fit; got keys {} and values {} for k {}; expected (N, Hk, D)", kOp,
           keys.shape().str(), values.shape().str(), k.shape().str());
  PF_CHECK(cos.dim() == 2 && cos.shape() == sin.shape() && cos.size(1) % 2 == 0 && cos.size(1) <= q.size(2), Value,
           "{}: the tables do not fit; got cos {} and sin {} for q {}; expected (P, R) with an even R of at most D",
           kOp, cos.shape().str(), sin.shape().str(), q.shape().str());
  for (const Tensor* t : {&positions, &slots}) {
    PF_CHECK(t->dtype() == DType::int64, Type,
             "{}: positions or slots have the wrong dtype; got {}; expected int64; hint: cast them", kOp,
             dtype_name(t->dtype()));
    PF_CHECK(t->shape() == Dims{q.size(0)}, Value,
             "{}: positions or slots do not fit; got {} for {} rows; expected (T)", kOp, t->shape().str(), q.size(0));
  }
  PF_CHECK(
      !any_requires_grad({q, k, v, cos, sin, keys, values}), NotImplemented,
      "{}: there are no gradients; got an input that requires one; expected inference; hint: call it under no_grad",
      kOp);
  for (const Tensor* t : {&keys, &values}) {
    ops::check_target(kOp, *t);
    fix_layout(*t);
    PF_CHECK(
        t->is_contiguous(), Value,
        "{}: the cache is not contiguous; got strides {} for {}; expected a contiguous tensor, which is written in "
        "place",
        kOp, t->strides().str(), t->shape().str());
  }
  PF_CHECK(keys.storage() != values.storage(), Value,
           "{}: keys and values share their memory; got two views of one tensor; expected two tensors", kOp);
  if (q.size(0) == 0) return empty(q.shape(), q.dtype(), q.device());
  // Inputs in the memory that is written are copied first.
  const auto apart = [&](const Tensor& x) {
    if (x.storage() != keys.storage() && x.storage() != values.storage()) return x;
    return emit(OpId::cast, {x}, x.shape(), x.dtype());
  };
  const auto lines = [&](const Tensor& x) {
    fix_layout(x);
    return apart(x.strides()[2] == 1 || x.size(2) < 2 ? x : contiguous(x));
  };
  const Tensor q0 = lines(q), k0 = lines(k), v0 = lines(v), c = apart(contiguous(cos)), s = apart(contiguous(sin)),
               at = apart(contiguous(positions)), to = apart(contiguous(slots));
  const Tensor out = empty(q.shape(), q.dtype(), q.device());
  const Arg ins[] = {q0, k0, v0, c, s, at, to, keys, values};
  const Tensor outs[] = {out, keys, values};
  emit_into(OpId::rotary_store, ins, outs, NoAttrs{});
  return out;
}

}  // namespace pyflame
