// The GPU architectures and products that PyFlame knows, in one table for the tools (occupancy, doctor, roofline) and
// for the backends. The figures are those of LLVM's AMDGPU target and of the vendors' data sheets; gpu_arch.cpp names
// the source of each.
#pragma once
#include <cstdint>
#include <span>
#include <string_view>

namespace pyflame {

// The encoding of fp8 numbers in the matrix cores.
enum class Fp8Kind { none, fnuz, ocp };
enum class MatrixKind { none, mfma, wmma, mma };

std::string_view to_string(Fp8Kind kind);
std::string_view to_string(MatrixKind kind);

struct GpuArch {
  std::string_view gfx;      // "gfx942", "sm_90", and LLVM's generic targets: "gfx11-generic"
  std::string_view family;   // "CDNA 3", "RDNA 3", "Hopper"
  std::string_view generic;  // LLVM's generic target that runs on it, "gfx11-generic"; empty: none
  bool amd = true;
  bool apu = false;  // only exists as an integrated GPU
  int default_wave = 64;
  bool wave32 = false, wave64 = true;
  // Registers of a lane, per SIMD, for the default wave size. A wave of 64 on RDNA has half of both numbers (total and
  // granule).
  int vgprs = 512, vgpr_granule = 8;
  int addressable_vgprs = 512;  // per wave, for both wave sizes; includes AGPRs if they share the registers
  int max_waves_per_simd = 8;
  int simds_per_cu = 4;  // RDNA: 2 per CU, a WGP has two CUs
  bool has_wgp = false;
  int barriers = 16;   // workgroups of more than one wave per CU (per WGP: twice as many)
  int sgpr_limit = 0;  // SGPRs shared by the waves of a SIMD; 0 if they limit nothing
  int addressable_sgprs = 102;
  int64_t lds_bytes = 65536;  // per CU (per WGP: twice as many)
  int64_t max_lds_per_workgroup = 65536;
  int lds_granule = 512;  // allocation granule
  int instruction_cache_bytes = 0, icache_shared_by_cus = 1;
  MatrixKind matrix = MatrixKind::none;  // the matrix cores that the kernels use (kernels/device/mma.h)
  Fp8Kind fp8 = Fp8Kind::none;
  bool unified_agprs = false;   // gfx90a and later CDNA: AGPRs share the registers of VGPRs
  bool separate_agprs = false;  // gfx908: separate AGPRs, as many as VGPRs and with the same limits
  int max_workgroup = 1024;     // threads

  bool is_generic() const { return gfx.ends_with("-generic"); }
};

// A device as the driver shows it: one half (GCD) of an MI250X, a whole MI300X. Rates are peaks without sparsity in
// TFLOP/s (fp16 and below: of the matrix cores, if there are any; fp32 and fp64: of the vector units). Bandwidth is in
// GB/s. 0: unknown.
struct GpuProduct {
  std::string_view name;  // "AMD Instinct MI300X"
  std::string_view gfx;
  uint16_t device_id = 0;  // PCI; 0 if no public list has it
  int revision = -1;       // PCI; -1 if it does not distinguish products with this device id
  int cus = 0, xccs = 1;   // SMs of an NVIDIA GPU
  int64_t memory_gib = 0;
  double bandwidth_gbs = 0, fp32_tflops = 0, fp16_tflops = 0, bf16_tflops = 0, fp8_tflops = 0, fp64_tflops = 0;
};

std::span<const GpuArch> gpu_archs();
// Features are ignored: "gfx942:sramecc+:xnack-" and "amdgcn-amd-amdhsa--gfx942" mean gfx942. nullptr: unknown.
const GpuArch* find_gpu_arch(std::string_view gfx);

std::span<const GpuProduct> gpu_products();
// By PCI device id (AMD's), revision (-1: unknown) and CU count (0: unknown), or nullptr. If several products share a
// device id, the revision decides, then the CU count, then the order of the table.
const GpuProduct* find_gpu_product(uint16_t device_id, int revision = -1, int cus = 0);
// The product of an architecture whose name or CU count fits best; without both, the architecture's first product.
const GpuProduct* find_gpu_product(std::string_view gfx, std::string_view name = {}, int cus = 0);

}  // namespace pyflame
