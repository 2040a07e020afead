// Images read at the places of a grid, and the gradients of that: sums over the corners of each place. Where a place is, is computed in the
// precision in which kernels compute the dtype, so that they agree on its corners.
#include "pyflame/backends/reference/access.h"
#include "pyflame/kernels/grid/taps.h"

namespace pyflame::reference {
namespace {

// Calls f(image, place, element or -1, corner's weight, derivatives of that by the grid's numbers) for each corner of each place.
template <int kMode, int kDims, class P, class F>
void for_corners(const GridAttrs& a, const Dims& image, const View& grid, F&& f) {
  const std::vector<double> g = read_all<double>(grid);
  int64_t places = 1;
  pf::i64 steps[kDims], step = 1;
  for (int d = kDims - 1; d >= 0; --d) steps[d] = step, step *= image[d + 2];
  for (int d = 1; d <= kDims; ++d) places *= grid.shape[d];
  for (int64_t i = 0; i < image[0] * places; ++i) {
    pf::GridCorners<kMode, kDims, P> corners;
    for (int d = 0; d < kDims; ++d)
      corners.along[d] = pf::taps_along<kMode, P>(static_cast<P>(g[static_cast<size_t>((i + 1) * kDims - 1 - d)]),
                                                  image[d + 2], static_cast<int>(a.padding), a.align_corners != 0);
    pf::for_numbers<corners.kCount>([&](auto k) {
      std::array<double, kDims> slope;
      pf::for_numbers<kDims>(
          [&](auto d) { slope[size_t{kDims - 1 - d.value}] = corners.template weight<k.value, d.value>(); });
      f(i / places, i % places, corners.template offset<k.value>(steps), corners.template weight<k.value>(), slope);
    });
  }
}

template <int kMode, class F>
void for_corners_of_mode(const GridAttrs& a, const Dims& image, const View& grid, F&& f) {
  const bool wide = grid.dtype == DType::float64;
  if (image.size() == 4 && wide) for_corners<kMode, 2, double>(a, image, grid, f);
  else if (image.size() == 4) for_corners<kMode, 2, float>(a, image, grid, f);
  else if (wide) for_corners<kMode, 3, double>(a, image, grid, f);
  else for_corners<kMode, 3, float>(a, image, grid, f);
}

template <class F>
void for_grid(const Call& c, const Dims& image, const View& grid, F&& f) {
  const auto& a = c.node.attr<GridAttrs>();
  switch (static_cast<GridMode>(a.mode)) {
    case GridMode::Linear: return for_corners_of_mode<pf::kLinear>(a, image, grid, f);
    case GridMode::Nearest: return for_corners_of_mode<pf::kNearest>(a, image, grid, f);
    case GridMode::Cubic: return for_corners_of_mode<pf::kCubic>(a, image, grid, f);
  }
}

// Where element or place `i` of the channel 0 of an image is, in a tensor of this shape; and the step from channel to channel.
struct Flat {
  int64_t inner = 1, channels;
  explicit Flat(const Dims& shape) : channels(shape[1]) {
    for (int d = 2; d < shape.size(); ++d) inner *= shape[d];
  }
  size_t at(int64_t image, int64_t channel, int64_t i) const {
    return static_cast<size_t>((image * channels + channel) * inner + i);
  }
};

}  // namespace

void run_grid_sample(const Call& c) {
  const std::vector<double> x = read_all<double>(c.in(0));
  const Flat from(c.in(0).shape), to(c.out(0).shape);
  std::vector<double> y(static_cast<size_t>(c.out(0).numel()));
  for_grid(c, c.in(0).shape, c.in(1), [&](int64_t n, int64_t place, int64_t element, double weight, const auto&) {
    for (int64_t j = 0; j < to.channels; ++j)
      y[to.at(n, j, place)] += weight * (element < 0 ? 0 : x[from.at(n, j, element)]);
  });
  write_all(c.out(0), y);
}

void run_grid_sample_grad_input(const Call& c) {
  const std::vector<double> g = read_all<double>(c.in(0));
  const Flat from(c.in(0).shape), to(c.out(0).shape);
  std::vector<double> dx(static_cast<size_t>(c.out(0).numel()));
  for_grid(c, c.out(0).shape, c.in(1), [&](int64_t n, int64_t place, int64_t element, double weight, const auto&) {
    for (int64_t j = 0; element >= 0 && j < to.channels; ++j)
      dx[to.at(n, j, element)] += weight * g[from.at(n, j, place)];
  });
  write_all(c.out(0), dx);
}

void run_grid_sample_grad_grid(const Call& c) {
  const std::vector<double> g = read_all<double>(c.in(0)), x = read_all<double>(c.in(1));
  const Flat places(c.in(0).shape), image(c.in(1).shape);
  std::vector<double> to(static_cast<size_t>(c.out(0).numel()));
  for_grid(c, c.in(1).shape, c.in(2), [&](int64_t n, int64_t place, int64_t element, double, const auto& slope) {
    double dot = 0;
    for (int64_t j = 0; element >= 0 && j < image.channels; ++j)
      dot += g[places.at(n, j, place)] * x[image.at(n, j, element)];
    for (size_t d = 0; element >= 0 && d < slope.size(); ++d)
      to[static_cast<size_t>(n * places.inner + place) * slope.size() + d] += dot * slope[d];
  });
  write_all(c.out(0), to);
}

}  // namespace pyflame::reference
