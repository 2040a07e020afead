// Handwritten digits with a small convolutional network in C++: the model and data of mnist_cnn.py.
//
//   mnist_cnn FOLDER [epochs [accuracy to expect]]
//
// FOLDER holds MNIST's 10,000 test images and their labels, t10k-images-idx3-ubyte.gz and t10k-labels-idx1-ubyte.gz (or unpacked,
// without .gz), from https://storage.googleapis.com/cvdf-datasets/mnist/ or another mirror. The first 8,000 are trained on, the last
// 2,000 are the test. To build: find_package(pyflame) and pyflame::pyflame, as tests/consumer/CMakeLists.txt does.
// ci-needs: ../shared/data/mnist
// ci: ../shared/data/mnist 3 0.97
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <vector>

#include "pyflame/autograd/autograd.h"
#include "pyflame/nn/layers.h"
#include "pyflame/ops/ops.h"
#include "pyflame/optim/optim.h"
#include "pyflame/optim/schedule.h"
#include "pyflame/tensor/grad_node.h"

namespace {

namespace pf = pyflame;
namespace nn = pyflame::nn;

constexpr int64_t kTrain = 8000, kBatch = 32, kTestBatch = 500;
constexpr double kLearningRate = 5e-3;

// The bytes of folder/name, or what gzip makes of folder/name.gz.
std::string read_bytes(const std::filesystem::path& path) {
  if (std::filesystem::exists(path)) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  const std::string packed = path.string() + ".gz";
  if (!std::filesystem::exists(packed)) throw std::runtime_error(path.string() + "[.gz] is not there");
  std::string quoted = "'";
  for (const char c : packed) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  FILE* pipe = popen(("gzip -dc -- " + quoted + "'").c_str(), "r");
  if (!pipe) throw std::runtime_error("gzip cannot be started");
  std::string data(1 << 24, '\0');
  data.resize(std::fread(data.data(), 1, data.size(), pipe));
  if (pclose(pipe) != 0) throw std::runtime_error("gzip cannot read " + packed);
  return data;
}

// An IDX file: a magic number with the count of dims, the sizes in big-endian order, then bytes.
pf::Tensor read_idx(const std::filesystem::path& path, int dims) {
  const std::string data = read_bytes(path);
  const auto word = [&](int i) {
    int64_t v = 0;
    for (int k = 0; k < 4; ++k) v = v << 8 | static_cast<unsigned char>(data.at(static_cast<size_t>(4 * i + k)));
    return v;
  };
  pf::Dims shape;
  for (int i = 1; i <= dims; ++i) shape.push_back(word(i));
  const size_t head = static_cast<size_t>(4 * (dims + 1));
  if (word(0) != 0x800 + dims || data.size() != head + static_cast<size_t>(shape.numel()))
    throw std::runtime_error(path.string() + " is not an IDX file of " + std::to_string(dims) + " dimensions");
  return pf::from_host(data.data() + head, shape, pf::DType::uint8);
}

auto make_model() {
  return nn::Sequential(nn::Conv2d(1, 16, 3, 1, 1), nn::ReLU{}, nn::MaxPool2d(2), nn::Conv2d(16, 32, 3, 1, 1),
                        nn::ReLU{}, nn::MaxPool2d(2), nn::Flatten{}, nn::Linear(32 * 7 * 7, 64), nn::ReLU{},
                        nn::Linear(64, 10));
}

template <class Model>
double accuracy(const Model& model, const pf::Tensor& images, const pf::Tensor& labels) {
  const pf::grad_mode::Guard no_grad(false);
  const int64_t n = labels.size(0);
  int64_t right = 0;
  for (int64_t i = 0; i < n; i += kTestBatch) {
    const int64_t rows = std::min(kTestBatch, n - i);
    const pf::Tensor guess = pf::argmax(model(pf::narrow(images, 0, i, rows)), 1);
    right += pf::sum(pf::eq(guess, pf::narrow(labels, 0, i, rows))).item_i64();
  }
  return static_cast<double>(right) / static_cast<double>(n);
}

double train(const std::filesystem::path& folder, int epochs) {
  const pf::Tensor bytes = read_idx(folder / "t10k-images-idx3-ubyte", 3);
  const pf::Tensor images = pf::div(pf::unsqueeze(pf::cast(bytes, pf::DType::float32), 1), 255.0);
  const pf::Tensor labels = pf::cast(read_idx(folder / "t10k-labels-idx1-ubyte", 1), pf::DType::int64);
  const int64_t tests = labels.size(0) - kTrain;
  const pf::Tensor test_images = pf::narrow(images, 0, kTrain, tests),
                   test_labels = pf::narrow(labels, 0, kTrain, tests);

  pf::manual_seed(1);
  auto model = make_model();
  pf::optim::Adam optimizer(nn::named_parameters(model), {.lr = kLearningRate});
  const int64_t batches = (kTrain + kBatch - 1) / kBatch;
  const pf::optim::OneCycleLR schedule{kLearningRate, epochs * batches};
  int64_t step = 0;
  double reached = 0;
  for (int epoch = 1; epoch <= epochs; ++epoch) {
    const auto start = std::chrono::steady_clock::now();
    const pf::Tensor order = pf::randperm(kTrain);
    pf::Tensor total = pf::zeros({});
    for (int64_t i = 0; i < kTrain; i += kBatch) {
      const pf::Tensor rows = pf::narrow(order, 0, i, std::min(kBatch, kTrain - i));
      const pf::Tensor loss =
          pf::cross_entropy(model(pf::index_select(images, 0, rows)), pf::index_select(labels, 0, rows));
      optimizer.zero_grad();
      pf::autograd::backward({loss});
      optimizer.set_lr(schedule(step++));
      optimizer.step();
      total = pf::add(total, loss.detach());
    }
    reached = accuracy(model, test_images, test_labels);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    std::printf("epoch %d: loss %.4f, test accuracy %.2f %%, %.1f s\n", epoch,
                total.item_f64() / static_cast<double>(batches), 100 * reached, took.count());
  }
  return reached;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: mnist_cnn FOLDER [epochs [accuracy to expect]]\n");
    return 2;
  }
  try {
    const double reached = train(argv[1], argc > 2 ? std::atoi(argv[2]) : 3);
    return reached >= (argc > 3 ? std::atof(argv[3]) : 0.0) ? 0 : 1;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "mnist_cnn: %s\n", e.what());
    return 1;
  }
}
