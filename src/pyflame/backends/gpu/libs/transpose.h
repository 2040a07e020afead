// Copies a tensor from one memory format to the other, for implementations that read only one of them.
#pragma once
#include <string>

#include "pyflame/backends/gpu/jit/kernel.h"
#include "pyflame/backends/gpu/shapes/conv_case.h"

namespace pyflame::gpu {

// From one memory format to the other, for elements of this many bytes (kernels/conv/transpose.h).
class Transpose {
 public:
  Transpose(DeviceType type, int bytes);
  void run(int device_index, const Dims& shape, const void* from, void* to, MemoryFormat format);  // the format of `to`
  static std::string source(int bytes);

 private:
  Kernel kernel_;
};

}  // namespace pyflame::gpu
