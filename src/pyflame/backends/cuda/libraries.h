// NVIDIA's libraries, as the shared code of the GPU backends takes them.
#pragma once
#include "pyflame/backends/gpu/libs/communicator.h"
#include "pyflame/backends/gpu/libs/vendor.h"

namespace pyflame::gpu {

extern const Dylib kCublaslt, kCudnn, kCufft, kNccl;
extern const BlasNumbers kCudaBlas;
extern const FftNames kCufftNames;
extern const CommunicatorNames kNcclNames;

const DnnLibrary* cudnn(std::string* why);
std::unique_ptr<SdpaPlan> cudnn_sdpa(GpuDevice& device, const SdpaProblem& p, std::string* why);
std::shared_ptr<const RecurrentPlan> cudnn_recurrent(GpuDevice& device, const RecurrentCase& c, std::string* why);
std::string cudnn_version();

}  // namespace pyflame::gpu
