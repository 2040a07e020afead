// The libraries of NVIDIA, as one Vendor.
#include "pyflame/backends/cuda/cuda_backend.h"

#include "pyflame/backends/cuda/libraries.h"
#include "pyflame/backends/gpu/gpu_backend.h"

namespace pyflame {

namespace {

const gpu::Vendor kVendor{DeviceType::cuda, gpu::kCudaBlas,       nullptr,           gpu::kCufftNames, gpu::cudnn,
                          gpu::cudnn_sdpa,  gpu::cudnn_recurrent, gpu::cudnn_version};

}  // namespace

const Backend& cuda_backend() {
  static const gpu::GpuBackend backend(kVendor);
  return backend;
}

const CommunicatorLibrary* cuda_communicators(std::string* why) {
  return gpu::communicator_library(DeviceType::cuda, gpu::kNcclNames, why);
}

}  // namespace pyflame
