// The document of `pyflame inspect` ("pyflame.inspect/1"): everything that text, JSON and HTML show is computed here.
#pragma once
#include <array>
#include <nlohmann/json_fwd.hpp>
#include <optional>

#include "tools/inspect/order.h"
#include "tools/inspect/scan.h"

namespace pyflame::tools::inspect {

struct DocumentOptions {
  SortBy sort = SortBy::worst;
  int block = 0;                               // 0: the workgroup that the kernel requires, or 256 if that fits
  int64_t dynamic_lds = 0;                     // bytes that a launch adds
  std::optional<std::array<int64_t, 3>> grid;  // of a launch, in workgroups
  int cus = 0;                                 // of the GPU that it is launched on; 0: the architecture's first product
};

nlohmann::json document(const Scan& scan, const DocumentOptions& options);

}  // namespace pyflame::tools::inspect
