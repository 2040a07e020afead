// Products of 8-bit floats with scales. A device that multiplies them takes the codes. On others the matrices are decoded, which is exact, and
// multiplied as float32, or as bfloat16 on GPUs, which holds every value of the formats.
#include <algorithm>

#include "pyflame/backends/backend.h"
#include "pyflame/ops/helpers.h"
#include "pyflame/ops/ops.h"
#include "pyflame/record/emit.h"
#include "pyflame/record/float8.h"

namespace pyflame {

using ops::check_defined;

namespace {

constexpr const char* kOp = "scaled_mm";
constexpr int64_t kBlock = 128;
constexpr int64_t kAlignment = 16;  // of the sizes that the vendors' libraries take

enum class Scales : uint8_t { Single, OfRows, OfBlocks };

Scales kind_of(const Tensor& scale, const Dims& rows, const Dims& blocks, const char* name) {
  PF_CHECK(scale.dtype() == DType::float32, Type, "{}: {} is not float32; got {}; expected float32", kOp, name,
           dtype_name(scale.dtype()));
  if (scale.numel() == 1) return Scales::Single;
  if (scale.shape() == rows) return Scales::OfRows;
  PF_CHECK(scale.shape() == blocks, Value, "{}: {} does not fit; got {}; expected one element, {} or {}", kOp, name,
           scale.shape().str(), rows.str(), blocks.str());
  return Scales::OfBlocks;
}

Tensor one_number(const Tensor& scale) { return reshape(contiguous(scale), {1}); }

// Each scale repeated over the dim, which a whole number of blocks covers.
Tensor spread(const Tensor& scale, int dim, int64_t size) {
  if (scale.size(dim) == size) return scale;
  Dims wide = scale.shape(), merged = scale.shape();
  wide.insert(dim + 1, kBlock);
  merged[dim] *= kBlock;
  return narrow(reshape(expand(unsqueeze(scale, dim + 1), wide), merged), dim, 0, size);
}

Tensor decoded_product(const Tensor& a, const Tensor& b, DType dtype) {
  const bool half = has_own_memory(a.device().type) && dtype == DType::bfloat16;
  const DType computed = half ? DType::bfloat16 : DType::float32;
  return cast(matmul(cast(a, computed), cast(b, computed)), DType::float32);
}

// Codes with contiguous rows, as uint8.
Tensor codes_by_rows(const Tensor& x) { return as_codes(contiguous(x)); }

Tensor product_of_codes(const Tensor& a, const Tensor& b, const Tensor& scale_a, const Tensor& scale_b, DType dtype,
                        bool fast) {
  const Tensor columns = transpose(codes_by_rows(transpose(b, 0, 1)), 0, 1);
  return emit(OpId::scaled_mm, {codes_by_rows(a), columns, scale_a, scale_b}, Dims{a.size(0), b.size(1)}, dtype,
              ScaledAttrs{static_cast<int64_t>(a.dtype()), static_cast<int64_t>(b.dtype()), fast ? 1 : 0});
}

}  // namespace

Tensor scaled_mm(const Tensor& a, const Tensor& b, const Tensor& scale_a, const Tensor& scale_b, const Tensor& bias,
                 DTypeOpt wanted, bool fast) {
  for (const Tensor* t : {&a, &b, &scale_a, &scale_b}) check_defined(kOp, *t);
  check_same_device(kOp, {a, b, scale_a, scale_b, bias});
  PF_CHECK(is_float8(a.dtype()) && is_float8(b.dtype()), Type,
           "{}: the matrices are no 8-bit floats; got {} and {}; expected float8 dtypes; hint: .to(pf.float8_e4m3fn)",
           kOp, dtype_name(a.dtype()), dtype_name(b.dtype()));
  PF_CHECK(a.dim() == 2 && b.dim() == 2 && a.size(1) == b.size(0), Value,
           "{}: the matrices do not fit; got {} and {}; expected [M, K] and [K, N]", kOp, a.shape().str(),
           b.shape().str());
  const DType dtype = wanted.value_or(DType::bfloat16);
  PF_CHECK(dtype == DType::float32 || is_half(dtype), Type,
           "{}: no such result; got {}; expected float32, float16 or bfloat16", kOp, dtype_name(dtype));
  const int64_t m = a.size(0), k = a.size(1), n = b.size(1);
  const auto blocks = [](int64_t size) { return (size + kBlock - 1) / kBlock; };
  const Scales of_a = kind_of(scale_a, {m, 1}, {m, blocks(k)}, "scale_a"),
               of_b = kind_of(scale_b, {1, n}, {blocks(k), blocks(n)}, "scale_b");
  PF_CHECK((of_a == Scales::OfBlocks) == (of_b == Scales::OfBlocks), Value,
           "{}: only one matrix has scales of blocks; got scale_a {} and scale_b {}; expected both or none", kOp,
           scale_a.shape().str(), scale_b.shape().str());
  PF_CHECK(!bias || (bias.shape() == Dims{n} && bias.dtype() == dtype), Value,
           "{}: the bias does not fit; got {} {}; expected {} [{}]", kOp, bias ? dtype_name(bias.dtype()) : "",
           bias ? bias.shape().str() : "", dtype_name(dtype), n);
  PF_CHECK(!grad_mode::enabled() || !any_requires_grad({a, b, scale_a, scale_b, bias}), NotImplemented,
           "{}: there are no gradients; got an operand that requires one; expected inference; hint: no_grad(), or "
           "pf.float8.Float8Linear for training",
           kOp);
  if (m * n == 0) return empty({m, n}, dtype, a.device());
  Tensor out;
  const bool whole = of_a == Scales::Single && of_b == Scales::Single;
  if (k == 0) {
    out = zeros({m, n}, dtype, a.device());
  } else if (of_a == Scales::OfBlocks) {
    const Tensor x = mul(cast(a, DType::float32), spread(scale_a, 1, k));
    const Tensor w = mul(cast(b, DType::float32), spread(spread(scale_b, 0, k), 1, n));
    out = cast(matmul(x, w), dtype);
  } else if (find_backend(a.device().type)->multiplies_float8(a.device().index, a.dtype(), b.dtype()) &&
             k % kAlignment == 0 && n % kAlignment == 0) {
    if (whole) {
      out = product_of_codes(a, b, one_number(scale_a), one_number(scale_b), dtype, fast);
    } else {
      const Tensor one = ones({1}, DType::float32, a.device());
      const Tensor product = product_of_codes(a, b, one, one, DType::float32, fast);
      out = cast(mul(mul(product, scale_a), scale_b), dtype);
    }
  } else {
    const auto factor = [](const Tensor& scale) { return scale.numel() == 1 ? one_number(scale) : scale; };
    out = cast(mul(mul(decoded_product(a, b, dtype), factor(scale_a)), factor(scale_b)), dtype);
  }
  return bias ? add(out, bias) : out;
}

}  // namespace pyflame
