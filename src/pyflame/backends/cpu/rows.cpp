// Ops over rows: softmax, normalisations, and losses on class indices. Rows that fit the L1 cache are read once. Sums
// over rows (the gradients of weights) use partial sums whose number depends on the shape only.
#include <algorithm>
#include <cmath>

#include "pyflame/backends/cpu/common.h"
#include "pyflame/backends/cpu/vec.h"

namespace pyflame::cpu {

namespace {

int64_t row_grain(int64_t n) { return std::max<int64_t>(1, kGrainElements / std::max<int64_t>(1, n)); }

template <class T>
class Softmax : public Exec {
 public:
  explicit Softmax(const Node& node) : x_(node.ins[0], ws_), y_(node.outs[0], ws_), log_(node.op == OpId::log_softmax) {
    n_ = node.ins[0].shape.empty() ? 1 : node.ins[0].shape.back();
    rows_ = n_ == 0 ? 0 : x_.numel() / n_;
  }
  void run(const RunContext& ctx) override {
    const T* x = x_.get(ctx);
    T* y = y_.begin(ctx);
    parallel_for(rows_, row_grain(n_), [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) row(x + r * n_, y + r * n_);
    });
    y_.finish(ctx);
  }

 private:
  void row(const T* x, T* y) const {
    const T top = vec::max(x, n_);
    if (log_) {
      const T sum = vec::sum_exp_shifted(x, top, n_);
      vec::shift(x, top, std::log(sum), y, n_);
    } else {
      const T sum = vec::exp_shifted(x, top, y, n_);
      vec::scale(y, T(1) / sum, n_);
    }
  }
  In<T> x_;
  Out<T> y_;
  bool log_;
  int64_t n_ = 0, rows_ = 0;
};

// layer_norm (x, weight, bias) [eps] -> y, mean, rstd and rms_norm (x, weight) [eps] -> y, rstd.
template <class T>
class Norm : public Exec {
 public:
  explicit Norm(const Node& node) : centered_(node.op == OpId::layer_norm) {
    const auto attrs = node.attr<NormAttrs>();
    x_ = In<T>(node.ins[0], ws_);
    has_weight_ = attrs.has_weight != 0;
    has_bias_ = centered_ && attrs.has_bias != 0;
    if (has_weight_) w_ = In<T>(node.ins[1], ws_);
    if (has_bias_) b_ = In<T>(node.ins[2], ws_);
    eps_ = node.ins[centered_ ? 3 : 2].param;
    y_ = Out<T>(node.outs[0], ws_);
    if (centered_) mean_ = Out<T>(node.outs[1], ws_);
    rstd_ = Out<T>(node.outs[centered_ ? 2 : 1], ws_);
    rows_ = rstd_.numel();
    n_ = rows_ ? x_.numel() / rows_ : 0;
  }
  void run(const RunContext& ctx) override {
    if (rows_ == 0) return;
    const T* x = x_.get(ctx);
    const T* w = has_weight_ ? w_.get(ctx) : nullptr;
    const T* b = has_bias_ ? b_.get(ctx) : nullptr;
    const double eps = ctx.params[eps_].as_f64();
    T* y = y_.begin(ctx);
    T* means = centered_ ? mean_.begin(ctx) : nullptr;
    T* rstds = rstd_.begin(ctx);
    parallel_for(rows_, row_grain(n_), [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        const T* xr = x + r * n_;
        const T mean = centered_ ? vec::sum(xr, n_) / static_cast<T>(n_) : T(0);
        const T var = vec::square_deviation(xr, mean, n_) / static_cast<T>(n_);
        const T rstd = static_cast<T>(1 / std::sqrt(static_cast<double>(var) + eps));
        vec::normalize(xr, mean, rstd, w, b, y + r * n_, n_);
        if (means) means[r] = mean;
        rstds[r] = rstd;
      }
    });
    y_.finish(ctx);
    if (centered_) mean_.finish(ctx);
    rstd_.finish(ctx);
  }

 private:
  In<T> x_, w_, b_;
  Out<T> y_, mean_, rstd_;
  bool centered_, has_weight_ = false, has_bias_ = false;
  ParamId eps_;
  int64_t rows_ = 0, n_ = 0;
};

