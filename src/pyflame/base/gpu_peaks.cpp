// The rates of int8 are no column of the table of products: the vendors' data sheets give them as a multiple of another rate.
#include "pyflame/base/gpu_peaks.h"

namespace pyflame {

double int8_tflops(const GpuProduct& product) {
  const GpuArch* arch = find_gpu_arch(product.gfx);
  if (arch == nullptr || arch->matrix == MatrixKind::none) return 0;
  // As fast as 8-bit floats. Where there are none: AMD's matrix cores multiply int8 as fast as float16, NVIDIA's twice as fast.
  const double rate = product.fp8_tflops > 0 ? product.fp8_tflops : (arch->amd ? 1 : 2) * product.fp16_tflops;
  // A GeForce adds products of floats in float32 at half the rate, which is the one in the table. Sums of int8 have the whole rate.
  const bool halves_floats = product.name.find("GeForce") != std::string_view::npos;
  return halves_floats ? 2 * rate : rate;
}

bool multiplies_8_bits(const GpuArch& arch, std::string_view dtype) {
  if (arch.matrix == MatrixKind::none) return false;
  if (dtype == "int8") return true;
  return arch.fp8 == (dtype.ends_with("fnuz") ? Fp8Kind::fnuz : Fp8Kind::ocp);
}

}  // namespace pyflame
