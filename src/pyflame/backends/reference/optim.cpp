// Multi-tensor updates with PyTorch's formulas. Parameters and states are read and written tensor by tensor, so outputs
// may be the inputs. Hyperparameters are used as exact doubles, whatever dtype the parameters have.
#include <cmath>

#include "pyflame/backends/reference/access.h"

namespace pyflame::reference {
namespace {

// The gradient of parameter i, with its sign and, unless it is decoupled, the weight decay.
std::vector<double> effective_grad(const Call& c, int n, int i, const std::vector<double>& p, double weight_decay) {
  std::vector<double> g = read_all<double>(c.in(n + i));
  const double sign = c.node.attr<OptimAttrs>().maximize ? -1 : 1;
  for (size_t e = 0; e < g.size(); ++e) g[e] = sign * g[e] + (weight_decay == 0 ? 0 : weight_decay * p[e]);
  return g;
}

}  // namespace

void run_sgd_step(const Call& c) {
  const auto a = c.node.attr<OptimAttrs>();
  const int n = static_cast<int>(a.count);
  const double lr = c.number(0), momentum = c.number(1), dampening = c.number(2), weight_decay = c.number(3);
  const bool first = c.number(4) != 0, has_momentum = c.tensors() == 3 * n && momentum != 0;
  for (int i = 0; i < n; ++i) {
    std::vector<double> p = read_all<double>(c.in(i));
    std::vector<double> g = effective_grad(c, n, i, p, weight_decay);
    if (has_momentum) {
      std::vector<double> m = read_all<double>(c.in(2 * n + i));
      for (size_t e = 0; e < m.size(); ++e) {
        m[e] = first ? g[e] : momentum * m[e] + (1 - dampening) * g[e];
        g[e] = a.nesterov ? g[e] + momentum * m[e] : m[e];
      }
      write_all(c.out(n + i), m);
    }
    for (size_t e = 0; e < p.size(); ++e) p[e] -= lr * g[e];
    write_all(c.out(i), p);
  }
}

void run_adam_step(const Call& c) {
  const auto a = c.node.attr<OptimAttrs>();
  const int n = static_cast<int>(a.count);
  const double lr = c.number(0), beta1 = c.number(1), beta2 = c.number(2), eps = c.number(3);
  const double weight_decay = c.number(4), bias1 = c.number(5), bias2 = c.number(6);
  for (int i = 0; i < n; ++i) {
    std::vector<double> p = read_all<double>(c.in(i));
    const std::vector<double> g = effective_grad(c, n, i, p, a.decoupled ? 0 : weight_decay);
    std::vector<double> m = read_all<double>(c.in(2 * n + i)), v = read_all<double>(c.in(3 * n + i));
    for (size_t e = 0; e < p.size(); ++e) {
      if (a.decoupled) p[e] *= 1 - lr * weight_decay;
      m[e] = beta1 * m[e] + (1 - beta1) * g[e];
      v[e] = beta2 * v[e] + (1 - beta2) * g[e] * g[e];
      p[e] -= lr / bias1 * m[e] / (std::sqrt(v[e]) / std::sqrt(bias2) + eps);
    }
    write_all(c.out(i), p);
    write_all(c.out(n + i), m);
    write_all(c.out(2 * n + i), v);
  }
}

void run_sum_squares(const Call& c) {
  double total = 0;
  for (int i = 0; i < c.tensors(); ++i)
    for (double x : read_all<double>(c.in(i))) total += x * x;
  store(c.out(0), 0, 1, 1, &total);
}

void run_scale_all(const Call& c) {
  const int n = c.tensors() - 1;
  double factor = 0;
  load(c.in(n), 0, 1, 1, &factor);
  for (int i = 0; i < n; ++i) {
    std::vector<double> x = read_all<double>(c.in(i));
    for (double& e : x) e *= factor;
    write_all(c.out(i), x);
  }
}

}  // namespace pyflame::reference