// layer_norm_grad (grad, x, mean, rstd, weight) -> dx, dweight, dbias; rms_norm_grad (grad, x, rstd, weight) -> dx,
// dweight.
template <class T>
class NormGrad : public Exec {
 public:
  explicit NormGrad(const Node& node) : centered_(node.op == OpId::layer_norm_grad) {
    const size_t r = centered_ ? 3 : 2;
    g_ = In<T>(node.ins[0], ws_);
    x_ = In<T>(node.ins[1], ws_);
    if (centered_) mean_ = In<T>(node.ins[2], ws_);
    rstd_ = In<T>(node.ins[r], ws_);
    has_weight_ = node.attr<NormAttrs>().has_weight != 0;
    if (has_weight_) w_ = In<T>(node.ins[r + 1], ws_);
    dx_ = Out<T>(node.outs[0], ws_);
    dw_ = Out<T>(node.outs[1], ws_);
    if (centered_) db_ = Out<T>(node.outs[2], ws_);
    rows_ = rstd_.numel();
    n_ = rows_ ? x_.numel() / rows_ : dw_.numel();
    parts_ = std::clamp<int64_t>(rows_ / 64, 1, 32);
    partial_ = ws_.take(static_cast<size_t>(parts_ * 2 * n_) * sizeof(T));
  }
  void run(const RunContext& ctx) override {
    const T* g = g_.get(ctx);
    const T* x = x_.get(ctx);
    const T* mean = centered_ ? mean_.get(ctx) : nullptr;
    const T* rstd = rstd_.get(ctx);
    const T* w = has_weight_ ? w_.get(ctx) : nullptr;
    T* dx = dx_.begin(ctx);
    T* partial = at<T>(ctx, partial_);
    const int64_t per = ceil_div(rows_, parts_);
    parallel_for(parts_, std::max<int64_t>(1, row_grain(n_) / std::max<int64_t>(1, per)),
                 [&](int64_t begin, int64_t end) {
                   for (int64_t c = begin; c < end; ++c) {
                     T* dw = partial + c * 2 * n_;
                     T* db = centered_ ? dw + n_ : nullptr;
                     std::fill_n(dw, 2 * n_, T(0));
                     for (int64_t r = c * per; r < std::min(rows_, (c + 1) * per); ++r)
                       vec::normalize_grad(g + r * n_, x + r * n_, mean ? mean[r] : T(0), rstd[r], w, centered_,
                                           dx + r * n_, dw, db, n_);
                   }
                 });
    T* dw = dw_.begin(ctx);
    T* db = centered_ ? db_.begin(ctx) : nullptr;
    std::copy_n(partial, n_, dw);
    if (db) std::copy_n(partial + n_, n_, db);
    for (int64_t c = 1; c < parts_; ++c) {
      vec::add(dw, partial + c * 2 * n_, n_);
      if (db) vec::add(db, partial + (c * 2 + 1) * n_, n_);
    }
    dx_.finish(ctx);
    dw_.finish(ctx);
    if (centered_) db_.finish(ctx);
  }

 private:
  In<T> g_, x_, mean_, rstd_, w_;
  Out<T> dx_, dw_, db_;
  bool centered_, has_weight_ = false;
  int64_t rows_ = 0, n_ = 0, parts_ = 1;
  size_t partial_ = 0;
};

class Targets {
 public:
  Targets(const Node& node, size_t input)
      : o_(node.ins[input]),
        name_(node.info().name),
        ignore_(node.attr<NllAttrs>().ignore_index),
        classes_(node.ins[input - 1].shape.back()) {
    if (o_.shape.size() == 1) step_ = o_.strides[0];  // several dims are contiguous (ops/loss.cpp)
  }
  int64_t classes() const { return classes_; }
  bool ignored(int64_t t) const { return t == ignore_; }
  int64_t at(const int64_t* p, int64_t row) const { return p[row * step_]; }
  // All targets, after a check.
  const int64_t* get(const RunContext& ctx) const {
    const auto* p = ctx.ptr<const int64_t>(o_);
    for (int64_t i = 0; i < o_.numel(); ++i) {
      const int64_t t = at(p, i);
      PF_CHECK(t == ignore_ || (t >= 0 && t < classes_), Index,
               "{}: target out of range; got {}; expected 0 <= target < {} or ignore_index {}", name_, t, classes_,
               ignore_);
    }
    return p;
  }

 private:
  Operand o_;
  const char* name_;
  int64_t ignore_, classes_, step_ = 1;
};

template <class T>
class Nll : public Exec {
 public:
  explicit Nll(const Node& node)
      : x_(node.ins[0], ws_), y_(node.outs[0], ws_), t_(node, 1), smoothing_(node.ins[2].param) {}
  void run(const RunContext& ctx) override {
    const int64_t* t = t_.get(ctx);
    const T* x = x_.get(ctx);
    T* y = y_.begin(ctx);
    const T s = static_cast<T>(ctx.params[smoothing_].as_f64());
    const int64_t n = t_.classes();
    parallel_for(y_.numel(), s == T(0) ? kGrainElements : row_grain(n), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t k = t_.at(t, i);
        y[i] = T(0);
        if (t_.ignored(k)) continue;
        y[i] = -(T(1) - s) * x[i * n + k];
        if (s != T(0)) y[i] -= s * (vec::sum(x + i * n, n) / static_cast<T>(n));
      }
    });
    y_.finish(ctx);
  }

 private:
  In<T> x_;
  Out<T> y_;
  Targets t_;
  ParamId smoothing_;
};

