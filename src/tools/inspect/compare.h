// Compares the kernels of one build with those of another, or with a committed budget. Both documents are
// "pyflame.inspect/1". This is the only place that says which figures are compared, and in which direction they get
// worse.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace pyflame::tools::inspect {

// "pyflame.inspect.diff/1": kernels matched by symbol and target, the most important changes first.
nlohmann::json diff(const nlohmann::json& a, const nlohmann::json& b);

// Makes a budget ("pyflame.inspect.gate/1") from the present state: the present figures of each kernel become its
// limits; code may grow by a tenth.
nlohmann::json make_gate(const nlohmann::json& document);

// What got worse: {"file", "checked", "worse": [{name, symbol, gfx, what, budget, now}], "unlisted": […], "vanished":
// […], "notes": […]}. `text` is the budget's file. Error(Value) if it is not a budget, or if no kernel is left to
// check.
nlohmann::json check_gate(const nlohmann::json& document, const std::string& text, const std::string& file);

}  // namespace pyflame::tools::inspect
