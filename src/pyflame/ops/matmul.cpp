// matmul for all of PyTorch's shapes is one op on [..., M, K] x [..., K, N]. Vectors and missing batch dims become
// views, whose gradients undo them. A 2-d second operand is never broadcast over a batch: the leading dims of the first
// operand become rows, so forward, dA and dB are one matrix product each.
#include <atomic>

#include "pyflame/ops/autocast.h"
#include "pyflame/ops/complex.h"
#include "pyflame/ops/family.h"
#include "pyflame/tensor/alias.h"

namespace pyflame {

namespace {

std::atomic<MatmulPrecision> g_precision{MatmulPrecision::highest};

Tensor emit_product(const Tensor& a, const Tensor& b, const Dims& shape) {
  if (is_complex(a.dtype())) return ops::complex_product(a, b);
  const bool heeded = a.dtype() == DType::float32 && has_own_memory(a.device().type);
  const MatmulPrecision precision = heeded ? float32_matmul_precision() : MatmulPrecision::highest;
  return emit(OpId::matmul, {a, b}, shape, a.dtype(), MatmulAttrs{static_cast<int64_t>(precision)});
}

void check_operands(const char* op, const Tensor& a, const Tensor& b) {
  check_same_device(op, {a, b});
  check_same_dtype(op, a, b);
  PF_CHECK(a.dtype() != DType::bool_, Type,
           "{}: not defined for bool; got bool; expected a number dtype; hint: cast first", op);
}

Tensor transposed(const Tensor& x) { return transpose(x, -2, -1); }

// Equal rank >= 2 and equal batch dims.
Tensor matmul_op(const Tensor& a, const Tensor& b) {
  Dims shape = a.shape();
  shape.back() = b.shape().back();
  Tensor out = emit_product(a, b, shape);
  attach("matmul", {out}, {a, b}, {a, b}, [](GradNode& n, const Tensors& g) -> Tensors {
    return {n.needs(0) ? matmul_op(g[0], transposed(conj(n.saved(1)))) : Tensor(),
            n.needs(1) ? matmul_op(transposed(conj(n.saved(0))), g[0]) : Tensor()};
  });
  return out;
}

Dims batch_dims(const Tensor& x) { return Dims(std::span<const int64_t>(x.shape().begin(), x.shape().end() - 2)); }

Tensor expand_batch(const Tensor& x, Dims batch) {
  batch.push_back(x.size(-2));
  batch.push_back(x.size(-1));
  return batch == x.shape() ? x : expand(x, batch);
}

// Both have at least two dims.
Tensor matmul_nd(const char* op, const Tensor& a, const Tensor& b) {
  PF_CHECK(a.size(-1) == b.size(-2), Value,
           "{}: inner dimensions differ; got {} @ {}; expected the second operand to have {} rows", op, a.shape().str(),
           b.shape().str(), a.size(-1));
  if (b.dim() == 2 && a.dim() > 2) {
    Dims shape = a.shape();
    shape.back() = b.size(1);
    const int64_t rows = batch_dims(a).numel() * a.size(-2);
    return reshape(matmul_op(reshape(a, {rows, a.size(-1)}), b), shape);
  }
  const Dims batch = broadcast_shapes(op, batch_dims(a), batch_dims(b));
  return matmul_op(expand_batch(a, batch), expand_batch(b, batch));
}

}  // namespace

MatmulPrecision float32_matmul_precision() { return g_precision.load(std::memory_order_relaxed); }
void set_float32_matmul_precision(MatmulPrecision precision) {
  g_precision.store(precision, std::memory_order_relaxed);
}

Tensor matmul(const Tensor& a, const Tensor& b) {
  if (autocast::active(a)) {
    const autocast::Off off;
    return matmul(autocast::operand(OpId::matmul, a), autocast::operand(OpId::matmul, b));
  }
  check_operands("matmul", a, b);
  PF_CHECK(a.dim() > 0 && b.dim() > 0, Value,
           "matmul: an operand has no dimensions; got {} @ {}; expected at least one dimension each; hint: use mul for "
           "numbers",
           a.shape().str(), b.shape().str());
  if (a.dim() > 1 && b.dim() > 1) return matmul_nd("matmul", a, b);
  const int64_t rows = b.size(b.dim() == 1 ? 0 : -2);
  PF_CHECK(a.size(-1) == rows, Value,
           "matmul: inner dimensions differ; got {} @ {}; expected the second operand to have {} rows", a.shape().str(),
           b.shape().str(), a.size(-1));
  Tensor out = matmul_nd("matmul", a.dim() == 1 ? unsqueeze(a, 0) : a, b.dim() == 1 ? unsqueeze(b, 1) : b);
  if (b.dim() == 1) out = squeeze(out, -1);
  return a.dim() == 1 ? squeeze(out, b.dim() == 1 ? -1 : -2) : out;
}

Tensor bmm(const Tensor& a, const Tensor& b) {
  if (autocast::active(a)) {
    const autocast::Off off;
    return bmm(autocast::operand(OpId::matmul, a), autocast::operand(OpId::matmul, b));
  }
  check_operands("bmm", a, b);
  PF_CHECK(a.dim() == 3 && b.dim() == 3 && a.size(0) == b.size(0), Value,
           "bmm: not two batches of matrices; got {} and {}; expected (B, M, K) and (B, K, N)", a.shape().str(),
           b.shape().str());
  return matmul_nd("bmm", a, b);
}

namespace {

// The usual case is one node, because the gradient of the weight must have the weight's own layout: dW = Gᵀ X. The
// gradient of matmul(x, Wᵀ) would be a transposed view, and every optimizer step would copy it.
Tensor linear_op(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  Dims shape = x.shape();
  shape.back() = weight.size(0);
  const int64_t rows = batch_dims(x).numel() * x.size(-2);
  Tensor out;
  {
    grad_mode::Guard off(false, grad_mode::inference());
    // An alias instead of transpose(): the view stays private, so autograd need not know of it.
    const Tensor transposed =
        alias(weight, {weight.size(1), weight.size(0)}, {weight.strides()[1], weight.strides()[0]}, weight.offset());
    out = emit_product(reshape(x, {rows, x.size(-1)}), transposed, {rows, weight.size(0)});
    if (bias) out = add(out, bias);
    if (out.shape() != shape) out = Tensor(out.storage(), shape, contiguous_strides(shape), 0, x.dtype());
  }
  attach("linear", {out}, {x, weight, bias}, {x, weight}, [](GradNode& n, const Tensors& g) -> Tensors {
    const Tensor folded = reshape(g[0], {batch_dims(g[0]).numel() * g[0].size(-2), g[0].size(-1)});
    Tensors r(3);
    if (n.needs(0)) r[0] = matmul(g[0], conj(n.saved(1)));
    if (n.needs(1)) {
      const Tensor input = conj(n.saved(0));
      r[1] = matmul(transpose(folded, 0, 1), reshape(input, {folded.size(0), input.size(-1)}));
    }
    if (n.needs(2)) r[2] = sum(folded, {0});
    return r;
  });
  return out;
}

}  // namespace

namespace {

constexpr const char* kGrouped = "grouped_mm";

// a [M, K] and b [G, K, N], or a [K, M] and b [M, N].
Tensor grouped_op(const Tensor& a, const Tensor& b, const Tensor& ends) {
  const Dims shape = b.dim() == 3 ? Dims{a.size(0), b.size(2)} : Dims{ends.size(0), a.size(0), b.size(1)};
  const Tensor out = emit(OpId::grouped_mm, {a, b, contiguous(ends)}, shape, a.dtype());
  attach(kGrouped, {out}, {a, b}, {a, b, ends}, [](GradNode& n, const Tensors& g) -> Tensors {
    const Tensor &x = n.saved(0), &y = n.saved(1), &to = n.saved(2);
    Tensors r(2);
    if (y.dim() == 3) {
      if (n.needs(0)) r[0] = grouped_op(g[0], transposed(y), to);
      if (n.needs(1)) r[1] = grouped_op(transposed(x), g[0], to);
    } else {
      if (n.needs(0)) r[0] = transposed(grouped_op(y, transposed(g[0]), to));
      if (n.needs(1)) r[1] = grouped_op(transposed(x), g[0], to);
    }
    return r;
  });
  return out;
}

}  // namespace

Tensor grouped_mm(const Tensor& a, const Tensor& b, const Tensor& ends) {
  if (autocast::active(a)) {
    const autocast::Off off;
    return grouped_mm(autocast::operand(OpId::grouped_mm, a), autocast::operand(OpId::grouped_mm, b), ends);
  }
  check_operands(kGrouped, a, b);
  check_float(kGrouped, a);
  const int da = a.dim(), db = b.dim();
  PF_CHECK((da == 2 || da == 3) && (db == 2 || db == 3), Value,
           "{}: an operand has the wrong number of dims; got {} and {}; expected 2 or 3 each", kGrouped,
           a.shape().str(), b.shape().str());
  if (da == 3 && db == 3) {
    PF_CHECK(!ends, Value, "{}: batches have no groups; got offs with two operands of 3 dims; expected none", kGrouped);
    return bmm(a, b);
  }
  PF_CHECK(
      ends, Value,
      "{}: the groups are missing; got no offs with operands {} and {}; expected offs, int32 [G], where each group "
      "ends",
      kGrouped, a.shape().str(), b.shape().str());
  check_same_device(kGrouped, {a, ends});
  PF_CHECK(ends.dtype() == DType::int32 && ends.dim() == 1 && ends.size(0) > 0, Type,
           "{}: offs is no list of ends; got {} {}; expected int32 [G]", kGrouped, dtype_name(ends.dtype()),
           ends.shape().str());
  PF_CHECK(a.size(-1) == b.size(-2), Value,
           "{}: inner dimensions differ; got {} @ {}; expected the second operand to have {} rows", kGrouped,
           a.shape().str(), b.shape().str(), a.size(-1));
  const int64_t groups = da == 3 ? a.size(0) : db == 3 ? b.size(0) : ends.size(0);
  PF_CHECK(ends.size(0) == groups, Value, "{}: offs has the wrong length; got {}; expected {} groups", kGrouped,
           ends.size(0), groups);
  if (da == 3) return transposed(grouped_op(transposed(b), transposed(a), ends));
  return grouped_op(a, b, ends);
}

Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  if (autocast::active(x)) {
    const autocast::Off off;
    return linear(autocast::operand(OpId::matmul, x), autocast::operand(OpId::matmul, weight),
                  autocast::operand(OpId::matmul, bias));
  }
  check_operands("linear", x, weight);
  PF_CHECK(x.dim() >= 1 && (weight.dim() == 2 || weight.dim() == 1) && weight.size(-1) == x.size(-1), Value,
           "linear: input and weight do not fit; got input {} and weight {}; expected input (..., K) and weight (N, K)",
           x.shape().str(), weight.shape().str());
  if (bias) {
    check_operands("linear", x, bias);
    const bool fits = weight.dim() == 2 ? bias.dim() == 0 ||
                                              (bias.dim() == 1 && (bias.size(0) == weight.size(0) || bias.size(0) == 1))
                                        : bias.dim() == 0;
    PF_CHECK(fits, Value,
             "linear: the bias does not fit; got bias {} for weight {}; expected one number per row of the weight",
             bias.shape().str(), weight.shape().str());
  }
  if (weight.dim() == 2 && x.dim() >= 2 && (!bias || (bias.dim() == 1 && bias.size(0) == weight.size(0))))
    return linear_op(x, weight, bias);
  const Tensor out = matmul(x, weight.dim() == 2 ? transpose(weight, 0, 1) : weight);
  return bias ? add(out, bias) : out;
}

}  // namespace pyflame
