// kernels/device/mma.h: a tile's product against a plain one, for every way of loading, from both kinds of memory, and chained. The numbers
// are small integers, so the results are exact whatever the order of the sums.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <vector>

#include "gpu_case.h"
#include "pyflame/backends/gpu/jit/kernel.h"
#include "pyflame/base/half.h"
#include "pyflame/runtime/device.h"

namespace pyflame {
namespace {

constexpr unsigned kThreads = 64;  // one wave of 64 or two of 32, which do the same
constexpr int kStride = 24;        // of the tiles in memory: rows of 48 bytes
constexpr int kVariants = 8;       // bit 0: A lies transposed, bit 1: B does, bit 2: from shared memory

// Writes D, then (rounded D) * B, for each variant.
std::string mma_source(DType dtype) {
  const std::string type = gpu::stored_type(dtype);
  return gpu::kernel_source(
      {"device/mma.h"}, kThreads,
      "(const " + type + "* a, const " + type +
          "* b, float* d) {\n"
          "  using T = " +
          type +
          ";\n"
          "  using M = pf::Mma<T>;\n"
          "  constexpr int kStride = " +
          std::to_string(kStride) +
          ";\n"
          "  PF_SHARED __attribute__((aligned(16))) T s[2][16 * kStride];\n"
          "  const int variant = (int)pf::group().x;\n"
          "  for (int i = (int)pf::thread(); i < 16 * kStride; i += 64) s[0][i] = a[i], s[1][i] = b[i];\n"
          "  pf::barrier();\n"
          "  const bool shared = variant & 4;\n"
          "  typename M::A x;\n"
          "  typename M::B y;\n"
          "  if (shared) {\n"
          "    x = variant & 1 ? M::load_a_t(s[0], kStride) : M::load_a(s[0], kStride);\n"
          "    y = variant & 2 ? M::load_b_t(s[1], kStride) : M::load_b(s[1], kStride);\n"
          "  } else {\n"
          "    x = variant & 1 ? M::load_a_t(a, kStride) : M::load_a(a, kStride);\n"
          "    y = variant & 2 ? M::load_b_t(b, kStride) : M::load_b(b, kStride);\n"
          "  }\n"
          "  typename M::C c = {}, e = {};\n"
          "  M::fma(c, x, y);\n"
          "  M::fma(c, x, y);\n"
          "  M::fma(e, M::as_a(c), y);\n"
          "  d += variant * 768;\n"
          "  float rows[M::kRows] = {};\n"
          "  for (int i = 0; i < M::kC; ++i) {\n"
          "    d[M::row(i) * 16 + M::col(i)] = c.v[i];\n"
          "    d[256 + M::row(i) * 16 + M::col(i)] = e.v[i];\n"
          "    rows[M::slot(i)] += c.v[i];\n"
          "  }\n"
          "  for (int r = 0; r < M::kRows; ++r) rows[r] = M::template over_row<pf::Sum>(rows[r]);\n"
          "  for (int i = 0; i < M::kC; ++i) d[512 + M::row(i) * 16 + M::col(i)] = rows[M::slot(i)];\n"
          "}");
}

TEST(GpuMma, SourcesForOtherCompilers) {
  if (!std::getenv("PYFLAME_DUMP_KERNELS")) GTEST_SKIP() << "PYFLAME_DUMP_KERNELS names no folder";
  for (const DType d : {DType::float16, DType::bfloat16})
    write_text("mma_" + std::string(dtype_name(d)), mma_source(d));
}

class MmaOnGpu : public ::testing::TestWithParam<DType> {
 protected:
  void SetUp() override {
    if (device_count(DeviceType::cuda) > 0) type_ = DeviceType::cuda;
    else if (device_count(DeviceType::rocm) > 0) type_ = DeviceType::rocm;
    else GTEST_SKIP() << "no GPU: " << unavailable_reason(DeviceType::cuda);
  }
  uint16_t bits(double x) const {
    return GetParam() == DType::float16 ? std::bit_cast<uint16_t>(float16(static_cast<float>(x)))
                                        : std::bit_cast<uint16_t>(bfloat16(static_cast<float>(x)));
  }
  double rounded(double x) const {
    return GetParam() == DType::float16 ? static_cast<double>(static_cast<float>(float16(static_cast<float>(x))))
                                        : static_cast<double>(static_cast<float>(bfloat16(static_cast<float>(x))));
  }
  DeviceType type_ = DeviceType::cuda;
};

using Tile = std::array<std::array<double, 16>, 16>;

Tile times(const Tile& a, const Tile& b) {
  Tile d{};
  for (size_t i = 0; i < 16; ++i)
    for (size_t j = 0; j < 16; ++j)
      for (size_t k = 0; k < 16; ++k) d[i][j] += a[i][k] * b[k][j];
  return d;
}

TEST_P(MmaOnGpu, ATileIsThePlainProduct) {
  // The tiles in memory. A variant reads each of them as it is or transposed.
  Tile a{}, b{};
  std::vector<uint16_t> stored[2] = {std::vector<uint16_t>(16 * kStride), std::vector<uint16_t>(16 * kStride)};
  for (size_t i = 0; i < 16; ++i)
    for (size_t j = 0; j < 16; ++j) {
      a[i][j] = static_cast<double>((i * 7 + j * 3) % 11) - 5;
      b[i][j] = static_cast<double>((i * 5 + j * 13) % 9) - 3;
      stored[0][i * kStride + j] = bits(a[i][j]);
      stored[1][i * kStride + j] = bits(b[i][j]);
    }
  gpu::GpuDevice& device = gpu::device(type_, 0);
  const size_t bytes = stored[0].size() * 2, out_bytes = kVariants * 768 * sizeof(float);
  void *da = device.allocate(bytes), *db = device.allocate(bytes), *dd = device.allocate(out_bytes);
  device.from_host(da, stored[0].data(), bytes);
  device.from_host(db, stored[1].data(), bytes);
  gpu::Kernel kernel(type_, kThreads, mma_source(GetParam()));
  kernel.launch(0, {kVariants, 1, 1}, da, db, dd);
  std::vector<float> got(kVariants * 768);
  device.to_host(got.data(), dd, out_bytes);
  for (void* p : {da, db, dd}) device.release(p);

  const auto transposed = [](const Tile& x) {
    Tile y{};
    for (size_t i = 0; i < 16; ++i)
      for (size_t j = 0; j < 16; ++j) y[i][j] = x[j][i];
    return y;
  };
  for (size_t variant = 0; variant < kVariants; ++variant) {
    const Tile x = variant & 1 ? transposed(a) : a, y = variant & 2 ? transposed(b) : b;
    Tile once = times(x, y), halved{};
    for (size_t i = 0; i < 16; ++i)
      for (size_t j = 0; j < 16; ++j) once[i][j] *= 2, halved[i][j] = rounded(once[i][j]);
    const Tile next = times(halved, y);
    for (size_t i = 0; i < 16; ++i) {
      double sum = 0;
      for (size_t j = 0; j < 16; ++j) sum += once[i][j];
      for (size_t j = 0; j < 16; ++j) {
        const float* d = got.data() + variant * 768 + i * 16 + j;
        ASSERT_EQ(d[0], once[i][j]) << "variant " << variant << ", " << i << ", " << j;
        ASSERT_EQ(d[256], next[i][j]) << "chained, variant " << variant << ", " << i << ", " << j;
        ASSERT_EQ(d[512], sum) << "row sum, variant " << variant << ", " << i << ", " << j;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, MmaOnGpu, ::testing::Values(DType::float16, DType::bfloat16),
                         [](const auto& test) { return std::string(dtype_name(test.param)); });

}  // namespace
}  // namespace pyflame
