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

DeviceMemory* device_memory(Device d) {
  if (!has_own_memory(d.type)) return nullptr;
  PF_CHECK(device_available(d.type), Device, "device: '{}' is not available; {}", d.str(), unavailable_reason(d.type));
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
  const std::string why = unavailable_reason(d.type);
  PF_CHECK(why.empty(), Device,
           "set_device: the device is not available; got '{}'; expected one of 'cpu', 'reference', 'null'; {}", d.str(),
           why);
  PF_CHECK(d.index < device_count(d.type), Device, "set_device: no such device; got '{}'; expected an index below {}",
           d.str(), device_count(d.type));
  set_current_device_unchecked(d);
}

DeviceInfo device_info(Device d) {
  const std::string why = unavailable_reason(d.type);
  PF_CHECK(why.empty(), Device, "device_info: the device is not available; got '{}'; {}", d.str(), why);
  DeviceInfo info = find_backend(d.type)->info(d.index);
  if (d.type == DeviceType::reference || d.type == DeviceType::null) info.name = d.str() + " on " + info.name;
  return info;
}

}  // namespace pyflame
