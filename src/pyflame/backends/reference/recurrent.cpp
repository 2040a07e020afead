// Recurrent layers over whole sequences. The gradient computes the layers again, so nothing is kept for it.
#include <cmath>

#include "pyflame/backends/reference/access.h"

namespace pyflame::reference {

namespace {

using Numbers = std::vector<double>;

// The sizes of one layer in one direction, and its weights.
struct Layer {
  RecurrentMode mode;
  int64_t steps, batch, inputs, hidden, gates;
  bool reverse;
  Numbers w_ih, w_hh, b_ih, b_hh;
  int64_t time(int64_t step) const { return reverse ? steps - 1 - step : step; }
};

double sigmoid(double v) { return 1 / (1 + std::exp(-v)); }
size_t at(int64_t i) { return static_cast<size_t>(i); }

// out [rows, n] += x [rows, k] times w [n, k] transposed, and the bias.
void multiply(const double* x, const Numbers& w, const Numbers& bias, int64_t rows, int64_t k, int64_t n, double* out) {
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t o = 0; o < n; ++o) {
      double sum = bias.empty() ? 0 : bias[at(o)];
      for (int64_t i = 0; i < k; ++i) sum += x[r * k + i] * w[at(o * k + i)];
      out[r * n + o] += sum;
    }
}

// What a layer computes in its steps, of each step in the order of time: products of input and state, gates after their functions (an LSTM's i, f, g, o; a
// GRU's r, z, n), states. h and c have one more step: the initial state is before the first one.
struct Trace {
  Numbers own, gates, h, c;  // own: a GRU's products with the state
};

Trace forward(const Layer& l, const Numbers& x, const Numbers& h0, const Numbers& c0) {
  const int64_t width = l.gates * l.hidden, all = l.batch * l.hidden;
  Trace t;
  t.own.resize(at(l.steps * l.batch * width)), t.gates.resize(t.own.size());
  t.h.resize(at((l.steps + 1) * all)), t.c.resize(t.h.size());
  std::copy(h0.begin(), h0.end(), t.h.begin());
  std::copy(c0.begin(), c0.end(), t.c.begin());
  for (int64_t s = 0; s < l.steps; ++s) {
    double* const own = &t.own[at(s * l.batch * width)];
    double* const gates = &t.gates[at(s * l.batch * width)];
    multiply(&t.h[at(s * all)], l.w_hh, l.b_hh, l.batch, l.hidden, width, own);
    multiply(&x[at(l.time(s) * l.batch * l.inputs)], l.w_ih, l.b_ih, l.batch, l.inputs, width, gates);
    for (int64_t r = 0; r < l.batch; ++r)
      for (int64_t j = 0; j < l.hidden; ++j) {
        const int64_t now = s * all + r * l.hidden + j;
        const auto g = [&](int64_t gate) -> double& { return gates[r * width + gate * l.hidden + j]; };
        const auto o = [&](int64_t gate) { return own[r * width + gate * l.hidden + j]; };
        double& h = t.h[at(now + all)];
        switch (l.mode) {
          case RecurrentMode::Relu: h = g(0) = (g(0) += o(0)) > 0 || is_nan(g(0)) ? g(0) : 0; break;
          case RecurrentMode::Tanh: h = g(0) = std::tanh(g(0) + o(0)); break;
          case RecurrentMode::Lstm:
            for (int64_t gate = 0; gate < 4; ++gate)
              g(gate) = gate == 2 ? std::tanh(g(gate) + o(gate)) : sigmoid(g(gate) + o(gate));
            t.c[at(now + all)] = g(1) * t.c[at(now)] + g(0) * g(2);
            h = g(3) * std::tanh(t.c[at(now + all)]);
            break;
          case RecurrentMode::Gru:
            g(0) = sigmoid(g(0) + o(0)), g(1) = sigmoid(g(1) + o(1));
            g(2) = std::tanh(g(2) + g(0) * o(2));
            h = g(2) + g(1) * (t.h[at(now)] - g(2));
            break;
        }
      }
  }
  return t;
}

// Gradients of a layer. dy is a matrix of steps with `stride` columns, of which the layer's begin at `first`; dh and dc are those of the final
// states, then of the initial ones.
struct Grads {
  Numbers dx, dh, dc, w_ih, w_hh, b_ih, b_hh;
};

void backward(const Layer& l, const Numbers& x, const Trace& t, const Numbers& dy, int64_t stride, int64_t first,
              Grads& out) {
  const int64_t width = l.gates * l.hidden, all = l.batch * l.hidden;
  out.w_ih.resize(l.w_ih.size()), out.w_hh.resize(l.w_hh.size());
  out.b_ih.resize(l.b_ih.size()), out.b_hh.resize(l.b_hh.size());
  Numbers of_x(at(l.batch * width)), of_own(of_x.size());
  for (int64_t s = l.steps - 1; s >= 0; --s) {
    const double* const own = &t.own[at(s * l.batch * width)];
    const double* const gates = &t.gates[at(s * l.batch * width)];
    const int64_t time = l.time(s);
    Numbers next(out.dh.size());
    for (int64_t r = 0; r < l.batch; ++r)
      for (int64_t j = 0; j < l.hidden; ++j) {
        const int64_t k = r * l.hidden + j, now = s * all + k;
        const double dh = out.dh[at(k)] + dy[at((time * l.batch + r) * stride + first + j)];
        const auto g = [&](int64_t gate) { return gates[r * width + gate * l.hidden + j]; };
        const auto put = [&](int64_t gate, double v, double factor = 1) {
          of_x[at(r * width + gate * l.hidden + j)] = v;
          of_own[at(r * width + gate * l.hidden + j)] = v * factor;
        };
        switch (l.mode) {
          case RecurrentMode::Relu: put(0, g(0) > 0 ? dh : 0); break;
          case RecurrentMode::Tanh: put(0, dh * (1 - g(0) * g(0))); break;
          case RecurrentMode::Lstm: {
            const double c = std::tanh(t.c[at(now + all)]);
            const double dc = out.dc[at(k)] + dh * g(3) * (1 - c * c);
            put(0, dc * g(2) * g(0) * (1 - g(0)));
            put(1, dc * t.c[at(now)] * g(1) * (1 - g(1)));
            put(2, dc * g(0) * (1 - g(2) * g(2)));
            put(3, dh * c * g(3) * (1 - g(3)));
            out.dc[at(k)] = dc * g(1);
            break;
          }
          case RecurrentMode::Gru: {
            const double product = own[r * width + 2 * l.hidden + j], dn = dh * (1 - g(1)) * (1 - g(2) * g(2));
            put(0, dn * product * g(0) * (1 - g(0)));
            put(1, dh * (t.h[at(now)] - g(2)) * g(1) * (1 - g(1)));
            put(2, dn, g(0));
            next[at(k)] = dh * g(1);
            break;
          }
        }
      }
    for (int64_t r = 0; r < l.batch; ++r)
      for (int64_t o = 0; o < width; ++o) {
        const double dx = of_x[at(r * width + o)], down = of_own[at(r * width + o)];
        if (!out.b_ih.empty()) out.b_ih[at(o)] += dx, out.b_hh[at(o)] += down;
        for (int64_t i = 0; i < l.inputs; ++i) {
          const size_t in = at((time * l.batch + r) * l.inputs + i);
          out.w_ih[at(o * l.inputs + i)] += dx * x[in];
          out.dx[in] += dx * l.w_ih[at(o * l.inputs + i)];
        }
        for (int64_t i = 0; i < l.hidden; ++i) {
          out.w_hh[at(o * l.hidden + i)] += down * t.h[at(s * all + r * l.hidden + i)];
          next[at(r * l.hidden + i)] += down * l.w_hh[at(o * l.hidden + i)];
        }
      }
    out.dh = std::move(next);
  }
}

// The op's operands, the layers and what they compute.
struct Stack {
  RecurrentAttrs a;
  size_t states;
  std::vector<Layer> layers;
  std::vector<Numbers> inputs;  // of each level
  std::vector<Trace> traces;
  Numbers y;

