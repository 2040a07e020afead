// What the doctor judges when it is not the machine as it is: a file of settings, or a Python program.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "tools/system/host.h"

namespace pyflame::tools::doctor {

// The facts of the machine with the settings of a file in place of the shell's, and what audit() takes beside them. `path` names the
// file in findings.
nlohmann::json facts_of_settings(const system::Host& host, std::string_view text, const std::string& path);
// The same with the settings that a Python program makes; see lint().
nlohmann::json facts_of_program(const system::Host& host, const std::string& path);

}  // namespace pyflame::tools::doctor
