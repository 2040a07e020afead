// Reads a GPU's architecture from its runtime, and checks HSA_OVERRIDE_GFX_VERSION.
#include "pyflame/backends/gpu/driver/arch.h"

#include <fmt/core.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <vector>

#include "pyflame/base/gpu_arch.h"

namespace pyflame::gpu {

std::string arch_name(const Rt& rt, int ordinal) {
  if (rt.type == DeviceType::cuda)
    return fmt::format("sm_{}{}", rt.attribute(Attribute::major, ordinal), rt.attribute(Attribute::minor, ordinal));
  using Properties = Result (*)(void*, int);
  const auto properties = reinterpret_cast<Properties>(find_symbol(rt.library, kHipProperties));
  std::vector<char> buffer(8192);
  if (!properties || properties(buffer.data(), ordinal) != 0) return "";
  const std::string name(buffer.data() + kHipPropertiesNameAt,
                         strnlen(buffer.data() + kHipPropertiesNameAt, kHipPropertiesNameBytes));
  return name.rfind("gfx", 0) == 0 ? name.substr(0, name.find(':')) : "";
}

int compute_units(const std::string& arch, int multiprocessors) {
  const GpuArch* known = find_gpu_arch(arch);
  const char* mode = std::getenv("GPU_ENABLE_WGP_MODE");
  const bool pairs = known && known->has_wgp && !(mode && std::string_view(mode) == "0");
  return pairs ? 2 * multiprocessors : multiprocessors;
}

bool has_matrix_units(const std::string& arch) {
  const GpuArch* known = find_gpu_arch(arch);
  return known ? known->matrix != MatrixKind::none : arch.starts_with("sm_");
}

bool matrix_units_flush(const std::string& arch) { return arch == "gfx90a"; }

std::string override_refusal(const std::string& variable, const std::string& value, int version) {
  int major = 0, minor = 0, step = 0;
  if (value.empty() || version <= 0 || std::sscanf(value.c_str(), "%d.%d.%d", &major, &minor, &step) != 3) return "";
  const int real_major = version / 10000, real_minor = version / 100 % 100;
  if (major == real_major && minor == real_minor) return "";
  return fmt::format("{}={} makes a gfx{}{}{:x} run code of another family of instruction sets; unset {}", variable,
                     value, real_major, real_minor, version % 100, variable);
}

std::string override_refusal() {
  const std::string name = "HSA_OVERRIDE_GFX_VERSION";
  std::error_code none;
  for (const auto& node : std::filesystem::directory_iterator("/sys/class/kfd/kfd/topology/nodes", none)) {
    std::ifstream in(node.path() / "properties");
    int version = 0;
    for (std::string key, value; in >> key >> value;)
      if (key == "gfx_target_version") version = std::atoi(value.c_str());
    for (const std::string& variable : {name + "_" + node.path().filename().string(), name})
      if (const char* value = std::getenv(variable.c_str())) {
        if (std::string why = override_refusal(variable, value, version); !why.empty()) return why;
        break;  // the variable of one node has priority over the general one
      }
  }
  return "";
}

}  // namespace pyflame::gpu
