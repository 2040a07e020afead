// The file of NCCL.
#include "pyflame/backends/cuda/libraries.h"

namespace pyflame::gpu {

namespace {
constexpr const char* kNcclFiles[] = {"libnccl.so.2", "libnccl.so", nullptr};
}

const Dylib kNccl = {.name = "NCCL",
                     .type = DeviceType::cuda,
                     .files = kNcclFiles,
                     .absent = "NCCL (libnccl.so.2) was not found; install it with pip (nvidia-nccl-cu12 or -cu13)",
                     .computes = true};

const CommunicatorNames kNcclNames = {.library = &kNccl, .name = "nccl"};

}  // namespace pyflame::gpu
