// The libraries that entries of the device compute with, by name and version: what was measured with others says nothing here.
#pragma once
#include <string>

#include "pyflame/backends/gpu/driver/device.h"

namespace pyflame::gpu {

// "nvrtc 13.0; cublaslt 130002; cudnn 91002": those that are there. Opens them.
std::string library_versions(GpuDevice& device);

}  // namespace pyflame::gpu
