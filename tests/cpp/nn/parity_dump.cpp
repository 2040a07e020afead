// Writes what the C++ layers are and do into one safetensors file, for tests/python/test_parity.py, which makes the same layers in
// Python and compares. For each layer NAME, made with a fixed seed:
//
//   NAME/before/…      the state dict as constructed         NAME/after/…   the state dict after one training call
//   NAME/input, NAME/output, NAME/weights                    the call, and the weights of the sum that is differentiated
//   NAME/grad/…        gradients of the parameters           NAME/input_grad
//
// usage: pyflame_parity_dump FILE
#include <cstdio>

#include "apps/gpt/gpt.h"
#include "pyflame/autograd/autograd.h"
#include "pyflame/nn/layers.h"

namespace pyflame::nn {
namespace {

constexpr uint64_t kLayerSeed = 11, kInputSeed = 12, kCallSeed = 13;

class Dump {
 public:
  // `call` is given the layer and the input.
  template <class Make, class Call>
  void add(const std::string& name, const Tensor& input, Make make, Call call) {
    manual_seed(kLayerSeed);
    auto layer = make();
    for (const auto& [key, t] : state_dict(layer)) put(name + "/before/" + key, t);
    const Tensor x = clone(input);
    if (x.is_floating_point()) x.set_requires_grad(true);
    put(name + "/input", input);
    manual_seed(kCallSeed);
    const Tensor y = call(layer, x);
    put(name + "/output", y);
    const Tensor weights = cos(arange(0, y.numel(), 1, DType::float32));
    put(name + "/weights", weights);
    if (y.requires_grad()) autograd::backward({sum(mul(flatten(y), weights))});
    for (const auto& [key, t] : state_dict(layer)) put(name + "/after/" + key, t);
    for (const auto& [key, p] : named_parameters(layer)) put(name + "/grad/" + key, p.grad());
    if (x.grad()) put(name + "/input_grad", x.grad());
  }
  template <class Make>
  void add(const std::string& name, const Tensor& input, Make make) {
    add(name, input, make, [](const auto& layer, const Tensor& x) { return layer(x); });
  }
  void write(const std::string& path) const { save_safetensors(path, tensors_); }

 private:
  // A copy: what it is now, whatever is done to it later.
  void put(const std::string& name, const Tensor& t) { tensors_.emplace_back(name, clone(t.detach())); }
  NamedTensors tensors_;
};

void dump_activations(Dump& d) {
  manual_seed(kInputSeed);
  const Tensor rows = randn({6, 5});
  d.add("relu", rows, [] { return ReLU{}; });
  d.add("silu", rows, [] { return SiLU{}; });
  d.add("tanh", rows, [] { return Tanh{}; });
  d.add("sigmoid", rows, [] { return Sigmoid{}; });
  d.add("softplus", rows, [] { return Softplus{}; });
  d.add("identity", rows, [] { return Identity{}; });
  d.add("gelu", rows, [] { return GELU{}; });
  d.add("gelu_tanh", rows, [] { return GELU{"tanh"}; });
  d.add("leaky_relu", rows, [] { return LeakyReLU{0.1}; });
  d.add("softmax", rows, [] { return Softmax{1}; });
}

void dump_layers(Dump& d) {
  manual_seed(kInputSeed);
  const Tensor rows = randn({6, 5}), image = randn({2, 4, 7, 6}), sequence = randn({3, 4, 8});
  const Tensor words = randint(0, 9, {3, 4}, DType::int64);
  d.add("linear", rows, [] { return Linear(5, 7); });
  d.add("linear_without_bias", rows, [] { return Linear(5, 7, false); });
  d.add("conv2d", image, [] { return Conv2d(4, 6, Pair(3, 2), Pair(2, 1), Pair(1, 0), 1, 2); });
  d.add("conv_transpose2d", image, [] { return ConvTranspose2d(4, 6, Pair(3, 2), 2, Pair(1, 0), Pair(1, 0), 2); });
  d.add("conv1d", sequence, [] { return Conv1d(4, 6, 3, 2, 1, 1, 2); });
  d.add("adaptive_avg_pool2d", image, [] { return AdaptiveAvgPool2d({2, 3}); });
  d.add("batch_norm2d", image, [] { return BatchNorm2d(4); });
  d.add("layer_norm", sequence, [] { return LayerNorm({8}); });
  d.add("layer_norm_two_dims", sequence, [] { return LayerNorm(Dims{4, 8}, 1e-3, false); });
  d.add("rms_norm", sequence, [] { return RMSNorm({8}); });
  d.add("max_pool2d", image, [] { return MaxPool2d(3, 2, 1); });
  d.add("dropout", sequence, [] { return Dropout(0.3); });
  d.add("embedding", words, [] { return Embedding(9, 5, -1); });
  d.add("flatten", image, [] { return Flatten{}; });
  const auto attend = [](bool causal) {
    return [causal](const MultiheadAttention& layer, const Tensor& x) { return layer(x, x, x, {}, causal); };
  };
  const auto sequence_first = [] { return MultiheadAttention(8, 4, 0.0, false); };
  const auto batch_first = [] { return MultiheadAttention(8, 2, 0.0, true, true); };
  d.add("attention", sequence, batch_first, attend(true));
  d.add("attention_sequence_first", sequence, sequence_first, attend(false));
  // Braces: they are evaluated from left to right, parentheses in any order, and the layers draw random numbers.
  d.add("sequential", image, [] {
    return Sequential{Conv2d(4, 3, 3, 1, 1), BatchNorm2d(3), ReLU{}, MaxPool2d(2), Flatten{}, Linear(27, 4)};
  });
}

void dump_gpt(Dump& d) {
  manual_seed(kInputSeed);
  const Tensor index = randint(0, 11, {2, 6}, DType::int64);
  apps::gpt::GptConfig config;
  config.vocabulary = 11;
  config.block_size = 8;
  config.n_layer = 2;
  config.n_head = 2;
  config.n_embd = 16;
  d.add("gpt", index, [&] { return apps::gpt::Gpt(config); });
  config.dropout = 0.25;
  d.add("gpt_with_dropout", index, [&] { return apps::gpt::Gpt(config); });
}

}  // namespace
}  // namespace pyflame::nn

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: pyflame_parity_dump FILE\n");
    return 2;
  }
  try {
    pyflame::nn::Dump dump;
    pyflame::nn::dump_activations(dump);
    pyflame::nn::dump_layers(dump);
    pyflame::nn::dump_gpt(dump);
    dump.write(argv[1]);
  } catch (const pyflame::Error& e) {
    std::fprintf(stderr, "pyflame_parity_dump: %s\n", e.what());
    return 1;
  }
  return 0;
}