  Stack(const Call& c, int x_at, int state_at, int weight_at) : a(c.node.attr<RecurrentAttrs>()) {
    const auto mode = static_cast<RecurrentMode>(a.mode);
    states = mode == RecurrentMode::Lstm ? 2 : 1;
    const View x = c.in(x_at);
    const int64_t steps = x.shape[0], batch = x.shape[1], gates = states == 2 ? 4 : mode == RecurrentMode::Gru ? 3 : 1;
    const int each = a.biases ? 4 : 2;
    std::vector<Numbers> initial;
    for (size_t s = 0; s < states; ++s) initial.push_back(read_all<double>(c.in(state_at + static_cast<int>(s))));
    y = read_all<double>(x);
    int64_t width = x.shape[2];
    for (int64_t level = 0; level < a.layers; ++level) {
      inputs.push_back(y);
      y.assign(at(steps * batch * a.hidden * a.directions), 0);
      for (int64_t d = 0; d < a.directions; ++d) {
        const int64_t number = level * a.directions + d;
        const auto weight = [&](int i) {
          return read_all<double>(c.in(weight_at + static_cast<int>(number) * each + i));
        };
        Layer l{mode, steps, batch, width, a.hidden, gates, d == 1, weight(0), weight(1), {}, {}};
        if (a.biases) l.b_ih = weight(2), l.b_hh = weight(3);
        const auto state = [&](size_t s) {
          const auto from = initial[s].begin() + number * batch * a.hidden;
          return Numbers(from, from + batch * a.hidden);
        };
        traces.push_back(forward(l, inputs.back(), state(0), states == 2 ? state(1) : Numbers()));
        const Trace& t = traces.back();
        for (int64_t s = 0; s < steps; ++s)
          for (int64_t r = 0; r < batch; ++r)
            std::copy_n(&t.h[at((s + 1) * batch * a.hidden + r * a.hidden)], a.hidden,
                        &y[at(((l.time(s) * batch + r) * a.directions + d) * a.hidden)]);
        layers.push_back(std::move(l));
      }
      width = a.hidden * a.directions;
    }
  }
};

}  // namespace

