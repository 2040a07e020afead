// AMD's libraries, as the shared code of the GPU backends takes them. rocBLAS: rocblas.h.
#pragma once
#include "pyflame/backends/gpu/libs/communicator.h"
#include "pyflame/backends/gpu/libs/vendor.h"

namespace pyflame::gpu {

extern const Dylib kHipblaslt, kMiopen, kHipfft, kRccl;
extern const BlasNumbers kRocmBlas;
extern const FftNames kHipfftNames;
extern const CommunicatorNames kRcclNames;

const DnnLibrary* miopen(std::string* why);
std::shared_ptr<const RecurrentPlan> miopen_recurrent(GpuDevice& device, const RecurrentCase& c, std::string* why);
std::string miopen_version();

}  // namespace pyflame::gpu
