// Device identity. 'reference' and 'null' are devices as well: the oracle and the planner without execution.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace pyflame {

enum class DeviceType : uint8_t { cpu, reference, null, rocm, cuda };
constexpr int kNumDeviceTypes = 5;

struct Device {
  DeviceType type = DeviceType::cpu;
  int8_t index = 0;
  bool operator==(const Device&) const = default;
  std::string str() const;  // "cpu", "rocm:0"
};

// Whether its memory is beyond the host's reach: tensors are copied before the host can read them.
constexpr bool has_own_memory(DeviceType t) { return t == DeviceType::rocm || t == DeviceType::cuda; }

// Parses "cpu", "rocm", "rocm:1", "cuda:0", "reference", "null". ValueError for anything else. Does not check presence.
Device parse_device(std::string_view text);

}  // namespace pyflame
