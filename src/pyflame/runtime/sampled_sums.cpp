// The terms of one element. Each gradient has the terms of the forward pass whose factor it replaces.
#include "pyflame/runtime/sampled_sums.h"

#include "pyflame/ops/attrs.h"

namespace pyflame::sampled {

namespace {

Dims spatial(const Dims& shape) { return Dims(std::span(shape.begin() + 2, static_cast<size_t>(shape.size() - 2))); }

Dims batches(const Dims& v) { return Dims(std::span(v.begin(), static_cast<size_t>(v.size() - 2))); }

Dims batch_strides(const Operand& o, const Dims& result) {
  return broadcast_strides(batches(o.shape), batches(o.strides), batches(result));
}

std::optional<DType> codes_of(const Node& n, int input) {
  if (n.op != OpId::scaled_mm) return std::nullopt;
  const auto attrs = n.attr<ScaledAttrs>();
  return static_cast<DType>(input == 0 ? attrs.a : attrs.b);
}

// The offset of a pixel at `index` in one plane.
int64_t offset_in_plane(const Elements& of, const Dims& index) {
  int64_t at = 0;
  for (int d = 0; d < index.size(); ++d) at += index[d] * of.stride(d + 2);
  return at;
}

}  // namespace

Sums::Sums(const Node& node, Pointers inputs, const Far& far)
    : node_(node),
      far_(far),
      a_(node.ins[0], inputs[node.ins[0].binding], codes_of(node, 0)),
      b_(node.ins[1], inputs[node.ins[1].binding], codes_of(node, 1)) {
  const Dims &a = node.ins[0].shape, &b = node.ins[1].shape, &result = node.outs[0].shape;
  if (node.op == OpId::scaled_mm)
    for (const size_t i : {2, 3}) scale_ *= Elements(node.ins[i], inputs[node.ins[i].binding])[0];
  if (node.op == OpId::matmul || node.op == OpId::scaled_mm) {
    a_strides_ = batch_strides(node.ins[0], result), b_strides_ = batch_strides(node.ins[1], result);
    return;
  }
  const auto attrs = node.attr<ConvAttrs>();
  groups_ = attrs.groups;
  step_ = {attrs.stride_h, attrs.stride_w}, pad_ = {attrs.pad_h, attrs.pad_w};
  dilation_ = {attrs.dilation_h, attrs.dilation_w};
  if (result.size() == 5)
    step_.insert(0, attrs.stride_d), pad_.insert(0, attrs.pad_d), dilation_.insert(0, attrs.dilation_d);
  const bool to_weight = node.op == OpId::conv2d_grad_weight, to_image = node.op == OpId::conv2d_grad_input;
  image_ = spatial(to_image ? result : to_weight ? b : a);
  taps_ = spatial(to_weight ? result : b);
  made_ = spatial(to_image || to_weight ? a : result);
}

Sum Sums::operator()(const Dims& index) const {
  switch (node_.op) {
    case OpId::matmul:
    case OpId::scaled_mm: return product(index);
    case OpId::conv2d: return forward(index);
    case OpId::conv2d_grad_input: return input_gradient(index);
    default: return weight_gradient(index);
  }
}

Sum Sums::product(const Dims& index) const {
  const int r = index.size(), ar = a_.shape().size(), br = b_.shape().size();
  const Dims batch = batches(index);
  const int64_t a = offset_of(batch, a_strides_) + index[r - 2] * a_.stride(ar - 2),
                b = offset_of(batch, b_strides_) + index[r - 1] * b_.stride(br - 1);
  const int64_t terms = a_.shape().back();
  const std::vector<double> row = a_.line(a, a_.stride(ar - 1), terms, far_[0]),
                            column = b_.line(b, b_.stride(br - 2), terms, far_[1]);
  Sum sum;
  for (size_t k = 0; k < row.size(); ++k) sum.add(row[k] * column[k] * scale_);
  return sum;
}

// a: the images, b: the weight.
Sum Sums::forward(const Dims& index) const {
  const int64_t ins = b_.shape()[1], first = index[1] / (b_.shape()[0] / groups_) * ins;
  Sum sum;
  for_indices(taps_, [&](const Dims& tap) {
    Dims pixel = tap;
    for (int d = 0; d < tap.size(); ++d) {
      pixel[d] = index[d + 2] * step_[d] - pad_[d] + tap[d] * dilation_[d];
      if (pixel[d] < 0 || pixel[d] >= image_[d]) return;
    }
    const int64_t image = index[0] * a_.stride(0) + first * a_.stride(1) + offset_in_plane(a_, pixel),
                  weight = index[1] * b_.stride(0) + offset_in_plane(b_, tap);
    for (int64_t c = 0; c < ins; ++c) sum.add(a_[image + c * a_.stride(1)] * b_[weight + c * b_.stride(1)]);
  });
  return sum;
}

// a: the gradient of the results, b: the weight.
Sum Sums::input_gradient(const Dims& index) const {
  const int64_t ins = b_.shape()[1], outs = b_.shape()[0] / groups_, first = index[1] / ins * outs;
  Sum sum;
  for_indices(taps_, [&](const Dims& tap) {
    Dims pixel = tap;
    for (int d = 0; d < tap.size(); ++d) {
      const int64_t at = index[d + 2] + pad_[d] - tap[d] * dilation_[d];
      pixel[d] = at / step_[d];
      if (at < 0 || at % step_[d] != 0 || pixel[d] >= made_[d]) return;
    }
    const int64_t grad = index[0] * a_.stride(0) + offset_in_plane(a_, pixel),
                  weight = index[1] % ins * b_.stride(1) + offset_in_plane(b_, tap);
    for (int64_t o = first; o < first + outs; ++o) sum.add(a_[grad + o * a_.stride(1)] * b_[weight + o * b_.stride(0)]);
  });
  return sum;
}

// a: the gradient of the results, b: the images.
Sum Sums::weight_gradient(const Dims& index) const {
  const Dims& weight = node_.outs[0].shape;
  const int64_t channel = index[0] / (weight[0] / groups_) * weight[1] + index[1];
  Sum sum;
  for_indices(made_, [&](const Dims& at) {
    Dims pixel = at;
    for (int d = 0; d < at.size(); ++d) {
      pixel[d] = at[d] * step_[d] - pad_[d] + index[d + 2] * dilation_[d];
      if (pixel[d] < 0 || pixel[d] >= image_[d]) return;
    }
    const int64_t grad = index[0] * a_.stride(1) + offset_in_plane(a_, at),
                  image = channel * b_.stride(1) + offset_in_plane(b_, pixel);
    for (int64_t n = 0; n < a_.shape()[0]; ++n) sum.add(a_[grad + n * a_.stride(0)] * b_[image + n * b_.stride(0)]);
  });
  return sum;
}

}  // namespace pyflame::sampled
