// gather, index_select, scatter_add and index_add, on a GPU where there is one, against the host; their sums are the same bits each time.
#include "backends/gpu_case.h"

#include "pyflame/autograd/autograd.h"

namespace pyflame {
namespace {

TEST(GpuIndex, SourcesForOtherCompilers) {
  if (!std::getenv("PYFLAME_DUMP_KERNELS")) GTEST_SKIP() << "PYFLAME_DUMP_KERNELS names no folder";
  for (const char* word : {"u16", "u32", "Word16"})
    write_kernel(
        fmt::format("take_{}", word), {"index/walk.h", "index/take.h"}, 256,
        fmt::format("(const pf::i64* index, const pf::{0}* x, pf::{0}* y, pf::Walk<3, false> walk, pf::i64 stride, "
                    "pf::i64 size, pf::Fault* fault, int site) "
                    "{{ pf::take<pf::{0}, false, 256, 4>(index, x, y, walk, stride, size, fault, site); }}",
                    word));
  write_kernel("fill_zero", {"index/walk.h", "index/fill.h"}, 256,
               "(pf::Word16* p, pf::i64 count) { pf::fill_zero<pf::Word16, 256>(p, count); }");
  write_kernel("index_sort_tile", {"order/keys.h", "order/radix.h", "index/sum.h"}, 256,
               "(pf::IndexKeys source, pf::Pairs<pf::u32> sink, pf::SortShape p) "
               "{ pf::sort_tile<256, 16, pf::u32>(source, sink, p); }");
  for (const DType d : {DType::float32, DType::bfloat16, DType::float64}) {
    const std::string type = gpu::stored_type(d), name(dtype_name(d));
    const int vec = dtype_size(d) == 8 ? 2 : 4;
    write_kernel(
        "sum_pieces_" + name, {"order/keys.h", "order/radix.h", "index/sum.h"}, 256,
        fmt::format("(const pf::u32* keys, const pf::u32* ids, const {0}* from, {0}* to, pf::C<{0}>* partial, "
                    "pf::SumShape p) {{ pf::sum_pieces<{0}, 256, 16, {1}>(keys, ids, from, to, partial, p); }}",
                    type, vec));
    write_kernel("join_pieces_" + name, {"order/keys.h", "order/radix.h", "index/sum.h"}, 256,
                 fmt::format("(const pf::u32* keys, {0}* to, const pf::C<{0}>* partial, pf::SumShape p) "
                             "{{ pf::join_pieces<{0}, 256, 16, {1}>(keys, to, partial, p); }}",
                             type, vec));
  }
}

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
        const Tensor turned = transpose(contiguous(transpose(at, 0, -1)), 0, -1);
        expect_same(gather(g, dim, to_device(turned, gpu_)), gather(x, dim, at));
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
