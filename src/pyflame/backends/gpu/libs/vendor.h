// What one vendor's libraries offer. Each vendor's folder (backends/rocm, backends/cuda) fills in one of these, and its backend registers it.
#pragma once
#include <memory>
#include <string>

#include "pyflame/backends/gpu/libs/blas.h"
#include "pyflame/backends/gpu/libs/dnn.h"
#include "pyflame/backends/gpu/libs/fft_library.h"
#include "pyflame/backends/gpu/libs/recurrent.h"
#include "pyflame/backends/gpu/libs/sdpa.h"

namespace pyflame::gpu {

// A second library of products, without epilogues, for what the first has no kernel for. Its entry is asked after library_refuses.
struct PlainBlas {
  const char* entry;  // "rocm.rocblas"
  bool (*there)();
  Refusal (*refuses)(const Problem& p);
  std::unique_ptr<Executable> (*make)(const Problem& p);
  const Configurations* configurations;  // null: it has none
};

struct Vendor {
  DeviceType type;
  const BlasNumbers& blas;
  const PlainBlas* plain_blas;  // null: it has none
  const FftNames& fft;
  // Null where the library is not there, with the reason in `why`. Only asked where there is a device.
  const DnnLibrary* (*convolutions)(std::string* why);
  // Null if there is no plan, with the reason in `why`. Answers for known problems are cached. The function itself is
  // null if the vendor has no such library.
  std::unique_ptr<SdpaPlan> (*attention)(GpuDevice& device, const SdpaProblem& p, std::string* why);
  // Null if the library does not compute these layers, with the reason in `why`. The function itself may be null, as above.
  std::shared_ptr<const RecurrentPlan> (*recurrent)(GpuDevice& device, const RecurrentCase& c, std::string* why);
  // "rocblas 5.2.0; miopen 3.5.1": names and versions of the libraries that are there, other than `blas`.
  std::string (*versions)();
};

void register_vendor(const Vendor& vendor);
// Only asked for a type whose backend exists.
const Vendor& vendor(DeviceType type);

}  // namespace pyflame::gpu
