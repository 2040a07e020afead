// The table of architectures and products: complete, consistent in itself, and found by the spellings that other tools use.
#include "pyflame/base/gpu_arch.h"

#include "pyflame/base/gpu_peaks.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <tuple>

namespace pyflame {
namespace {

TEST(GpuArch, EveryTargetThatTheToolsMustKnow) {
  for (const char* gfx : {"gfx900",  "gfx906",  "gfx908",  "gfx90a",  "gfx940",  "gfx941",  "gfx942",  "gfx950",
                          "gfx1010", "gfx1030", "gfx1031", "gfx1032", "gfx1033", "gfx1034", "gfx1035", "gfx1036",
                          "gfx1100", "gfx1101", "gfx1102", "gfx1103", "gfx1150", "gfx1151", "gfx1152", "gfx1153",
                          "gfx1200", "gfx1201", "gfx1250", "sm_80",   "sm_86",   "sm_89",   "sm_90",   "sm_100"})
    EXPECT_NE(find_gpu_arch(gfx), nullptr) << gfx;
}

TEST(GpuArch, NamesAreFoundWithTheirFeaturesAndTriples) {
  const GpuArch* arch = find_gpu_arch("gfx942");
  ASSERT_NE(arch, nullptr);
  for (const char* name :
       {"gfx942:sramecc+:xnack-", "amdgcn-amd-amdhsa--gfx942", "hipv4-amdgcn-amd-amdhsa--gfx942:xnack+"})
    EXPECT_EQ(find_gpu_arch(name), arch) << name;
  for (const char* name : {"", "gfx", "gfx94", "gfx9421", "GFX942 ", "gfx600", ":", "--"})
    EXPECT_EQ(find_gpu_arch(name), nullptr) << name;
}

TEST(GpuArch, RowsAreConsistent) {
  std::set<std::string_view> names;
  for (const GpuArch& a : gpu_archs()) {
    SCOPED_TRACE(std::string(a.gfx));
    EXPECT_TRUE(names.insert(a.gfx).second);
    EXPECT_FALSE(a.family.empty());
    EXPECT_EQ(a.default_wave, a.wave32 ? 32 : 64);
    EXPECT_TRUE(a.wave32 || a.wave64);
    // Every wave size divides the pool into the most waves at least when one granule is used.
    EXPECT_EQ(a.vgprs % 2, 0);
    EXPECT_EQ(a.vgpr_granule % 2, 0);
    EXPECT_GE(a.vgprs / a.vgpr_granule, a.max_waves_per_simd);
    EXPECT_GE(a.lds_bytes, a.max_lds_per_workgroup);
    EXPECT_EQ(a.simds_per_cu, a.has_wgp ? 2 : 4);
    EXPECT_TRUE(a.generic.empty() || find_gpu_arch(a.generic) != nullptr);
    EXPECT_EQ(a.sgpr_limit > 0, a.gfx.starts_with("gfx9"));
  }
}

TEST(GpuArch, AGenericTargetAssumesNoMoreThanItsMembers) {
  for (const GpuArch& a : gpu_archs()) {
    if (a.generic.empty() || a.is_generic()) continue;
    SCOPED_TRACE(std::string(a.gfx));
    const GpuArch& g = *find_gpu_arch(a.generic);
    EXPECT_TRUE(g.is_generic());
    EXPECT_LE(g.vgprs, a.vgprs);
    EXPECT_LE(g.max_lds_per_workgroup, a.max_lds_per_workgroup);
    EXPECT_EQ(g.default_wave, a.default_wave);
  }
}

TEST(GpuArch, Fp8CodesDifferBetweenGenerations) {
  EXPECT_EQ(find_gpu_arch("gfx90a")->fp8, Fp8Kind::none);
  EXPECT_EQ(find_gpu_arch("gfx942")->fp8, Fp8Kind::fnuz);
  EXPECT_EQ(find_gpu_arch("gfx950")->fp8, Fp8Kind::ocp);
  EXPECT_EQ(find_gpu_arch("gfx1100")->fp8, Fp8Kind::none);
  EXPECT_EQ(find_gpu_arch("gfx1201")->fp8, Fp8Kind::ocp);
  EXPECT_EQ(to_string(Fp8Kind::fnuz), "fnuz");
  EXPECT_EQ(to_string(MatrixKind::wmma), "wmma");
}

TEST(GpuProduct, RowsAreConsistent) {
  std::set<std::tuple<uint16_t, int, int>> ids;
  for (const GpuProduct& p : gpu_products()) {
    SCOPED_TRACE(std::string(p.name));
    const GpuArch* arch = find_gpu_arch(p.gfx);
    ASSERT_NE(arch, nullptr);
    EXPECT_GT(p.cus, 0);
    EXPECT_EQ(p.cus % p.xccs, 0);
    EXPECT_EQ(p.device_id == 0, !arch->amd);
    EXPECT_TRUE(p.device_id == 0 || ids.insert({p.device_id, p.revision, p.cus}).second);
    EXPECT_EQ(p.fp8_tflops > 0, arch->fp8 != Fp8Kind::none && p.fp16_tflops > 0);
    EXPECT_GE(p.fp16_tflops, p.fp32_tflops);
    EXPECT_EQ(p.fp32_tflops > 0, p.fp16_tflops > 0);
  }
}

// The figures of the data sheets, without sparsity.
TEST(GpuProduct, RatesOfInt8) {
  const auto rate = [](const char* gfx, const char* name) { return int8_tflops(*find_gpu_product(gfx, name)); };
  EXPECT_DOUBLE_EQ(rate("gfx908", "MI100"), 184.6);
  EXPECT_DOUBLE_EQ(rate("gfx90a", "MI250X"), 191.5);
  EXPECT_DOUBLE_EQ(rate("gfx942", "MI300X"), 2614.9);
  EXPECT_DOUBLE_EQ(rate("gfx1100", "RX 7900 XTX"), 122.8);
  EXPECT_DOUBLE_EQ(rate("gfx1201", "RX 9070 XT"), 389);
  EXPECT_DOUBLE_EQ(rate("sm_80", "A100-SXM4-80GB"), 624);
  EXPECT_DOUBLE_EQ(rate("sm_86", "GeForce RTX 3090"), 284);
  EXPECT_DOUBLE_EQ(rate("sm_89", "GeForce RTX 4090"), 660.6);
  EXPECT_DOUBLE_EQ(rate("sm_90", "H100 80GB HBM3"), 1979);
  EXPECT_EQ(rate("gfx906", "Radeon VII"), 0) << "no matrix cores";
  EXPECT_EQ(rate("gfx942", "MI308X"), 0) << "no rate is known";
}

TEST(GpuArch, MatrixCoresFor8Bits) {
  EXPECT_TRUE(multiplies_8_bits(*find_gpu_arch("gfx942"), "float8_e4m3fnuz"));
  EXPECT_FALSE(multiplies_8_bits(*find_gpu_arch("gfx942"), "float8_e4m3fn"));
  EXPECT_TRUE(multiplies_8_bits(*find_gpu_arch("gfx950"), "float8_e5m2"));
  EXPECT_TRUE(multiplies_8_bits(*find_gpu_arch("gfx90a"), "int8"));
  EXPECT_FALSE(multiplies_8_bits(*find_gpu_arch("gfx90a"), "float8_e5m2"));
  EXPECT_FALSE(multiplies_8_bits(*find_gpu_arch("gfx1030"), "int8"));
}

TEST(GpuProduct, ByPciIdsRevisionAndUnits) {
  EXPECT_EQ(find_gpu_product(0x74a1)->name, "AMD Instinct MI300X");
  EXPECT_EQ(find_gpu_product(0x744c, 0xc8)->name, "AMD Radeon RX 7900 XTX");
  EXPECT_EQ(find_gpu_product(0x744c, 0xcc)->name, "AMD Radeon RX 7900 XT");
  EXPECT_EQ(find_gpu_product(0x744c, -1, 84)->name, "AMD Radeon RX 7900 XT");
  EXPECT_EQ(find_gpu_product(0x740c, 0x01, 104)->name, "AMD Instinct MI250");
  EXPECT_EQ(find_gpu_product(0x740c, 0x01, 110)->name, "AMD Instinct MI250X");
  EXPECT_EQ(find_gpu_product(uint16_t{0}), nullptr);
  EXPECT_EQ(find_gpu_product(0x1234), nullptr);
}

TEST(GpuProduct, ByArchitectureNameAndUnits) {
  EXPECT_EQ(find_gpu_product("gfx942")->name, "AMD Instinct MI300X");
  EXPECT_EQ(find_gpu_product("gfx942:sramecc+:xnack-", {}, 228)->name, "AMD Instinct MI300A");
  EXPECT_EQ(find_gpu_product("gfx1100", "Radeon RX 7900 XTX")->name, "AMD Radeon RX 7900 XTX");
  EXPECT_EQ(find_gpu_product("gfx1100", "radeon rx 7900 xt")->cus, 96) << "a prefix of two names: the first";
  EXPECT_EQ(find_gpu_product("gfx1100", "AMD Radeon RX 7900 XT")->cus, 84);
  EXPECT_EQ(find_gpu_product("gfx1100", "something else", 80)->name, "AMD Radeon RX 7900 GRE");
  EXPECT_EQ(find_gpu_product("sm_90", "NVIDIA H100 80GB HBM3")->cus, 132);
  EXPECT_EQ(find_gpu_product("gfx600"), nullptr);
}

}  // namespace
}  // namespace pyflame
