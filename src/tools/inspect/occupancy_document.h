// The documents of `pyflame occupancy`: a kernel that is described instead of read ("pyflame.occupancy/1"), and the table of
// architectures ("pyflame.architectures/1").
#pragma once
#include <array>
#include <nlohmann/json_fwd.hpp>
#include <optional>

#include "tools/inspect/occupancy.h"

namespace pyflame::tools::inspect {

// With a grid, in workgroups, also how the launch fills a machine of `cus` CUs; 0: the architecture's first product.
nlohmann::json occupancy_document(const GpuArch& arch, const KernelResources& kernel,
                                  const std::optional<std::array<int64_t, 3>>& grid, int cus);
nlohmann::json architectures_document();

}  // namespace pyflame::tools::inspect
