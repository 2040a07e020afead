// Names and versions of the libraries that implementations on the device use. Measurements with other versions are not
// used.
#pragma once
#include <string>

#include "pyflame/backends/gpu/driver/device.h"

namespace pyflame::gpu {

// "nvrtc 13.0; cublaslt 130002; cudnn 91002": those that are installed. Opens them.
std::string library_versions(GpuDevice& device);

}  // namespace pyflame::gpu
