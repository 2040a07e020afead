// The only file that knows which parts this build has: the backends, and the view of the machine that explains a missing GPU.
#include <fmt/format.h>

#include "pyflame/backends/cpu/cpu_backend.h"
#include "pyflame/backends/cuda/cuda_backend.h"
#include "pyflame/backends/null/null_backend.h"
#include "pyflame/backends/reference/reference.h"
#include "pyflame/backends/rocm/rocm_backend.h"
#include "pyflame/runtime/communicators.h"
#include "pyflame/runtime/device.h"
#include "pyflame/runtime/markers.h"
#include "tools/system/absence.h"

namespace pyflame {

const Backend* registered_backend(DeviceType type) {
  switch (type) {
    case DeviceType::cpu: return &cpu_backend();
    case DeviceType::reference: return &reference_backend();
    case DeviceType::null: return &null_backend();
    case DeviceType::rocm: return PYFLAME_USE_ROCM ? &rocm_backend() : nullptr;
    case DeviceType::cuda: return PYFLAME_USE_CUDA ? &cuda_backend() : nullptr;
  }
  return nullptr;
}

const CommunicatorLibrary* communicators(DeviceType type, std::string* why) {
  if (device_available(type)) {
    if (PYFLAME_USE_ROCM && type == DeviceType::rocm) return rocm_communicators(why);
    if (PYFLAME_USE_CUDA && type == DeviceType::cuda) return cuda_communicators(why);
  }
  if (why)
    *why = has_own_memory(type) ? unavailable_reason(type) : "devices of this kind have no library of collectives";
  return nullptr;
}

std::vector<markers::Sink> marker_libraries() {
  std::vector<markers::Sink> found;
  const auto add = [&](std::optional<markers::Sink> sink) {
    if (sink) found.push_back(std::move(*sink));
  };
  if constexpr (PYFLAME_USE_ROCM) add(roctx_library());
  if constexpr (PYFLAME_USE_CUDA) add(nvtx_library());
  return found;
}

std::string why_machine_has_no_amd_gpu() {
  if constexpr (PYFLAME_USE_ROCM) {
    const auto absence = tools::system::why_no_gpu(*tools::system::this_machine());
    if (absence) return fmt::format("{}; try: {}", absence->what, absence->fix);
  }
  return "";
}

}  // namespace pyflame
