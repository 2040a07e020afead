// The arithmetic and the memory traffic that an operator needs at least, from the sizes of its inputs, and how close a
// kernel came to the device's peaks.
#pragma once
#include <string>
#include <string_view>

#include "pyflame/base/gpu_peaks.h"
#include "tools/profile/classify.h"
#include "tools/profile/trace.h"

namespace pyflame::tools::profile {

struct Work {
  double flops = 0, bytes = 0;  // both 0: unknown
  std::string dtype;            // "bf16": selects the peak
  bool known() const { return flops > 0 || bytes > 0; }
};

// From the texts in the trace: dims [[8,512],[512,64]], types ["float","float"], values ["","True"]. `category` is that
// of the kernel: an elementwise kernel of an operator that also runs a GEMM does not do the GEMM's work.
Work work_of(std::string_view op, std::string_view dims, std::string_view types, std::string_view values,
             Category category);

// TFLOP/s for that type, 0 if unknown.
double peak_tflops(const GpuProduct& product, std::string_view dtype);

struct Roof {
  double intensity = 0, tflops = 0, gbs = 0;
  double of_peak = -1;     // share of what the device can reach at this intensity; negative: unknown device
  const char* bound = "";  // "compute", "memory", "latency"; empty if the device is unknown
};
// The device may be unknown, or its peak for this dtype: 0.
Roof roof_of(const Work& total, double us, double mean_us, double peak_gbs, double peak_tflops);
Roof roof_of(const Work& total, double us, double mean_us, const GpuProduct* product);
Roof roof_of(const Work& total, double us, double mean_us, const Ceilings& ceilings);

}  // namespace pyflame::tools::profile
