// Searches of backends among their libraries' plans, in the file of measurements: a later process need not repeat them. They are kept and
// used without a budget (PYFLAME_TUNE_BUDGET_MS), unless PYFLAME_TUNED is 0.
#pragma once
#include "pyflame/tensor/runtime_hooks.h"

namespace pyflame {

// The fastest correct entry that a search on this device, with these versions of everything, has found.
std::optional<std::string> recall_search(Device device, const std::string& what, const std::string& problem);
void keep_search(Device device, const std::string& what, const std::string& problem,
                 const std::vector<FoundEntry>& found);

}  // namespace pyflame
