// The order of the kernels in the document of `pyflame inspect`, and which of them are shown as one: a kernel that was
// compiled for several architectures.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string_view>
#include <vector>

namespace pyflame::tools::inspect {

// worst: findings of HIGH first, then spills, then scratch, then findings of MED, then low occupancy.
enum class SortBy { worst, vgpr, scratch, spills, occupancy, name, code };
std::optional<SortBy> sort_by(std::string_view name);

// An array of the kernels.
nlohmann::json sorted(std::vector<nlohmann::json> kernels, SortBy by);

// For each kernel of the source an array of its indices in `kernels`: one for each target, in the order of `kernels`, so the
// worst one first. `objects` are those of the document.
nlohmann::json groups(const nlohmann::json& kernels, const nlohmann::json& objects);

// The share of the waves that fit; 1 if the occupancy is not known.
double fill(const nlohmann::json& kernel);

}  // namespace pyflame::tools::inspect
