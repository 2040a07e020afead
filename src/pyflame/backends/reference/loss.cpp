// Negative log likelihood with label smoothing: (1 - s) * -lp[target] + s / C * sum(-lp). Rows to ignore give 0.
#include "pyflame/backends/reference/access.h"

namespace pyflame::reference {
namespace {

// Targets, all checked; -1 stands for a row to ignore.
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

}  // namespace

void run_nll_loss(const Call& c) {
  const double smoothing = c.number(0);
  const int64_t classes = c.in(0).shape.back();
  const std::vector<int64_t> target = read_targets(c, 1, classes);
  const std::vector<double> lp = read_all<double>(c.in(0));
  std::vector<double> loss(target.size());
  for (size_t r = 0; r < target.size(); ++r) {
    if (target[r] < 0) continue;
    const double* row = lp.data() + static_cast<int64_t>(r) * classes;
    loss[r] = -(1 - smoothing) * row[target[r]];
    if (smoothing == 0) continue;  // 0 * -inf would be NaN
    double sum = 0;
    for (int64_t i = 0; i < classes; ++i) sum += row[i];
    loss[r] -= smoothing / static_cast<double>(classes) * sum;
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

}  // namespace pyflame::reference
