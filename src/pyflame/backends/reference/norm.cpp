// Rows: softmax, layer_norm, rms_norm and their gradients. A row is the last dim; its statistics are computed in
// float64 in two passes. The gradients use the saved mean and rstd, as in every backend.
#include <cmath>
#include <limits>

#include "pyflame/backends/reference/access.h"

namespace pyflame::reference {
namespace {

int64_t row_length(const View& v) { return v.shape.empty() ? 1 : v.shape.back(); }

struct Rows {
  int64_t n, count;
  explicit Rows(const View& v) : n(row_length(v)), count(1) {
    for (int d = 0; d + 1 < v.shape.size(); ++d) count *= v.shape[d];
  }
};

// The weight or bias of a norm; a missing one is 1 or 0.
std::vector<double> affine(const Call& c, int input, bool present, int64_t n, double otherwise) {
  if (present) return read_all<double>(c.in(input));
  return std::vector<double>(static_cast<size_t>(n), otherwise);
}

double mean_of_product(const double* a, const double* b, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += a[i] * b[i];
  return sum / static_cast<double>(n);
}

double mean_of(const double* a, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += a[i];
  return sum / static_cast<double>(n);
}

// dweight or dbias: written only if the node has such an output with the row's length.
void write_affine_grad(const Call& c, int output, const std::vector<double>& grad) {
  if (output < c.outputs() && c.out(output).numel() == static_cast<int64_t>(grad.size()))
    write_all(c.out(output), grad);
}

// Both norms' gradients: with h = (x - mean) * rstd and q = grad * weight,
// dx = rstd * (q - mean(q) - h * mean(q h)); rms_norm has no mean and no mean(q).
void norm_grad(const Call& c, const std::vector<double>& mean, const std::vector<double>& rstd,
               const std::vector<double>& weight, bool centered) {
  const View x = c.in(1);
  const Rows rows(x);
  const auto n = static_cast<size_t>(rows.n);
  const std::vector<double> g = read_all<double>(c.in(0)), xs = read_all<double>(x);
  std::vector<double> dx(xs.size()), dweight(n), dbias(n), h(n), q(n);
  for (size_t r = 0; r < static_cast<size_t>(rows.count); ++r) {
    for (size_t i = 0; i < n; ++i) {
      const double grad = g[r * n + i];
      h[i] = (xs[r * n + i] - mean[r]) * rstd[r];
      q[i] = grad * weight[i];
      dweight[i] += grad * h[i];
      dbias[i] += grad;
    }
    const double mean_q = centered ? mean_of(q.data(), rows.n) : 0;
    const double mean_qh = mean_of_product(q.data(), h.data(), rows.n);
    for (size_t i = 0; i < n; ++i) dx[r * n + i] = rstd[r] * (q[i] - mean_q - h[i] * mean_qh);
  }
  write_all(c.out(0), dx);
  write_affine_grad(c, 1, dweight);
  if (centered) write_affine_grad(c, 2, dbias);
}

// Calls f(channel, flat row-major index) for every element of [N, C, ..].
template <class F>
void for_channels(const View& x, F&& f) {
  const int64_t channels = x.shape[1];
  int64_t inner = 1;
  for (int d = 2; d < x.shape.size(); ++d) inner *= x.shape[d];
  for (int64_t i = 0; i < x.numel(); ++i) f(static_cast<size_t>(i / inner % channels), static_cast<size_t>(i));
}

}  // namespace

void run_batch_norm(const Call& c) {
  const auto a = c.node.attr<NormAttrs>();
  const View in = c.in(0);
  const int64_t channels = in.shape[1];
  const double count = static_cast<double>(in.numel()) / static_cast<double>(channels), eps = c.number(0);
  const std::vector<double> x = read_all<double>(in), weight = affine(c, 1, a.has_weight, channels, 1),
                            bias = affine(c, 2, a.has_bias, channels, 0);
  std::vector<double> y(x.size()), mean(weight.size()), variance(weight.size());
  for_channels(in, [&](size_t ch, size_t i) { mean[ch] += x[i] / count; });
  for_channels(in, [&](size_t ch, size_t i) { variance[ch] += (x[i] - mean[ch]) * (x[i] - mean[ch]) / count; });
  for_channels(in, [&](size_t ch, size_t i) {
    y[i] = (x[i] - mean[ch]) / std::sqrt(variance[ch] + eps) * weight[ch] + bias[ch];
  });
  write_all(c.out(0), y);
  write_all(c.out(1), mean);
  write_all(c.out(2), variance);
}

void run_batch_norm_grad(const Call& c) {
  const View in = c.in(1);
  const int64_t channels = in.shape[1];
  const double count = static_cast<double>(in.numel()) / static_cast<double>(channels), eps = c.number(0);
  const std::vector<double> g = read_all<double>(c.in(0)), x = read_all<double>(in), mean = read_all<double>(c.in(2)),
                            variance = read_all<double>(c.in(3)),
                            weight = affine(c, 4, c.node.attr<NormAttrs>().has_weight, channels, 1);
  const auto normal = [&](size_t ch, size_t i) { return (x[i] - mean[ch]) / std::sqrt(variance[ch] + eps); };
  std::vector<double> dx(x.size()), dweight(weight.size()), dbias(weight.size());
  for_channels(in, [&](size_t ch, size_t i) {
    dweight[ch] += g[i] * normal(ch, i);
    dbias[ch] += g[i];
  });
  for_channels(in, [&](size_t ch, size_t i) {
    dx[i] =
        weight[ch] / std::sqrt(variance[ch] + eps) * (g[i] - dbias[ch] / count - normal(ch, i) * dweight[ch] / count);
  });
  write_all(c.out(0), dx);
  write_all(c.out(1), dweight);
  write_all(c.out(2), dbias);
}

void run_softmax(const Call& c) {
  const bool log = c.node.op == OpId::log_softmax;
  const Rows rows(c.in(0));
  std::vector<double> x = read_all<double>(c.in(0));
  for (int64_t r = 0; r < rows.count && rows.n > 0; ++r) {
    double* row = x.data() + r * rows.n;
    const double top = *std::max_element(row, row + rows.n);
    double total = 0;
    for (int64_t i = 0; i < rows.n; ++i) total += std::exp(row[i] - top);
    for (int64_t i = 0; i < rows.n; ++i) row[i] = log ? row[i] - top - std::log(total) : std::exp(row[i] - top) / total;
  }
  write_all(c.out(0), x);
}
void run_log_softmax(const Call& c) { run_softmax(c); }

void run_layer_norm(const Call& c) {
  const auto a = c.node.attr<NormAttrs>();
  const double eps = c.number(0);
  const Rows rows(c.in(0));
  const std::vector<double> x = read_all<double>(c.in(0));
  const std::vector<double> weight = affine(c, 1, a.has_weight, rows.n, 1), bias = affine(c, 2, a.has_bias, rows.n, 0);
  std::vector<double> y(x.size()), means(static_cast<size_t>(rows.count)), rstds(means.size()), centered(weight.size());
  const auto n = static_cast<size_t>(rows.n);
  for (size_t r = 0; r < means.size(); ++r) {
    means[r] = mean_of(x.data() + r * n, rows.n);
    for (size_t i = 0; i < n; ++i) centered[i] = x[r * n + i] - means[r];
    rstds[r] = 1 / std::sqrt(mean_of_product(centered.data(), centered.data(), rows.n) + eps);
    for (size_t i = 0; i < n; ++i) y[r * n + i] = centered[i] * rstds[r] * weight[i] + bias[i];
  }
  write_all(c.out(0), y);
  if (c.outputs() > 1) write_all(c.out(1), means);
  if (c.outputs() > 2) write_all(c.out(2), rstds);
}

void run_layer_norm_grad(const Call& c) {
  const std::vector<double> weight = affine(c, 4, c.node.attr<NormAttrs>().has_weight, row_length(c.in(1)), 1);
  norm_grad(c, read_all<double>(c.in(2)), read_all<double>(c.in(3)), weight, true);
}

void run_rms_norm(const Call& c) {
  const double eps = c.number(0);
  const Rows rows(c.in(0));
  const std::vector<double> x = read_all<double>(c.in(0));
  const std::vector<double> weight = affine(c, 1, c.node.attr<NormAttrs>().has_weight, rows.n, 1);
  std::vector<double> y(x.size()), rstds(static_cast<size_t>(rows.count));
  const auto n = static_cast<size_t>(rows.n);
  for (size_t r = 0; r < rstds.size(); ++r) {
    const double* row = x.data() + r * n;
    rstds[r] = 1 / std::sqrt(mean_of_product(row, row, rows.n) + eps);
    for (size_t i = 0; i < n; ++i) y[r * n + i] = row[i] * rstds[r] * weight[i];
  }
  write_all(c.out(0), y);
  if (c.outputs() > 1) write_all(c.out(1), rstds);
}

void run_rms_norm_grad(const Call& c) {
  const std::vector<double> rstd = read_all<double>(c.in(2));
  const std::vector<double> weight = affine(c, 3, c.node.attr<NormAttrs>().has_weight, row_length(c.in(1)), 1);
  norm_grad(c, std::vector<double>(rstd.size(), 0), rstd, weight, false);
}

}  // namespace pyflame::reference
