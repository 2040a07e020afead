// The file of RCCL, whose functions have NCCL's names.
#include "pyflame/backends/rocm/libraries.h"

namespace pyflame::gpu {

namespace {
constexpr const char* kRcclFiles[] = {"librccl.so.1", "librccl.so", nullptr};
}

const Dylib kRccl = {.name = "RCCL",
                     .type = DeviceType::rocm,
                     .files = kRcclFiles,
                     .absent = "RCCL (librccl.so.1) was not found; install ROCm's rccl package",
                     .computes = true};

const CommunicatorNames kRcclNames = {.library = &kRccl, .name = "rccl"};

}  // namespace pyflame::gpu
