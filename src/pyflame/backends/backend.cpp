#include "pyflame/backends/backend.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <thread>

#include "pyflame/tensor/runtime_hooks.h"

namespace pyflame {

namespace {

std::string read_line(const char* path, const std::string& key) {
  std::ifstream in(path);
  std::string line;
  while (std::getline(in, line))
    if (line.rfind(key, 0) == 0) {
      const size_t at = line.find_first_not_of(" \t:", key.size());
      return at == std::string::npos ? "" : line.substr(at);
    }
  return "";
}

// The parts of a configuration, by name.
std::map<std::string_view, std::string_view> parts_of(std::string_view text) {
  std::map<std::string_view, std::string_view> parts;
  while (!text.empty()) {
    const size_t end = std::min(text.find(','), text.size());
    const std::string_view part = text.substr(0, end);
    const size_t equals = std::min(part.find('='), part.size());
    parts[part.substr(0, equals)] = part.substr(equals);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return parts;
}

}  // namespace

bool Configurations::has(const Problem& p, const std::string& configuration) const {
  const std::vector<std::string> all = list(p);
  return std::find(all.begin(), all.end(), configuration) != all.end();
}

std::string one_of(const std::vector<std::string>& configurations) {
  std::string text = "one of";
  for (const std::string& each : configurations) text += " " + each;
  return text;
}

size_t differing_parts(std::string_view a, std::string_view b) {
  const auto x = parts_of(a), y = parts_of(b);
  size_t different = 0;
  for (const auto& [name, value] : x) {
    const auto found = y.find(name);
    different += found == y.end() || found->second != value;
  }
  for (const auto& [name, value] : y) different += !x.contains(name);
  return different;
}

DeviceInfo Backend::info(int) const {
  DeviceInfo info;
  info.name = read_line("/proc/cpuinfo", "model name");
  if (info.name.empty()) info.name = "CPU";
#if defined(__x86_64__)
  info.architecture = "x86_64";
#elif defined(__aarch64__)
  info.architecture = "aarch64";
#else
  info.architecture = "unknown";
#endif
  const long pages = sysconf(_SC_PHYS_PAGES), free_pages = sysconf(_SC_AVPHYS_PAGES), page = sysconf(_SC_PAGESIZE);
  info.total_memory = static_cast<uint64_t>(pages) * static_cast<uint64_t>(page);
  info.free_memory = static_cast<uint64_t>(free_pages) * static_cast<uint64_t>(page);
  info.compute_units = static_cast<int64_t>(std::max(1u, std::thread::hardware_concurrency()));
  return info;
}

const Backend* find_backend(DeviceType type) { return runtime_hooks.find_backend(type); }

}  // namespace pyflame
