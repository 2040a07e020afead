// matmul on a GPU: the text of its kernels, and, where there is a device, products of every dtype, layout, batch and epilogue against the host's.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <vector>

#include "gpu_case.h"
#include "pyflame/autograd/autograd.h"
#include "pyflame/backends/gpu/jit/kernel.h"
#include "pyflame/backends/gpu/libs/enumerate.h"
#include "pyflame/backends/gpu/libs/vendor.h"
#include "pyflame/backends/gpu/ops/gemm.h"
#include "pyflame/backends/rocm/rocblas.h"
#include "pyflame/ops/ops.h"
#include "pyflame/record/float8.h"
#include "pyflame/runtime/device.h"

namespace pyflame {
namespace {

// --- the libraries
// Needs the libraries, no device: every function is there, and nothing that they are linked to is missing (LD_BIND_NOW).
TEST(GpuBlas, LibrariesBindWithoutADevice) {
  int found = 0;
  for (const DeviceType type : {DeviceType::rocm, DeviceType::cuda}) {
    if (!find_backend(type)) continue;
    const gpu::Dylib& file = *gpu::vendor(type).blas.library;
    std::string why;
    const gpu::Blas* library = gpu::blas(type, &why);
    if (!file.open().handle) {
      EXPECT_EQ(library, nullptr);
      EXPECT_EQ(why, file.absent);
      continue;
    }
    EXPECT_NE(library, nullptr) << why;
    EXPECT_EQ(gpu::vendor(type).blas.enumeration()->lacks(), "");
    ++found;
  }
  if (gpu::kRocblas.open().handle) {
    std::string why;
    EXPECT_NE(gpu::rocblas(&why), nullptr) << why;
    ++found;
  }
  if (found == 0) GTEST_SKIP() << "neither hipBLASLt nor cuBLASLt is installed";
}

// --- kernels as text
struct MatmulByHand {
  Graph graph;
  Group group;
  explicit MatmulByHand(DeviceType type) { graph.device = {type, 0}; }
  Operand tensor(DType dtype, const Dims& shape, const Dims& strides) {
    group.elided.push_back(false);
    Operand o;
    o.dtype = dtype, o.shape = shape, o.strides = strides;
    o.binding = graph.bindings.push_back({graph.slots.push_back({o.nbytes(), true, true, false})});
    return o;
  }
  Operand tensor(DType dtype, const Dims& shape) { return tensor(dtype, shape, contiguous_strides(shape)); }
  Operand add(OpId op, std::vector<Operand> ins, const Operand& out) {
    Node n;
    n.op = op, n.ins = std::move(ins), n.outs = {out};
    group.nodes.push_back(graph.nodes.push_back(n));
    group.elided.resize(graph.bindings.size(), false);
    return out;
  }
};

// A layer: x W^T + b, or x W, and then relu and an add.
MatmulByHand layer(DType dtype, int64_t m, int64_t n, int64_t k, bool transposed, bool epilogue) {
  MatmulByHand h(DeviceType::rocm);
  const Operand x = h.tensor(dtype, {m, k}), w = h.tensor(dtype, {k, n}, transposed ? Dims{1, k} : Dims{n, 1});
  Operand y = h.add(OpId::matmul, {x, w}, h.tensor(dtype, {m, n}));
  if (epilogue) {
    h.group.kind = GroupKind::Epilogue;
    h.group.space = {m, n};
    const auto elide = [&](const Operand& o) { h.group.elided[o.binding] = true; };
    elide(y);
    y = h.add(OpId::add, {y, h.tensor(dtype, {1, n}, {0, 1})}, h.tensor(dtype, {m, n}));
    elide(y);
    y = h.add(OpId::relu, {y}, h.tensor(dtype, {m, n}));
    elide(y);
    h.add(OpId::add, {y, h.tensor(dtype, {m, n})}, h.tensor(dtype, {m, n}));
  }
  return h;
}
std::string layer_source(gpu::MatmulEntry entry, DType dtype, int64_t m, int64_t n, int64_t k, bool transposed,
                         bool epilogue) {
  const MatmulByHand h = layer(dtype, m, n, k, transposed, epilogue);
  return gpu::matmul_source({h.graph, h.group}, entry);
}
// The configurations for matrix cores that are no mere splits of the usual tiles. Those that only a GPU with waves of 64 has are matmul_units64_*.
void write_configurations() {
  const MatmulByHand h = layer(DType::bfloat16, 4096, 4096, 4096, true, false);
  const Problem p{h.graph, h.group};
  const std::string plain = gpu::matmul_source(p, gpu::MatmulEntry::tile);
  std::map<std::string, std::vector<std::string>> narrow;
  for (auto& [name, texts] : gpu::units_configurations(p, 32)) narrow[name] = texts;
  for (const auto& [name, texts] : gpu::units_configurations(p, 64)) {
    if (name.find("splits=1,") == std::string::npos) continue;
    const bool both = narrow.contains(name);
    std::string file = name;
    for (char& c : file)
      if (c == '=' || c == ',') c = '_';
    const auto write = [&](const char* kernel, size_t i) {
      write_text(fmt::format("{}{}_{}_bfloat16", kernel, both ? "" : "64", file),
                 by_matrix_units(texts[i], both ? narrow[name][i] : plain, plain));
    };
    // The tiles of whole rounds have the kernel of the configuration without streams.
    if (texts.size() == 1) write("matmul_units", 0);
    else write("matmul_pieces", 1), write("matmul_add_pieces", 2);
  }
}

// The kernel that adds the parts of a product whose k is shared.
std::string add_splits_source(DType dtype) {
  MatmulByHand h(DeviceType::rocm);
  const Operand x = h.tensor(dtype, {16, 65536}), w = h.tensor(dtype, {65536, 16}, {1, 65536});
  h.add(OpId::matmul, {x, w}, h.tensor(dtype, {16, 16}));
  const Problem p{h.graph, h.group};
  const gpu::KernelTexts made;
  for (const Impl& i : find_backend(DeviceType::rocm)->impls(p))
    if (std::string(i.name) == "gpu.matmul") i.make(p);
  return made.all().size() == 2 ? made.all().back() : "";
}

TEST(GpuMatmul, SizesAreArguments) {
  const std::string one = layer_source(gpu::MatmulEntry::tile, DType::float32, 1000, 2000, 1200, true, true);
  EXPECT_EQ(one, layer_source(gpu::MatmulEntry::tile, DType::float32, 1004, 2400, 1600, true, true));
  EXPECT_NE(one.find("pf::relu"), std::string::npos);
}

TEST(GpuMatmul, EveryKernelAwaitsEarlierKernels) {
  using Entry = gpu::MatmulEntry;
  const auto check = [](const char* name, Entry entry, bool transposed) {
    expect_waits(name, gpu::whole_source(layer_source(entry, DType::bfloat16, 2, 4096, 4096, transposed, true)));
  };
  check("gemv_along", Entry::gemv, true);
  check("gemv_across", Entry::gemv, false);
  check("tile", Entry::tile, true);
  check("units", Entry::units, true);
}

// For the build that compiles kernels for AMD GPUs: PYFLAME_DUMP_KERNELS names the folder.
TEST(GpuMatmul, SourcesForOtherCompilers) {
  if (!std::getenv("PYFLAME_DUMP_KERNELS")) GTEST_SKIP() << "PYFLAME_DUMP_KERNELS names no folder";
  using Entry = gpu::MatmulEntry;
  for (const DType d : {DType::float32, DType::float16, DType::bfloat16, DType::float64, DType::int8, DType::int64}) {
    const std::string type = "_" + std::string(dtype_name(d));
    const bool half = is_float(d) && dtype_size(d) == 2, real = is_float(d);
    if (!half) {
      write_text("matmul_large" + type, layer_source(Entry::tile, d, 4096, 4096, 4096, false, false));
      write_text("matmul_transposed" + type, layer_source(Entry::tile, d, 4096, 4096, 4096, true, real));
      write_text("matmul_medium" + type, layer_source(Entry::tile, d, 640, 768, 784, true, real));
      write_text("matmul_small" + type, layer_source(Entry::tile, d, 256, 512, 128, false, real));
      write_text("matmul_few_tiles" + type, layer_source(Entry::tile, d, 32, 256, 784, true, real));
      write_text("matmul_split" + type, layer_source(Entry::tile, d, 16, 16, 65536, true, false));
      write_text("matmul_add_splits" + type, add_splits_source(d));
      write_text("matmul_odd" + type, layer_source(Entry::tile, d, 31, 33, 35, true, false));
    } else {
      const auto both = [&](const std::string& name, int64_t m, int64_t n, int64_t k, bool transposed, bool epilogue) {
        write_text("matmul_units_" + name + type,
                   by_matrix_units(layer_source(Entry::units, d, m, n, k, transposed, epilogue),
                                   layer_source(Entry::tile, d, m, n, k, transposed, epilogue)));
      };
      both("large", 4096, 4096, 4096, false, false);
      both("transposed", 4096, 4096, 4096, true, false);
      both("medium", 640, 768, 784, true, true);
      both("few_tiles", 16, 512, 1024, true, true);
      both("odd", 31, 33, 35, false, false);
    }
    if (d == DType::bfloat16) write_configurations();
    for (const int64_t m : {1, 2, 4}) {
      write_text(fmt::format("gemv_along_{}{}", m, type), layer_source(Entry::gemv, d, m, 4096, 4096, true, real));
      write_text(fmt::format("gemv_across_{}{}", m, type), layer_source(Entry::gemv, d, m, 4096, 4096, false, real));
    }
    write_text("gemv_long" + type, layer_source(Entry::gemv, d, 2, 16, 65536, true, false));
  }
}

// --- on a device
class OnGpuMatmul : public ::testing::Test {
 protected:
  void SetUp() override {
    if (device_count(DeviceType::cuda) > 0) gpu_ = {DeviceType::cuda, 0};
    else if (device_count(DeviceType::rocm) > 0) gpu_ = {DeviceType::rocm, 0};
    else GTEST_SKIP() << "no GPU: " << unavailable_reason(DeviceType::cuda);
  }
  // Small integers: sums are exact in every dtype's accumulator, and results are rounded once.
  static Tensor numbers(const Dims& shape, DType dtype, uint64_t seed) {
    std::vector<double> values(static_cast<size_t>(shape.numel()));
    for (double& v : values) {
      seed = seed * 6364136223846793005ull + 1442695040888963407ull;
      v = static_cast<double>(seed >> 62) - 1;
    }
    return cast(from_host(values.data(), shape, DType::float64, Device{}), dtype);
  }
  static void expect_same(const Tensor& got, const Tensor& want, const std::string& what, double tolerance = 0) {
    const Tensor a = contiguous(cast(to_device(got, Device{}), DType::float64)),
                 b = contiguous(cast(want, DType::float64));
    ASSERT_EQ(a.shape(), b.shape()) << what;
    const auto* x = static_cast<const double*>(a.data());
    const auto* y = static_cast<const double*>(b.data());
    for (int64_t i = 0; i < a.numel(); ++i)
      ASSERT_LE(std::fabs(x[i] - y[i]), tolerance * (1 + std::fabs(y[i])))
          << what << ", element " << i << " of " << a.shape().str();
  }
  Device gpu_;
};

class OnGpuMatmulOf : public OnGpuMatmul, public ::testing::WithParamInterface<DType> {};
INSTANTIATE_TEST_SUITE_P(Dtypes, OnGpuMatmulOf,
                         ::testing::Values(DType::float32, DType::bfloat16, DType::float16, DType::float64, DType::int8,
                                           DType::int32, DType::int64),
                         [](const auto& i) { return std::string(dtype_name(i.param)); });

TEST_P(OnGpuMatmulOf, EverySizeAndLayout) {
  const DType d = GetParam();
  const int64_t sizes[][3] = {{1, 1, 1},     {1, 300, 70},   {300, 1, 64},   {5, 129, 257},
                              {8, 64, 2048}, {32, 256, 784}, {32, 10, 128},  {64, 64, 64},
                              {37, 41, 43},  {16, 16, 5000}, {200, 136, 72}, {130, 520, 96}};
  for (const auto& [m, n, k] : sizes)
    for (int layout = 0; layout < 4; ++layout) {
      const bool ta = layout & 1, tb = layout & 2;
      const Tensor ha = numbers(ta ? Dims{k, m} : Dims{m, k}, d, 1), hb = numbers(tb ? Dims{n, k} : Dims{k, n}, d, 2);
      const auto turn = [](const Tensor& x, bool t) { return t ? transpose(x, 0, 1) : x; };
      expect_same(matmul(turn(to_device(ha, gpu_), ta), turn(to_device(hb, gpu_), tb)),
                  matmul(turn(ha, ta), turn(hb, tb)),
                  fmt::format("{} {}x{}x{} layout {}", dtype_name(d), m, n, k, layout));
    }
}

TEST_P(OnGpuMatmulOf, BatchesViewsAndOddPointers) {
  const DType d = GetParam();
  const Tensor a = numbers({3, 4, 33, 48}, d, 1), b = numbers({4, 48, 40}, d, 2), one = numbers({48, 40}, d, 3);
  const Tensor ga = to_device(a, gpu_), gb = to_device(b, gpu_), gone = to_device(one, gpu_);
  expect_same(matmul(ga, gb), matmul(a, b), "broadcast batch");
  expect_same(matmul(ga, gone), matmul(a, one), "one matrix");
  const auto permuted = [](const Tensor& x) { return transpose(x, 1, 2); };
  expect_same(matmul(permuted(ga), transpose(permuted(ga), -1, -2)),
              matmul(permuted(a), transpose(permuted(a), -1, -2)), "permuted");
  // Views that begin between two vectors, and rows with gaps.
  const auto cut = [](const Tensor& x) { return narrow(narrow(x, -1, 1, 37), -2, 1, 30); };
  expect_same(matmul(cut(ga), transpose(cut(ga), -1, -2)), matmul(cut(a), transpose(cut(a), -1, -2)), "cut");
  // Neither dim contiguous.
  const auto second = [](const Tensor& x) { return slice(x, -1, 0, 48, 2); };
  expect_same(matmul(second(ga), transpose(second(ga), -1, -2)), matmul(second(a), transpose(second(a), -1, -2)),
              "strided");
  const Tensor none = empty({4, 0}, d, gpu_);
  expect_same(matmul(none, empty({0, 5}, d, gpu_)), zeros({4, 5}, d, Device{}), "empty sum");
}

// Enough to keep a GPU busy: large tiles. Their results are stored several at once, except at an edge and in rows of an odd length.
TEST_P(OnGpuMatmulOf, LargeTilesWithEdges) {
  const DType d = GetParam();
  for (const int64_t n : {136, 72, 70}) {
    const Tensor a = numbers({128, 40, 48}, d, 1), b = numbers({128, 48, n}, d, 2), c = numbers({128, 40, n}, d, 3);
    const Tensor ga = to_device(a, gpu_), gb = to_device(b, gpu_), gc = to_device(c, gpu_);
    expect_same(matmul(ga, gb), matmul(a, b), fmt::format("{} columns", n));
    if (is_float(d))
      expect_same(relu(add(matmul(ga, gb), gc)), relu(add(matmul(a, b), c)), fmt::format("{} columns, epilogue", n));
  }
}

// Recorded by hand, so that it is the op itself also where the device would multiply decoded matrices. Libraries take sizes that are multiples of 16.
TEST_F(OnGpuMatmul, CodesOf8BitFloatsTimesScales) {
  const float scale[] = {0.5F, 0.25F};
  const Tensor scale_a = from_host(scale, {1}, DType::float32, gpu_),
               scale_b = from_host(scale + 1, {1}, DType::float32, gpu_);
  const auto attrs = [](DType a, DType b) { return ScaledAttrs{static_cast<int64_t>(a), static_cast<int64_t>(b), 0}; };
  for (const auto& [m, k, n] : {std::array<int64_t, 3>{48, 64, 32}, {5, 7, 3}, {130, 100, 70}})
    for (const DType first : {DType::float8_e4m3fn, DType::float8_e5m2})
      for (const DType result : {DType::float32, DType::bfloat16}) {
        const Tensor x = numbers({m, k}, DType::float32, 1), w = numbers({n, k}, DType::float32, 2);
        const Tensor a = as_codes(to_device(cast(x, first), gpu_)),
                     b = transpose(as_codes(to_device(cast(w, DType::float8_e4m3fn), gpu_)), 0, 1);
        const Tensor got =
            emit(OpId::scaled_mm, {a, b, scale_a, scale_b}, {m, n}, result, attrs(first, DType::float8_e4m3fn));
        expect_same(got, mul(matmul(x, transpose(w, 0, 1)), 0.125), fmt::format("{} x {} x {}", m, k, n));
      }
}

TEST_F(OnGpuMatmul, MoreBatchesThanAGridHas) {
  const Tensor many = numbers({33000, 2, 3}, DType::float32, 4);
  const Tensor on_gpu = to_device(many, gpu_);
  expect_same(matmul(on_gpu, transpose(on_gpu, 1, 2)), matmul(many, transpose(many, 1, 2)), "33000 batches");
}

TEST_P(OnGpuMatmulOf, Epilogues) {
  const DType d = GetParam();
  if (!is_float(d)) GTEST_SKIP() << "activations are for floats";
  const int64_t sizes[][3] = {{1, 64, 128},   {4, 96, 72},     {32, 256, 784}, {32, 10, 128},
                              {100, 120, 60}, {512, 512, 512}, {16, 16, 9000}};
  for (const auto& [m, n, k] : sizes) {
    const double eps = d == DType::float64 ? 1e-12 : d == DType::float32 ? 1e-5 : d == DType::float16 ? 4e-3 : 3e-2;
    const auto scaled = [&](const Dims& s, uint64_t seed) { return mul(numbers(s, d, seed), 0.0625); };
    const Tensor x = scaled({m, k}, 1), w = scaled({n, k}, 2), b = scaled({n}, 3), r = scaled({m, n}, 4);
    const Tensor gx = to_device(x, gpu_), gw = to_device(w, gpu_), gb = to_device(b, gpu_), gr = to_device(r, gpu_);
    const std::string what = fmt::format("{} {}x{}x{}", dtype_name(d), m, n, k);
    expect_same(linear(gx, gw, gb), linear(x, w, b), what + " bias", eps);
    expect_same(relu(linear(gx, gw, gb)), relu(linear(x, w, b)), what + " relu", eps);
    expect_same(gelu(linear(gx, gw, gb), "tanh"), gelu(linear(x, w, b), "tanh"), what + " gelu_tanh", eps);
    expect_same(add(gelu(linear(gx, gw, gb)), gr), add(gelu(linear(x, w, b)), r), what + " gelu and residual", eps);
    expect_same(silu(matmul(gx, transpose(gw, 0, 1))), silu(matmul(x, transpose(w, 0, 1))), what + " silu", eps);
    const Tensor kept = linear(gx, gw, gb);
    expect_same(add(mul(relu(kept), 0.5), kept), add(mul(relu(linear(x, w, b)), 0.5), linear(x, w, b)), what + " kept",
                eps);
  }
}

TEST_F(OnGpuMatmul, GradientsOfLayers) {
  const auto scaled = [](const Dims& shape, uint64_t seed) {
    return mul(numbers(shape, DType::float32, seed), 0.0625);
  };
  for (const int64_t rows : {1, 32}) {
    const Tensor x = scaled({rows, 44}, 1);
    std::vector<Tensor> host = {scaled({24, 44}, 2), scaled({24}, 3), scaled({18, 24}, 4), scaled({18}, 5),
                                scaled({10, 18}, 6)},
                        gpu;
    for (const Tensor& p : host) gpu.push_back(to_device(p, gpu_));
    const auto gradients = [](const Tensor& in, const std::vector<Tensor>& p) {
      for (const Tensor& t : p) t.set_requires_grad(true);
      const Tensor y = linear(gelu(linear(relu(linear(in, p[0], p[1])), p[2], p[3])), p[4], {});
      autograd::backward({sum(mul(y, y))});
    };
    gradients(x, host);
    gradients(to_device(x, gpu_), gpu);
    for (size_t i = 0; i < host.size(); ++i)
      expect_same(gpu[i].grad(), host[i].grad(), fmt::format("gradient {} of {} rows", i, rows), 1e-5);
  }
}

TEST_F(OnGpuMatmul, NanStaysNanThroughRelu) {
  for (const DType d : {DType::float32, DType::bfloat16})
    for (const int64_t n : {8, gpu_.type == DeviceType::cuda ? 2048 : 72}) {
      const Tensor x = full({n, n}, std::nan(""), d, gpu_), w = full({n, n}, 1.0, d, gpu_), b = full({n}, 1.0, d, gpu_);
      EXPECT_TRUE(cast(all(isnan(relu(linear(x, w, b)))), DType::float32).item<float>() == 1)
          << dtype_name(d) << " " << n;
    }
}

}  // namespace
}  // namespace pyflame
