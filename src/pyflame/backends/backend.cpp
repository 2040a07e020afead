#include "pyflame/backends/backend.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>
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

}  // namespace

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
