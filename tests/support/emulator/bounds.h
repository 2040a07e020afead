// The tensors of the launch that runs. A kernel names them at its begin (PF_TENSOR) and gets copies that lie far apart. Each of its accesses is
// compared with them.
#pragma once

namespace pyflame::emulator {

// While it exists, kernels may name tensors. Its end writes the results back.
class OwnTensors {
 public:
  OwnTensors() = default;
  ~OwnTensors();
  OwnTensors(const OwnTensors&) = delete;
  OwnTensors& operator=(const OwnTensors&) = delete;
};

}  // namespace pyflame::emulator
