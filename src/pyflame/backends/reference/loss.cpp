// Negative log likelihood with label smoothing: (1 - s) * -lp[target] + s / C * sum(-lp). Ignored rows give 0.
// cross_entropy is the same with lp = log_softmax(x) = (x - max) - log sum exp(x - max).
#include <cmath>
#include <limits>

#include "pyflame/backends/reference/access.h"

namespace pyflame::reference {
namespace {

// The targets after a check; -1 for an ignored row.
std::vector<int64_t> read_targets(const Call& c, int input, int64_t classes) {
  const int64_t ignore = c.node.attr<NllAttrs>().ignore_index;
  std::vector<int64_t> all = read_all<int64_t>(c.in(input));
  for (int64_t& t : all) {
    PF_CHECK(t == ignore || (t >= 0 && t < classes), Index,
             "{}: target out of range; got {}; expected 0 <= target < {} or ignore_index {}", c.name(), t, classes,
             ignore);
    if (t == ignore) t = -1;
  }
  return all;
}

// lp: the log-probabilities of one row.
double nll(const double* lp, int64_t classes, int64_t target, double smoothing) {
  double loss = -(1 - smoothing) * lp[target];
  if (smoothing == 0) return loss;  // avoids 0 * -inf, which would be NaN
  double sum = 0;
  for (int64_t i = 0; i < classes; ++i) sum += lp[i];
  return loss - smoothing / static_cast<double>(classes) * sum;
}

}  // namespace

void run_nll_loss(const Call& c) {
  const double smoothing = c.number(0);
  const int64_t classes = c.in(0).shape.back();
  const std::vector<int64_t> target = read_targets(c, 1, classes);
  const std::vector<double> lp = read_all<double>(c.in(0));
  std::vector<double> loss(target.size());
  for (size_t r = 0; r < target.size(); ++r) {
    if (target[r] < 0) continue;
    loss[r] = nll(lp.data() + static_cast<int64_t>(r) * classes, classes, target[r], smoothing);
  }
  write_all(c.out(0), loss);
}

void run_nll_loss_grad(const Call& c) {
  const double smoothing = c.number(0);
  const int64_t classes = c.in(1).shape.back();
  const std::vector<int64_t> target = read_targets(c, 2, classes);
  const std::vector<double> grad = read_all<double>(c.in(0));
  std::vector<double> dx(target.size() * static_cast<size_t>(classes));
  for (size_t r = 0; r < target.size(); ++r) {
    if (target[r] < 0) continue;
    double* row = dx.data() + static_cast<int64_t>(r) * classes;
    for (int64_t i = 0; i < classes; ++i) row[i] = -grad[r] * smoothing / static_cast<double>(classes);
    row[target[r]] -= grad[r] * (1 - smoothing);
  }
  write_all(c.out(0), dx);
}

void run_cross_entropy(const Call& c) {
  const double smoothing = c.number(0);
  const int64_t classes = c.in(0).shape.back();
  const std::vector<int64_t> target = read_targets(c, 1, classes);
  std::vector<double> x = read_all<double>(c.in(0));
  std::vector<double> loss(target.size()), tops(target.size()), log_sums(target.size());
  for (size_t r = 0; r < target.size(); ++r) {
    if (target[r] < 0) continue;
    double* row = x.data() + static_cast<int64_t>(r) * classes;
    double top = -std::numeric_limits<double>::infinity(), sum = 0;
    for (int64_t i = 0; i < classes; ++i) top = std::fmax(top, row[i]);
    for (int64_t i = 0; i < classes; ++i) sum += std::exp(row[i] -= top);
    tops[r] = top;
    log_sums[r] = std::log(sum);
    for (int64_t i = 0; i < classes; ++i) row[i] -= log_sums[r];
    loss[r] = nll(row, classes, target[r], smoothing);
  }
  write_all(c.out(0), loss);
  write_all(c.out(1), tops);
  write_all(c.out(2), log_sums);
}

void run_cross_entropy_grad(const Call& c) {
  const double smoothing = c.number(0);
  const int64_t classes = c.in(1).shape.back();
  const std::vector<int64_t> target = read_targets(c, 2, classes);
  const std::vector<double> grad = read_all<double>(c.in(0)), tops = read_all<double>(c.in(3)),
                            log_sums = read_all<double>(c.in(4));
  std::vector<double> x = read_all<double>(c.in(1));
  for (size_t r = 0; r < target.size(); ++r) {
    double* row = x.data() + static_cast<int64_t>(r) * classes;
    for (int64_t i = 0; i < classes; ++i) {
      const double p = std::exp((row[i] - tops[r]) - log_sums[r]);
      const double wanted = smoothing / static_cast<double>(classes) + (i == target[r] ? 1 - smoothing : 0);
      row[i] = target[r] < 0 ? 0 : grad[r] * (p - wanted);
    }
  }
  write_all(c.out(0), x);
}

}  // namespace pyflame::reference
