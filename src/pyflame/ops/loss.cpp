// Losses. The per-row loss of nll_loss is linear in the log-probabilities, so its gradient kernel is its own transpose and the
// two differentiate into each other. Means divide by counts that stay tensors: no loss reads a value back.
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

// What each row's loss gives back to its log-probabilities: [N, C] from g [N].
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

// [C], [N, C] or [N, C, d1, ...] with the classes moved to the end.
Tensor classes_last(const Tensor& x) {
  if (x.dim() <= 2) return x;
  Dims order{0};
  for (int i = 2; i < x.dim(); ++i) order.push_back(i);
  order.push_back(1);
  return permute(x, order);
}

void check_class_targets(const char* op, const Tensor& input, const Tensor& target, int64_t ignore_index) {
  check_same_device(op, {input, target});
  PF_CHECK(input.dim() >= 1, Value, "{}: the input has no dimensions; got (); expected (C,) or (N, C, ...)", op);
  Dims expected = input.shape();
  expected.erase(input.dim() == 1 ? 0 : 1);
  PF_CHECK(target.shape() == expected, Value,
           "{}: input and target do not fit; got input {} and target {}; expected target {}", op, input.shape().str(),
           target.shape().str(), expected.str());
  check_index_values(op, target, input.size(input.dim() == 1 ? 0 : 1), ignore_index);
}

// x has the classes last; target the other dims.
Tensor class_loss(const Tensor& log_probs, const Tensor& target, int64_t ignore_index, Reduction r, double smoothing) {
  const int64_t rows = target.numel();
  const Tensor at = reshape(target, {rows});
  const Tensor loss = nll_rows(reshape(log_probs, {rows, log_probs.size(-1)}), at, ignore_index, smoothing);
  if (r == Reduction::None) return reshape(loss, target.shape());
  if (r == Reduction::Sum) return sum(loss);
  const DType wide = accumulation_dtype(loss.dtype());  // a half cannot count
  return cast(div(sum(loss, {}, false, wide), cast(sum(ne(at, ignore_index)), wide)), loss.dtype());
}

// Targets that are probabilities of the classes, classes last in both.
Tensor probability_loss(const Tensor& log_probs, const Tensor& target, Reduction r, double smoothing) {
  const double classes = static_cast<double>(log_probs.size(-1));
  const Tensor t = smoothing > 0 ? add(mul(target, 1 - smoothing), smoothing / classes) : target;
  return reduce(neg(sum(mul(log_probs, t), {-1})), r);
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
  const Tensor d = sub(input, target);
  return reduce(mul(d, d), r);
}

Tensor nll_loss(const Tensor& log_probs, const Tensor& target, int64_t ignore_index, const std::string& reduction) {
  if (autocast::active(log_probs)) {
    const autocast::Off off;
    return nll_loss(autocast::raise(log_probs), target, ignore_index, reduction);
  }
  const Reduction r = parse_reduction("nll_loss", reduction);
  check_float("nll_loss", log_probs);
  const Tensor at = as_index("nll_loss", target);
  check_class_targets("nll_loss", log_probs, at, ignore_index);
  return class_loss(classes_last(log_probs), at, ignore_index, r, 0);
}

Tensor cross_entropy(const Tensor& input, const Tensor& target, int64_t ignore_index, const std::string& reduction,
                     double label_smoothing) {
  if (autocast::active(input)) {
    const autocast::Off off;
    return cross_entropy(autocast::raise(input), autocast::raise(target), ignore_index, reduction, label_smoothing);
  }
  const Reduction r = parse_reduction("cross_entropy", reduction);
  check_float("cross_entropy", input);
  PF_CHECK(label_smoothing >= 0 && label_smoothing <= 1, Value,
           "cross_entropy: label_smoothing is out of range; got {}; expected 0 <= label_smoothing <= 1",
           label_smoothing);
  if (target.is_floating_point()) {
    check_same_device("cross_entropy", {input, target});
    check_same_dtype("cross_entropy", input, target);
    PF_CHECK(
        input.dim() >= 1 && input.shape() == target.shape(), Value,
        "cross_entropy: class probabilities do not fit; got input {} and target {}; expected equal shapes; hint: class "
        "indices are int64",
        input.shape().str(), target.shape().str());
    PF_CHECK(ignore_index < 0, Value,
             "cross_entropy: ignore_index is for class indices; got {} with a float target; expected none",
             ignore_index);
    const Tensor logits = classes_last(input);
    const Tensor probs = classes_last(target);
    Tensor loss =
        probability_loss(log_softmax(logits, -1), probs, r == Reduction::Mean ? Reduction::Sum : r, label_smoothing);
    if (r != Reduction::Mean) return loss;
    int64_t rows = 1;
    for (int i = 0; i + 1 < logits.dim(); ++i) rows *= logits.size(i);
    return div(loss, static_cast<double>(rows));
  }
  const Tensor at = as_index("cross_entropy", target);
  check_class_targets("cross_entropy", input, at, ignore_index);
  return class_loss(log_softmax(classes_last(input), -1), at, ignore_index, r, label_smoothing);
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
  check_float(op, target);
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
  // (1 - t) x + w softplus(-x): stable on both sides. Beyond 40 the two branches of softplus agree in float64.
  const Tensor tail = softplus(neg(input), 1, 40);
  const Tensor w = pos_weight ? add(mul(sub(pos_weight, 1.0), target), 1.0) : Tensor();
  Tensor loss = add(mul(sub(1.0, target), input), w ? mul(w, tail) : tail);
  if (weight) loss = mul(loss, weight);
  return reduce(loss, r);
}

}  // namespace pyflame
