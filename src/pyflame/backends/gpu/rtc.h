// Kernels from source at run time: hipRTC or NVRTC behind one function, with a cache on disk keyed by source, architecture, compiler
// and flags.
#pragma once
#include <string>

#include "pyflame/backends/gpu/device.h"

namespace pyflame::gpu {

// The function `name` (extern "C") of `source`, compiled for the device. Runtime error with the compiler's log when it fails.
Function compile(GpuDevice& device, const std::string& source, const std::string& name);

// The code object that the run-time compiler makes of `source` for an architecture ("gfx942"), past all caches. Needs no
// device: so kernels are compiled for GPUs that are not there.
std::string compile_for(DeviceType type, const std::string& arch, const std::string& source);

struct CompileStats {
  uint64_t compiled = 0, from_disk = 0;
  double seconds = 0;
};
CompileStats compile_stats();

}  // namespace pyflame::gpu
