// What the tests of the GPU's families of ops share: a device or a reason to skip, and kernels written out for other compilers.
#pragma once
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <fstream>

#include "pyflame/backends/gpu/jit/kernel.h"
#include "pyflame/ops/ops.h"
#include "pyflame/runtime/device.h"

namespace pyflame {

class GpuCase : public ::testing::Test {
 protected:
  void SetUp() override {
    if (device_count(DeviceType::cuda) > 0) gpu_ = {DeviceType::cuda, 0};
    else if (device_count(DeviceType::rocm) > 0) gpu_ = {DeviceType::rocm, 0};
    else GTEST_SKIP() << "no GPU: " << unavailable_reason(DeviceType::cuda);
  }
  static Tensor on_host(const Tensor& t) { return contiguous(to_device(t, Device{})); }
  static void expect_near(const Tensor& got, const Tensor& want, double tolerance) {
    const Tensor a = on_host(cast(got, DType::float64)), b = on_host(cast(want, DType::float64));
    ASSERT_EQ(a.shape(), b.shape());
    const auto* x = static_cast<const double*>(a.data());
    const auto* y = static_cast<const double*>(b.data());
    for (int64_t i = 0; i < a.numel(); ++i)
      ASSERT_TRUE((std::isnan(x[i]) && std::isnan(y[i])) || x[i] == y[i] ||
                  std::fabs(x[i] - y[i]) <= tolerance * (1 + std::fabs(y[i])))
          << "element " << i << ": got " << x[i] << ", expected " << y[i];
  }
  // The same bytes.
  static void expect_same(const Tensor& got, const Tensor& want) {
    const Tensor a = on_host(got), b = on_host(want);
    ASSERT_EQ(a.shape(), b.shape());
    ASSERT_EQ(a.dtype(), b.dtype());
    const int64_t each = dtype_size(a.dtype());
    for (int64_t i = 0; i < a.numel(); ++i)
      ASSERT_EQ(std::memcmp(static_cast<const char*>(a.data()) + i * each,
                            static_cast<const char*>(b.data()) + i * each, static_cast<size_t>(each)),
                0)
          << "element " << i;
  }
  Device gpu_;
};

// Why a kernel of a text does not await earlier ones; empty if all of them do. text: the whole one.
inline std::string why_it_does_not_wait(const std::string& text) {
  constexpr std::string_view kEntry = "\nPF_KERNEL(", kName = ") pf_", kWait = "await_earlier_kernels();";
  size_t next = text.find(kEntry);
  if (next == text.npos) return "it has no kernel";
  while (next != text.npos) {
    const size_t begin = next;
    next = text.find(kEntry, begin + 1);
    const std::string_view entry = std::string_view(text).substr(begin, next - begin);
    if (entry.substr(entry.find('{')).starts_with(fmt::format("{{ pf::{}", kWait)) || gpu::starts_after(entry))
      continue;
    // Its name is that of the function that it calls, which waits by itself.
    const size_t name = entry.find(kName) + kName.size();
    const std::string function(entry.substr(name, entry.find('(', name) - name));
    const size_t at = text.rfind(fmt::format("PF_DEVICE void {}(", function), begin);
    if (at == text.npos) return fmt::format("its function {} has no text", function);
    if (std::string_view(text).substr(at, text.find("\n}\n", at) - at).find(kWait) == text.npos)
      return fmt::format("its function {} does not", function);
  }
  return "";
}
inline void expect_waits(const std::string& name, const std::string& text) {
  EXPECT_EQ(why_it_does_not_wait(text), "") << name;
}

// Writes the whole text of a kernel to the folder that PYFLAME_DUMP_KERNELS names.
inline void write_text(const std::string& name, const std::string& source) {
  std::ofstream out(std::string(std::getenv("PYFLAME_DUMP_KERNELS")) + "/" + name + ".hip");
  const std::string text = gpu::whole_source(source);
  expect_waits(name, text);
  out << text;
  ASSERT_TRUE(out.flush()) << name;
}

// What a text for other compilers asks of its target: matrix units that kernels/device/mma.h knows.
inline constexpr char kHasMfma[] =
    "(defined(__gfx908__) || defined(__gfx90a__) || defined(__gfx942__) || defined(__gfx950__) || "
    "defined(__gfx9_4_generic__))";
inline constexpr char kHasWmma[] =
    "(defined(__GFX11__) || (defined(__GFX12__) && !defined(__gfx1250__) && !defined(__gfx1251__)))";

// A kernel for matrix cores, and the kernel that the backend uses where there are none ("": it has a text of its own).
inline std::string by_matrix_units(const std::string& units, const std::string& plain) {
  return fmt::format("#if {} || {}\n{}#else\n{}#endif\n", kHasMfma, kHasWmma, gpu::whole_source(units),
                     gpu::whole_source(plain));
}
// The same for kernels whose number of threads depends on the wave.
inline std::string by_matrix_units(const std::string& waves_of_64, const std::string& waves_of_32,
                                   const std::string& plain) {
  return fmt::format("#if {}\n{}#elif {}\n{}#else\n{}#endif\n", kHasMfma, gpu::whole_source(waves_of_64), kHasWmma,
                     gpu::whole_source(waves_of_32), gpu::whole_source(plain));
}

}  // namespace pyflame
