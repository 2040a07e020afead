// Learning-rate schedules as pure functions of the step (0 at the first update). They have no state to save or to
// restore. The values are those of PyTorch's schedulers of the same names.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <numbers>
#include <utility>

#include "pyflame/base/error.h"

namespace pyflame::optim {

// base times gamma for each step_size updates that are over.
struct StepLR {
  double base;
  int64_t step_size;
  double gamma = 0.1;
  double operator()(int64_t step) const {
    PF_CHECK(step_size > 0, Value, "StepLR: step_size must be positive; got {}", step_size);
    const int64_t drops = step / step_size;
    return base * std::pow(gamma, static_cast<double>(drops));
  }
};

// Half a cosine from base to eta_min at update t_max.
struct CosineAnnealingLR {
  double base;
  int64_t t_max;
  double eta_min = 0;
  double operator()(int64_t step) const {
    PF_CHECK(t_max > 0, Value, "CosineAnnealingLR: t_max must be positive; got {}", t_max);
    const double x = std::numbers::pi * static_cast<double>(step) / static_cast<double>(t_max);
    return eta_min + (base - eta_min) * (1 + std::cos(x)) / 2;
  }
};

// base times a factor that goes from start_factor to end_factor over total_iters updates, then constant.
struct LinearLR {
  double base;
  double start_factor = 1.0 / 3, end_factor = 1;
  int64_t total_iters = 5;
  double operator()(int64_t step) const {
    PF_CHECK(total_iters > 0, Value, "LinearLR: total_iters must be positive; got {}", total_iters);
    const double t = static_cast<double>(std::min(step, total_iters)) / static_cast<double>(total_iters);
    return base * (start_factor + (end_factor - start_factor) * t);
  }
};

// base times factor(step).
struct LambdaLR {
  double base;
  std::function<double(int64_t)> factor;
  double operator()(int64_t step) const { return base * factor(step); }
};

// A cosine from max_lr / div_factor up to max_lr, for the part pct_start of the updates, and one down to 1 / final_div_factor of the first rate.
struct OneCycleLR {
  double max_lr;
  int64_t total_steps;
  double pct_start = 0.3, div_factor = 25, final_div_factor = 1e4;
  double operator()(int64_t step) const {
    PF_CHECK(total_steps > 1, Value, "OneCycleLR: total_steps must be greater than 1; got {}", total_steps);
    const auto cosine = [](double from, double to, double t) {
      return to + (from - to) / 2 * (1 + std::cos(std::numbers::pi * t));
    };
    const double initial = max_lr / div_factor, last = static_cast<double>(total_steps - 1);
    const double peak = pct_start * static_cast<double>(total_steps) - 1;
    const double at = std::min(static_cast<double>(step), last);
    if (at <= peak) return cosine(initial, max_lr, peak > 0 ? at / peak : 1.0);
    return cosine(max_lr, initial / final_div_factor, (at - peak) / (last - peak));
  }
};

// Linear from base / (warmup + 1) over `warmup` updates, then a cosine down to `floor` at update `total`, then constant.
struct WarmupCosine {
  double base;
  int64_t warmup, total;
  double floor;
  double operator()(int64_t step) const {
    if (step < warmup) return base * static_cast<double>(step + 1) / static_cast<double>(warmup + 1);
    if (step >= total || total <= warmup) return step >= total ? floor : base;
    const double t = static_cast<double>(step - warmup) / static_cast<double>(total - warmup);
    return floor + (base - floor) * (1 + std::cos(std::numbers::pi * t)) / 2;
  }
};

}  // namespace pyflame::optim
