#include "pyflame/nn/layers.h"

#include "pyflame/tensor/grad_node.h"

namespace pyflame::nn {

Linear::Linear(int64_t in_features, int64_t out_features, bool with_bias) {
  PF_CHECK(in_features >= 0 && out_features >= 0, Value, "Linear: sizes must not be negative; got in {}, out {}",
           in_features, out_features);
  weight = init::kaiming_uniform({out_features, in_features});
  if (with_bias) bias = init::fan_in_bias(weight.shape(), out_features);
}

Conv2d::Conv2d(int64_t in_channels, int64_t out_channels, Pair kernel, Pair stride_, Pair padding_, Pair dilation_,
               int64_t groups_, bool with_bias)
    : stride(stride_), padding(padding_), dilation(dilation_), groups(groups_) {
  PF_CHECK(groups > 0 && in_channels % groups == 0 && out_channels % groups == 0, Value,
           "Conv2d: groups must divide the channels; got in {}, out {}, groups {}", in_channels, out_channels, groups);
  weight = init::kaiming_uniform({out_channels, in_channels / groups, kernel.h, kernel.w});
  if (with_bias) bias = init::fan_in_bias(weight.shape(), out_channels);
}

ConvTranspose2d::ConvTranspose2d(int64_t in_channels, int64_t out_channels, Pair kernel, Pair stride_, Pair padding_,
                                 Pair output_padding_, int64_t groups_, bool with_bias, Pair dilation_)
    : stride(stride_), padding(padding_), output_padding(output_padding_), dilation(dilation_), groups(groups_) {
  PF_CHECK(groups > 0 && in_channels % groups == 0 && out_channels % groups == 0, Value,
           "ConvTranspose2d: groups must divide the channels; got in {}, out {}, groups {}", in_channels, out_channels,
           groups);
  weight = init::kaiming_uniform({in_channels, out_channels / groups, kernel.h, kernel.w});
  if (with_bias) bias = init::fan_in_bias(weight.shape(), out_channels);
}

Conv1d::Conv1d(int64_t in_channels, int64_t out_channels, int64_t kernel, int64_t stride_, int64_t padding_,
               int64_t dilation_, int64_t groups_, bool with_bias)
    : stride(stride_), padding(padding_), dilation(dilation_), groups(groups_) {
  PF_CHECK(groups > 0 && in_channels % groups == 0 && out_channels % groups == 0, Value,
           "Conv1d: groups must divide the channels; got in {}, out {}, groups {}", in_channels, out_channels, groups);
  weight = init::kaiming_uniform({out_channels, in_channels / groups, kernel});
  if (with_bias) bias = init::fan_in_bias(weight.shape(), out_channels);
}

BatchNorm2d::BatchNorm2d(int64_t features, double eps_, double momentum_)
    : weight(init::constant({features}, 1.0)),
      bias(init::constant({features}, 0.0)),
      running_mean(zeros({features})),
      running_var(ones({features})),
      num_batches_tracked(zeros({}, DType::int64)),
      eps(eps_),
      momentum(momentum_) {}

Tensor BatchNorm2d::operator()(const Tensor& x) const {
  PF_CHECK(x.dim() == 4, Value, "BatchNorm2d: the input has {} dimensions; expected 4 (N, C, H, W)", x.dim());
  if (is_training) {
    grad_mode::Guard no_grad(false);
    binary_(add, "add_", num_batches_tracked, int64_t{1});
  }
  return batch_norm(x, running_mean, running_var, weight, bias, is_training, momentum, eps);
}

LayerNorm::LayerNorm(const Dims& normalized_shape, double eps_, bool with_bias)
    : weight(init::constant(normalized_shape, 1.0)), shape(normalized_shape), eps(eps_) {
  if (with_bias) bias = init::constant(normalized_shape, 0.0);
}

RMSNorm::RMSNorm(const Dims& normalized_shape, std::optional<double> eps_)
    : weight(init::constant(normalized_shape, 1.0)), shape(normalized_shape), eps(eps_) {}

Dropout::Dropout(double p_) : p(p_) {
  PF_CHECK(p >= 0 && p <= 1, Value, "Dropout: the probability is out of range; got {}; expected 0 to 1", p);
}

Embedding::Embedding(int64_t count, int64_t dim, std::optional<int64_t> padding_idx_)
    : weight(init::normal({count, dim}, 0.0, 1.0)), padding_idx(padding_idx_) {
  if (padding_idx) {
    PF_CHECK(*padding_idx >= -count && *padding_idx < count, Index,
             "Embedding: padding_idx is out of range; got {}; expected within {} rows", *padding_idx, count);
    if (*padding_idx < 0) padding_idx = *padding_idx + count;
    grad_mode::Guard no_grad(false);
    fill_(select(weight, 0, *padding_idx), 0.0);
  }
}

MultiheadAttention::MultiheadAttention(int64_t embed_dim_, int64_t num_heads_, double dropout, bool bias,
                                       bool batch_first_)
    : embed_dim(embed_dim_), num_heads(num_heads_), dropout_p(dropout), batch_first(batch_first_) {
  PF_CHECK(num_heads > 0 && embed_dim % num_heads == 0, Value,
           "MultiheadAttention: num_heads must divide embed_dim; got embed_dim {}, num_heads {}", embed_dim, num_heads);
  // The order of PyTorch's constructor: the output projection draws like a Linear, then the packed weight is drawn.
  Linear out(embed_dim, embed_dim, bias);
  out_proj.weight = out.weight;
  in_proj_weight = init::xavier_uniform({3 * embed_dim, embed_dim});
  if (bias) {
    in_proj_bias = init::constant({3 * embed_dim}, 0.0);
    out_proj.bias = out.bias;
    init::constant_(out_proj.bias, 0.0);
  }
}

Tensor MultiheadAttention::operator()(const Tensor& query, const Tensor& key, const Tensor& value,
                                      const Tensor& attn_mask, bool is_causal) const {
  PF_CHECK(query.dim() == 3 && key.dim() == 3 && value.dim() == 3, Value,
           "MultiheadAttention: query, key and value must have 3 dimensions; got {}, {} and {}", query.shape().str(),
           key.shape().str(), value.shape().str());
  PF_CHECK(query.size(2) == embed_dim, Value,
           "MultiheadAttention: the last size of query does not fit; got {}; expected {}", query.size(2), embed_dim);
  const int64_t e = embed_dim, d = e / num_heads;
  // [B, T, E] -> [B, H, T, D]; either of the first two dims may be the batch.
  const auto heads = [&](const Tensor& x) {
    const Tensor y = view(x, {x.size(0), x.size(1), num_heads, d});
    return batch_first ? permute(y, {0, 2, 1, 3}) : permute(y, {1, 2, 0, 3});
  };
  Tensor q, k, v;
  if (query.same(key) && key.same(value)) {
    const Tensor qkv = linear(query, in_proj_weight, in_proj_bias);
    q = narrow(qkv, 2, 0, e);
    k = narrow(qkv, 2, e, e);
    v = narrow(qkv, 2, 2 * e, e);
  } else {
    const auto project = [&](const Tensor& x, int64_t part) {
      return linear(x, narrow(in_proj_weight, 0, part * e, e),
                    in_proj_bias ? narrow(in_proj_bias, 0, part * e, e) : Tensor());
    };
    q = project(query, 0);
    k = project(key, 1);
    v = project(value, 2);
  }
  const Tensor a =
      scaled_dot_product_attention(heads(q), heads(k), heads(v), attn_mask, is_training ? dropout_p : 0.0, is_causal);
  const Tensor merged =
      reshape(batch_first ? permute(a, {0, 2, 1, 3}) : permute(a, {2, 0, 1, 3}), {query.size(0), query.size(1), e});
  return linear(merged, out_proj.weight, out_proj.bias);
}

}  // namespace pyflame::nn
