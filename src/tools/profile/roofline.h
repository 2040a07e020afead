// What an operator has to compute and to move at least, from the sizes of its inputs, and how near to a device's peaks that was done.
#pragma once
#include <string>
#include <string_view>

#include "pyflame/base/gpu_arch.h"
#include "tools/profile/classify.h"

namespace pyflame::tools::profile {

struct Work {
  double flops = 0, bytes = 0;  // both 0: not known
  std::string dtype;            // "bf16": which peak counts
  bool known() const { return flops > 0 || bytes > 0; }
};

// From the texts that the trace has: dims [[8,512],[512,64]], types ["float","float"], values ["","True"]. `category` is that of
// the kernel: an elementwise kernel of an operator that also has a GEMM does not do the GEMM's work.
Work work_of(std::string_view op, std::string_view dims, std::string_view types, std::string_view values,
             Category category);

// TFLOP/s of that type, 0 where unknown.
double peak_tflops(const GpuProduct& product, std::string_view dtype);

struct Roof {
  double intensity = 0, tflops = 0, gbs = 0;
  double of_peak = -1;     // of what the device could reach at this intensity; negative: no device known
  const char* bound = "";  // "compute", "memory", "latency"; empty where no device is known
};
Roof roof_of(const Work& total, double us, double mean_us, const GpuProduct* product);

}  // namespace pyflame::tools::profile
