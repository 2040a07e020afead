// Fourier transforms by their definition, with angles that are reduced exactly.
#include <cmath>
#include <numbers>

#include "pyflame/backends/reference/access.h"

namespace pyflame::reference {

namespace {

// exp(+-2 pi i k / n) for all k.
std::vector<std::array<double, 2>> roots(int64_t n, bool inverse) {
  std::vector<std::array<double, 2>> w(static_cast<size_t>(n));
  for (int64_t k = 0; k < n; ++k) {
    const double angle = 2 * std::numbers::pi * static_cast<double>(k) / static_cast<double>(n);
    w[static_cast<size_t>(k)] = {std::cos(angle), inverse ? std::sin(angle) : -std::sin(angle)};
  }
  return w;
}

}  // namespace

void run_fft(const Call& c) {
  const auto [kind, inverse, scale] = c.node.attr<FftAttrs>();
  const View in = c.in(0), out = c.out(0);
  const bool from_real = kind == 1, to_real = kind == 2;
  const int64_t n = from_real ? in.shape.back() : to_real ? out.shape.back() : in.shape[in.shape.size() - 2];
  const std::vector<double> x = read_all<double>(in);
  std::vector<double> y(static_cast<size_t>(out.numel()));
  const int64_t half = n / 2 + 1, in_line = from_real ? n : 2 * (to_real ? half : n);
  const int64_t results = from_real ? half : n, out_line = to_real ? n : 2 * results;
  const int64_t lines = out_line == 0 ? 0 : out.numel() / out_line;
  const double by = scale == 2 ? 1.0 / static_cast<double>(n) : scale == 1 ? 1 / std::sqrt(static_cast<double>(n)) : 1;
  const auto w = roots(n, inverse != 0);
  for (int64_t l = 0; l < lines; ++l) {
    const double* from = x.data() + l * in_line;
    double* to = y.data() + l * out_line;
    for (int64_t k = 0; k < results; ++k) {
      double re = 0, im = 0;
      for (int64_t j = 0; j < n; ++j) {
        const int64_t at = to_real && j >= half ? n - j : j;
        double a = from_real ? from[at] : from[2 * at], b = from_real ? 0 : from[2 * at + 1];
        if (to_real && j >= half) b = -b;
        if (to_real && (j == 0 || 2 * j == n)) b = 0;
        const auto& [cosine, sine] = w[static_cast<size_t>(j * k % n)];
        re += a * cosine - b * sine, im += a * sine + b * cosine;
      }
      if (to_real) {
        to[k] = re * by;
      } else {
        to[2 * k] = re * by, to[2 * k + 1] = im * by;
      }
    }
  }
  write_all(out, y);
}

}  // namespace pyflame::reference