template <class T>
class NllGrad : public Exec {
 public:
  explicit NllGrad(const Node& node)
      : g_(node.ins[0], ws_), dx_(node.outs[0], ws_), t_(node, 2), smoothing_(node.ins[3].param) {}
  void run(const RunContext& ctx) override {
    const int64_t* t = t_.get(ctx);
    const T* g = g_.get(ctx);
    T* dx = dx_.begin(ctx);
    const T s = static_cast<T>(ctx.params[smoothing_].as_f64());
    const int64_t n = t_.classes();
    parallel_for(g_.numel(), row_grain(n), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t k = t_.at(t, i);
        T* row = dx + i * n;
        const bool ignored = t_.ignored(k);
        std::fill_n(row, n, ignored || s == T(0) ? T(0) : -g[i] * s / static_cast<T>(n));
        if (!ignored) row[k] -= g[i] * (T(1) - s);
      }
    });
    dx_.finish(ctx);
  }

 private:
  In<T> g_;
  Out<T> dx_;
  Targets t_;
  ParamId smoothing_;
};

// Rows of logits, one at a time: in place, or widened into the thread's scratch memory. Tensors of other layouts are
// copied as a whole, as In does.
template <class T>
class Rows {
 public:
  Rows(const Operand& o, WorkspacePlan& ws) : o_(o) {
    if (!o.contiguous) all_ = In<T>(o, ws);
  }
  const void* get(const RunContext& ctx) const { return o_.contiguous ? ctx.ptr<const void>(o_) : all_.get(ctx); }
  const T* row(const void* from, int64_t r) const {
    const int64_t n = o_.shape.back();
    if (!o_.contiguous || o_.dtype == compute_dtype<T>()) return static_cast<const T*>(from) + r * n;
    T* to = scratch<T>(0, n);
    load_run(static_cast<const char*>(from) + r * n * dtype_size(o_.dtype), o_.dtype, n, to);
    return to;
  }

 private:
  Operand o_;
  In<T> all_;
};

// cross_entropy (x, target) [smoothing] -> loss, max, log sum.
template <class T>
class CrossEntropy : public Exec {
 public:
  explicit CrossEntropy(const Node& node)
      : x_(node.ins[0], ws_),
        loss_(node.outs[0], ws_),
        top_(node.outs[1], ws_),
        log_sum_(node.outs[2], ws_),
        t_(node, 1),
        smoothing_(node.ins[2].param) {}
  void run(const RunContext& ctx) override {
    const int64_t* t = t_.get(ctx);
    const void* x = x_.get(ctx);
    T *loss = loss_.begin(ctx), *tops = top_.begin(ctx), *log_sums = log_sum_.begin(ctx);
    const T s = static_cast<T>(ctx.params[smoothing_].as_f64());
    const int64_t n = t_.classes();
    parallel_for(loss_.numel(), row_grain(n), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        loss[i] = tops[i] = log_sums[i] = T(0);
        const int64_t k = t_.at(t, i);
        if (t_.ignored(k)) continue;
        const T* row = x_.row(x, i);
        const T top = vec::max(row, n), log_sum = std::log(vec::sum_exp_shifted(row, top, n));
        loss[i] = (T(1) - s) * (log_sum - (row[k] - top));
        if (s != T(0)) loss[i] += s * (log_sum - (vec::sum(row, n) / static_cast<T>(n) - top));
        tops[i] = top;
        log_sums[i] = log_sum;
      }
    });
    loss_.finish(ctx);
    top_.finish(ctx);
    log_sum_.finish(ctx);
  }

 private:
  Rows<T> x_;
  Out<T> loss_, top_, log_sum_;
  Targets t_;
  ParamId smoothing_;
};

