// Collectives of the devices of several processes by NCCL and RCCL, loaded at run time. Their functions, parameters and enums are the same.
#pragma once
#include <string>

#include "pyflame/backends/communicator.h"
#include "pyflame/backends/gpu/driver/device.h"

namespace pyflame::gpu {

struct CommunicatorNames {
  const Dylib* library;
  const char* name;  // "nccl"
};

// The libraries' numbers (ncclDataType_t, ncclRedOp_t).
struct CommunicatorNumbers {
  int int8 = 0, uint8 = 1, int32 = 2, int64 = 4, float16 = 6, float32 = 7, float64 = 8, bfloat16 = 9;
  int sum = 0, product = 1, max = 2, min = 3, avg = 4;
};
constexpr CommunicatorNumbers kCommunicatorNumbers{};
constexpr size_t kCommunicatorIdBytes = 128;  // ncclUniqueId

// Null where the library is not there or too old, with the reason in `why`.
const CommunicatorLibrary* communicator_library(DeviceType type, const CommunicatorNames& names, std::string* why);

}  // namespace pyflame::gpu
