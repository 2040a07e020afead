// The memory of a training run: bytes of the device and of this process, and warnings before memory runs out. They have the names and the meaning of those
// of pf.train.Trainer (python/pyflame/train/_memory.py). To look at them waits for no device.
#pragma once
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "pyflame/tensor/device.h"

namespace pyflame::apps::gpt {

// Bytes. Of the device: in use, the most since the run began, taken from the driver, all, and what this process can still take. Of the host: resident in
// this process, the most of it, all, and what is free.
struct MemoryUse {
  uint64_t allocated = 0, peak = 0, reserved = 0, total = 0, left = 0, host = 0, host_peak = 0, host_total = 0,
           host_left = 0;
  nlohmann::ordered_json json() const;
  static MemoryUse from_json(const nlohmann::json& j);  // what is missing is 0
};

std::string memory_size(uint64_t bytes);  // "1.50 GiB", "12.0 MiB"

class MemoryWatch {
 public:
  // The device's peak is counted from now on. `steps`: of the whole run.
  MemoryWatch(Device device, int64_t steps);
  MemoryUse look() const;
  std::string text(const MemoryUse& use) const;  // what the line at the end of a short run says
  // What is to be said after this step. Each kind of warning is given once.
  std::vector<std::string> warnings(const MemoryUse& use, int64_t step);

 private:
  struct Place {
    std::string name;
    uint64_t used = 0, total = 0;
    double room = 0;
    const char *less, *cause;  // hints
  };
  struct Seen {
    bool begun = false, small = false, growing = false;
    std::vector<std::pair<int64_t, uint64_t>> lines;  // that grow
  };
  void look_at(const Place& place, int64_t step, Seen& seen, std::vector<std::string>& said) const;
  Device device_;
  bool on_host_;
  int64_t steps_;
  Seen device_seen_, host_seen_;
};

}  // namespace pyflame::apps::gpt
