// softmax, log_softmax and the losses on class indices, on a GPU where there is one, against the host.
#include "backends/gpu_case.h"

#include "pyflame/autograd/autograd.h"

namespace pyflame {
namespace {

class GpuRowsOn : public GpuCase {};

TEST_F(GpuRowsOn, SoftmaxOfEveryPlan) {
  for (const DType d : {DType::float32, DType::float64, DType::float16, DType::bfloat16})
    for (const int64_t n :
         {1, 2, 7, 31, 33, 64, 100, 128, 129, 1000, 1024, 1025, 2047, 4096, 5003, 8192, 20000, 40001}) {
      const Tensor x = cast(mul(randn({3, n}, DType::float32, Device{}), 3.0), d), g = to_device(x, gpu_);
      const double tolerance = d == DType::float16 ? 2e-3 : d == DType::bfloat16 ? 2e-2 : 1e-5;
      expect_near(softmax(g, 1), softmax(x, 1), tolerance);
      expect_near(log_softmax(g, 1), log_softmax(x, 1), tolerance);
    }
}

// Which accesses a layout allows does not change the bits.
TEST_F(GpuRowsOn, SoftmaxHasTheSameBitsInEveryLayout) {
  for (const int64_t n : {12, 260, 1000, 3000, 40000}) {
    const Tensor x = to_device(randn({4, n}, DType::float32, Device{}), gpu_);
    const Tensor want = softmax(x, 1);
    const Tensor padded = cat({zeros({4, 1}, DType::float32, gpu_), x}, 1);
    expect_same(softmax(narrow(padded, 1, 1, n), 1), want);
    const Tensor transposed = contiguous(transpose(x, 0, 1));
    expect_same(softmax(transpose(transposed, 0, 1), 1), want);
    expect_same(transpose(softmax(transposed, 0), 0, 1), want);
  }
}

TEST_F(GpuRowsOn, SoftmaxOfInfinities) {
  const float inf = INFINITY;
  const float values[] = {1, -inf, 2, -inf, -inf, -inf, inf, 0, 1, NAN, 0, 1};
  const Tensor rows = from_host(values, {4, 3}, DType::float32, Device{});
  expect_near(softmax(to_device(rows, gpu_), 1), softmax(rows, 1), 1e-6);
}

TEST_F(GpuRowsOn, LossesAndTheirGradients) {
  for (const DType d : {DType::float32, DType::float64, DType::bfloat16})
    for (const int64_t n : {1, 7, 129, 1500, 5003})
      for (const double smoothing : {0.0, 0.1}) {
        const Tensor x = cast(randn({37, n}, DType::float32, Device{}), d);
        const Tensor at = randint(0, n, {37}, DType::int64, Device{});
        const Tensor gx = to_device(x, gpu_);
        x.set_requires_grad(true);
        gx.set_requires_grad(true);
        const Tensor want = cross_entropy(x, at, n > 3 ? 3 : -100, "sum", smoothing);
        const Tensor got = cross_entropy(gx, to_device(at, gpu_), n > 3 ? 3 : -100, "sum", smoothing);
        autograd::backward({want});
        autograd::backward({got});
        const double tolerance = d == DType::bfloat16 ? 3e-2 : 1e-5;
        expect_near(got, want, tolerance);
        expect_near(gx.grad(), x.grad(), tolerance);
      }
}

}  // namespace
}  // namespace pyflame
