// Random programs of views, in-place ops, broadcasts and reductions: a window of many ops gives what the reference gives op by op.
#include <random>

#include "support/tensor_values.h"

namespace pyflame {
namespace {

using namespace testing;

// Runs the program that `seed` stands for and returns all values at its end.
std::vector<double> run_program(uint32_t seed, Device device) {
  std::mt19937 random(seed);
  auto pick = [&](int n) { return static_cast<int>(random() % static_cast<uint32_t>(n)); };
  const Dims shapes[] = {{4, 6}, {4, 6}, {6}, {4, 1}};
  Tensors pool;
  for (int k = 0; k < 5; ++k) {
    const Dims& shape = shapes[k % 4];
    std::vector<double> v(static_cast<size_t>(shape.numel()));
    for (double& x : v) x = static_cast<double>(pick(2000)) / 1000 - 1;
    pool.push_back(from_host(v.data(), shape, DType::float64, device));
  }
  auto any_of_pool = [&] { return pool[static_cast<size_t>(pick(static_cast<int>(pool.size())))]; };
  auto full_size = [&] {
    for (;;) {
      const Tensor t = any_of_pool();
      if (t.shape() == shapes[0]) return t;
    }
  };
  auto region = [&](const Tensor& t) -> Tensor {
    switch (pick(5)) {
      case 0: return slice(t, 0, pick(4), {});
      case 1: return select(t, 1, pick(6));
      case 2: return slice(t, 1, pick(2), {}, 2);
      case 3: return transpose(t, 0, 1);
      default: return t;
    }
  };
  for (int step = 0; step < 25; ++step) {
    const Tensor a = full_size(), b = any_of_pool();
    switch (pick(12)) {
      case 0: pool.push_back(add(a, b)); break;
      case 1: pool.push_back(mul(a, tanh(b))); break;
      case 2: pool.push_back(clone(a)); break;
      case 3: pool.push_back(sin(a)); break;
      case 4: binary_(mul, "mul_", a, b); break;
      case 5: binary_(add, "add_", region(a), 0.25); break;
      case 6: copy_(a, sin(b)); break;
      case 7: unary_(tanh, "tanh_", region(a)); break;
      case 8: fill_(region(a), 0.5); break;
      case 9: copy_(region(a), sum(a)); break;
      case 10: pool.push_back(sub(a, mean(a, {pick(2)}, true))); break;
      default: {  // reads and writes that overlap
        const int from = pick(3);
        copy_(slice(a, 0, from, from + 2), slice(a, 0, 2, 4));
      }
    }
  }
  std::vector<double> all;
  for (const Tensor& t : pool)
    for (double v : values(to_device(t, Device{DeviceType::cpu, 0}))) all.push_back(v);
  return all;
}

TEST(Windows, InPlaceProgramsAgreeWithTheReference) {
  grad_mode::Guard off(false);
  for (uint32_t seed = 0; seed < 1000; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const std::vector<double> got = run_program(seed, {DeviceType::cpu, 0}),
                              expected = run_program(seed, {DeviceType::reference, 0});
    ASSERT_EQ(got.size(), expected.size());
    for (size_t i = 0; i < got.size(); ++i)
      ASSERT_NEAR(got[i], expected[i], 1e-11 * std::max(1.0, std::fabs(expected[i]))) << "element " << i;
  }
}

}  // namespace
}  // namespace pyflame
