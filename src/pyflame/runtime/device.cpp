// Lists devices and gives reasons for missing ones.
#include "pyflame/runtime/device.h"

#include <unistd.h>

#include "pyflame/backends/backend.h"
#include "pyflame/base/error.h"

namespace pyflame {

namespace {

// The doctor's answer if there is one; otherwise the answer of the GPU's runtime.
std::string rocm_reason() {
  const std::string absence = why_machine_has_no_amd_gpu();
  return absence.empty() ? find_backend(DeviceType::rocm)->absence() : absence;
}

std::string cuda_reason() {
  if (access("/dev/nvidiactl", F_OK) != 0) return "no NVIDIA driver: /dev/nvidiactl is missing";
  return find_backend(DeviceType::cuda)->absence();
}

}  // namespace

bool device_available(DeviceType type) { return device_count(type) > 0; }

int device_count(DeviceType type) {
  const Backend* backend = find_backend(type);
  return backend ? backend->device_count() : 0;
}

void check_device(const char* op, Device d) {
  if (!device_available(d.type)) {
    std::string others;
    for (const DeviceType type :
         {DeviceType::cpu, DeviceType::rocm, DeviceType::cuda, DeviceType::reference, DeviceType::null})
      if (device_available(type)) others += fmt::format("{}'{}'", others.empty() ? "" : ", ", Device{type, 0}.str());
    // 'cuda' is the habit from PyTorch, where it names AMD's GPUs too.
    std::string hint = d.type == DeviceType::rocm ? "; hint: `pyflame doctor` says what to do" : "";
    if (d.type == DeviceType::cuda)
      hint = device_available(DeviceType::rocm) ? "; hint: on an AMD GPU write 'rocm'"
                                                : "; hint: no GPU was found; `pyflame doctor` says what to do";
    if (d.type == DeviceType::rocm && device_available(DeviceType::cuda))
      hint = "; hint: on an NVIDIA GPU write 'cuda'";
    PF_FAIL(Device, "{}: the device is not available; got '{}' ({}); expected one of those found here: {}{}", op,
            d.str(), unavailable_reason(d.type), others, hint);
  }
  PF_CHECK(d.index < device_count(d.type), Device, "{}: no such device; got '{}'; expected an index below {}", op,
           d.str(), device_count(d.type));
}

DeviceMemory* device_memory(Device d) {
  if (!has_own_memory(d.type)) return nullptr;
  if (!device_available(d.type)) check_device("device", d);
  return find_backend(d.type)->memory(d.index);
}

std::string unavailable_reason(DeviceType type) {
  if (device_available(type)) return "";
  if (!find_backend(type))
    return fmt::format("this build leaves the backend out (PYFLAME_USE_{}=OFF)",
                       type == DeviceType::rocm ? "ROCM" : "CUDA");
  return type == DeviceType::rocm ? rocm_reason() : cuda_reason();
}

void set_current_device(Device d) {
  check_device("set_device", d);
  set_current_device_unchecked(d);
}

DeviceInfo device_info(Device d) {
  if (!device_available(d.type)) check_device("device_info", d);
  DeviceInfo info = find_backend(d.type)->info(d.index);
  if (d.type == DeviceType::reference || d.type == DeviceType::null) info.name = d.str() + " on " + info.name;
  return info;
}

}  // namespace pyflame
