// Kernels of one build against those of another, or against a committed budget. Both documents are "pyflame.inspect/1"; which figures
// count, and in which direction they get worse, is said once, here.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace pyflame::tools::inspect {

// "pyflame.inspect.diff/1": kernels matched by symbol and target, the most important changes first.
nlohmann::json diff(const nlohmann::json& a, const nlohmann::json& b);

// A budget ("pyflame.inspect.gate/1") from the present state: every kernel with what it has now as the most it may have; code may grow
// by a tenth.
nlohmann::json make_gate(const nlohmann::json& document);

// What got worse: {"file", "checked", "worse": [{name, symbol, gfx, what, budget, now}], "unlisted": […], "vanished": […], "notes": […]}.
// `text` is the budget's file. Error(Value) where it is none, or where no kernel is left to check.
nlohmann::json check_gate(const nlohmann::json& document, const std::string& text, const std::string& file);

}  // namespace pyflame::tools::inspect
