// The vendors' dynamic libraries. Each has one description with its file names, and is opened once. None is linked.
#pragma once
#include <mutex>
#include <string>

#include "pyflame/tensor/device.h"

namespace pyflame::gpu {

struct Dylib {
  const char* name;  // the message if it is missing
  DeviceType type;
  const char* const* files;  // best first; ends with null
  // Ends with null. These are opened first. In wheels they are in other folders, and libraries that are loaded already
  // are found by name.
  const char* absent;
  // Our own kernels can do its work, so PYFLAME_GPU_LIBRARIES=0 leaves it out.
  bool computes = false;
  // Ends with null. These are opened before it. In wheels they lie in other folders, and what is already loaded is found by its name.
  const Dylib* const* needs = nullptr;

  struct Opened {
    void* handle = nullptr;
    std::string path;  // of the file
    std::string why;   // there is no handle
  };
  // It is looked for on the loader's own path, in the folders that ROCM_PATH, CUDA_HOME or CUDA_PATH name, in Python packages, and where the
  // vendor's installer puts it. ROCm's libraries must be of one release: where the HIP runtime is a package's, the others are as well, and
  // where it is not, packages are not searched.
  const Opened& open() const;

  mutable std::once_flag once{};
  mutable const Opened* opened = nullptr;
};

void* find_symbol(void* library, const char* name);

// The driver's interface, and the compiler at run time.
extern const Dylib kHip, kCuda, kHiprtc, kNvrtc;

}  // namespace pyflame::gpu
