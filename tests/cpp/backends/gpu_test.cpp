// The GPU backend. What needs no device runs everywhere: half types against the host's own, the text of generated kernels. The rest runs
// on 'cuda' or 'rocm' where there is one, against the reference backend, and says that it is skipped otherwise.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <fstream>

#include "pyflame/autograd/autograd.h"
#include "pyflame/backends/gpu/driver/rt.h"
#include "pyflame/backends/gpu/jit/kernel.h"
#include "pyflame/base/half.h"
#include "pyflame/ops/ops.h"
#include "pyflame/runtime/allocator.h"
#include "pyflame/runtime/device.h"

#include "pyflame/kernels/device/launch.h"
// In this order: the run-time compilers see one text.
#include "pyflame/kernels/device/scalar.h"
#include "pyflame/kernels/device/view.h"

namespace pyflame {
namespace {

TEST(GpuScalars, HalfTypesAreTheHosts) {
  for (uint32_t h = 0; h < 65536; ++h) {
    const auto bits = static_cast<uint16_t>(h);
    const float f = pf::half_to_float(bits), b = pf::bfloat_to_float(bits);
    const float want_f = static_cast<float>(std::bit_cast<float16>(bits)),
                want_b = static_cast<float>(std::bit_cast<bfloat16>(bits));
    ASSERT_TRUE(f == want_f || (std::isnan(f) && std::isnan(want_f))) << h;
    ASSERT_TRUE(b == want_b || (std::isnan(b) && std::isnan(want_b))) << h;
  }
  // Every float that is half way between two halves, and its neighbours.
  for (uint32_t u = 0; u < 0x7f800000u; u += 0x1000u - 1)
    for (const uint32_t sign : {0u, 0x80000000u}) {
      const float x = pf::float_of_bits(u | sign);
      const auto want_half = std::bit_cast<uint16_t>(float16(x)), want_bfloat = std::bit_cast<uint16_t>(bfloat16(x));
      ASSERT_EQ(pf::float_to_half(x), want_half) << x;
      ASSERT_EQ(pf::float_to_bfloat(x), want_bfloat) << x;
    }
  EXPECT_TRUE(std::isnan(pf::half_to_float(pf::float_to_half(NAN))));
  EXPECT_TRUE(std::isnan(pf::bfloat_to_float(pf::float_to_bfloat(NAN))));
}

// Of the activations' own functions: a few units in the last place wherever float32 can hold the tail.
TEST(GpuScalars, ActivationsAreAccurate) {
  constexpr double kEps = 1.1920928955078125e-07;
  for (int k = -128000; k <= 128000; k += 3) {
    const float x = static_cast<float>(k) * 1e-4f;
    const double below = 0.5 * std::erfc(-double{x} * std::sqrt(0.5)), bell = std::exp(-0.5 * double{x} * double{x});
    const auto n = pf::normality(x);
    ASSERT_NEAR(double{n.below} / below, 1, 6 * kEps) << x;
    ASSERT_NEAR(double{n.bell} / bell, 1, 4 * kEps) << x;
    ASSERT_NEAR(double{pf::sigmoid(x)} * (1 + std::exp(-double{x})), 1, 4 * kEps) << x;
  }
  EXPECT_EQ(pf::gelu(-INFINITY), 0);
  EXPECT_EQ(pf::gelu(INFINITY), INFINITY);
  EXPECT_EQ(pf::silu(-INFINITY), 0);
  EXPECT_TRUE(std::isnan(pf::gelu(NAN)) && std::isnan(pf::sigmoid(NAN)) && std::isnan(pf::gelu_grad(NAN, 1.0f)));
}

TEST(GpuRuntime, AbsenceHasAReason) {
  for (const DeviceType type : {DeviceType::rocm, DeviceType::cuda}) {
    std::string why;
    if (gpu::runtime(type, &why)) continue;
    EXPECT_FALSE(why.empty());
    EXPECT_EQ(device_count(type), 0);
    EXPECT_FALSE(unavailable_reason(type).empty());
    EXPECT_THROW(set_current_device({type, 0}), Error);
    EXPECT_THROW(zeros({2}, DType::float32, Device{type, 0}).item<float>(), Error);
  }
}

// --- on a device

class OnGpu : public ::testing::Test {
 protected:
  void SetUp() override {
    if (device_count(DeviceType::cuda) > 0) gpu_ = {DeviceType::cuda, 0};
    else if (device_count(DeviceType::rocm) > 0) gpu_ = {DeviceType::rocm, 0};
    else GTEST_SKIP() << "no GPU: " << unavailable_reason(DeviceType::cuda);
  }
  static void expect_near(const Tensor& got, const Tensor& want, double tolerance) {
    const Tensor a = contiguous(cast(to_device(got, Device{}), DType::float64)),
                 b = contiguous(cast(want, DType::float64));
    ASSERT_EQ(a.shape(), b.shape());
    const auto* x = static_cast<const double*>(a.data());
    const auto* y = static_cast<const double*>(b.data());
    for (int64_t i = 0; i < a.numel(); ++i)
      ASSERT_LE(std::fabs(x[i] - y[i]), tolerance * (1 + std::fabs(y[i]))) << "element " << i;
  }
  Device gpu_;
};

TEST_F(OnGpu, ElementwiseReductionsAndProducts) {
  const Tensor hx = rand({37, 129}, DType::float32, Device{}), hy = randn({37, 129}, DType::float32, Device{});
  const Tensor x = to_device(hx, gpu_), y = to_device(hy, gpu_);
  expect_near(x, hx, 0);
  expect_near(gelu(add(mul(x, y), 0.5)), gelu(add(mul(hx, hy), 0.5)), 1e-6);
  expect_near(add(transpose(x, 0, 1), 1.0), add(transpose(hx, 0, 1), 1.0), 1e-6);
  expect_near(sum(x, {0}), sum(hx, {0}), 1e-6);
  expect_near(sub(x, mean(x, {1}, true)), sub(hx, mean(hx, {1}, true)), 1e-6);
  expect_near(max(y), max(hy), 0);
  expect_near(matmul(x, transpose(y, 0, 1)), matmul(hx, transpose(hy, 0, 1)), 1e-5);
  expect_near(softmax(y, 1), softmax(hy, 1), 1e-6);
  expect_near(where(gt(y, 0.0), x, y), where(gt(hy, 0.0), hx, hy), 0);
}

TEST_F(OnGpu, GradientsAreTheHosts) {
  const Tensor hx = rand({16, 8}, DType::float32, Device{}), hw = randn({8, 4}, DType::float32, Device{});
  const Tensor gw = to_device(hw, gpu_);
  hw.set_requires_grad(true);
  gw.set_requires_grad(true);
  autograd::backward({sum(gelu(matmul(hx, hw)))});
  autograd::backward({sum(gelu(matmul(to_device(hx, gpu_), gw)))});
  expect_near(gw.grad(), hw.grad(), 1e-5);
}

}  // namespace
}  // namespace pyflame
