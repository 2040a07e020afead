// The page of `pyflame memory snapshot`: what holds a device's memory, which line took it, and how it went over time.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace pyflame::tools::memory {

// Whether a JSON document is one of pf.memory.snapshot.
bool is_snapshot(const nlohmann::json& document);
std::string html_page(const nlohmann::json& document);

}  // namespace pyflame::tools::memory
