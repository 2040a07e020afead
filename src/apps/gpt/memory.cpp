#include "apps/gpt/memory.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <map>
#include <tuple>

#include "pyflame/runtime/allocator.h"
#include "pyflame/runtime/device.h"

namespace pyflame::apps::gpt {

namespace {

constexpr double kSmall = 0.05;                  // of all memory: what is left is small
constexpr size_t kLines = 4;                     // that grow, one after the other
constexpr uint64_t kSteady = uint64_t{1} << 20;  // from one line to the next that are no growth

// The numbers of a file with lines such as "VmRSS:  123 kB", in bytes.
std::map<std::string, uint64_t> kilobytes(const char* path) {
  std::map<std::string, uint64_t> found;
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) {
    const size_t colon = line.find(':');
    if (colon != std::string::npos && line.ends_with(" kB"))
      found[line.substr(0, colon)] = std::strtoull(line.c_str() + colon + 1, nullptr, 10) * 1024;
  }
  return found;
}

// The number in a file; `other` if there is none.
uint64_t number_in(const char* path, uint64_t other) {
  uint64_t value = 0;
  return std::ifstream(path) >> value ? value : other;
}

// Free and all bytes of the host. A control group's limit counts if it is below the machine's memory.
std::pair<uint64_t, uint64_t> host_memory() {
  auto values = kilobytes("/proc/meminfo");
  uint64_t total = values["MemTotal"],
           free = values.contains("MemAvailable") ? values["MemAvailable"] : values["MemFree"];
  constexpr std::pair<const char*, const char*> kGroups[] = {
      {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"},
      {"/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"}};
  for (const auto& [limit_file, usage_file] : kGroups) {
    const uint64_t limit = number_in(limit_file, total), usage = number_in(usage_file, 0);
    if (limit >= total) continue;
    total = limit;
    free = std::min(free, limit - std::min(limit, usage));
  }
  return {free, total};
}

}  // namespace

nlohmann::ordered_json MemoryUse::json() const {
  return {{"allocated", allocated}, {"peak", peak}, {"reserved", reserved},   {"total", total},
          {"left", left},           {"host", host}, {"host_peak", host_peak}, {"host_total", host_total},
          {"host_left", host_left}};
}

MemoryUse MemoryUse::from_json(const nlohmann::json& j) {
  const auto number = [&](const char* name) {
    return j.contains(name) && j[name].is_number_unsigned() ? j[name].get<uint64_t>() : 0;
  };
  return {number("allocated"), number("peak"),      number("reserved"),   number("total"),    number("left"),
          number("host"),      number("host_peak"), number("host_total"), number("host_left")};
}

std::string memory_size(uint64_t bytes) {
  const auto n = static_cast<double>(bytes);
  if (bytes >= uint64_t{1} << 30) return fmt::format("{:.2f} GiB", n / (1 << 30));
  if (bytes >= uint64_t{1} << 20) return fmt::format("{:.1f} MiB", n / (1 << 20));
  if (bytes >= uint64_t{1} << 10) return fmt::format("{:.1f} KiB", n / (1 << 10));
  return fmt::format("{} bytes", bytes);
}

MemoryWatch::MemoryWatch(Device device, int64_t steps)
    : device_(device), on_host_(!has_own_memory(device.type)), steps_(steps) {
  reset_peak_memory(device);
}

MemoryUse MemoryWatch::look() const {
  MemoryUse use;
  auto process = kilobytes("/proc/self/status");
  use.host = process["VmRSS"];
  use.host_peak = process["VmHWM"];
  std::tie(use.host_left, use.host_total) = host_memory();
  const MemoryStats m = memory_stats(device_);
  use.allocated = m.allocated;
  use.peak = m.peak_allocated;
  use.reserved = on_host_ ? m.allocated + m.cached : m.reserved;
  uint64_t free = use.host_left;
  use.total = use.host_total;
  if (!on_host_) {
    const DeviceInfo info = device_info(device_);
    free = info.free_memory;
    use.total = info.total_memory;
  }
  use.left = free + m.cached;
  if (m.limit > 0) {
    use.total = std::min(m.limit, use.total);
    use.left = std::min(use.left, use.total - std::min(use.total, m.allocated));
  }
  return use;
}

std::string MemoryWatch::text(const MemoryUse& use) const {
  return fmt::format("memory: {} {}, peak {} of {}; process {}, peak {} of {}", on_host_ ? "tensors" : device_.str(),
                     memory_size(use.allocated), memory_size(use.peak), memory_size(use.total), memory_size(use.host),
                     memory_size(use.host_peak), memory_size(use.host_total));
}

std::vector<std::string> MemoryWatch::warnings(const MemoryUse& use, int64_t step) {
  constexpr const char* kSmaller =
      "a smaller --batch_size with as many more --gradient_accumulation_steps, a smaller --block_size, or "
      "--use_mixed_precision";
  constexpr const char* kReport = "report.html has the curve; please report it as an error of pyflame";
  std::vector<std::string> said;
  if (use.total > 0) {  // the device 'null' has none
    const double room =
        static_cast<double>(use.left) - static_cast<double>(use.peak - std::min(use.peak, use.allocated));
    look_at({device_.str(), use.allocated, use.total, room, kSmaller, kReport}, step, device_seen_, said);
  }
  if (on_host_ && !said.empty()) return said;  // it is the same memory
  look_at({"the host", use.host, use.host_total, static_cast<double>(use.host_left),
           on_host_ ? kSmaller : "a smaller --max_bytes, or fewer --num_workers", kReport},
          step, host_seen_, said);
  return said;
}

void MemoryWatch::look_at(const Place& place, int64_t step, Seen& seen, std::vector<std::string>& said) const {
  const auto room = static_cast<uint64_t>(std::max(0.0, place.room));
  if (!seen.small && place.room < kSmall * static_cast<double>(place.total)) {
    seen.small = true;
    said.push_back(fmt::format("memory of {} is nearly full; got {} left at the peak of a step, of {}; hint: {}",
                               place.name, memory_size(room), memory_size(place.total), place.less));
  }
  if (!std::exchange(seen.begun, true)) return;  // the optimizer's state is made in the first steps
  auto& lines = seen.lines;
  if (!lines.empty() && place.used < lines.back().second + kSteady) lines.clear();
  lines.emplace_back(step, place.used);
  if (lines.size() <= kLines || seen.growing) return;
  const auto [first, least] = lines.front();
  const auto [last, most] = lines.back();
  const double each = static_cast<double>(most - least) / static_cast<double>(std::max<int64_t>(1, last - first));
  const double until = static_cast<double>(step) + static_cast<double>(room) / each;
  if (until >= static_cast<double>(steps_)) return;
  seen.growing = true;
  said.push_back(fmt::format(
      "memory of {} grows by {} a step; got {} at step {}, which will be all at about step {:.0f}; hint: {}",
      place.name, memory_size(static_cast<uint64_t>(each)), memory_size(most), last, until, place.cause));
}

}  // namespace pyflame::apps::gpt
