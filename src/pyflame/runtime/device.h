// Which devices there are, and why one is not. The GPU libraries are not linked: 'rocm' and 'cuda' are looked for when asked.
#pragma once
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "pyflame/backends/backend.h"
#include "pyflame/tensor/device.h"

namespace pyflame {

Device current_device();
void set_current_device(Device d);  // Device error with the reason and what to do when it is not there

bool device_available(DeviceType type);
int device_count(DeviceType type);
// Empty when the device is there; otherwise one sentence with the reason and what mends it.
std::string unavailable_reason(DeviceType type);

// Null where the host can address the device's memory.
DeviceMemory* device_memory(Device d);
DeviceInfo device_info(Device d);  // Device error when it is not there

}  // namespace pyflame