void run_recurrent(const Call& c) {
  const bool lstm = static_cast<RecurrentMode>(c.node.attr<RecurrentAttrs>().mode) == RecurrentMode::Lstm;
  const Stack all(c, 0, 1, lstm ? 3 : 2);
  for (size_t s = 0; s < all.states; ++s) {
    Numbers last;
    for (size_t i = 0; i < all.layers.size(); ++i) {
      const Numbers& of = s == 0 ? all.traces[i].h : all.traces[i].c;
      last.insert(last.end(), of.end() - all.layers[i].batch * all.a.hidden, of.end());
    }
    write_all(c.out(1 + static_cast<int>(s)), last);
  }
  write_all(c.out(0), all.y);
}

void run_recurrent_grad(const Call& c) {
  const int states = static_cast<RecurrentMode>(c.node.attr<RecurrentAttrs>().mode) == RecurrentMode::Lstm ? 2 : 1;
  const Stack all(c, 1 + states, 3 + states, 4 + 2 * states);
  const int64_t directions = all.a.directions, of_state = all.layers[0].batch * all.a.hidden;
  std::vector<Numbers> dstates;
  for (int s = 0; s < states; ++s) dstates.push_back(read_all<double>(c.in(1 + s)));
  Numbers dy = read_all<double>(c.in(0));
  std::vector<Grads> grads(all.layers.size());
  for (int64_t level = all.a.layers - 1; level >= 0; --level) {
    const Numbers& x = all.inputs[at(level)];
    Numbers dx(x.size());
    for (int64_t d = 0; d < directions; ++d) {
      const int64_t i = level * directions + d;
      Grads& g = grads[at(i)];
      const auto state = [&](int s) {
        const auto from = dstates[at(s)].begin() + i * of_state;
        return Numbers(from, from + of_state);
      };
      g.dh = state(0);
      if (states == 2) g.dc = state(1);
      g.dx.resize(x.size());
      backward(all.layers[at(i)], x, all.traces[at(i)], dy, all.a.hidden * directions, d * all.a.hidden, g);
      for (size_t k = 0; k < dx.size(); ++k) dx[k] += g.dx[k];
    }
    dy = std::move(dx);
  }
  for (int s = 0; s < states; ++s) {
    Numbers first;
    for (const Grads& g : grads) first.insert(first.end(), (s ? g.dc : g.dh).begin(), (s ? g.dc : g.dh).end());
    write_all(c.out(1 + s), first);
  }
  int at_weight = 1 + states;
  for (const Grads& g : grads) {
    write_all(c.out(at_weight++), g.w_ih);
    write_all(c.out(at_weight++), g.w_hh);
    if (!all.a.biases) continue;
    write_all(c.out(at_weight++), g.b_ih);
    write_all(c.out(at_weight++), g.b_hh);
  }
  write_all(c.out(0), dy);
}

}  // namespace pyflame::reference
