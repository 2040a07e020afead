// Images read at any places, and the gradients by the image and by the grid. Each gradient is one op; where it is to have a gradient itself,
// it is recorded as the same formula in ops that have one: each place has taps along each dim, whose products are its corners.
#include "pyflame/ops/family.h"
#include "pyflame/ops/helpers.h"

namespace pyflame {

namespace {

GridMode mode_of(const GridAttrs& a) { return static_cast<GridMode>(a.mode); }
GridPadding padding_of(const GridAttrs& a) { return static_cast<GridPadding>(a.padding); }

// In units of elements, and how much it moves with the grid's number, which has no gradient.
struct GridPlace {
  Tensor at, slope;
};

GridPlace place_along(const Tensor& g, int64_t elements, bool align) {
  const auto size = static_cast<double>(elements);
  const Tensor one_more = add(g, Scalar(1.0));
  if (align) return {mul(one_more, Scalar((size - 1) / 2)), full_like(g, Scalar((size - 1) / 2))};
  return {mul(sub(mul(one_more, Scalar(size)), Scalar(1.0)), Scalar(0.5)), full_like(g, Scalar(size / 2))};
}

// Mirrored at the centres of the first and the last element (align), or at their outer edges.
GridPlace reflected(const GridPlace& x, int64_t elements, bool align) {
  const double low = align ? 0.0 : -0.5, span = static_cast<double>(align ? elements - 1 : elements);
  if (span == 0) return {zeros_like(x.at), zeros_like(x.at)};
  const Tensor away = sub(x.at, Scalar(low)), distance = abs(away);
  const Tensor turns = floor(div(distance, Scalar(span))).detach();
  const Tensor rest = sub(distance, mul(turns, Scalar(span)));
  const Tensor even = eq(sub(turns, mul(floor(mul(turns, Scalar(0.5))), Scalar(2.0))), Scalar(0.0));
  const Tensor slope = mul(sign(away).detach(), x.slope);
  return {where(even, add(rest, Scalar(low)), sub(Scalar(span + low), rest)), where(even, slope, neg(slope))};
}

// Moved into the image, unless everything outside of it is 0. NaN becomes 0.
GridPlace padded(GridPlace x, int64_t elements, const GridAttrs& a) {
  if (padding_of(a) == GridPadding::Zeros) return x;
  if (padding_of(a) == GridPadding::Reflection) x = reflected(x, elements, a.align_corners != 0);
  const auto last = static_cast<double>(elements - 1);
  const Tensor behind = gt(x.at, Scalar(0.0)), inside = logical_and(behind, lt(x.at, Scalar(last)));
  const Tensor none = zeros_like(x.at);
  return {where(inside, x.at, where(behind, Scalar(last), none)), where(inside, x.slope, none)};
}

// Cubic convolution (Keys, 1981) with a = -0.75: the weights of distances up to 1, and from there to 2; their derivatives.
Tensor polynomial(const Tensor& d, std::initializer_list<double> coefficients) {
  Tensor y;
  for (double c : coefficients) y = y ? add(mul(y, d), Scalar(c)) : full_like(d, Scalar(c));
  return y;
}
Tensor cubic_near(const Tensor& d) { return polynomial(d, {1.25, -2.25, 0, 1}); }
Tensor cubic_far(const Tensor& d) { return polynomial(d, {-0.75, 3.75, -6, 3}); }
Tensor cubic_near_slope(const Tensor& d) { return polynomial(d, {3.75, -4.5, 0}); }
Tensor cubic_far_slope(const Tensor& d) { return polynomial(d, {-2.25, 7.5, -6}); }

// Along one dim: numbers of elements inside of the image (int64), what they weigh (0 outside), and its derivative. [N, L, taps]
struct Taps {
  Tensor at, weight, slope;
};

Taps taps_of(const Tensors& at, const Tensors& weight, const Tensors& slope, int64_t elements) {
  const auto last = static_cast<double>(elements - 1);
  const Tensor where_to = stack(at, -1).detach();
  const Tensor inside = logical_and(ge(where_to, Scalar(0.0)), le(where_to, Scalar(last)));
  const Tensor factor = cast(inside, where_to.dtype());
  return {cast(clamp(where_to, Scalar(0.0), Scalar(last)), DType::int64), mul(stack(weight, -1), factor),
          mul(stack(slope, -1), factor)};
}

Taps taps_along(const Tensor& g, int64_t elements, const GridAttrs& a) {
  GridPlace x = place_along(g, elements, a.align_corners != 0);
  if (mode_of(a) == GridMode::Cubic) {
    const Tensor low = floor(x.at).detach(), t = sub(x.at, low), rest = sub(Scalar(1.0), t);
    const Tensor far = add(t, Scalar(1.0)), far_rest = add(rest, Scalar(1.0));
    Tensors at;
    for (int k = -1; k <= 2; ++k)
      at.push_back(padded({add(low, Scalar(static_cast<double>(k))), zeros_like(low)}, elements, a).at);
    return taps_of(at, {cubic_far(far), cubic_near(t), cubic_near(rest), cubic_far(far_rest)},
                   {mul(cubic_far_slope(far), x.slope), mul(cubic_near_slope(t), x.slope),
                    neg(mul(cubic_near_slope(rest), x.slope)), neg(mul(cubic_far_slope(far_rest), x.slope))},
                   elements);
  }
  x = padded(x, elements, a);
  if (mode_of(a) == GridMode::Nearest) return taps_of({round(x.at)}, {ones_like(x.at)}, {zeros_like(x.at)}, elements);
  const Tensor low = floor(x.at).detach(), next = add(low, Scalar(1.0));
  return taps_of({low, next}, {sub(next, x.at), sub(x.at, low)}, {neg(x.slope), x.slope}, elements);
}

// All corners of all places: rows of the images as a matrix [N * elements, C], their weights, and the derivatives of these by each dim.
// [N, L, corners]
struct Corners {
  Tensor row, weight;
  Tensors slope;
};

// The product of the sizes of the dims [from, to).
int64_t product_of(const Dims& shape, int from, int to) {
  int64_t n = 1;
  for (int d = from; d < to; ++d) n *= shape[d];
  return n;
}
int64_t places_of(const Tensor& grid) { return product_of(grid.shape(), 1, grid.dim() - 1); }

Corners corners_of(const Tensor& grid, const Dims& image, const GridAttrs& a) {
  const int dims = image.size() - 2;
  const Tensor flat = reshape(grid, {grid.size(0), places_of(grid), dims});
  std::vector<Taps> along;
  for (int d = 0; d < dims; ++d) along.push_back(taps_along(select(flat, 2, dims - 1 - d), image[d + 2], a));
  // The taps of one dim, broadcast against those of the others.
  const auto spread = [&](const Tensor& t, int d) {
    Dims shape{t.size(0), t.size(1)};
    for (int e = 0; e < dims; ++e) shape.push_back(e == d ? t.size(2) : 1);
    return reshape(t, shape);
  };
  const int64_t n = flat.size(0), places = flat.size(1);
  int64_t each = 1;
  for (const Taps& t : along) each *= t.at.size(2);
  const auto product = [&](int by) {
    Tensor w;
    for (int d = 0; d < dims; ++d) {
      const Taps& t = along[static_cast<size_t>(d)];
      const Tensor factor = spread(d == by ? t.slope : t.weight, d);
      w = w ? mul(w, factor) : factor;
    }
    return reshape(w, {n, places, each});
  };
  Tensor row = mul(arange(0, n, 1, DType::int64, grid.device()), Scalar(product_of(image, 2, image.size())));
  Tensor at;
  for (int d = 0; d < dims; ++d) {
    const Tensor more = spread(along[static_cast<size_t>(d)].at, d);
    at = at ? add(mul(at, Scalar(image[d + 2])), more) : more;
  }
  row = reshape(add(reshape(at, {n, places * each}), unsqueeze(row, 1)), {n * places * each});
  Corners r{row, product(-1), {}};
  for (int d = 0; d < dims && mode_of(a) != GridMode::Nearest; ++d) r.slope.push_back(product(d));
  return r;
}

// [N, C, ..] -> [N, .., C] with the dims between as one
Tensor channels_last_rows(const Tensor& x, int64_t inner) {
  return permute(reshape(x, {x.size(0), x.size(1), inner}), {0, 2, 1});
}
// What the images have at the corners: [N, L, corners, C]
Tensor at_corners(const Tensor& x, const Corners& corners) {
  const int64_t n = x.size(0), c = x.size(1), elements = product_of(x.shape(), 2, x.dim());
  const Tensor rows = reshape(channels_last_rows(x, elements), {n * elements, c});
  return reshape(index_select(rows, 0, corners.row), {n, corners.weight.size(1), corners.weight.size(2), c});
}

// The op and its gradients, as ops that have gradients. Numbers of 16 bits are computed as float32.
Tensor composed_sample(const Tensor& x, const Tensor& grid, const Dims& shape, const GridAttrs& a) {
  const Corners corners = corners_of(widen(grid), x.shape(), a);
  const Tensor y = sum(mul(at_corners(widen(x), corners), unsqueeze(corners.weight, 3)), {2});
  return cast(reshape(permute(y, {0, 2, 1}), shape), x.dtype());
}
Tensor composed_grad_input(const Tensor& g, const Tensor& grid, const Dims& shape, const GridAttrs& a) {
  const Corners corners = corners_of(widen(grid), shape, a);
  const int64_t n = shape[0], c = shape[1], elements = product_of(shape, 2, shape.size());
  const Tensor rows = unsqueeze(channels_last_rows(widen(g), places_of(grid)), 2);
  const Tensor parts = reshape(mul(rows, unsqueeze(corners.weight, 3)), {corners.row.size(0), c});
  const Tensor dx = reshape(index_add_zeros(corners.row, parts, {n * elements, c}, 0), {n, elements, c});
  return cast(reshape(permute(dx, {0, 2, 1}), shape), g.dtype());
}
Tensor composed_grad_grid(const Tensor& g, const Tensor& x, const Tensor& grid, const GridAttrs& a) {
  const Corners corners = corners_of(widen(grid), x.shape(), a);
  const Tensor rows = unsqueeze(channels_last_rows(widen(g), places_of(grid)), 2);
  const Tensor dots = sum(mul(rows, at_corners(widen(x), corners)), {3});
  Tensors by;  // the last dim is x
  for (auto s = corners.slope.rbegin(); s != corners.slope.rend(); ++s) by.push_back(sum(mul(dots, *s), {2}));
  return cast(reshape(stack(by, -1), grid.shape()), grid.dtype());
}

GridAttrs attrs_of(const std::string& mode, const std::string& padding, bool align_corners) {
  const auto number = [](const char* what, const std::string& name, std::initializer_list<const char*> names) {
    int64_t i = 0;
    std::string all;
    for (const char* one : names) {
      if (name == one) return i;
      ++i, all += (all.empty() ? "" : ", ") + std::string(one);
    }
    PF_FAIL(Value, "grid_sample: no such {}; got '{}'; expected one of {}", what, name, all);
  };
  return {number("mode", mode, {"bilinear", "nearest", "bicubic"}),
          number("padding_mode", padding, {"zeros", "border", "reflection"}), align_corners ? 1 : 0};
}

void check_grid_sample(const Tensor& input, const Tensor& grid) {
  check_same_device("grid_sample", {input, grid});
  const int dims = input.dim() - 2;
  PF_CHECK(
      (dims == 2 || dims == 3) && grid.dim() == input.dim() && grid.size(-1) == dims && grid.size(0) == input.size(0),
      Value,
      "grid_sample: input and grid do not fit; got {} and {}; expected (N, C, H, W) and (N, H', W', 2), or "
      "(N, C, D, H, W) and (N, D', H', W', 3)",
      input.shape().str(), grid.shape().str());
  PF_CHECK(input.dtype() == grid.dtype(), Type,
           "grid_sample: dtypes differ; got {} and {}; expected equal dtypes; hint: cast one",
           dtype_name(input.dtype()), dtype_name(grid.dtype()));
  check_float("grid_sample", input);
  for (int d = 2; d < input.dim(); ++d)
    PF_CHECK(input.size(d) > 0, Value, "grid_sample: an image without elements; got {}; expected sizes > 0",
             input.shape().str());
}

}  // namespace

Tensor grid_sample(const Tensor& input, const Tensor& grid, const std::string& mode, const std::string& padding_mode,
                   bool align_corners) {
  const GridAttrs a = attrs_of(mode, padding_mode, align_corners);
  check_grid_sample(input, grid);
  Dims shape{input.size(0), input.size(1)};
  for (int d = 1; d < grid.dim() - 1; ++d) shape.push_back(grid.size(d));
  // 64 corners of a place are too many for a kernel.
  if (mode_of(a) == GridMode::Cubic && input.dim() == 5) return composed_sample(input, grid, shape, a);
  Tensor out = emit(OpId::grid_sample, {input, grid}, shape, input.dtype(), a);
  const Tensor image = any_requires_grad({grid}) ? input : grid;  // only the grid's gradient reads the images
  attach("grid_sample", {out}, {input, grid}, {grid, image}, [a](GradNode& n, const Tensors& g) -> Tensors {
    const Tensor at = n.saved(0);
    const bool again = grad_mode::enabled();
    Tensors r(2);
    if (n.needs(0)) {
      const Dims& from = ops::edge_shape(n, 0);
      r[0] = again ? composed_grad_input(g[0], at, from, a)
                   : emit(OpId::grid_sample_grad_input, {g[0], at}, from, at.dtype(), a);
    }
    if (n.needs(1) && mode_of(a) == GridMode::Nearest) r[1] = zeros_like(at);
    else if (n.needs(1))
      r[1] = again ? composed_grad_grid(g[0], n.saved(1), at, a)
                   : emit(OpId::grid_sample_grad_grid, {g[0], n.saved(1), at}, at.shape(), at.dtype(), a);
    return r;
  });
  return out;
}

}  // namespace pyflame
