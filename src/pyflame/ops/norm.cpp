// Softmax and the normalisations. The ops work on rows, the last dim of a view. Their gradients are single kernels, or
// compositions of public ops if they may be differentiated again (create_graph). batch_norm is a composition in
// evaluation mode, and always where the backend prefers it (Backend::composes) because fusion makes one kernel of it; the
// gradient of that composition is written out.
#include <cmath>
#include <limits>

#include "pyflame/backends/backend.h"
#include "pyflame/ops/autocast.h"
#include "pyflame/ops/family.h"

namespace pyflame {

namespace {

// ---- softmax and log_softmax

Tensor softmax_rows(const Tensor& x, bool log) {
  Tensor out = emit(log ? OpId::log_softmax : OpId::softmax, {x}, x.shape(), x.dtype());
  attach(log ? "log_softmax" : "softmax", {out}, {x}, {out}, [log](GradNode& n, const Tensors& grads) -> Tensors {
    const Tensor y = widen(n.saved(0)), g = widen(grads[0]);
    const Tensor dx = log ? sub(g, mul(exp(y), sum(g, {-1}, true))) : mul(y, sub(g, sum(mul(g, y), {-1}, true)));
    return {cast(dx, grads[0].dtype())};
  });
  return out;
}

Tensor softmax_along(const char* op, const Tensor& input, int64_t dim, DTypeOpt dtype, bool log) {
  const int d = normalize_dim(op, dim, input.dim());
  const Tensor x = dtype ? cast(input, *dtype) : input;
  if (x.numel() == 0 && !has_gradient(x.dtype())) return empty(x.shape(), x.dtype(), x.device());
  check_float(op, x);
  if (x.dim() == 0) return view(softmax_rows(view(x, {1}), log), {});
  if (d == x.dim() - 1) return softmax_rows(x, log);
  return transpose(softmax_rows(transpose(x, d, -1), log), d, -1);
}

// ---- layer_norm and rms_norm on x [rows, n], weight and bias [n]

double machine_epsilon(DType d) {
  return d == DType::float64 ? std::numeric_limits<double>::epsilon() : std::numeric_limits<float>::epsilon();
}

// The differentiable gradient of both. rms_norm is layer_norm without subtracting the mean.
Tensors norm_grad_composed(const Tensor& grad, const Tensor& input, const Tensor& weight, double eps, bool centered,
                           bool has_weight) {
  const Tensor g = widen(grad), x = widen(input);
  const Tensor xc = centered ? sub(x, mean(x, {-1}, true)) : x;
  const Tensor rstd = rsqrt(add(mean(mul(xc, xc), {-1}, true), eps));
  const Tensor h = mul(xc, rstd);
  const Tensor q = has_weight ? mul(g, widen(weight)) : g;
  Tensor inner = sub(q, mul(h, mean(mul(q, h), {-1}, true)));
  if (centered) inner = sub(inner, mean(q, {-1}, true));
  const DType dtype = input.dtype();
  return {cast(mul(rstd, inner), dtype), cast(sum(mul(g, h), {0}), dtype), cast(sum(g, {0}), dtype)};
}

Tensor layer_norm_rows(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps) {
  const NormAttrs a{weight ? 1 : 0, bias ? 1 : 0};
  const Tensor &w = weight ? weight : x, &b = bias ? bias : x;
  const DType statistics = accumulation_dtype(x.dtype());
  const Arg ins[] = {x, w, b, Arg(Scalar(eps), DType::float64)};
  const OutSpec outs[] = {{x.shape(), x.dtype()}, {{x.size(0)}, statistics}, {{x.size(0)}, statistics}};
  const Tensors r = emit_many(OpId::layer_norm, ins, outs, a);
  attach("layer_norm", {r[0]}, {x, w, b}, {x, w, r[1], r[2]}, [a, eps](GradNode& n, const Tensors& g) -> Tensors {
    const Tensor x0 = n.saved(0), w0 = n.saved(1);
    Tensors d;
    if (grad_mode::enabled()) {
      d = norm_grad_composed(g[0], x0, w0, eps, true, a.has_weight != 0);
    } else {
      const Tensor mean0 = n.saved(2), rstd0 = n.saved(3);
      const Arg args[] = {g[0], x0, mean0, rstd0, w0};
      const Dims row{x0.size(1)};
      const OutSpec specs[] = {{x0.shape(), x0.dtype()}, {row, x0.dtype()}, {row, x0.dtype()}};
      d = emit_many(OpId::layer_norm_grad, args, specs, a);
    }
    return {d[0], a.has_weight ? d[1] : Tensor(), a.has_bias ? d[2] : Tensor()};
  });
  return r[0];
}

Tensor rms_norm_rows(const Tensor& x, const Tensor& weight, double eps) {
  const NormAttrs a{weight ? 1 : 0, 0};
  const Tensor& w = weight ? weight : x;
  const Arg ins[] = {x, w, Arg(Scalar(eps), DType::float64)};
  const OutSpec outs[] = {{x.shape(), x.dtype()}, {{x.size(0)}, accumulation_dtype(x.dtype())}};
  const Tensors r = emit_many(OpId::rms_norm, ins, outs, a);
  attach("rms_norm", {r[0]}, {x, w}, {x, w, r[1]}, [a, eps](GradNode& n, const Tensors& g) -> Tensors {
    const Tensor x0 = n.saved(0), w0 = n.saved(1);
    Tensors d;
    if (grad_mode::enabled()) {
      d = norm_grad_composed(g[0], x0, w0, eps, false, a.has_weight != 0);
    } else {
      const Tensor rstd0 = n.saved(2);
      const Arg args[] = {g[0], x0, rstd0, w0};
      const OutSpec specs[] = {{x0.shape(), x0.dtype()}, {{x0.size(1)}, x0.dtype()}};
      d = emit_many(OpId::rms_norm_grad, args, specs, a);
    }
    return {d[0], a.has_weight ? d[1] : Tensor()};
  });
  return r[0];
}

void check_affine(const char* op, const char* role, const Tensor& t, const Tensor& x, const Dims& shape) {
  if (!t) return;
  check_same_device(op, {x, t});
  check_same_dtype(op, x, t);
  PF_CHECK(t.shape() == shape, Value, "{}: the {} does not fit; got {}; expected {}", op, role, t.shape().str(),
           shape.str());
}

// Checks x against normalized_shape and returns [rows, n].
Dims norm_rows(const char* op, const Tensor& x, const Dims& normalized) {
  check_float(op, x);
  bool fits = !normalized.empty() && normalized.size() <= x.dim();
  for (int i = 1; fits && i <= normalized.size(); ++i) fits = normalized[normalized.size() - i] == x.size(-i);
  PF_CHECK(fits, Value,
           "{}: normalized_shape is not the end of the input's shape; got {} for input {}; expected the last sizes", op,
           normalized.str(), x.shape().str());
  int64_t rows = 1;
  for (int i = 0; i < x.dim() - normalized.size(); ++i) rows *= x.size(i);
  return {rows, normalized.numel()};
}

// ---- batch_norm in training mode, as one op

Tensors batch_norm_grad_composed(const Tensor& grad, const Tensor& input, const Tensor& weight, double eps,
                                 bool has_weight) {
  Dims axes, column = Dims::filled(input.dim(), 1);
  column[1] = input.size(1);
  for (int i = 0; i < input.dim(); ++i)
    if (i != 1) axes.push_back(i);
  const Tensor g = widen(grad), x = widen(input), centered = sub(x, mean(x, axes, true));
  const Tensor rstd = rsqrt(add(mean(mul(centered, centered), axes, true), eps)), h = mul(centered, rstd);
  const Tensor q = has_weight ? mul(g, reshape(widen(weight), column)) : g;
  const Tensor inner = sub(sub(q, mul(h, mean(mul(q, h), axes, true))), mean(q, axes, true));
  const DType affine = has_weight ? weight.dtype() : input.dtype();
  return {cast(mul(rstd, inner), input.dtype()), cast(sum(mul(g, h), axes), affine), cast(sum(g, axes), affine)};
}

// Copies x into one of the two layouts that the op accepts, if it has neither.
Tensor densely(const Tensor& x, bool channels_last) {
  if (!channels_last) return contiguous(x);
  return x.is_channels_last() ? x : permute(contiguous(permute(x, {0, 2, 3, 1})), {0, 3, 1, 2});
}

// Returns y, and mean and variance of each channel.
Tensors batch_norm_op(const Tensor& input, const Tensor& weight, const Tensor& bias, double eps) {
  const bool last = input.is_channels_last();
  const Tensor x = densely(input, last);
  const NormAttrs a{weight ? 1 : 0, bias ? 1 : 0};
  const Tensor w = weight ? contiguous(weight) : x, b = bias ? contiguous(bias) : x;
  const DType statistics = accumulation_dtype(x.dtype());
  const Dims channels{x.size(1)};
  const Arg ins[] = {x, w, b, Arg(Scalar(eps), DType::float64)};
  const OutSpec outs[] = {{x.shape(), x.dtype()}, {channels, statistics}, {channels, statistics}};
  const Tensors r = emit_many(OpId::batch_norm, ins, outs, a);
  attach("batch_norm", {r[0]}, {x, w, b}, {x, w, r[1], r[2]}, [a, eps, last](GradNode& n, const Tensors& g) -> Tensors {
    const Tensor x0 = n.saved(0), w0 = n.saved(1);
    Tensors d;
    if (grad_mode::enabled()) {
      d = batch_norm_grad_composed(g[0], x0, w0, eps, a.has_weight != 0);
    } else {
      const DType affine = a.has_weight ? w0.dtype() : x0.dtype();
      const Tensor g0 = densely(g[0], last), mean0 = n.saved(2), variance0 = n.saved(3);
      const Arg args[] = {g0, x0, mean0, variance0, w0, Arg(Scalar(eps), DType::float64)};
      const OutSpec specs[] = {{x0.shape(), x0.dtype()}, {{x0.size(1)}, affine}, {{x0.size(1)}, affine}};
      d = emit_many(OpId::batch_norm_grad, args, specs, a);
    }
    return {d[0], a.has_weight ? d[1] : Tensor(), a.has_bias ? d[2] : Tensor()};
  });
  return r;
}

// The same from elementwise ops and sums, for backends that fuse them with what precedes and follows. x - mean is recorded
// again wherever it is needed, because computing it is cheaper than storing it.
Tensors batch_norm_fused(const Tensor& input, const Tensor& weight, const Tensor& bias, double eps) {
  Dims axes, column = Dims::filled(input.dim(), 1);
  column[1] = input.size(1);
  for (int i = 0; i < input.dim(); ++i)
    if (i != 1) axes.push_back(i);
  const double count = static_cast<double>(input.numel()) / static_cast<double>(input.size(1));
  Tensor out, mu, variance, rstd;
  {
    const grad_mode::Guard no_grad(false, grad_mode::inference());
    const Tensor x = widen(input);
    mu = mean(x, axes, true);
    const Tensor centered = sub(x, mu);
    variance = mean(mul(centered, centered), axes, true);
    rstd = rsqrt(add(variance, eps));
    out = mul(sub(x, mu), weight ? mul(rstd, reshape(widen(weight), column)) : rstd);
    if (bias) out = add(out, reshape(widen(bias), column));
    out = cast(out, input.dtype());
  }
  const bool has_weight = static_cast<bool>(weight), has_bias = static_cast<bool>(bias);
  const Tensor w = has_weight ? weight : input, b = has_bias ? bias : input;
  attach("batch_norm", {out}, {input, w, b}, {input, w, mu, rstd}, [=](GradNode& n, const Tensors& grads) -> Tensors {
    const Tensor x0 = n.saved(0), w0 = n.saved(1);
    if (grad_mode::enabled()) {
      Tensors d = batch_norm_grad_composed(grads[0], x0, w0, eps, has_weight);
      return {d[0], has_weight ? d[1] : Tensor(), has_bias ? d[2] : Tensor()};
    }
    const Tensor g = widen(grads[0]), x = widen(x0), mu0 = n.saved(2), rstd0 = n.saved(3);
    const Tensor g_sum = sum(g, axes, true), gx_sum = sum(mul(g, sub(x, mu0)), axes, true);
    const Tensor by_g = has_weight ? mul(rstd0, reshape(widen(w0), column)) : rstd0;
    const Tensor by_x = mul(mul(by_g, mul(rstd0, rstd0)), mul(gx_sum, -1 / count));
    const Tensor shift = mul(mul(by_g, g_sum), -1 / count);
    const DType affine = has_weight ? w0.dtype() : x0.dtype();
    const auto flatten = [&](const Tensor& t) { return cast(reshape(t, {column[1]}), affine); };
    return {cast(add(add(mul(g, by_g), mul(sub(x, mu0), by_x)), shift), x0.dtype()),
            has_weight ? flatten(mul(gx_sum, rstd0)) : Tensor(), has_bias ? flatten(g_sum) : Tensor()};
  });
  return {out, mu, variance};
}

Tensor flat(const Tensor& t) { return t && t.dim() != 1 ? reshape(t, {t.numel()}) : t; }

}  // namespace

Tensor softmax(const Tensor& x, int64_t dim, DTypeOpt dtype) {
  return softmax_along("softmax", autocast::input<OpId::softmax>(x), dim, dtype, false);
}
Tensor log_softmax(const Tensor& x, int64_t dim, DTypeOpt dtype) {
  return softmax_along("log_softmax", autocast::input<OpId::log_softmax>(x), dim, dtype, true);
}

Tensor layer_norm(const Tensor& x, const Dims& normalized_shape, const Tensor& weight, const Tensor& bias, double eps) {
  if (autocast::active(x)) {
    const autocast::Off off;
    return layer_norm(autocast::operand(OpId::layer_norm, x), normalized_shape,
                      autocast::operand(OpId::layer_norm, weight), autocast::operand(OpId::layer_norm, bias), eps);
  }
  const Dims rows = norm_rows("layer_norm", x, normalized_shape);
  check_affine("layer_norm", "weight", weight, x, normalized_shape);
  check_affine("layer_norm", "bias", bias, x, normalized_shape);
  return reshape(layer_norm_rows(reshape(x, rows), flat(weight), flat(bias), eps), x.shape());
}

// The default of eps is the machine epsilon of the dtype in which the statistics are computed (float32 for 16-bit
// types), as in PyTorch.
Tensor rms_norm(const Tensor& x, const Dims& normalized_shape, const Tensor& weight, std::optional<double> eps) {
  if (autocast::active(x)) {
    const autocast::Off off;
    return rms_norm(autocast::operand(OpId::rms_norm, x), normalized_shape, autocast::operand(OpId::rms_norm, weight),
                    eps);
  }
  const Dims rows = norm_rows("rms_norm", x, normalized_shape);
  check_affine("rms_norm", "weight", weight, x, normalized_shape);
  const double e = eps.value_or(machine_epsilon(x.dtype()));
  return reshape(rms_norm_rows(reshape(x, rows), flat(weight), e), x.shape());
}

Tensor batch_norm(const Tensor& x, const Tensor& running_mean, const Tensor& running_var, const Tensor& weight,
                  const Tensor& bias, bool training, double momentum, double eps) {
  check_float("batch_norm", x);
  if (x.dim() == 1 && x.size(0) == 0) return mul(x, 1.0);  // no channels
  PF_CHECK(x.dim() >= 2, Value, "batch_norm: wrong rank; got {}; expected (N, C, ...)", x.shape().str());
  const int64_t channels = x.size(1);
  const std::pair<const char*, const Tensor&> per_channel[] = {
      {"running_mean", running_mean}, {"running_var", running_var}, {"weight", weight}, {"bias", bias}};
  for (const auto& [role, t] : per_channel) {
    if (!t) continue;
    check_same_device("batch_norm", {x, t});
    check_float("batch_norm", t);
    PF_CHECK(t.dim() == 1 && t.size(0) == channels, Value,
             "batch_norm: {} does not fit; got {} for input {}; expected ({},)", role, t.shape().str(), x.shape().str(),
             channels);
  }
  PF_CHECK(
      training || (running_mean && running_var), Value,
      "batch_norm: no statistics; got neither training nor both running_mean and running_var; expected one of them");
  const int64_t count = channels == 0 ? 0 : x.numel() / channels;
  PF_CHECK(
      !training || count > 1, Value,
      "batch_norm: one value per channel has no variance; got input {} while training; expected more than 1 value per "
      "channel",
      x.shape().str());

  const auto update_running = [&](const Tensor& now_mean, const Tensor& now_variance) {
    const grad_mode::Guard no_grad(false, grad_mode::inference());
    const double unbias = static_cast<double>(count) / static_cast<double>(count - 1);
    const auto update = [&](const Tensor& running, const Tensor& now, double factor) {
      if (running)
        copy_(running, add(mul(running, 1 - momentum), mul(reshape(now.detach(), {channels}), momentum * factor)));
    };
    update(running_mean, now_mean, 1);
    update(running_var, now_variance, unbias);
  };
  const bool affine_fits = !weight == !bias && (!weight || weight.dtype() == bias.dtype());
  if (training && affine_fits) {
    const bool composes = find_backend(x.device().type)->composes(OpId::batch_norm);
    const Tensors r = composes ? batch_norm_fused(x, weight, bias, eps) : batch_norm_op(x, weight, bias, eps);
    update_running(r[1], r[2]);
    return r[0];
  }

  Dims axes, column = Dims::filled(x.dim(), 1);
  column[1] = channels;
  for (int i = 0; i < x.dim(); ++i)
    if (i != 1) axes.push_back(i);
  const auto as_column = [&](const Tensor& t) { return reshape(widen(t), column); };
  const Tensor wide = widen(x);
  const Tensor mu = training ? mean(wide, axes, true) : as_column(running_mean);
  const Tensor centered = sub(wide, mu);
  const Tensor variance = training ? mean(mul(centered, centered), axes, true) : as_column(running_var);
  if (training) update_running(mu, variance);
  Tensor scale = rsqrt(add(variance, eps));
  if (weight) scale = mul(scale, as_column(weight));
  Tensor out = mul(centered, scale);
  if (bias) out = add(out, as_column(bias));
  return cast(out, x.dtype());
}

}  // namespace pyflame
