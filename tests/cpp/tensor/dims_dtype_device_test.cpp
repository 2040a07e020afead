// Shape arithmetic, dtype promotion and device names against what NumPy and PyTorch give.
#include <gtest/gtest.h>

#include "pyflame/tensor/device.h"
#include "pyflame/tensor/dims.h"
#include "pyflame/tensor/dtype.h"

namespace pyflame {
namespace {

using enum DType;

template <class F>
void expect_error(ErrorKind kind, const std::string& text, F&& f) {
  try {
    f();
    FAIL() << "no error; expected: " << text;
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), kind) << e.what();
    EXPECT_NE(std::string(e.what()).find(text), std::string::npos) << e.what();
  }
}

TEST(Dims, PrintsAsPython) {
  EXPECT_EQ(Dims{}.str(), "()");
  EXPECT_EQ(Dims{4}.str(), "(4,)");
  EXPECT_EQ((Dims{2, 3}.str()), "(2, 3)");
}

TEST(Dims, Broadcasting) {
  EXPECT_EQ(broadcast_shapes("add", {3, 1}, {2, 1, 4}), (Dims{2, 3, 4}));
  EXPECT_EQ(broadcast_shapes("add", {1}, {0}), (Dims{0}));
  EXPECT_EQ(broadcast_shapes("add", {}, {2}), (Dims{2}));
  expect_error(ErrorKind::Value, "add: shapes do not broadcast; got (3,) and (2, 4)", [] {
    broadcast_shapes("add", {3}, {2, 4});
  });
}

TEST(Dims, NormalizesDims) {
  EXPECT_EQ(normalize_dim("sum", -1, 3), 2);
  EXPECT_EQ(normalize_dim("sum", 0, 0), 0);
  EXPECT_EQ(normalize_dim("sum", -1, 0), 0);
  expect_error(ErrorKind::Index, "sum: dim out of range; got 3", [] { normalize_dim("sum", 3, 3); });
  expect_error(ErrorKind::Index, "expected -1 <= dim < 1", [] { normalize_dim("sum", 1, 0); });
}

TEST(Dims, CountsElementsWithoutOverflow) {
  EXPECT_EQ(checked_numel("empty", {1 << 20, 1 << 20}), int64_t{1} << 40);
  EXPECT_EQ(checked_numel("empty", {INT64_MAX, 0, INT64_MAX}), 0);
  expect_error(ErrorKind::Value, "empty: too many elements", [] { checked_numel("empty", {INT64_MAX, 2}); });
  expect_error(ErrorKind::Value, "empty: negative size", [] { checked_numel("empty", {2, -1}); });
}

TEST(DType, PromotionTable) {
  // PyTorch's torch.promote_types, in the order of the enum: f64 f32 f16 bf16 i64 i32 i16 i8 u8 bool c64 c128.
  constexpr int kPromoted = static_cast<int>(complex128) + 1;
  const DType table[kPromoted][kPromoted] = {
      {float64, float64, float64, float64, float64, float64, float64, float64, float64, float64, complex128,
       complex128},
      {float64, float32, float32, float32, float32, float32, float32, float32, float32, float32, complex64, complex128},
      {float64, float32, float16, float32, float16, float16, float16, float16, float16, float16, complex64, complex128},
      {float64, float32, float32, bfloat16, bfloat16, bfloat16, bfloat16, bfloat16, bfloat16, bfloat16, complex64,
       complex128},
      {float64, float32, float16, bfloat16, int64, int64, int64, int64, int64, int64, complex64, complex128},
      {float64, float32, float16, bfloat16, int64, int32, int32, int32, int32, int32, complex64, complex128},
      {float64, float32, float16, bfloat16, int64, int32, int16, int16, int16, int16, complex64, complex128},
      {float64, float32, float16, bfloat16, int64, int32, int16, int8, int16, int8, complex64, complex128},
      {float64, float32, float16, bfloat16, int64, int32, int16, int16, uint8, uint8, complex64, complex128},
      {float64, float32, float16, bfloat16, int64, int32, int16, int8, uint8, bool_, complex64, complex128},
      {complex128, complex64, complex64, complex64, complex64, complex64, complex64, complex64, complex64, complex64,
       complex64, complex128},
      {complex128, complex128, complex128, complex128, complex128, complex128, complex128, complex128, complex128,
       complex128, complex128, complex128},
  };
  for (int a = 0; a < kPromoted; ++a)
    for (int b = 0; b < kPromoted; ++b)
      EXPECT_EQ(dtype_name(promote(static_cast<DType>(a), static_cast<DType>(b))), dtype_name(table[a][b]))
          << dtype_name(static_cast<DType>(a)) << " with " << dtype_name(static_cast<DType>(b));
}

TEST(DType, NumbersWinOnlyWithAHigherCategory) {
  EXPECT_EQ(promote(float16, Scalar(1.5)), float16);
  EXPECT_EQ(promote(int8, Scalar(1000)), int8);
  EXPECT_EQ(promote(int8, Scalar(0.5)), float32);
  EXPECT_EQ(promote(bool_, Scalar(2)), int64);
  EXPECT_EQ(promote(bool_, Scalar(true)), bool_);
}

TEST(DType, Names) {
  for (int i = 0; i < kNumDTypes; ++i)
    EXPECT_EQ(dtype_from_name(dtype_name(static_cast<DType>(i))), static_cast<DType>(i));
  EXPECT_EQ(dtype_name(bool_), "bool");
  expect_error(ErrorKind::Value, "got 'float8'; expected one of float64, float32", [] { dtype_from_name("float8"); });
}

TEST(Device, NamesAreParsedAndPrinted) {
  EXPECT_EQ(parse_device("cpu").str(), "cpu");
  EXPECT_EQ(parse_device("rocm").str(), "rocm:0");
  EXPECT_EQ(parse_device("cuda:3").str(), "cuda:3");
  EXPECT_EQ(parse_device("cpu:0").str(), "cpu");
  for (const char* bad : {"", "gpu", "cpu:1", "rocm:", "rocm:-1", "rocm:1x", "rocm:128", "reference:2"})
    expect_error(ErrorKind::Value, std::string("got '") + bad + "'", [&] { parse_device(bad); });
}

}  // namespace
}  // namespace pyflame
