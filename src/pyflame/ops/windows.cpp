#include "pyflame/ops/windows.h"

#include "pyflame/ops/family.h"
#include "pyflame/ops/helpers.h"

namespace pyflame {

int64_t window_count(int64_t in, int64_t kernel, int64_t stride, int64_t pad, int64_t dilation, bool ceil) {
  const int64_t span = in + 2 * pad - dilation * (kernel - 1) - 1;
  if (span < 0) return 0;
  if (!ceil) return span / stride + 1;
  const int64_t count = (span + stride - 1) / stride + 1;
  return (count - 1) * stride >= in + pad ? count - 1 : count;
}

namespace {

// Zeros before and after a dim, or fewer elements if negative. No history.
Tensor extended(const Tensor& x, int dim, int64_t before, int64_t after) {
  if (before == 0 && after == 0) return x;
  Dims padding = Dims::filled(2 * (x.dim() - dim), 0);
  padding[2 * (x.dim() - 1 - dim)] = before;
  padding[2 * (x.dim() - 1 - dim) + 1] = after;
  return pad(x, padding);
}

// The windows whose tap t is an element of the dim, and the first such element.
struct Reached {
  int64_t first, count, at;
  Reached(const Windows& w, int64_t t, int64_t windows, int64_t length) {
    const int64_t start = t * w.dilation - w.before;  // of window 0
    first = start < 0 ? (-start + w.step - 1) / w.step : 0;
    const int64_t end = length > start ? std::min(windows, (length - start + w.step - 1) / w.step) : 0;
    count = std::max<int64_t>(0, end - first);
    at = start + first * w.step;
  }
  // Those elements of the dim.
  Tensor elements(const Tensor& x, int dim, int64_t step) const {
    return slice(x, dim, at, at + (count - 1) * step + 1, step);
  }
};

// Windows that lie side by side.
Tensor joined_windows(const Tensor& g, int dim, const Windows& w, int64_t length) {
  Dims shape = g.shape();
  const int64_t total = shape[dim] * shape[dim + 1];
  shape.erase(dim);
  shape[dim] = total;
  return extended(reshape(transpose(g, dim, dim + 1), shape), dim, -w.before, length + w.before - total);
}

// Adds tap by tap, so that the sum stays in the cache and each window is read once.
Tensor overlapping_windows(const Tensor& g, int dim, const Windows& w, int64_t length) {
  Dims shape = g.shape();
  shape.erase(dim);
  shape[dim] = length;
  const Tensor sum = zeros(shape, accumulation_dtype(g.dtype()), g.device());
  for (int64_t t = 0; t < w.size; ++t) {
    const Reached r(w, t, g.size(dim + 1), length);
    if (r.count == 0) continue;
    binary_(add, "add_windows", r.elements(sum, dim, w.step), widen(narrow(select(g, dim, t), dim, r.first, r.count)));
  }
  return cast(sum, g.dtype());
}

}  // namespace

Tensor windows_of(const Tensor& x, int dim, const Windows& w, int64_t count) {
  const int64_t length = x.size(dim), reach = (count - 1) * w.step + w.dilation * (w.size - 1) + 1 - w.before;
  Tensor out;
  {
    const grad_mode::Guard off(false);
    const Tensor all = extended(x, dim, w.before, std::max<int64_t>(0, reach - length));
    fix_layout(all);
    Dims shape = all.shape(), strides = all.strides();
    const int64_t stride = strides[dim];
    shape[dim] = count, strides[dim] = stride * w.step;
    shape.insert(dim, w.size), strides.insert(dim, stride * w.dilation);
    out = alias(all, shape, strides, all.offset());
  }
  attach("windows", {out}, {x}, {},
         [dim, w, length](GradNode&, const Tensors& g) -> Tensors { return {add_windows(g[0], dim, w, length)}; });
  return out;
}

Tensor add_windows(const Tensor& g, int dim, const Windows& w, int64_t length) {
  Tensor out;
  {
    const grad_mode::Guard off(false);
    const bool apart = w.dilation == 1 && w.step == w.size;
    out = apart ? joined_windows(g, dim, w, length) : overlapping_windows(g, dim, w, length);
    if (out.storage() == g.storage()) out = clone(out);
  }
  const int64_t count = g.size(dim + 1);
  attach("add_windows", {out}, {g}, {},
         [dim, w, count](GradNode&, const Tensors& u) -> Tensors { return {windows_of(u[0], dim, w, count)}; });
  return out;
}

// ---- unfold and fold

namespace {

void check_windows(const char* op, Pair kernel, Pair dilation, Pair padding, Pair stride) {
  PF_CHECK(kernel.h > 0 && kernel.w > 0 && dilation.h > 0 && dilation.w > 0 && stride.h > 0 && stride.w > 0, Value,
           "{}: a size is not positive; got kernel_size ({}, {}), dilation ({}, {}) and stride ({}, {}); expected > 0",
           op, kernel.h, kernel.w, dilation.h, dilation.w, stride.h, stride.w);
  PF_CHECK(padding.h >= 0 && padding.w >= 0, Value, "{}: padding is negative; got ({}, {}); expected >= 0", op,
           padding.h, padding.w);
}

}  // namespace

Tensor unfold(const Tensor& input, Pair kernel, Pair dilation, Pair padding, Pair stride) {
  constexpr const char* kOp = "unfold";
  PF_CHECK(input.dim() == 3 || input.dim() == 4, Value, "{}: wrong rank; got {}; expected (N, C, H, W) or (C, H, W)",
           kOp, input.shape().str());
  check_windows(kOp, kernel, dilation, padding, stride);
  const Tensor x = input.dim() == 3 ? unsqueeze(input, 0) : input;
  const int64_t rows = window_count(x.size(2), kernel.h, stride.h, padding.h, dilation.h),
                columns = window_count(x.size(3), kernel.w, stride.w, padding.w, dilation.w);
  PF_CHECK(rows > 0 && columns > 0, Value,
           "{}: no window fits; got kernel_size ({}, {}), dilation ({}, {}) and padding ({}, {}) for input {}", kOp,
           kernel.h, kernel.w, dilation.h, dilation.w, padding.h, padding.w, input.shape().str());
  Tensor y;
  {
    const grad_mode::Guard off(false);
    const bool padded = padding.h > 0 || padding.w > 0;
    const Tensor all = padded ? pad(x, {padding.w, padding.w, padding.h, padding.h}) : x;
    // [N, C, H, KW, columns], then [N, C, KH, rows, KW, columns]
    const Tensor along = windows_of(all, 3, {kernel.w, stride.w, dilation.w, 0}, columns);
    const Tensor both = windows_of(along, 2, {kernel.h, stride.h, dilation.h, 0}, rows);
    y = reshape(permute(both, {0, 1, 2, 4, 3, 5}), {x.size(0), x.size(1) * kernel.h * kernel.w, rows * columns});
    if (y.storage() == x.storage()) y = clone(y);  // one window, or windows of one element
  }
  const Pair size(x.size(2), x.size(3));
  attach("unfold", {y}, {x}, {},
         [=](GradNode&, const Tensors& g) -> Tensors { return {fold(g[0], size, kernel, dilation, padding, stride)}; });
  return input.dim() == 3 ? squeeze(y, 0) : y;
}

namespace {

// [N, C, KH, KW, rows, columns] -> [N, C, H, W]
Tensor add_plane_windows(const Tensor& g, Pair size, const Windows& h, const Windows& w) {
  const Tensor sum = zeros({g.size(0), g.size(1), size.h, size.w}, accumulation_dtype(g.dtype()), g.device());
  for (int64_t i = 0; i < h.size; ++i)
    for (int64_t j = 0; j < w.size; ++j) {
      const Reached y(h, i, g.size(4), size.h), x(w, j, g.size(5), size.w);
      if (y.count == 0 || x.count == 0) continue;
      const Tensor tap = narrow(narrow(select(select(g, 2, i), 2, j), 2, y.first, y.count), 3, x.first, x.count);
      binary_(add, "fold", x.elements(y.elements(sum, 2, h.step), 3, w.step), widen(tap));
    }
  return cast(sum, g.dtype());
}

}  // namespace

Tensor fold(const Tensor& input, Pair size, Pair kernel, Pair dilation, Pair padding, Pair stride) {
  constexpr const char* kOp = "fold";
  check_windows(kOp, kernel, dilation, padding, stride);
  const int64_t rows = window_count(size.h, kernel.h, stride.h, padding.h, dilation.h),
                columns = window_count(size.w, kernel.w, stride.w, padding.w, dilation.w), taps = kernel.h * kernel.w;
  const bool rank = input.dim() == 2 || input.dim() == 3;
  PF_CHECK(rank && rows > 0 && columns > 0 && input.size(-2) % taps == 0 && input.size(-1) == rows * columns, Value,
           "{}: the columns do not fit the windows; got input {} for output_size ({}, {}), kernel_size ({}, {}), "
           "dilation ({}, {}), padding ({}, {}) and stride ({}, {}); expected (N, C * {}, {}) or (C * {}, {})",
           kOp, input.shape().str(), size.h, size.w, kernel.h, kernel.w, dilation.h, dilation.w, padding.h, padding.w,
           stride.h, stride.w, taps, rows * columns, taps, rows * columns);
  const Tensor x = input.dim() == 2 ? unsqueeze(input, 0) : input;
  const Windows h{kernel.h, stride.h, dilation.h, padding.h}, w{kernel.w, stride.w, dilation.w, padding.w};
  Tensor y;
  {
    const grad_mode::Guard off(false);
    const Tensor parts = reshape(x, {x.size(0), x.size(1) / taps, kernel.h, kernel.w, rows, columns});
    const bool apart = h.dilation == 1 && h.step == h.size && w.dilation == 1 && w.step == w.size;
    y = apart ? add_windows(add_windows(permute(parts, {0, 1, 2, 4, 3, 5}), 4, w, size.w), 2, h, size.h)
              : add_plane_windows(parts, size, h, w);
    if (y.storage() == x.storage()) y = clone(y);
  }
  attach("fold", {y}, {x}, {},
         [=](GradNode&, const Tensors& g) -> Tensors { return {unfold(g[0], kernel, dilation, padding, stride)}; });
  return input.dim() == 2 ? squeeze(y, 0) : y;
}

}  // namespace pyflame
