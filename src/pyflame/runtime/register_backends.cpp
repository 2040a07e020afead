// The only file that knows which backends this build has.
#include "pyflame/backends/cpu/cpu_backend.h"
#include "pyflame/backends/gpu/gpu_backend.h"
#include "pyflame/backends/null/null_backend.h"
#include "pyflame/backends/reference/reference.h"

namespace pyflame {

const Backend* find_backend(DeviceType type) {
  switch (type) {
    case DeviceType::cpu: return &cpu_backend();
    case DeviceType::reference: return &reference_backend();
    case DeviceType::null: return &null_backend();
    case DeviceType::rocm: return PYFLAME_USE_ROCM ? &rocm_backend() : nullptr;
    case DeviceType::cuda: return PYFLAME_USE_CUDA ? &cuda_backend() : nullptr;
  }
  return nullptr;
}

}  // namespace pyflame
