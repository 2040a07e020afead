// gather, index_select, scatter_add and index_add, on a GPU where there is one, against the host; their sums are the same bits each time.
#include "backends/gpu_case.h"

#include "pyflame/autograd/autograd.h"

namespace pyflame {
namespace {

class GpuIndexOn : public GpuCase {
 protected:
  // Small whole numbers: sums are exact in any order.
  static Tensor whole(const Dims& shape, DType d) { return cast(randint(-4, 5, shape, DType::int64, Device{}), d); }
};

constexpr DType kSome[] = {DType::float32, DType::float64, DType::float16, DType::bfloat16, DType::int64, DType::uint8};

TEST_F(GpuIndexOn, RowsAreTaken) {
  for (const DType d : kSome)
    for (const Dims& shape : {Dims{9, 8}, {50, 33}, {7, 1}, {5, 6, 16}, {1000, 768}}) {
      const Tensor x = whole(shape, d), g = to_device(x, gpu_);
      for (int dim = 0; dim < shape.size(); ++dim)
        for (const int64_t n : {0, 1, 65, 700}) {
          const Tensor at = randint(0, shape[dim], {n}, DType::int64, Device{}), on = to_device(at, gpu_);
          expect_same(index_select(g, dim, on), index_select(x, dim, at));
          expect_same(index_select(narrow(g, 0, 1, 3), dim, clamp(on, 0, 2)),
                      index_select(narrow(x, 0, 1, 3), dim, clamp(at, 0, 2)));
        }
      const Tensor t = transpose(x, 0, 1), at = randint(0, t.size(0), {40}, DType::int64, Device{});
      expect_same(index_select(transpose(g, 0, 1), 0, to_device(at, gpu_)), index_select(t, 0, at));
    }
}

TEST_F(GpuIndexOn, ElementsAreTakenAndAdded) {
  for (const DType d : kSome)
    for (const Dims& shape : {Dims{40, 30}, {1, 5000}, {6, 7, 8}, {5000, 3}}) {
      const Tensor x = whole(shape, d), g = to_device(x, gpu_);
      for (int dim = 0; dim < shape.size(); ++dim) {
        Dims s = shape;
        s[dim] = shape[dim] * 2 + 1;
        const Tensor at = randint(0, shape[dim], s, DType::int64, Device{}), on = to_device(at, gpu_);
        expect_same(gather(g, dim, on), gather(x, dim, at));
        const Tensor src = whole(s, d);
        expect_same(scatter_add(g, dim, on, to_device(src, gpu_)), scatter_add(x, dim, at, src));
        // From the other side of a transposition.
        const Tensor transposed = transpose(contiguous(transpose(at, 0, -1)), 0, -1);
        expect_same(gather(g, dim, to_device(transposed, gpu_)), gather(x, dim, at));
      }
    }
}

TEST_F(GpuIndexOn, RowsAreAdded) {
  for (const DType d : kSome)
    for (const int64_t size : {3, 300, 70000})
      for (const int64_t n : {1, 15, 17, 500, 5000})
        for (const int64_t width : {1, 5, 64}) {
          if (size * width > 1 << 20) continue;
          const Tensor at = randint(0, size, {n}, DType::int64, Device{}), src = whole({n, width}, d),
                       zero = zeros({size, width}, d, Device{});
          expect_same(index_add(to_device(zero, gpu_), 0, to_device(at, gpu_), to_device(src, gpu_)),
                      index_add(zero, 0, at, src));
          expect_same(index_add(to_device(contiguous(transpose(zero, 0, 1)), gpu_), 1, to_device(at, gpu_),
                                transpose(to_device(src, gpu_), 0, 1)),
                      index_add(transpose(zero, 0, 1), 1, at, transpose(src, 0, 1)));
        }
}

TEST_F(GpuIndexOn, SumsAreTheSameBitsEachTime) {
  const Tensor at = randint(0, 100, {20000}, DType::int64, Device{}),
               src = randn({20000, 33}, DType::float32, Device{});
  const Tensor zero = zeros({100, 33}, DType::float32, gpu_), on = to_device(at, gpu_), values = to_device(src, gpu_);
  const Tensor once = index_add(zero, 0, on, values);
  expect_near(once, index_add(zeros({100, 33}, DType::float32, Device{}), 0, at, src), 1e-4);
  for (int i = 0; i < 5; ++i) expect_same(index_add(zero, 0, on, values), once);
}

TEST_F(GpuIndexOn, EmbeddingGradient) {
  const Tensor weight = randn({500, 40}, DType::float32, Device{}),
               at = randint(0, 500, {6, 900}, DType::int64, Device{});
  const Tensor on = to_device(weight, gpu_);
  weight.set_requires_grad(true);
  on.set_requires_grad(true);
  autograd::backward({sum(embedding(at, weight))});
  autograd::backward({sum(embedding(to_device(at, gpu_), on))});
  expect_near(on.grad(), weight.grad(), 1e-6);
}

}  // namespace
}  // namespace pyflame
