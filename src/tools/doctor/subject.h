// What the doctor checks instead of the machine: a file of settings, or a Python program.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "tools/system/host.h"

namespace pyflame::tools::doctor {

// The facts of the machine, with the settings of a file instead of the shell's, and the further keys that audit()
// reads. `path` names the file in findings.
nlohmann::json facts_of_settings(const system::Host& host, std::string_view text, const std::string& path);
// The same with the settings that a Python program makes; see lint().
nlohmann::json facts_of_program(const system::Host& host, const std::string& path);

}  // namespace pyflame::tools::doctor
