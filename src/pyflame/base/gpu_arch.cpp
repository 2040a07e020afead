// The architecture table. Each generation is a function that fills in what its members share; a row has only the
// differences. Sources:
//  * registers, granules, waves, SGPR steps, barriers, LDS sizes: what clang 22 computes for each target
//    (tests/inspect/test_occupancy.py compares); LDS allocation granules: LLVM's AMDGPUUsage, GRANULATED_LDS_SIZE.
//  * instruction caches, CUs, memory: AMD's "GPU specifications" page of the ROCm documentation.
//  * PCI device and revision ids: amdgpu.ids of libdrm.
//  * rates and bandwidths: the vendors' data sheets. Radeon RX 7000 and 9000 fp32 counts dual issue.
#include "pyflame/base/gpu_arch.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <vector>

namespace pyflame {

namespace {

constexpr int64_t kKiB = 1024;

GpuArch gcn(std::string_view gfx, std::string_view family, std::string_view generic = "gfx9-generic") {
  GpuArch a;
  a.gfx = gfx, a.family = family, a.generic = generic;
  a.vgprs = 256, a.vgpr_granule = 4, a.addressable_vgprs = 256, a.max_waves_per_simd = 10;
  a.sgpr_limit = 800;
  a.instruction_cache_bytes = 32 * kKiB, a.icache_shared_by_cus = 3;
  return a;
}

GpuArch cdna1() {
  GpuArch a = gcn("gfx908", "CDNA", "");
  a.matrix = MatrixKind::mfma;
  a.separate_agprs = true;
  return a;
}

// CDNA 2 and later: one pool of 512 registers for VGPRs and AGPRs, 8 waves.
GpuArch cdna(std::string_view gfx, std::string_view family, std::string_view generic, Fp8Kind fp8) {
  GpuArch a = gcn(gfx, family, generic);
  a.vgprs = 512, a.vgpr_granule = 8, a.addressable_vgprs = 512, a.max_waves_per_simd = 8;
  a.unified_agprs = true;
  a.instruction_cache_bytes = (gfx == "gfx90a" ? 32 : 64) * kKiB, a.icache_shared_by_cus = 2;
  a.matrix = MatrixKind::mfma, a.fp8 = fp8;
  if (gfx == "gfx950") a.lds_bytes = a.max_lds_per_workgroup = 160 * kKiB, a.lds_granule = 1280;
  return a;
}

GpuArch rdna1(std::string_view gfx, std::string_view generic = "gfx10-1-generic") {
  GpuArch a;
  a.gfx = gfx, a.family = "RDNA", a.generic = generic;
  a.default_wave = 32, a.wave32 = true;
  a.vgprs = 1024, a.vgpr_granule = 8, a.addressable_vgprs = 256, a.max_waves_per_simd = 20;
  a.simds_per_cu = 2, a.has_wgp = true;
  a.addressable_sgprs = 106;
  a.instruction_cache_bytes = 32 * kKiB, a.icache_shared_by_cus = 2;
  return a;
}

GpuArch rdna2(std::string_view gfx, bool apu = false) {
  GpuArch a = rdna1(gfx, "gfx10-3-generic");
  a.family = "RDNA 2", a.apu = apu;
  a.vgpr_granule = 16, a.max_waves_per_simd = 16;
  a.lds_granule = 1024;
  return a;
}

// RDNA 3 has two sizes of register files: the large one, of 1536, is in gfx1100, gfx1101 and gfx1151.
GpuArch rdna3(std::string_view gfx, std::string_view family, bool large, bool apu = false) {
  GpuArch a = rdna2(gfx, apu);
  a.family = family, a.generic = "gfx11-generic";
  if (large) a.vgprs = 1536, a.vgpr_granule = 24;
  a.matrix = MatrixKind::wmma;
  return a;
}

GpuArch rdna4(std::string_view gfx) {
  GpuArch a = rdna3(gfx, "RDNA 4", true);
  a.generic = "gfx12-generic";
  a.fp8 = Fp8Kind::ocp;
  return a;
}

// Only LLVM's figures are known: no product is for sale. Its WMMA has a depth of 32, for which there is no kernel.
GpuArch gfx125(std::string_view gfx) {
  GpuArch a;
  a.gfx = gfx, a.family = "gfx12.5";
  a.default_wave = 32, a.wave32 = true, a.wave64 = false;
  a.vgprs = 1024, a.vgpr_granule = 16, a.addressable_vgprs = 1024, a.max_waves_per_simd = 16;
  a.addressable_sgprs = 106;
  a.lds_bytes = a.max_lds_per_workgroup = 320 * kKiB, a.lds_granule = 2048;
  a.fp8 = Fp8Kind::ocp;
  return a;
}

GpuArch nvidia(std::string_view sm, std::string_view family, int warps_per_scheduler, int64_t shared_kib, Fp8Kind fp8) {
  GpuArch a;
  a.gfx = sm, a.family = family, a.amd = false;
  a.default_wave = 32, a.wave32 = true, a.wave64 = false;
  a.vgprs = 512, a.vgpr_granule = 8, a.addressable_vgprs = 255, a.max_waves_per_simd = warps_per_scheduler;
  a.barriers = 0;
  a.addressable_sgprs = 0;
  a.lds_bytes = shared_kib * kKiB, a.max_lds_per_workgroup = (shared_kib - 1) * kKiB, a.lds_granule = 128;
  a.matrix = MatrixKind::mma, a.fp8 = fp8;
  return a;
}

GpuArch as_apu(GpuArch a) {
  a.apu = true;
  return a;
}

std::vector<GpuArch> make_archs() {
  return {
      gcn("gfx900", "Vega"),
      as_apu(gcn("gfx902", "Vega")),
      gcn("gfx904", "Vega"),
      gcn("gfx906", "Vega 20"),
      cdna1(),
      as_apu(gcn("gfx909", "Vega")),
      cdna("gfx90a", "CDNA 2", "", Fp8Kind::none),
      as_apu(gcn("gfx90c", "Vega")),
      // Early steppings of the MI300, which compilers up to LLVM 19 support.
      cdna("gfx940", "CDNA 3", "", Fp8Kind::fnuz),
      cdna("gfx941", "CDNA 3", "", Fp8Kind::fnuz),
      cdna("gfx942", "CDNA 3", "gfx9-4-generic", Fp8Kind::fnuz),
      cdna("gfx950", "CDNA 4", "gfx9-4-generic", Fp8Kind::ocp),
      rdna1("gfx1010"),
      rdna1("gfx1011"),
      rdna1("gfx1012"),
      as_apu(rdna1("gfx1013")),
      rdna2("gfx1030"),
      rdna2("gfx1031"),
      rdna2("gfx1032"),
      rdna2("gfx1033", true),
      rdna2("gfx1034"),
      rdna2("gfx1035", true),
      rdna2("gfx1036", true),
      rdna3("gfx1100", "RDNA 3", true),
      rdna3("gfx1101", "RDNA 3", true),
      rdna3("gfx1102", "RDNA 3", false),
      rdna3("gfx1103", "RDNA 3", false, true),
      rdna3("gfx1150", "RDNA 3.5", false, true),
      rdna3("gfx1151", "RDNA 3.5", true, true),
      rdna3("gfx1152", "RDNA 3.5", false, true),
      rdna3("gfx1153", "RDNA 3.5", false, true),
      rdna4("gfx1200"),
      rdna4("gfx1201"),
      gfx125("gfx1250"),
      gfx125("gfx1251"),
      // What a code object for a generic target may assume: the smallest value among its members.
      gcn("gfx9-generic", "Vega"),
      cdna("gfx9-4-generic", "CDNA 3 and 4", "gfx9-4-generic", Fp8Kind::none),
      rdna1("gfx10-1-generic"),
      rdna2("gfx10-3-generic"),
      rdna3("gfx11-generic", "RDNA 3 and 3.5", false),
      rdna4("gfx12-generic"),
      nvidia("sm_80", "Ampere", 16, 164, Fp8Kind::none),
      nvidia("sm_86", "Ampere", 12, 100, Fp8Kind::none),
      nvidia("sm_89", "Ada", 12, 100, Fp8Kind::ocp),
      nvidia("sm_90", "Hopper", 16, 228, Fp8Kind::ocp),
      nvidia("sm_100", "Blackwell", 16, 228, Fp8Kind::ocp),
  };
}

// name, gfx, device id, revision, CUs, XCCs, GiB, GB/s, fp32, fp16, bf16, fp8, fp64
constexpr auto kProducts = std::to_array<GpuProduct>({
    {"AMD Instinct MI25", "gfx900", 0x6860, -1, 64, 1, 16, 484, 12.3, 24.6, 0, 0, 0.77},
    {"AMD Radeon RX Vega", "gfx900", 0x687f, -1, 64, 1, 8, 484, 12.7, 25.3, 0, 0, 0.79},
    {"AMD Instinct MI60 / MI50", "gfx906", 0x66a1, 0x02, 60, 1, 16, 1024, 13.3, 26.5, 0, 0, 6.6},
    {"AMD Radeon Pro VII", "gfx906", 0x66a1, 0x06, 60, 1, 16, 1024, 13.1, 26.2, 0, 0, 6.5},
    {"AMD Radeon VII", "gfx906", 0x66af, 0xc1, 60, 1, 16, 1024, 13.4, 26.9, 0, 0, 3.4},
    {"AMD Instinct MI100", "gfx908", 0x738c, -1, 120, 1, 32, 1228.8, 23.1, 184.6, 92.3, 0, 11.5},
    {"AMD Instinct MI250X", "gfx90a", 0x7408, -1, 110, 1, 64, 1638.4, 23.9, 191.5, 191.5, 0, 23.9},
    {"AMD Instinct MI250X", "gfx90a", 0x740c, 0x01, 110, 1, 64, 1638.4, 23.9, 191.5, 191.5, 0, 23.9},
    {"AMD Instinct MI250", "gfx90a", 0x740c, 0x01, 104, 1, 64, 1638.4, 22.6, 181.0, 181.0, 0, 22.6},
    {"AMD Instinct MI210", "gfx90a", 0x740f, -1, 104, 1, 64, 1638.4, 22.6, 181.0, 181.0, 0, 22.6},
    {"AMD Instinct MI300X", "gfx942", 0x74a1, -1, 304, 8, 192, 5300, 163.4, 1307.4, 1307.4, 2614.9, 81.7},
    {"AMD Instinct MI300X VF", "gfx942", 0x74b5, -1, 304, 8, 192, 5300, 163.4, 1307.4, 1307.4, 2614.9, 81.7},
    {"AMD Instinct MI300X HF", "gfx942", 0x74a9, -1, 304, 8, 192, 5300, 163.4, 1307.4, 1307.4, 2614.9, 81.7},
    {"AMD Instinct MI300A", "gfx942", 0x74a0, -1, 228, 6, 128, 5300, 122.6, 980.6, 980.6, 1961.2, 61.3},
    {"AMD Instinct MI308X", "gfx942", 0x74a2, -1, 80, 4, 192, 5300, 0, 0, 0, 0, 0},
    {"AMD Instinct MI308X HF", "gfx942", 0x74a8, -1, 80, 4, 192, 5300, 0, 0, 0, 0, 0},
    {"AMD Instinct MI325X", "gfx942", 0x74a5, -1, 304, 8, 256, 6000, 163.4, 1307.4, 1307.4, 2614.9, 81.7},
    {"AMD Instinct MI350X", "gfx950", 0x75a0, -1, 256, 8, 288, 8000, 144.2, 2306.9, 2306.9, 4613.7, 72.1},
    {"AMD Instinct MI350X VF", "gfx950", 0x75b0, -1, 256, 8, 288, 8000, 144.2, 2306.9, 2306.9, 4613.7, 72.1},
    {"AMD Instinct MI355X", "gfx950", 0x75a3, -1, 256, 8, 288, 8000, 157.3, 2516.6, 2516.6, 5033.2, 78.6},
    {"AMD Instinct MI355X VF", "gfx950", 0x75b3, -1, 256, 8, 288, 8000, 157.3, 2516.6, 2516.6, 5033.2, 78.6},

    {"AMD Radeon RX 5700 XT", "gfx1010", 0x731f, 0xc1, 40, 1, 8, 448, 9.75, 19.5, 0, 0, 0.61},
    {"AMD Radeon RX 5700", "gfx1010", 0x731f, 0xc4, 36, 1, 8, 448, 7.95, 15.9, 0, 0, 0.5},
    {"AMD Radeon Pro W5700", "gfx1010", 0x7312, -1, 36, 1, 8, 448, 8.89, 17.8, 0, 0, 0.56},
    {"AMD Radeon Pro V520", "gfx1011", 0x7362, 0xc3, 36, 1, 8, 512, 7.37, 14.75, 0, 0, 0.46},
    {"AMD Radeon RX 5500 XT", "gfx1012", 0x7340, 0xc5, 22, 1, 8, 224, 5.2, 10.4, 0, 0, 0.32},
    {"AMD Radeon Pro W5500", "gfx1012", 0x7341, -1, 22, 1, 8, 224, 5.35, 10.7, 0, 0, 0.33},

    {"AMD Radeon RX 6900 XT", "gfx1030", 0x73bf, 0xc0, 80, 1, 16, 512, 23.04, 46.08, 0, 0, 1.44},
    {"AMD Radeon RX 6900 XT", "gfx1030", 0x73af, -1, 80, 1, 16, 512, 23.04, 46.08, 0, 0, 1.44},
    {"AMD Radeon RX 6950 XT", "gfx1030", 0x73a5, -1, 80, 1, 16, 576, 23.65, 47.31, 0, 0, 1.48},
    {"AMD Radeon RX 6800 XT", "gfx1030", 0x73bf, 0xc1, 72, 1, 16, 512, 20.74, 41.47, 0, 0, 1.3},
    {"AMD Radeon RX 6800", "gfx1030", 0x73bf, 0xc3, 60, 1, 16, 512, 16.17, 32.33, 0, 0, 1.01},
    {"AMD Radeon Pro W6800", "gfx1030", 0x73a3, -1, 60, 1, 32, 512, 17.83, 35.66, 0, 0, 1.11},
    {"AMD Radeon Pro V620", "gfx1030", 0x73a1, -1, 72, 1, 32, 512, 20.28, 40.55, 0, 0, 1.27},
    {"AMD Radeon RX 6700 XT", "gfx1031", 0x73df, 0xc1, 40, 1, 12, 384, 13.21, 26.43, 0, 0, 0.83},
    {"AMD Radeon RX 6750 XT", "gfx1031", 0x73df, 0xc0, 40, 1, 12, 432, 13.31, 26.62, 0, 0, 0.83},
    {"AMD Radeon RX 6600 XT", "gfx1032", 0x73ff, 0xc1, 32, 1, 8, 256, 10.6, 21.21, 0, 0, 0.66},
    {"AMD Radeon RX 6600", "gfx1032", 0x73ff, 0xc7, 28, 1, 8, 224, 8.93, 17.86, 0, 0, 0.56},
    {"AMD Radeon RX 6650 XT", "gfx1032", 0x73ef, 0xc1, 32, 1, 8, 280, 10.79, 21.59, 0, 0, 0.67},
    {"AMD Radeon Pro W6600", "gfx1032", 0x73e3, -1, 28, 1, 8, 224, 10.4, 20.79, 0, 0, 0.65},
    {"AMD Custom GPU 0405", "gfx1033", 0x163f, -1, 8, 1, 0, 0, 0, 0, 0, 0, 0},
    {"AMD Radeon RX 6500 XT", "gfx1034", 0x743f, 0xc1, 16, 1, 4, 144, 5.77, 11.53, 0, 0, 0.36},
    {"AMD Radeon RX 6400", "gfx1034", 0x743f, 0xc7, 12, 1, 4, 128, 3.57, 7.13, 0, 0, 0.22},
    {"AMD Radeon 680M", "gfx1035", 0x1681, 0xc8, 12, 1, 0, 0, 0, 0, 0, 0, 0},
    {"AMD Radeon 660M", "gfx1035", 0x1681, 0xc9, 6, 1, 0, 0, 0, 0, 0, 0, 0},
    {"AMD Radeon 610M", "gfx1036", 0x164e, -1, 2, 1, 0, 0, 0, 0, 0, 0, 0},

    {"AMD Radeon RX 7900 XTX", "gfx1100", 0x744c, 0xc8, 96, 1, 24, 960, 61.4, 122.8, 122.8, 0, 1.92},
    {"AMD Radeon RX 7900 XT", "gfx1100", 0x744c, 0xcc, 84, 1, 20, 800, 51.5, 103.0, 103.0, 0, 1.61},
    {"AMD Radeon RX 7900 GRE", "gfx1100", 0x744c, 0xce, 80, 1, 16, 576, 46.0, 92.0, 92.0, 0, 1.44},
    {"AMD Radeon Pro W7900", "gfx1100", 0x7448, -1, 96, 1, 48, 864, 61.3, 122.6, 122.6, 0, 1.92},
    {"AMD Radeon Pro W7900 Dual Slot", "gfx1100", 0x744a, -1, 96, 1, 48, 864, 61.3, 122.6, 122.6, 0, 1.92},
    {"AMD Radeon Pro W7800 48GB", "gfx1100", 0x7449, -1, 70, 1, 48, 864, 45.2, 90.5, 90.5, 0, 1.41},
    {"AMD Radeon Pro W7800", "gfx1100", 0x745e, -1, 70, 1, 32, 576, 45.2, 90.5, 90.5, 0, 1.41},
    {"AMD Radeon RX 7800 XT", "gfx1101", 0x747e, 0xc8, 60, 1, 16, 624, 37.3, 74.6, 74.6, 0, 1.17},
    {"AMD Radeon RX 7700 XT", "gfx1101", 0x747e, 0xff, 54, 1, 12, 432, 35.2, 70.3, 70.3, 0, 1.1},
    {"AMD Radeon RX 7700", "gfx1101", 0x747e, 0xdb, 40, 1, 16, 0, 0, 0, 0, 0, 0},
    {"AMD Radeon Pro W7700", "gfx1101", 0x7470, -1, 48, 1, 16, 576, 28.3, 56.5, 56.5, 0, 0.88},
    {"AMD Radeon Pro V710", "gfx1101", 0x7460, -1, 54, 1, 28, 448, 27.7, 55.3, 55.3, 0, 0.86},
    {"AMD Radeon RX 7600", "gfx1102", 0x7480, 0xcf, 32, 1, 8, 288, 21.75, 43.5, 43.5, 0, 0.68},
    {"AMD Radeon RX 7600 XT", "gfx1102", 0x7480, 0xc0, 32, 1, 16, 288, 22.57, 45.14, 45.14, 0, 0.71},
    {"AMD Radeon Pro W7600", "gfx1102", 0x7480, 0x00, 32, 1, 8, 288, 20.0, 39.9, 39.9, 0, 0.62},
    {"AMD Radeon Pro W7500", "gfx1102", 0x7489, -1, 28, 1, 8, 172, 12.2, 24.4, 24.4, 0, 0.38},
    {"AMD Radeon 780M Graphics", "gfx1103", 0x15bf, 0xc4, 12, 1, 0, 0, 0, 0, 0, 0, 0},
    {"AMD Radeon 760M Graphics", "gfx1103", 0x15bf, 0xc3, 8, 1, 0, 0, 0, 0, 0, 0, 0},
    {"AMD Radeon 780M Graphics", "gfx1103", 0x1900, 0xc4, 12, 1, 0, 0, 0, 0, 0, 0, 0},
    {"AMD Radeon 760M Graphics", "gfx1103", 0x1900, 0xc3, 8, 1, 0, 0, 0, 0, 0, 0, 0},
    {"AMD Radeon 740M Graphics", "gfx1103", 0x15c8, -1, 4, 1, 0, 0, 0, 0, 0, 0, 0},
    {"AMD Radeon 740M Graphics", "gfx1103", 0x1901, -1, 4, 1, 0, 0, 0, 0, 0, 0, 0},
    {"AMD Radeon 890M Graphics", "gfx1150", 0x150e, 0xc1, 16, 1, 0, 0, 0, 0, 0, 0, 0},
    {"AMD Radeon 880M Graphics", "gfx1150", 0x150e, 0xc4, 12, 1, 0, 0, 0, 0, 0, 0, 0},
    {"AMD Radeon 8060S Graphics", "gfx1151", 0x1586, 0xc1, 40, 1, 0, 256, 29.7, 59.4, 59.4, 0, 0},
    {"AMD Radeon 8050S Graphics", "gfx1151", 0x1586, 0xc2, 32, 1, 0, 256, 0, 0, 0, 0, 0},
    {"AMD Radeon 8040S Graphics", "gfx1151", 0x1586, 0xd5, 16, 1, 0, 256, 0, 0, 0, 0, 0},
    {"AMD Radeon 860M Graphics", "gfx1152", 0x1114, 0xc2, 8, 1, 0, 0, 0, 0, 0, 0, 0},
    {"AMD Radeon 840M Graphics", "gfx1152", 0x1114, 0xc3, 4, 1, 0, 0, 0, 0, 0, 0, 0},

    {"AMD Radeon RX 9060 XT", "gfx1200", 0x7590, 0xc0, 32, 1, 16, 320, 25.6, 102.5, 102.5, 205, 0},
    {"AMD Radeon RX 9060 XT LP", "gfx1200", 0x7590, 0xc1, 32, 1, 16, 320, 0, 0, 0, 0, 0},
    {"AMD Radeon RX 9060", "gfx1200", 0x7590, 0xc7, 28, 1, 8, 0, 0, 0, 0, 0, 0},
    {"AMD Radeon RX 9070 XT", "gfx1201", 0x7550, 0xc0, 64, 1, 16, 640, 48.7, 194.6, 194.6, 389, 0},
    {"AMD Radeon RX 9070", "gfx1201", 0x7550, 0xc3, 56, 1, 16, 640, 36.1, 145, 145, 289, 0},
    {"AMD Radeon RX 9070 GRE", "gfx1201", 0x7550, 0xc2, 48, 1, 0, 0, 0, 0, 0, 0, 0},
    {"AMD Radeon AI PRO R9700", "gfx1201", 0x7551, 0xc0, 64, 1, 32, 640, 47.8, 191, 191, 383, 0},
    {"AMD Radeon AI PRO R9600D", "gfx1201", 0x7551, 0xc8, 48, 1, 32, 0, 0, 0, 0, 0, 0},

    {"NVIDIA A100-SXM4-80GB", "sm_80", 0, -1, 108, 1, 80, 2039, 19.5, 312, 312, 0, 9.7},
    {"NVIDIA A100-SXM4-40GB", "sm_80", 0, -1, 108, 1, 40, 1555, 19.5, 312, 312, 0, 9.7},
    {"NVIDIA A100-PCIE-40GB", "sm_80", 0, -1, 108, 1, 40, 1555, 19.5, 312, 312, 0, 9.7},
    {"NVIDIA A10", "sm_86", 0, -1, 72, 1, 24, 600, 31.2, 125, 125, 0, 0},
    {"NVIDIA GeForce RTX 3090", "sm_86", 0, -1, 82, 1, 24, 936, 35.6, 71, 71, 0, 0.56},
    {"NVIDIA L4", "sm_89", 0, -1, 58, 1, 24, 300, 30.3, 121, 121, 242.5, 0},
    {"NVIDIA L40S", "sm_89", 0, -1, 142, 1, 48, 864, 91.6, 362, 362, 733, 1.4},
    {"NVIDIA GeForce RTX 4090", "sm_89", 0, -1, 128, 1, 24, 1008, 82.6, 165.2, 165.2, 330.3, 1.3},
    {"NVIDIA H100 80GB HBM3", "sm_90", 0, -1, 132, 1, 80, 3350, 67, 989.4, 989.4, 1979, 34},
    {"NVIDIA H100 PCIe", "sm_90", 0, -1, 114, 1, 80, 2000, 51, 756, 756, 1513, 26},
    {"NVIDIA H200", "sm_90", 0, -1, 132, 1, 141, 4800, 67, 989.4, 989.4, 1979, 34},
    {"NVIDIA B200", "sm_100", 0, -1, 148, 1, 180, 7700, 75, 2250, 2250, 4500, 37},
});

bool contains_ignoring_case(std::string_view text, std::string_view part) {
  const auto same = [](char a, char b) {
    return std::tolower(static_cast<unsigned char>(a)) == std::tolower(static_cast<unsigned char>(b));
  };
  return std::search(text.begin(), text.end(), part.begin(), part.end(), same) != text.end();
}

}  // namespace

std::string_view to_string(Fp8Kind kind) {
  constexpr std::array<std::string_view, 3> kNames = {"none", "fnuz", "ocp"};
  return kNames[static_cast<size_t>(kind)];
}

std::string_view to_string(MatrixKind kind) {
  constexpr std::array<std::string_view, 4> kNames = {"none", "mfma", "wmma", "mma"};
  return kNames[static_cast<size_t>(kind)];
}

std::span<const GpuArch> gpu_archs() {
  static const auto* archs = new std::vector<GpuArch>(make_archs());  // leaked: programs compute in exit handlers
  return *archs;
}

const GpuArch* find_gpu_arch(std::string_view gfx) {
  if (const size_t triple = gfx.rfind("--"); triple != std::string_view::npos) gfx.remove_prefix(triple + 2);
  gfx = gfx.substr(0, gfx.find(':'));
  for (const GpuArch& arch : gpu_archs())
    if (arch.gfx == gfx) return &arch;
  return nullptr;
}

std::span<const GpuProduct> gpu_products() { return kProducts; }

const GpuProduct* find_gpu_product(uint16_t device_id, int revision, int cus) {
  if (device_id == 0) return nullptr;
  const GpuProduct* best = nullptr;
  int best_score = -1;
  for (const GpuProduct& product : kProducts) {
    if (product.device_id != device_id) continue;
    const int score = (revision >= 0 && product.revision == revision ? 2 : 0) + (cus > 0 && product.cus == cus ? 1 : 0);
    if (score > best_score) best = &product, best_score = score;
  }
  return best;
}

const GpuProduct* find_gpu_product(std::string_view gfx, std::string_view name, int cus) {
  const GpuArch* arch = find_gpu_arch(gfx);
  if (arch == nullptr) return nullptr;
  const GpuProduct* best = nullptr;
  size_t best_score = 0;
  for (const GpuProduct& product : kProducts) {
    if (product.gfx != arch->gfx) continue;
    // The longer name wins ("RX 7900 XTX" over "RX 7900 XT"), and a matching name wins over a matching CU count.
    size_t score = cus > 0 && product.cus == cus ? 2 : 1;
    if (!name.empty() && contains_ignoring_case(name, product.name)) score = 200 + product.name.size();
    else if (!name.empty() && contains_ignoring_case(product.name, name)) score = 100;
    if (score > best_score) best = &product, best_score = score;
  }
  return best;
}

}  // namespace pyflame