// cross_entropy_grad (grad, x, target, max, log sum) [smoothing] -> dx, which may share memory with x.
template <class T>
class CrossEntropyGrad : public Exec {
 public:
  explicit CrossEntropyGrad(const Node& node)
      : g_(node.ins[0], ws_),
        top_(node.ins[3], ws_),
        log_sum_(node.ins[4], ws_),
        x_(node.ins[1], ws_),
        dx_(node.outs[0]),
        t_(node, 2),
        smoothing_(node.ins[5].param) {}
  void run(const RunContext& ctx) override {
    const int64_t* t = t_.get(ctx);
    const T *g = g_.get(ctx), *tops = top_.get(ctx), *log_sums = log_sum_.get(ctx);
    const void* x = x_.get(ctx);
    char* dx = ctx.ptr<char>(dx_);
    const T s = static_cast<T>(ctx.params[smoothing_].as_f64());
    const int64_t n = t_.classes(), bytes = n * dtype_size(dx_.dtype);
    const bool direct = dx_.dtype == compute_dtype<T>();
    parallel_for(g_.numel(), row_grain(n), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        T* to = direct ? reinterpret_cast<T*>(dx + i * bytes) : scratch<T>(0, n);
        if (const int64_t k = t_.at(t, i); t_.ignored(k)) {
          std::fill_n(to, n, T(0));
        } else {
          vec::exp_shifted(x_.row(x, i), tops[i], to, n);
          vec::scale(to, g[i] * std::exp(-log_sums[i]), n);
          if (s != T(0)) vec::shift(to, g[i] * s / static_cast<T>(n), T(0), to, n);
          to[k] -= g[i] * (T(1) - s);
        }
        if (!direct) store_run(to, dx + i * bytes, dx_.dtype, n);
      }
    });
  }

 private:
  In<T> g_, top_, log_sum_;
  Rows<T> x_;
  Operand dx_;
  Targets t_;
  ParamId smoothing_;
};

std::unique_ptr<Executable> make_softmax(const Problem& p) { return make_by_type<Softmax>(p); }
std::unique_ptr<Executable> make_norm(const Problem& p) { return make_by_type<Norm>(p); }
std::unique_ptr<Executable> make_norm_grad(const Problem& p) { return make_by_type<NormGrad>(p); }
Refusal accept_norm_grad(const Problem& p) {
  if (auto r = accept_float(p)) return r;
  const Node& node = p.root();
  const size_t outs = node.op == OpId::layer_norm_grad ? 3 : 2;
  if (node.outs.size() != outs) return "computes all of the gradients";
  for (size_t i = 1; i < outs; ++i)
    if (node.ins[1].shape.empty() || node.outs[i].numel() != node.ins[1].shape.back())
      return "computes gradients of weights of one row's length";
  return {};
}

std::unique_ptr<Executable> make_nll(const Problem& p) { return make_by_type<Nll>(p); }
std::unique_ptr<Executable> make_nll_grad(const Problem& p) { return make_by_type<NllGrad>(p); }
std::unique_ptr<Executable> make_cross_entropy(const Problem& p) { return make_by_type<CrossEntropy>(p); }
Refusal accept_cross_entropy_grad(const Problem& p) {
  if (auto r = accept_float(p)) return r;
  if (!p.root().outs[0].contiguous) return "writes contiguous gradients";
  return {};
}
std::unique_ptr<Executable> make_cross_entropy_grad(const Problem& p) { return make_by_type<CrossEntropyGrad>(p); }

}  // namespace

std::span<const Impl> softmax_impls() {
  static const Impl impl{"cpu.softmax", accept_float, make_softmax};
  return {&impl, 1};
}
std::span<const Impl> log_softmax_impls() { return softmax_impls(); }
std::span<const Impl> layer_norm_impls() {
  static const Impl impl{"cpu.norm", accept_float, make_norm};
  return {&impl, 1};
}
std::span<const Impl> rms_norm_impls() { return layer_norm_impls(); }
std::span<const Impl> layer_norm_grad_impls() {
  static const Impl impl{"cpu.norm", accept_norm_grad, make_norm_grad};
  return {&impl, 1};
}
std::span<const Impl> rms_norm_grad_impls() { return layer_norm_grad_impls(); }
std::span<const Impl> nll_loss_impls() {
  static const Impl impl{"cpu.nll", accept_float, make_nll};
  return {&impl, 1};
}
std::span<const Impl> nll_loss_grad_impls() {
  static const Impl impl{"cpu.nll", accept_float, make_nll_grad};
  return {&impl, 1};
}
std::span<const Impl> cross_entropy_impls() {
  static const Impl impl{"cpu.cross_entropy", accept_float, make_cross_entropy};
  return {&impl, 1};
}
std::span<const Impl> cross_entropy_grad_impls() {
  static const Impl impl{"cpu.cross_entropy", accept_cross_entropy_grad, make_cross_entropy_grad};
  return {&impl, 1};
}
// Loops compute it: on the CPU, batch_norm() is composed of elementwise ops and reductions.
std::span<const Impl> batch_norm_impls() { return {}; }
std::span<const Impl> batch_norm_grad_impls() { return {}; }

}  // namespace pyflame::cpu
