// Products with weights in GGUF's blocks, in the versions for each instruction set of this processor. The inputs are integers, which rounding
// to 15 bits keeps, so results are those of decoded weights up to float32 rounding.
#include <gtest/gtest.h>
#include <hwy/highway.h>

#include <cmath>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "pyflame/base/half.h"
#include "pyflame/ops/ops.h"
#include "pyflame/tensor/float8_rows.h"
#include "pyflame/tensor/weight_tiles.h"

namespace pyflame {
namespace {

constexpr int64_t kRows = 13, kColumns = 512, kInputs = 7;

// Only versions for this instruction set are chosen while it lives; the baseline, where there is none.
class OnlyTarget {
 public:
  explicit OnlyTarget(int64_t target) {
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().DeInit();
  }
  ~OnlyTarget() {
    hwy::SetSupportedTargetsForTest(0);
    hwy::GetChosenTarget().DeInit();
  }
  OnlyTarget(const OnlyTarget&) = delete;
  OnlyTarget& operator=(const OnlyTarget&) = delete;
};

// Bytes of any kind, with float16 scales of ordinary size.
Tensor blocks(const gguf::Type& type, std::vector<size_t> scales) {
  const size_t count = kRows * kColumns / type.elements;
  std::vector<uint8_t> bytes(count * type.bytes);
  uint32_t state = 12345;
  for (uint8_t& b : bytes) b = static_cast<uint8_t>((state = state * 1664525U + 1013904223U) >> 24);
  for (size_t i = 0; i < count; ++i)
    for (const size_t at : scales) {
      const float16 h((static_cast<float>(i % 17) - 8) * 0.01F);
      std::memcpy(bytes.data() + i * type.bytes + at, &h, sizeof h);
    }
  return from_host(bytes.data(), {kRows, static_cast<int64_t>(bytes.size()) / kRows}, DType::uint8);
}

void expect_products(const std::string& name, const std::vector<size_t>& scales) {
  const gguf::Type& type = *gguf::find_type(std::string_view(name));
  const Tensor weight = blocks(type, scales);
  std::vector<float> x(kInputs * kColumns);
  constexpr float kMost = 127 * 128;  // each block has it, so that the scale is 1
  for (size_t i = 0; i < x.size(); ++i) x[i] = i % 32 == 5 ? -kMost : static_cast<float>(i * 7919 % 32513) - kMost;
  const Tensor input = from_host(x.data(), {kInputs, kColumns}, DType::float32);
  const Tensor decoded = cast(decode_blocks(weight, name), DType::float64);
  const Tensor want = matmul(cast(input, DType::float64), transpose(decoded, 0, 1));
  const Tensor size = matmul(abs(cast(input, DType::float64)), transpose(abs(decoded), 0, 1));
  const Tensor tiles = weight_tiles(weight, name);
  for (const Tensor& y : {quantized_linear(input, weight, name), quantized_linear(input, tiles, name, {}, kRows)}) {
    const Tensor error = contiguous(div(abs(sub(cast(y, DType::float64), want)), size));
    const auto* e = static_cast<const double*>(error.data());
    for (int64_t i = 0; i < error.numel(); ++i) ASSERT_LT(e[i], 2e-6) << name << " element " << i;
  }
}

// Every finite code of 8-bit floats, and in the last row NaN: products and decoded weights.
void expect_float_products(const std::string& name) {
  const Float8Rows s(*float8_type(name), kColumns);
  std::vector<uint8_t> bytes(static_cast<size_t>(kRows * s.row_bytes()));
  std::vector<float> exact(kRows * kColumns);
  for (int64_t r = 0; r < kRows; ++r) {
    uint8_t* row = bytes.data() + r * s.row_bytes();
    for (int64_t k = 0; k < kColumns; ++k) row[k] = static_cast<uint8_t>((k * 7 + r) % 124 | (k / 3 % 2) << 7);
    if (r == kRows - 1) row[77] = 0x7F;
    for (int64_t i = 0; i < s.scales(); ++i) {
      const float scale = 0.25F * static_cast<float>((r + i) % 5 - 2);
      std::memcpy(row + kColumns + 4 * i, &scale, sizeof scale);
    }
    s.decode(row, exact.data() + r * kColumns);
  }
  const Tensor weight = from_host(bytes.data(), {kRows, s.row_bytes()}, DType::uint8);
  std::vector<float> x(kInputs * kColumns);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i * 7919 % 1001) * 0.01F - 5;
  const Tensor decoded = contiguous(decode_blocks(weight, name));
  const auto* values = static_cast<const float*>(decoded.data());
  for (size_t i = 0; i < exact.size(); ++i)
    ASSERT_TRUE(values[i] == exact[i] || (values[i] != values[i] && exact[i] != exact[i])) << name << " weight " << i;
  const Tensor y = contiguous(quantized_linear(from_host(x.data(), {kInputs, kColumns}, DType::float32), weight, name));
  const auto* got = static_cast<const float*>(y.data());
  for (int64_t i = 0; i < kInputs; ++i)
    for (int64_t r = 0; r < kRows; ++r) {
      double want = 0, size = 0;
      for (int64_t k = 0; k < kColumns; ++k) {
        const double term =
            double{x[static_cast<size_t>(i * kColumns + k)]} * exact[static_cast<size_t>(r * kColumns + k)];
        want += term, size += std::abs(term);
      }
      const double is = got[i * kRows + r];
      if (r == kRows - 1) ASSERT_NE(is, is) << name;
      else ASSERT_LE(std::abs(is - want), 2e-6 * size) << name << " element " << i << ", " << r;
    }
}

TEST(Quantized, ProductsOfEveryInstructionSet) {
  const std::vector<std::pair<std::string, std::vector<size_t>>> types = {
      {"Q4_0", {0}},   {"Q4_1", {0, 2}}, {"Q5_0", {0}},    {"Q5_1", {0, 2}}, {"Q8_0", {0}},   {"Q2_K", {80, 82}},
      {"Q3_K", {108}}, {"Q4_K", {0, 2}}, {"Q5_K", {0, 2}}, {"Q6_K", {208}},  {"IQ4_NL", {0}}, {"IQ4_XS", {0}},
  };
  const int64_t supported = hwy::SupportedTargets();
  int tried = 0;
  for (int bit = 0; bit < 63; ++bit) {
    const int64_t target = int64_t{1} << bit;
    if ((supported & target) == 0) continue;
    const OnlyTarget only(target);
    SCOPED_TRACE(hwy::TargetName(target));
    for (const auto& [name, scales] : types) expect_products(name, scales);
    for (const char* name : {"F8_E4M3", "F8_E4M3:48", "F8_E5M2", "F8_E5M2:16"}) expect_float_products(name);
    ++tried;
  }
  EXPECT_GE(tried, 1);
}

TEST(Quantized, TilesHaveTheSameWeights) {
  for (const gguf::Type& type : gguf::types()) {
    if (!tile_form(type)) continue;
    const Tensor weight = blocks(type, {});
    const Tensor tiles = weight_tiles(weight, std::string(type.name)),
                 want = decode_blocks(weight, std::string(type.name));
    const TileShape s{&type, tile_form(type), kRows, kColumns};
    ASSERT_EQ(tiles.shape(), (Dims{s.tiles(), s.tile_bytes()}));
    std::vector<float> row(kColumns);
    for (int64_t r = 0; r < kRows; ++r) {
      const auto* tile = static_cast<const uint8_t*>(tiles.data()) + r / kTileRows * s.tile_bytes();
      decode_tile_row(s, tile, r % kTileRows, row.data());
      const auto* expected = static_cast<const float*>(want.data()) + r * kColumns;
      for (size_t k = 0; k < row.size(); ++k)
        ASSERT_TRUE(row[k] == expected[k] || (row[k] != row[k] && expected[k] != expected[k]))
            << type.name << " row " << r << " element " << k;
    }
  }
}

}  // namespace
}  // namespace pyflame
