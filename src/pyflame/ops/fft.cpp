// Fourier transforms along one dim. All are one op on pairs of parts. They are linear, so the gradient of each is another
// of them: the transform with the other sign for complex numbers; for real ones, the transform back of the half of the
// frequencies, in which those between the first and the middle one count once instead of twice.
#include "pyflame/ops/family.h"
#include "pyflame/ops/helpers.h"
#include "pyflame/record/pairs.h"

namespace pyflame {

using ops::check_defined;

namespace {

enum Kind : int64_t { kComplex = 0, kFromReal = 1, kToReal = 2 };

// Along the last dim, without autograd. n: the number of elements of the result to real numbers.
Tensor transform(const Tensor& x, const FftAttrs& attrs, int64_t n) {
  Dims shape = x.shape();
  if (attrs.kind == kFromReal) shape.back() = shape.back() / 2 + 1;
  if (attrs.kind == kToReal) shape.back() = n;
  const Tensor in = is_complex(x.dtype()) ? as_pairs(x) : x;
  if (attrs.kind != kToReal) shape.push_back(2);
  if (shape.numel() == 0)
    return attrs.kind == kToReal ? empty(shape, in.dtype(), x.device())
                                 : from_pairs(empty(shape, in.dtype(), x.device()));
  const Tensor out = emit(OpId::fft, {in}, OutSpec{shape, in.dtype(), contiguous_strides(shape)}, attrs);
  return attrs.kind == kToReal ? out : from_pairs(out);
}

// 1 for the first and (n even) the last frequency of the half, and `between` for the others.
Tensor weights(int64_t n, double between, DType dtype, Device device) {
  const Tensor k = arange(0, n / 2 + 1, 1, DType::int64, device);
  const Tensor alone = logical_or(eq(k, 0), eq(mul(k, 2), n));
  return where(alone, full({}, 1.0, dtype, device), between);
}

Tensor last_dim(const Tensor& x, int dim) { return dim == x.dim() - 1 ? x : transpose(x, dim, -1); }

Tensor along_last(const Tensor& x, const FftAttrs& attrs, int64_t n) {
  Tensor out = transform(x, attrs, n);
  const char* name = attrs.kind == kFromReal ? "rfft"
                     : attrs.kind == kToReal ? "irfft"
                     : attrs.inverse         ? "ifft"
                                             : "fft";
  attach(name, {out}, {x}, {}, [attrs](GradNode& node, const Tensors& g) -> Tensors {
    const Dims& from = ops::edge_shape(node, 0);
    if (attrs.kind == kComplex) return {fft(g[0], -1, !attrs.inverse, attrs.scale)};
    if (attrs.kind == kFromReal) {
      const Tensor w = weights(from.back(), 0.5, part_dtype(g[0].dtype()), g[0].device());
      return {fft_to_real(mul(g[0], w), -1, from.back(), attrs.scale)};
    }
    const Tensor w = weights(g[0].size(-1), 2.0, g[0].dtype(), g[0].device());
    return {mul(fft_of_real(g[0], -1, attrs.scale), w)};
  });
  return out;
}

}  // namespace

Tensor fft(const Tensor& x, int64_t dim, bool inverse, int64_t scale) {
  check_defined("fft", x);
  PF_CHECK(is_complex(x.dtype()), Type, "fft: not complex; got {}; expected complex64 or complex128",
           dtype_name(x.dtype()));
  const int d = normalize_dim("fft", dim, x.dim());
  return last_dim(along_last(last_dim(x, d), {kComplex, inverse, scale}, 0), d);
}

Tensor fft_of_real(const Tensor& x, int64_t dim, int64_t scale) {
  check_float("rfft", x);
  const int d = normalize_dim("rfft", dim, x.dim());
  return last_dim(along_last(last_dim(x, d), {kFromReal, 0, scale}, 0), d);
}

Tensor fft_to_real(const Tensor& x, int64_t dim, int64_t n, int64_t scale) {
  check_defined("irfft", x);
  PF_CHECK(is_complex(x.dtype()), Type, "irfft: not complex; got {}; expected complex64 or complex128",
           dtype_name(x.dtype()));
  const int d = normalize_dim("irfft", dim, x.dim());
  PF_CHECK(n >= 1 && x.size(d) == n / 2 + 1, Value,
           "irfft: the number of frequencies does not fit; got {} for {} elements; expected {}", x.size(d), n,
           n / 2 + 1);
  return last_dim(along_last(last_dim(x, d), {kToReal, 1, scale}, n), d);
}

}  // namespace pyflame
