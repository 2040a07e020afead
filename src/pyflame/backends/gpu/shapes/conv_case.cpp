// Describes the three convolution ops in one form.
#include "pyflame/backends/gpu/shapes/conv_case.h"

#include <limits>

namespace pyflame::gpu {

namespace {

pf::ConvPlace place(const Operand& o) { return {o.strides[0], o.strides[1], o.strides[2], o.strides[3]}; }

}  // namespace

ConvCase::ConvCase(const Problem& p)
    : pass(p.root().op == OpId::conv2d              ? ConvPass::forward
           : p.root().op == OpId::conv2d_grad_input ? ConvPass::grad_input
                                                    : ConvPass::grad_weight),
      dtype(p.root().outs[0].dtype),
      attrs(p.root().attr<ConvAttrs>()),
      image(pass == ConvPass::forward      ? p.root().ins[0]
            : pass == ConvPass::grad_input ? p.root().outs[0]
                                           : p.root().ins[1]),
      weight(pass == ConvPass::grad_weight ? p.root().outs[0] : p.root().ins[1]),
      result(pass == ConvPass::forward ? p.root().outs[0] : p.root().ins[0]) {}

bool ConvCase::fits_int() const {
  for (const Operand* o : {&image, &weight, &result})
    for (const int64_t n : o->shape)
      if (n > std::numeric_limits<int>::max()) return false;
  return weight.numel() <= std::numeric_limits<int>::max();
}

bool ConvCase::few_channels() const {
  constexpr int64_t kFewChannels = 4;
  return weight.shape[1] <= kFewChannels && weight.shape[0] / attrs.groups <= kFewChannels && attrs.groups > 1;
}

pf::Conv ConvCase::kernel_case() const {
  pf::Conv c{};
  const auto number = [](int64_t n) { return static_cast<int>(n); };
  const bool backward = pass == ConvPass::grad_input;
  const Operand &read = backward ? result : image, &made = backward ? image : result;
  c.read = place(read), c.made = place(made), c.weight = place(weight);
  c.made_channels = number(made.shape[1] / attrs.groups), c.read_channels = number(read.shape[1] / attrs.groups);
  if (backward) std::swap(c.weight.n, c.weight.c);
  c.weight_group = weight.shape[0] / attrs.groups * weight.strides[0];
  c.images = image.shape[0];
  c.read_h = number(read.shape[2]), c.read_w = number(read.shape[3]);
  c.made_h = number(made.shape[2]), c.made_w = number(made.shape[3]);
  c.kernel_h = number(weight.shape[2]), c.kernel_w = number(weight.shape[3]);
  c.stride_h = number(attrs.stride_h), c.stride_w = number(attrs.stride_w);
  c.pad_h = number(attrs.pad_h), c.pad_w = number(attrs.pad_w);
  c.dilation_h = number(attrs.dilation_h), c.dilation_w = number(attrs.dilation_w);
  c.groups = number(attrs.groups);
  c.backward = backward;
  c.phases_h = backward ? c.stride_h : 1, c.phases_w = backward ? c.stride_w : 1;
  c.splits = 1;
  c.split_depth = std::numeric_limits<int64_t>::max();
  // k is (tap, channel) or a pixel; j is the other one.
  const bool pixels_deep = pass == ConvPass::grad_weight, channels_last = c.read.c == 1 && c.read_channels > 1;
  c.b_along_k = pixels_deep != channels_last;
  c.a_along_k = pixels_deep ? c.made.c != 1 : c.weight.c <= c.weight.n;
  return c;
}

// Matrix units read channels-last images whose channels are whole vectors. Depthwise convolutions are no products of matrices; one of single
// pixels is a product whatever its input's layout.
bool prefers_channels_last(const ImageResult& r, bool rounded) {
  constexpr int64_t kVector = 8;
  const bool matrix_cores = dtype_size(r.dtype) == 2 || (rounded && r.dtype == DType::float32);
  if (!matrix_cores || (r.op != OpId::conv2d && r.op != OpId::conv2d_grad_input)) return false;
  const Dims& weight = *r.ins[1];
  return r.shape[1] % kVector == 0 && weight[2] * weight[3] > 1 && weight[1] > 1;
}

}  // namespace pyflame::gpu
