// The libraries of AMD, as one Vendor.
#include "pyflame/backends/rocm/rocm_backend.h"

#include "pyflame/backends/gpu/gpu_backend.h"
#include "pyflame/backends/rocm/libraries.h"
#include "pyflame/backends/rocm/rocblas.h"

namespace pyflame {

namespace {

std::string versions() {
  const std::string products = gpu::rocblas_version(), convolutions = gpu::miopen_version();
  return products + (products.empty() || convolutions.empty() ? "" : "; ") + convolutions;
}
const gpu::Vendor kVendor{DeviceType::rocm, gpu::kRocmBlas, &gpu::kRocblasProducts, gpu::kHipfftNames,
                          gpu::miopen,      nullptr,        gpu::miopen_recurrent,  versions};

}  // namespace

const Backend& rocm_backend() {
  static const gpu::GpuBackend backend(kVendor);
  return backend;
}

const CommunicatorLibrary* rocm_communicators(std::string* why) {
  return gpu::communicator_library(DeviceType::rocm, gpu::kRcclNames, why);
}

}  // namespace pyflame
