// Losses. The per-row loss of nll_loss is linear in the log-probabilities, so its gradient kernel is its adjoint, and
// the two are each other's gradients. cross_entropy on class indices is one op, which reads the logits once and keeps
// two numbers per row for its gradient. If that is differentiated again, log_softmax and nll_loss are used. Both
// compute 16-bit types in float32. Means divide by counts that stay tensors, so no loss reads a value back.
#include "pyflame/ops/autocast.h"
#include "pyflame/ops/family.h"

namespace pyflame {

namespace {

enum class Reduction { None, Mean, Sum };

Reduction parse_reduction(const char* op, const std::string& text) {
  if (text == "none") return Reduction::None;
  if (text == "mean") return Reduction::Mean;
  if (text == "sum") return Reduction::Sum;
  PF_FAIL(Value, "{}: no such reduction; got '{}'; expected 'none', 'mean' or 'sum'", op, text);
}

Tensor reduce(const Tensor& loss, Reduction r) {
  if (r == Reduction::None) return loss;
  return r == Reduction::Mean ? mean(loss) : sum(loss);
}

Tensor nll_rows(const Tensor& log_probs, const Tensor& target, int64_t ignore_index, double smoothing);

// The gradient of the log-probabilities [N, C] from the gradient g [N] of each row's loss.
Tensor nll_rows_grad(const Tensor& g, const Tensor& log_probs, const Tensor& target, int64_t ignore_index,
                     double smoothing) {
  const Arg ins[] = {g, log_probs, target, Arg(Scalar(smoothing), DType::float64)};
  const OutSpec outs[] = {{log_probs.shape(), log_probs.dtype()}};
  const Tensor out = emit_many(OpId::nll_loss_grad, ins, outs, NllAttrs{ignore_index})[0];
  attach("nll_loss_grad", {out}, {g}, {target}, [ignore_index, smoothing](GradNode& n, const Tensors& u) -> Tensors {
    return {nll_rows(u[0], n.saved(0), ignore_index, smoothing)};
  });
  return out;
}

Tensor nll_rows(const Tensor& log_probs, const Tensor& target, int64_t ignore_index, double smoothing) {
  Tensor out = emit(OpId::nll_loss, {log_probs, target, Arg(Scalar(smoothing), DType::float64)}, {log_probs.size(0)},
                    log_probs.dtype(), NllAttrs{ignore_index});
  attach("nll_loss", {out}, {log_probs}, {log_probs, target},
         [ignore_index, smoothing](GradNode& n, const Tensors& g) -> Tensors {
           return {nll_rows_grad(g[0], n.saved(0), n.saved(1), ignore_index, smoothing)};
         });
  return out;
}

// The gradient of log_softmax followed by nll_rows.
Tensor cross_entropy_grad_composed(const Tensor& g, const Tensor& logits, const Tensor& target, int64_t ignore_index,
                                   double smoothing) {
  const Dims rows{target.numel(), logits.size(-1)};
  const Tensor log_probs = log_softmax(reshape(widen(logits), rows), -1);
  const Tensor d = nll_rows_grad(reshape(g, {rows[0]}), log_probs, reshape(target, {rows[0]}), ignore_index, smoothing);
  return reshape(cast(sub(d, mul(exp(log_probs), sum(d, {-1}, true))), logits.dtype()), logits.shape());
}

// A tensor with one number per row: 1-d, or contiguous.
Tensor row_numbers(const Tensor& x) { return x.dim() == 1 ? x : contiguous(x); }

// The loss of each target class, in the accumulation dtype. logits has one more dim, the classes.
Tensor cross_entropy_each(const Tensor& logits, const Tensor& target, int64_t ignore_index, double smoothing) {
  const NllAttrs a{ignore_index};
  const OutSpec each{target.shape(), accumulation_dtype(logits.dtype())};
  const Arg ins[] = {logits, target, Arg(Scalar(smoothing), DType::float64)};
  const OutSpec outs[] = {each, each, each};
  const Tensors r = emit_many(OpId::cross_entropy, ins, outs, a);
  attach("cross_entropy", {r[0]}, {logits}, {logits, target, r[1], r[2]},
         [a, smoothing](GradNode& n, const Tensors& g) -> Tensors {
           const Tensor x = n.saved(0), at = n.saved(1);
           if (grad_mode::enabled()) return {cross_entropy_grad_composed(g[0], x, at, a.ignore_index, smoothing)};
           const Tensor top = n.saved(2), log_sum = n.saved(3), g0 = row_numbers(g[0]);
           const Arg args[] = {g0, x, at, top, log_sum, Arg(Scalar(smoothing), DType::float64)};
           const OutSpec specs[] = {{x.shape(), x.dtype()}};
           return emit_many(OpId::cross_entropy_grad, args, specs, a);
         });
  return r[0];
}

// [C], [N, C] or [N, C, d1, ...], with the classes moved to the end.
Tensor classes_last(const Tensor& x) {
  if (x.dim() <= 2) return x;
  Dims order{0};
  for (int i = 2; i < x.dim(); ++i) order.push_back(i);
  order.push_back(1);
  return permute(x, order);
}

// The classes of a language model's logits come out last.
const char* hint_for_classes(const Tensor& input, const Tensor& target) {
  Dims others = input.shape();
  others.erase(input.dim() - 1);
  return input.dim() > 2 && target.shape() == others
             ? "; hint: the classes are dim 1; input.flatten(0, -2) and target.flatten() are rows of classes"
             : "";
}

void check_class_targets(const char* op, const Tensor& input, const Tensor& target, int64_t ignore_index) {
  check_same_device(op, {input, target});
  PF_CHECK(input.dim() >= 1, Value, "{}: the input has no dimensions; got (); expected (C,) or (N, C, ...)", op);
  Dims expected = input.shape();
  expected.erase(input.dim() == 1 ? 0 : 1);
  PF_CHECK(target.shape() == expected, Value,
           "{}: input and target do not fit; got input {} and target {}; expected target {}{}", op, input.shape().str(),
           target.shape().str(), expected.str(), hint_for_classes(input, target));
  check_index_values(op, target, input.size(input.dim() == 1 ? 0 : 1), ignore_index);
}

// `loss` and `weight` have the target's shape. `weight` is the weight of each element, or undefined for 1.
Tensor reduce_classes(const Tensor& loss, const Tensor& target, int64_t ignore_index, const Tensor& weight, Reduction r,
                      DType dtype) {
  if (r == Reduction::None) return cast(loss, dtype);
  const DType wide = accumulation_dtype(loss.dtype());  // 16-bit floats cannot count far enough
  const Tensor total = sum(loss, {}, false, wide);
  if (r == Reduction::Sum) return cast(total, dtype);
  return cast(div(total, weight ? sum(weight) : cast(sum(ne(target, ignore_index)), wide)), dtype);
}

void check_class_weights(const char* op, const Tensor& input, const Tensor& weight) {
  check_same_device(op, {input, weight});
  check_float(op, weight);
  const int64_t classes = input.dim() == 0 ? 1 : input.size(input.dim() == 1 ? 0 : 1);
  PF_CHECK(weight.dim() == 1 && weight.size(0) == classes, Value,
           "{}: the weights do not fit the classes; got weight {} for input {}; expected ({},)", op,
           weight.shape().str(), input.shape().str(), classes);
}

// The weight of each target, 0 for ignored ones, in the accumulation dtype of the loss.
Tensor target_weights(const Tensor& weight, const Tensor& target, int64_t ignore_index, DType dtype) {
  const Tensor kept = ne(target, ignore_index);
  const Tensor at = reshape(where(kept, target, int64_t{0}), {target.numel()});
  const Tensor each = reshape(index_select(cast(weight, accumulation_dtype(dtype)), 0, at), target.shape());
  return where(kept, each, 0.0);
}

// The term of label smoothing for each row: the mean over all classes of the losses, times their weights.
Tensor smoothed_part(const Tensor& logits, const Tensor& weight, const Tensor& target, int64_t ignore_index,
                     double smoothing) {
  const Tensor w = cast(weight, accumulation_dtype(logits.dtype()));
  const Tensor all = sum(mul(log_softmax(widen(logits), -1), w), {-1});
  return where(ne(target, ignore_index), mul(all, -smoothing / static_cast<double>(weight.size(0))), 0.0);
}

// cross_entropy whose targets are probabilities of the classes.
Tensor probability_loss(const Tensor& input, const Tensor& target, const Tensor& weight, Reduction r,
                        double smoothing) {
  check_same_device("cross_entropy", {input, target});
  check_same_dtype("cross_entropy", input, target);
  PF_CHECK(
      input.dim() >= 1 && input.shape() == target.shape(), Value,
      "cross_entropy: class probabilities do not fit; got input {} and target {}; expected equal shapes; hint: class "
      "indices are int64",
      input.shape().str(), target.shape().str());
  const Tensor logits = classes_last(input), probs = classes_last(target);
  const int64_t classes = logits.size(-1);
  const Tensor t = smoothing > 0 ? add(mul(probs, 1 - smoothing), smoothing / static_cast<double>(classes)) : probs;
  const Tensor log_probs = log_softmax(logits, -1);
  const Tensor loss = neg(sum(mul(weight ? mul(log_probs, cast(weight, input.dtype())) : log_probs, t), {-1}));
  if (r == Reduction::None) return loss;
  return r == Reduction::Sum ? sum(loss) : div(sum(loss), static_cast<double>(loss.numel()));
}

}  // namespace

Tensor mse_loss(const Tensor& input, const Tensor& target, const std::string& reduction) {
  if (autocast::active(input)) {
    const autocast::Off off;
    return mse_loss(autocast::raise(input), autocast::raise(target), reduction);
  }
  const Reduction r = parse_reduction("mse_loss", reduction);
  check_same_device("mse_loss", {input, target});
  PF_CHECK(input.shape() == target.shape(), Value,
           "mse_loss: shapes differ; got input {} and target {}; expected equal shapes; hint: a silent broadcast would "
           "average "
           "over the wrong elements, use expand where it is meant",
           input.shape().str(), target.shape().str());
  return reduce(square(sub(input, target)), r);
}

Tensor nll_loss(const Tensor& log_probs, const Tensor& target, int64_t ignore_index, const std::string& reduction,
                const Tensor& weight) {
  if (autocast::active(log_probs)) {
    const autocast::Off off;
    return nll_loss(autocast::operand(OpId::nll_loss, log_probs), target, ignore_index, reduction, weight);
  }
  const Reduction r = parse_reduction("nll_loss", reduction);
  check_float("nll_loss", log_probs);
  if (weight) check_class_weights("nll_loss", log_probs, weight);
  const Tensor at = as_index("nll_loss", target);
  check_class_targets("nll_loss", log_probs, at, ignore_index);
  const Tensor rows = reshape(classes_last(log_probs), {at.numel(), log_probs.size(log_probs.dim() == 1 ? 0 : 1)});
  Tensor loss = reshape(nll_rows(rows, reshape(at, {at.numel()}), ignore_index, 0), at.shape()), weights;
  if (weight) {
    weights = target_weights(weight, at, ignore_index, log_probs.dtype());
    loss = mul(widen(loss), weights);
  }
  return reduce_classes(loss, at, ignore_index, weights, r, log_probs.dtype());
}

Tensor cross_entropy(const Tensor& input, const Tensor& target, int64_t ignore_index, const std::string& reduction,
                     double label_smoothing, const Tensor& weight) {
  const bool casts = autocast::active(input);  // the logits stay 16-bit in memory, the loss is float32
  const autocast::Off off;
  const Reduction r = parse_reduction("cross_entropy", reduction);
  PF_CHECK(input.is_floating_point() || !target.is_floating_point(), Type,
           "cross_entropy: the input is not floating, and the target is; got {} and {}; expected logits, then classes; "
           "hint: cross_entropy(input, target)",
           dtype_name(input.dtype()), dtype_name(target.dtype()));
  check_float("cross_entropy", input);
  PF_CHECK(label_smoothing >= 0 && label_smoothing <= 1, Value,
           "cross_entropy: label_smoothing is out of range; got {}; expected 0 <= label_smoothing <= 1",
           label_smoothing);
  if (weight) check_class_weights("cross_entropy", input, weight);
  if (target.is_floating_point()) {
    PF_CHECK(ignore_index < 0, Value,
             "cross_entropy: ignore_index is for class indices; got {} with a float target; expected none",
             ignore_index);
    return casts ? probability_loss(autocast::raise(input), autocast::raise(target), weight, r, label_smoothing)
                 : probability_loss(input, target, weight, r, label_smoothing);
  }
  const Tensor at = as_index("cross_entropy", target);
  check_class_targets("cross_entropy", input, at, ignore_index);
  const Tensor logits = classes_last(input);
  const DType dtype = casts ? accumulation_dtype(input.dtype()) : input.dtype();
  if (!weight) {
    const Tensor loss = cross_entropy_each(logits, row_numbers(at), ignore_index, label_smoothing);
    return reduce_classes(loss, at, ignore_index, {}, r, dtype);
  }
  const Tensor weights = target_weights(weight, at, ignore_index, input.dtype());
  Tensor loss = mul(cross_entropy_each(logits, row_numbers(at), ignore_index, 0), weights);
  if (label_smoothing > 0)
    loss = add(mul(loss, 1 - label_smoothing), smoothed_part(logits, weight, at, ignore_index, label_smoothing));
  return reduce_classes(loss, at, ignore_index, weights, r, dtype);
}

Tensor binary_cross_entropy_with_logits(const Tensor& input, const Tensor& target, const Tensor& weight,
                                        const std::string& reduction, const Tensor& pos_weight) {
  if (autocast::active(input)) {
    const autocast::Off off;
    return binary_cross_entropy_with_logits(autocast::raise(input), autocast::raise(target), autocast::raise(weight),
                                            reduction, autocast::raise(pos_weight));
  }
  constexpr const char* op = "binary_cross_entropy_with_logits";
  const Reduction r = parse_reduction(op, reduction);
  check_same_device(op, {input, target});
  check_float(op, input);
  PF_CHECK(target.is_floating_point(), Type,
           "{}: the target is no float; got {}; expected a float dtype, as the input has; hint: target.float()", op,
           dtype_name(target.dtype()));
  PF_CHECK(input.shape() == target.shape(), Value,
           "{}: shapes differ; got input {} and target {}; expected equal shapes", op, input.shape().str(),
           target.shape().str());
  for (const Tensor* t : {&weight, &pos_weight}) {
    if (!*t) continue;
    check_same_device(op, {input, *t});
    PF_CHECK(broadcast_shapes(op, input.shape(), t->shape()) == input.shape(), Value,
             "{}: a weight does not broadcast to the input; got {}; expected to fit {}", op, t->shape().str(),
             input.shape().str());
  }
  // (1 - t) x + w softplus(-x) is stable for both signs of x. Beyond 40, both branches of softplus agree in float64.
  const Tensor tail = softplus(neg(input), 1, 40);
  const Tensor w = pos_weight ? add(mul(sub(pos_weight, 1.0), target), 1.0) : Tensor();
  Tensor loss = add(mul(sub(1.0, target), input), w ? mul(w, tail) : tail);
  if (weight) loss = mul(loss, weight);
  return reduce(loss, r);
}

}  // namespace pyflame
