// Which devices there are, and why one is missing. GPU libraries are not linked: they are loaded when 'rocm' or 'cuda' is first used.
#pragma once
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "pyflame/backends/backend.h"
#include "pyflame/tensor/device.h"

namespace pyflame {

// Null if this build lacks the backend.
const Backend* registered_backend(DeviceType type);

void set_current_device(Device d);  // DeviceError with the reason and advice if it is not available

// Whether a kind of device can be used here, and how many of it there are.
bool device_available(DeviceType type);
int device_count(DeviceType type);
// DeviceError if the device cannot be used here: why, which devices there are, and the name of the other vendor's GPUs.
void check_device(const char* op, Device d);
// Empty if the device is available; otherwise one sentence with the reason and a remedy.
std::string unavailable_reason(DeviceType type);

// Why the kernel offers this process no AMD GPU, with a remedy; empty if it offers one. It reads only the kernel's files, so it needs no GPU
// library. `pyflame doctor` gives the same answer. Defined in register_backends.cpp.
std::string why_machine_has_no_amd_gpu();

// Null if the host can address the device's memory.
DeviceMemory* device_memory(Device d);
DeviceInfo device_info(Device d);  // DeviceError if it is not available

}  // namespace pyflame
