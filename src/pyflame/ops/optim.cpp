// One recorded op updates all parameters of a group, so an optimizer step is a few nodes whatever the model's size.
// Everything that changes from step to step is a param, so a schedule never makes a new program. No step reads a value
// back: clipping multiplies by a factor that stays on the device.
#include <algorithm>
#include <cmath>

#include "pyflame/ops/family.h"

namespace pyflame {

namespace {

void check_list(const char* op, const char* role, const Tensors& params, const Tensors& xs) {
  PF_CHECK(xs.size() == params.size(), Value,
           "{}: the lists differ in length; got {} parameters and {} {}; expected as many", op, params.size(),
           xs.size(), role);
  for (size_t i = 0; i < xs.size(); ++i) {
    PF_CHECK(xs[i], Value, "{}: {} of parameter {} is undefined; got nothing; expected a tensor", op, role, i);
    PF_CHECK(xs[i].shape() == params[i].shape() && xs[i].dtype() == params[i].dtype(), Value,
             "{}: {} of parameter {} does not fit; got {} {}; expected {} {}", op, role, i, dtype_name(xs[i].dtype()),
             xs[i].shape().str(), dtype_name(params[i].dtype()), params[i].shape().str());
    if (xs[i].device() != params[0].device()) check_same_device(op, {params[0], xs[i]});
  }
}

void check_params(const char* op, const Tensors& params) {
  for (size_t i = 0; i < params.size(); ++i) {
    PF_CHECK(params[i], Value, "{}: parameter {} is undefined; got nothing; expected a tensor", op, i);
    PF_CHECK(params[i].is_floating_point(), Type,
             "{}: parameter {} is not a float tensor; got {}; expected a float dtype", op, i,
             dtype_name(params[i].dtype()));
    if (params[i].device() != params[0].device()) check_same_device(op, {params[0], params[i]});
  }
}

constexpr size_t kNumbers = 8;  // the most numbers that an update has

using Args = std::vector<Arg, Pooled<Arg>>;
using Written = std::vector<TensorImpl*, Pooled<TensorImpl*>>;

void append(Args& args, const Tensors& xs) {
  for (const Tensor& x : xs) args.emplace_back(x);
}
void append(Args& args, std::initializer_list<double> numbers) {
  for (double v : numbers) args.emplace_back(Scalar(v), DType::float64);
}
void append(Written& to, const Tensors& xs) {
  for (const Tensor& x : xs) to.push_back(x.impl());
}

Tensor total_norm_op(const char* op, const Tensors& xs) {
  check_params(op, xs);
  if (xs.empty()) return zeros({});
  Args ins;
  append(ins, xs);
  const OutSpec out{{}, DType::float32};
  return sqrt(detail::emit(OpId::sum_squares, {}, ins, out, nullptr));
}

// A model may be on several devices: the tensors of each device, in the order in which the devices first occur.
std::vector<Tensors> by_device(const Tensors& xs) {
  std::vector<Tensors> all;
  for (const Tensor& x : xs) {
    auto same = std::find_if(all.begin(), all.end(), [&](const Tensors& of) { return of[0].device() == x.device(); });
    if (same == all.end()) same = all.insert(same, Tensors{});
    same->push_back(x);
  }
  return all;
}

// On the device of the first tensor.
Tensor norm_of_all(const char* op, const std::vector<Tensors>& parts) {
  if (parts.size() < 2) return total_norm_op(op, parts.empty() ? Tensors{} : parts[0]);
  Tensor squares;
  for (const Tensors& part : parts) {
    const Tensor norm = to_device(total_norm_op(op, part), parts[0][0].device());
    squares = squares ? add(squares, mul(norm, norm)) : mul(norm, norm);
  }
  return sqrt(squares);
}

}  // namespace

// Without momentum, the buffers may be left out (an empty list): the op then has the roles p, grad -> p.
void sgd_step(const Tensors& params, const Tensors& grads, const Tensors& momentum_buffers, const SgdStep& s) {
  if (params.empty()) return;
  check_params("sgd_step", params);
  check_list("sgd_step", "gradients", params, grads);
  if (s.momentum != 0 || !momentum_buffers.empty())
    check_list("sgd_step", "momentum buffers", params, momentum_buffers);
  const grad_mode::Guard no_grad(false, grad_mode::inference());
  Args ins;
  Written outs;
  ins.reserve(3 * params.size() + kNumbers);
  outs.reserve(2 * params.size());
  append(ins, params);
  append(ins, grads);
  append(ins, momentum_buffers);
  append(ins, {s.lr, s.momentum, s.dampening, s.weight_decay, s.first ? 1.0 : 0.0});
  append(outs, params);
  append(outs, momentum_buffers);
  emit_into(OpId::sgd_step, ins, outs,
            OptimAttrs{static_cast<int64_t>(params.size()), s.nesterov ? 1 : 0, 0, s.maximize ? 1 : 0});
}

void adam_step(const Tensors& params, const Tensors& grads, const Tensors& exp_avg, const Tensors& exp_avg_sq,
               const AdamStep& s) {
  if (params.empty()) return;
  check_params("adam_step", params);
  check_list("adam_step", "gradients", params, grads);
  check_list("adam_step", "first moments", params, exp_avg);
  check_list("adam_step", "second moments", params, exp_avg_sq);
  PF_CHECK(s.step >= 1, Value, "adam_step: the step is not positive; got {}; expected 1 at the first update", s.step);
  const grad_mode::Guard no_grad(false, grad_mode::inference());
  const double step = static_cast<double>(s.step);
  Args ins;
  Written outs;
  ins.reserve(4 * params.size() + kNumbers);
  outs.reserve(3 * params.size());
  append(ins, params);
  append(ins, grads);
  append(ins, exp_avg);
  append(ins, exp_avg_sq);
  append(ins,
         {s.lr, s.beta1, s.beta2, s.eps, s.weight_decay, 1 - std::pow(s.beta1, step), 1 - std::pow(s.beta2, step)});
  append(outs, params);
  append(outs, exp_avg);
  append(outs, exp_avg_sq);
  emit_into(OpId::adam_step, ins, outs,
            OptimAttrs{static_cast<int64_t>(params.size()), 0, s.decoupled ? 1 : 0, s.maximize ? 1 : 0});
}

Tensor total_norm(const Tensors& xs) {
  const grad_mode::Guard no_grad(false, grad_mode::inference());
  for (size_t i = 0; i < xs.size(); ++i)
    PF_CHECK(xs[i], Value, "total_norm: parameter {} is undefined; got nothing; expected a tensor", i);
  return norm_of_all("total_norm", by_device(xs));
}

Tensor clip_grad_norm_(const Tensors& parameters, double max_norm) {
  const grad_mode::Guard no_grad(false, grad_mode::inference());
  Tensors grads;
  for (const Tensor& p : parameters) {
    PF_CHECK(p, Value, "clip_grad_norm_: a parameter is undefined; got nothing; expected a tensor");
    if (Tensor g = p.grad()) grads.push_back(g);
  }
  const std::vector<Tensors> parts = by_device(grads);
  const Tensor norm = norm_of_all("clip_grad_norm_", parts);
  if (grads.empty()) return norm;
  const Tensor factor = minimum(div(max_norm, add(norm, 1e-6)), 1.0);
  for (const Tensors& part : parts) {
    const Tensor here = to_device(factor, part[0].device());
    Args ins;
    append(ins, part);
    ins.emplace_back(here);
    emit_into(OpId::scale_all, ins, part, NoAttrs{});
  }
  return norm;
}

}  // namespace pyflame
