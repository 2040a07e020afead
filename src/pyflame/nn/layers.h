// The layers for C++ programs: names, defaults and initial values are PyTorch's.
#pragma once
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

#include "pyflame/nn/init.h"
#include "pyflame/nn/module.h"

namespace pyflame::nn {

// x W' + b: [.., in] -> [.., out].
struct Linear {
  Tensor weight;  // [out, in]
  Tensor bias;    // [out], or undefined
  Linear(int64_t in_features, int64_t out_features, bool with_bias = true);
  Tensor operator()(const Tensor& x) const { return linear(x, weight, bias); }
  template <class V>
  void visit(V& v) {
    v.parameter("weight", weight);
    v.parameter("bias", bias);
  }
};

// Cross-correlation of images: [N, in, H, W] -> [N, out, H', W'], H' = (H + 2 padding - dilation (kernel - 1) - 1) / stride + 1, rounded down.
struct Conv2d {
  Tensor weight;  // [out, in / groups, kh, kw]
  Tensor bias;
  Pair stride, padding, dilation;
  int64_t groups;
  Conv2d(int64_t in_channels, int64_t out_channels, Pair kernel, Pair stride_ = 1, Pair padding_ = 0,
         Pair dilation_ = 1, int64_t groups_ = 1, bool with_bias = true);
  Tensor operator()(const Tensor& x) const { return conv2d(x, weight, bias, stride, padding, dilation, groups); }
  template <class V>
  void visit(V& v) {
    v.parameter("weight", weight);
    v.parameter("bias", bias);
  }
};

// The adjoint of Conv2d: [N, in, H, W] -> [N, out, H', W'], H' = (H - 1) stride - 2 padding + dilation (kernel - 1) + output_padding + 1.
struct ConvTranspose2d {
  Tensor weight;  // [in, out / groups, kh, kw]
  Tensor bias;
  Pair stride, padding, output_padding, dilation;
  int64_t groups;
  ConvTranspose2d(int64_t in_channels, int64_t out_channels, Pair kernel, Pair stride_ = 1, Pair padding_ = 0,
                  Pair output_padding_ = 0, int64_t groups_ = 1, bool with_bias = true, Pair dilation_ = 1);
  Tensor operator()(const Tensor& x) const {
    return conv_transpose2d(x, weight, bias, stride, padding, output_padding, groups, dilation);
  }
  template <class V>
  void visit(V& v) {
    v.parameter("weight", weight);
    v.parameter("bias", bias);
  }
};

// Conv2d for sequences: [N, in, L] -> [N, out, L'].
struct Conv1d {
  Tensor weight;  // [out, in / groups, k]
  Tensor bias;
  int64_t stride, padding, dilation, groups;
  Conv1d(int64_t in_channels, int64_t out_channels, int64_t kernel, int64_t stride_ = 1, int64_t padding_ = 0,
         int64_t dilation_ = 1, int64_t groups_ = 1, bool with_bias = true);
  Tensor operator()(const Tensor& x) const { return conv1d(x, weight, bias, stride, padding, dilation, groups); }
  template <class V>
  void visit(V& v) {
    v.parameter("weight", weight);
    v.parameter("bias", bias);
  }
};

// Normalizes each channel of [N, C, H, W] over N, H and W: by the batch while training, else by the running mean and variance.
struct BatchNorm2d {
  Tensor weight, bias, running_mean, running_var, num_batches_tracked;
  double eps, momentum;
  bool is_training = true;
  explicit BatchNorm2d(int64_t features, double eps_ = 1e-5, double momentum_ = 0.1);
  Tensor operator()(const Tensor& x) const;
  template <class V>
  void visit(V& v) {
    v.parameter("weight", weight);
    v.parameter("bias", bias);
    v.buffer("running_mean", running_mean);
    v.buffer("running_var", running_var);
    v.buffer("num_batches_tracked", num_batches_tracked);
    v.training(is_training);
  }
};

// Normalizes the last dims, which are `shape`, to mean 0 and variance 1; then times weight plus bias.
struct LayerNorm {
  Tensor weight, bias;
  Dims shape;
  double eps;
  explicit LayerNorm(const Dims& normalized_shape, double eps_ = 1e-5, bool with_bias = true);
  Tensor operator()(const Tensor& x) const { return layer_norm(x, shape, weight, bias, eps); }
  template <class V>
  void visit(V& v) {
    v.parameter("weight", weight);
    v.parameter("bias", bias);
  }
};

// Divides by the root of the mean square over the last dims, which are `shape`; then times weight.
struct RMSNorm {
  Tensor weight;
  Dims shape;
  std::optional<double> eps;  // if absent, the dtype's epsilon
  explicit RMSNorm(const Dims& normalized_shape, std::optional<double> eps_ = {});
  Tensor operator()(const Tensor& x) const { return rms_norm(x, shape, weight, eps); }
  template <class V>
  void visit(V& v) {
    v.parameter("weight", weight);
  }
};

// The maximum of each window: [N, C, H, W] -> [N, C, H', W']. Without a stride, it is the kernel.
struct MaxPool2d {
  Pair kernel;
  std::optional<Pair> stride;
  Pair padding, dilation;
  explicit MaxPool2d(Pair kernel_, std::optional<Pair> stride_ = {}, Pair padding_ = 0, Pair dilation_ = 1)
      : kernel(kernel_), stride(stride_), padding(padding_), dilation(dilation_) {}
  Tensor operator()(const Tensor& x) const { return max_pool2d(x, kernel, stride, padding, dilation); }
  template <class V>
  void visit(V&) {}
};

// The mean of windows whose sizes are chosen so that the result is [N, C, out.h, out.w].
struct AdaptiveAvgPool2d {
  Pair out;
  explicit AdaptiveAvgPool2d(Pair out_) : out(out_) {}
  Tensor operator()(const Tensor& x) const { return adaptive_avg_pool2d(x, out); }
  template <class V>
  void visit(V&) {}
};

// While training, each element is zero with probability p, and the others are divided by 1 - p.
struct Dropout {
  double p;
  bool is_training = true;
  explicit Dropout(double p_ = 0.5);
  // p = 0 makes no random call, so it costs nothing and does not change the random state.
  Tensor operator()(const Tensor& x) const { return is_training && p > 0 ? dropout(x, p, true) : x; }
  template <class V>
  void visit(V& v) {
    v.training(is_training);
  }
};

// Rows of weight: indices [..] -> [.., dim]. The row padding_idx gets no gradient.
struct Embedding {
  Tensor weight;  // [count, dim]
  std::optional<int64_t> padding_idx;
  Embedding(int64_t count, int64_t dim, std::optional<int64_t> padding_idx_ = {});
  Tensor operator()(const Tensor& index) const { return embedding(index, weight, padding_idx); }
  template <class V>
  void visit(V& v) {
    v.parameter("weight", weight);
  }
};

// One dim in place of the dims from start_dim to end_dim.
struct Flatten {
  int64_t start_dim = 1, end_dim = -1;
  Tensor operator()(const Tensor& x) const { return flatten(x, start_dim, end_dim); }
  template <class V>
  void visit(V&) {}
};

#define PF_NN_ACTIVATION(Name, expression)                          \
  struct Name {                                                     \
    Tensor operator()(const Tensor& x) const { return expression; } \
    template <class V>                                              \
    void visit(V&) {}                                               \
  };
PF_NN_ACTIVATION(ReLU, relu(x))
PF_NN_ACTIVATION(SiLU, silu(x))
PF_NN_ACTIVATION(Tanh, tanh(x))
PF_NN_ACTIVATION(Sigmoid, sigmoid(x))
PF_NN_ACTIVATION(Softplus, softplus(x))
PF_NN_ACTIVATION(Identity, x)
#undef PF_NN_ACTIVATION

// x times the normal distribution function of x; approximate: "none" or "tanh".
struct GELU {
  std::string approximate = "none";
  Tensor operator()(const Tensor& x) const { return gelu(x, approximate); }
  template <class V>
  void visit(V&) {}
};
// x where it is positive, else negative_slope x.
struct LeakyReLU {
  double negative_slope = 0.01;
  Tensor operator()(const Tensor& x) const { return leaky_relu(x, negative_slope); }
  template <class V>
  void visit(V&) {}
};
// exp(x) divided by its sum along dim.
struct Softmax {
  int64_t dim = -1;
  Tensor operator()(const Tensor& x) const { return softmax(x, dim); }
  template <class V>
  void visit(V&) {}
};

// PyTorch's multi-head attention: packed input projection, state-dict names included. Inputs are [B, T, E] when batch_first,
// else [T, B, E].
struct MultiheadAttention {
  Tensor in_proj_weight, in_proj_bias;  // [3 E, E], [3 E]
  struct OutProjection {
    Tensor weight, bias;
    template <class V>
    void visit(V& v) {
      v.parameter("weight", weight);
      v.parameter("bias", bias);
    }
  } out_proj;
  int64_t embed_dim, num_heads;
  double dropout_p;
  bool batch_first;
  bool is_training = true;
  MultiheadAttention(int64_t embed_dim_, int64_t num_heads_, double dropout = 0.0, bool bias = true,
                     bool batch_first_ = false);
  Tensor operator()(const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& attn_mask = {},
                    bool is_causal = false) const;
  template <class V>
  void visit(V& v) {
    v.parameter("in_proj_weight", in_proj_weight);
    v.parameter("in_proj_bias", in_proj_bias);
    v.child("out_proj", out_proj);
    v.training(is_training);
  }
};

// Layers that run one after the other; children are named "0", "1", …
template <class... Layers>
struct Sequential {
  std::tuple<Layers...> layers;
  explicit Sequential(Layers... l) : layers(std::move(l)...) {}
  Tensor operator()(Tensor x) const {
    std::apply([&](const auto&... l) { ((x = l(x)), ...); }, layers);
    return x;
  }
  template <class V>
  void visit(V& v) {
    visit_all(v, std::index_sequence_for<Layers...>{});
  }

 private:
  template <class V, size_t... I>
  void visit_all(V& v, std::index_sequence<I...>) {
    (v.child(std::to_string(I), std::get<I>(layers)), ...);
  }
};

// A list of equal layers; children are named "0", "1", … It is a deque, so that adding a layer moves no other.
template <class Layer>
struct ModuleList {
  std::deque<Layer> layers;
  template <class V>
  void visit(V& v) {
    for (size_t i = 0; i < layers.size(); ++i) v.child(std::to_string(i), layers[i]);
  }
};

}  // namespace pyflame::nn
