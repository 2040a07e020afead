// See arch.h.
#include "pyflame/backends/gpu/arch.h"

#include <fmt/core.h>

#include <cstring>
#include <vector>

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

}  // namespace pyflame::gpu
