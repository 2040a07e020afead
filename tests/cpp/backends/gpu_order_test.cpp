// sort, topk, argmax, argmin and randperm, on a GPU where there is one: the host's bits.
#include "backends/gpu_case.h"

namespace pyflame {
namespace {

class GpuOrderOn : public GpuCase {
 protected:
  // Many equal values, both zeros, infinities and NaN; integers of the whole range.
  static Tensor values(const Dims& shape, DType d) {
    if (!is_float(d)) return cast(randint(-300, 300, shape, DType::int64, Device{}), d);
    const Tensor x = div(round(mul(randn(shape, DType::float32, Device{}), 40.0)), 8.0);
    const Tensor u = rand(shape, DType::float32, Device{});
    Tensor y = where(lt(u, 0.02), full(shape, NAN, DType::float32, Device{}), x);
    y = where(gt(u, 0.98), full(shape, INFINITY, DType::float32, Device{}), y);
    return cast(where(gt(u, 0.9), mul(y, -1.0), y), d);
  }
};

constexpr DType kAll[] = {DType::float32, DType::float64, DType::float16, DType::bfloat16, DType::int64,
                          DType::int32,   DType::int16,   DType::int8,    DType::uint8};

TEST_F(GpuOrderOn, SortOfEveryLengthAndDtype) {
  for (const DType d : kAll)
    for (const int64_t n : {1, 33, 64, 257, 4096, 5000})
      for (const bool descending : {false, true}) {
        if (descending != (n % 2 == 1) && d != DType::float32) continue;  // each length in one direction
        const Tensor x = values({3, n}, d);
        const auto want = sort(x, 1, descending), got = sort(to_device(x, gpu_), 1, descending);
        expect_same(got.second, want.second);
        expect_near(got.first, want.first, 0);
      }
}

TEST_F(GpuOrderOn, SortOfAnyStrides) {
  for (const int64_t n : {33, 5000}) {
    const Tensor x = values({n, 4, 3}, DType::float32), g = to_device(x, gpu_);
    const auto want = sort(x, 0), got = sort(g, 0);
    expect_same(got.second, want.second);
    expect_near(got.first, want.first, 0);
    expect_same(sort(transpose(g, 0, 2), 1, true).second, sort(transpose(x, 0, 2), 1, true).second);
  }
}

TEST_F(GpuOrderOn, TopkIsTheHeadOfAStableSort) {
  for (const DType d : {DType::float32, DType::float64, DType::bfloat16, DType::uint8})
    for (const int64_t n : {5, 4096, 5000, 50257})
      for (const int64_t k : {1, 50, 1000, 3000})
        for (const bool largest : {true, false}) {
          if (k > n || largest != (k % 3 == 0 || d == DType::float32)) continue;
          const Tensor x = values({2, n}, d);
          const auto want = topk(x, k, 1, largest), got = topk(to_device(x, gpu_), k, 1, largest);
          expect_same(got.second, want.second);
          expect_near(got.first, want.first, 0);
        }
}

TEST_F(GpuOrderOn, BestOfLines) {
  for (const DType d : {DType::float32, DType::float64, DType::bfloat16, DType::uint8})
    for (const Dims& shape : {Dims{5, 7}, {1, 1}, {64, 1000}, {3, 5000}, {5000, 33}, {2, 70001}, {7, 40, 3}}) {
      const Tensor x = values(shape, d), g = to_device(x, gpu_);
      for (int dim = 0; dim < shape.size(); ++dim) {
        expect_same(argmax(g, dim), argmax(x, dim));
        expect_same(argmin(g, dim, true), argmin(x, dim, true));
      }
      expect_same(argmax(g), argmax(x));
      expect_same(argmin(transpose(g, 0, 1)), argmin(transpose(x, 0, 1)));
    }
}

TEST_F(GpuOrderOn, PermutationsAreTheHosts) {
  for (const int64_t n : {0, 1, 100, 4096, 20000}) {
    manual_seed(7);
    const Tensor want = randperm(n, DType::int64, Device{});
    manual_seed(7);
    expect_same(randperm(n, DType::int64, gpu_), want);
  }
}

}  // namespace
}  // namespace pyflame
