// Which GPUs a program sees after ROCR_VISIBLE_DEVICES and HIP_VISIBLE_DEVICES or CUDA_VISIBLE_DEVICES, by the rules of
// the runtimes: the second filter numbers the GPUs that the first one has left, and each list ends at its first invalid
// entry.
#pragma once
#include <string>
#include <vector>

#include "tools/system/host.h"

namespace pyflame::tools::system {

struct VisibleStep {
  std::string variable, value;
  std::vector<int> before, after;  // indices of GPUs in the order of KFD
  std::string note;                // what was ignored and why; empty: nothing
};

struct Visibility {
  std::vector<VisibleStep> steps;  // of the variables that are set, in the order in which they apply
  std::vector<int> gpus;           // in the order in which the program sees them
};

// uuids: one per GPU ("GPU-…", or empty where it has none).
Visibility visible_gpus(const std::vector<std::string>& uuids, const Environment& environment);

}  // namespace pyflame::tools::system
