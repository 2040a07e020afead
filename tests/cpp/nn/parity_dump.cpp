// Writes what the C++ layers are and do into one safetensors file, for tests/python/test_parity.py, which makes the same layers in
// Python and compares. For each layer NAME, made with a fixed seed:
//
//   NAME/before/…      the state dict as constructed         NAME/after/…   the state dict after one training call
//   NAME/input, NAME/output, NAME/weights                    the call, and the weights of the sum that is differentiated
//   NAME/grad/…        gradients of the parameters           NAME/input_grad
//
// usage: pyflame_parity_dump FILE
#include <cstdio>

#include "pyflame/autograd/autograd.h"
#include "pyflame/nn/gpt.h"
#include "pyflame/nn/layers.h"

namespace pyflame::nn {
namespace {

constexpr uint64_t kLayerSeed = 11, kInputSeed = 12, kCallSeed = 13;

class Dump {
 public:
  // `call` is given the layer and the input.
  template <class Make, class Call>
  void add(const std::string& name, Make make, const Tensor& input, Call call) {
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
  void add(const std::string& name, Make make, const Tensor& input) {
    add(name, make, input, [](const auto& layer, const Tensor& x) { return layer(x); });
  }
  void write(const std::string& path) const { save_safetensors(path, tensors_); }

 private:
  // A copy: what it is now, whatever is done to it later.
  void put(const std::string& name, const Tensor& t) { tensors_.emplace_back(name, clone(t.detach())); }
  NamedTensors tensors_;
};

void dump_layers(Dump& d) {
  manual_seed(kInputSeed);
  const Tensor rows = randn({6, 5}), image = randn({2, 4, 7, 6}), sequence = randn({3, 4, 8});
  const Tensor words = randint(0, 9, {3, 4}, DType::int64);
  d.add(
      "linear", [] { return Linear(5, 7); }, rows);
  d.add(
      "linear_without_bias", [] { return Linear(5, 7, false); }, rows);
  d.add(
      "conv2d",
      [] {
        return Conv2d(4, 6, {3, 2}, {2, 1}, {1, 0}, 1, 2);
      },
      image);
  d.add(
      "batch_norm2d", [] { return BatchNorm2d(4); }, image);
  d.add(
      "layer_norm", [] { return LayerNorm({8}); }, sequence);
  d.add(
      "layer_norm_two_dims",
      [] {
        return LayerNorm({4, 8}, 1e-3, false);
      },
      sequence);
  d.add(
      "rms_norm", [] { return RMSNorm({8}); }, sequence);
  d.add(
      "max_pool2d", [] { return MaxPool2d(3, 2, 1); }, image);
  d.add(
      "dropout", [] { return Dropout(0.3); }, sequence);
  d.add(
      "embedding", [] { return Embedding(9, 5, -1); }, words);
  d.add(
      "flatten", [] { return Flatten{}; }, image);
  d.add(
      "relu", [] { return ReLU{}; }, rows);
  d.add(
      "silu", [] { return SiLU{}; }, rows);
  d.add(
      "tanh", [] { return Tanh{}; }, rows);
  d.add(
      "sigmoid", [] { return Sigmoid{}; }, rows);
  d.add(
      "softplus", [] { return Softplus{}; }, rows);
  d.add(
      "identity", [] { return Identity{}; }, rows);
  d.add(
      "gelu", [] { return GELU{}; }, rows);
  d.add(
      "gelu_tanh", [] { return GELU{"tanh"}; }, rows);
  d.add(
      "leaky_relu", [] { return LeakyReLU{0.1}; }, rows);
  d.add(
      "softmax", [] { return Softmax{1}; }, rows);
  const auto attend = [](bool causal) {
    return [causal](const MultiheadAttention& layer, const Tensor& x) { return layer(x, x, x, {}, causal); };
  };
  d.add(
      "attention", [] { return MultiheadAttention(8, 2, 0.0, true, true); }, sequence, attend(true));
  d.add(
      "attention_sequence_first", [] { return MultiheadAttention(8, 4, 0.0, false); }, sequence, attend(false));
  // Braces: they are evaluated from left to right, parentheses in any order, and the layers draw random numbers.
  d.add(
      "sequential",
      [] { return Sequential{Conv2d(4, 3, 3, 1, 1), BatchNorm2d(3), ReLU{}, MaxPool2d(2), Flatten{}, Linear(27, 4)}; },
      image);
}

void dump_gpt(Dump& d) {
  manual_seed(kInputSeed);
  const Tensor index = randint(0, 11, {2, 6}, DType::int64);
  GptConfig config;
  config.vocabulary = 11;
  config.block_size = 8;
  config.n_layer = 2;
  config.n_head = 2;
  config.n_embd = 16;
  d.add(
      "gpt", [&] { return Gpt(config); }, index);
  config.dropout = 0.25;
  d.add(
      "gpt_with_dropout", [&] { return Gpt(config); }, index);
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
    pyflame::nn::dump_layers(dump);
    pyflame::nn::dump_gpt(dump);
    dump.write(argv[1]);
  } catch (const pyflame::Error& e) {
    std::fprintf(stderr, "pyflame_parity_dump: %s\n", e.what());
    return 1;
  }
  return 0;
}
