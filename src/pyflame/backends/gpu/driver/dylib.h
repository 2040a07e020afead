// The vendors' dynamic libraries. Each has one description with its file names, and is opened once. None is linked.
#pragma once
#include <mutex>
#include <string>

#include "pyflame/tensor/device.h"

namespace pyflame::gpu {

struct Dylib {
  const char* name;  // "hipBLASLt"
  DeviceType type;
  const char* const* files;  // best first; ends with null
  const char* absent;        // the message if it is missing
  // Our own kernels can do its work, so PYFLAME_GPU_LIBRARIES=0 leaves it out.
  bool computes = false;
  // Ends with null. These are opened first. In wheels they are in other folders, and loaded libraries are found by name.
  const Dylib* const* needs = nullptr;

  struct Opened {
    void* handle = nullptr;
    std::string path;  // of the file
    std::string why;   // why there is no handle
  };
  // It is searched on the loader's own path, in the folders of ROCM_PATH, CUDA_HOME or CUDA_PATH, in Python packages, and in
  // the vendor's default folder. ROCm's libraries must belong to one release: if the HIP runtime comes from a Python package,
  // the others come from packages of the same release or are absent; if it does not, packages are not searched.
  const Opened& open() const;

  mutable std::once_flag once{};
  mutable const Opened* opened = nullptr;
};

void* find_symbol(void* library, const char* name);

// The driver's interface, and the compiler at run time.
extern const Dylib kHip, kCuda, kHiprtc, kNvrtc;

}  // namespace pyflame::gpu
