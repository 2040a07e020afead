#include "pyflame/ops/complex_scans.h"

#include "pyflame/ops/ops.h"

namespace pyflame {

namespace {

// The scan of an associative op. Each round joins to every element the one that is `reach` before it, and doubles `reach`: 2^k elements take
// k rounds. The gradient is that of the rounds, so zeros need no care.
Tensor scan_by_doubling(const Tensor& x, int dim, Tensor (*join)(const Tensor&, const Tensor&)) {
  if (x.dim() == 0) return clone(x);
  const int64_t n = x.shape()[dim];
  Tensor out = clone(x);
  for (int64_t reach = 1; reach < n; reach *= 2) {
    const Tensor joined = join(narrow(out, dim, reach, n - reach), narrow(out, dim, 0, n - reach));
    out = cat({narrow(out, dim, 0, reach), joined}, dim);
  }
  return out;
}

Tensor product(const Tensor& a, const Tensor& b) { return mul(a, b); }

}  // namespace

// The number with the larger real part, plus log(1 + exp(the other one minus it)). Equal infinite real parts differ by 0, not by NaN.
Tensor complex_logaddexp(const Tensor& a, const Tensor& b) {
  const Tensor a_real = real(a), b_real = real(b), first = ge(a_real, b_real);
  const Tensor most = where(first, a, b), least = where(first, b, a);
  const Tensor equal = logical_and(eq(a_real, b_real), isinf(a_real));
  return add(most, log1p(exp(where(equal, 0.0, sub(least, most)))));
}

Tensor complex_cumprod(const Tensor& x, int dim) { return scan_by_doubling(x, dim, &product); }

Tensor complex_logcumsumexp(const Tensor& x, int dim) { return scan_by_doubling(x, dim, &complex_logaddexp); }

}  // namespace pyflame
