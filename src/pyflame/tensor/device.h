// Device identity. 'reference' (the oracle of the tests) and 'null' (plans, but computes nothing) are devices as well.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace pyflame {

// The kinds of devices.
enum class DeviceType : uint8_t { cpu, reference, null, rocm, cuda };
constexpr int kNumDeviceTypes = 5;

// A device: its kind, and its number among those of this kind.
struct Device {
  DeviceType type = DeviceType::cpu;
  int8_t index = 0;
  bool operator==(const Device&) const = default;
  std::string str() const;  // "cpu", "rocm:0"
};

// Whether the host cannot read the device's memory directly: tensors are copied to the host first.
constexpr bool has_own_memory(DeviceType t) { return t == DeviceType::rocm || t == DeviceType::cuda; }

// Parses "cpu", "rocm", "rocm:1", "cuda:0", "reference", "null"; anything else is a ValueError. Does not check whether the device exists.
Device parse_device(std::string_view text);

// Where this thread makes new tensors. set_current_device() (runtime/device.h) also checks that the device is there.
Device current_device();
void set_current_device_unchecked(Device d);

}  // namespace pyflame
