// What the doctor checks instead of the machine: a file of settings, or a Python program.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "tools/doctor/target.h"
#include "tools/system/host.h"

namespace pyflame::tools::doctor {

// The facts of the machine with the settings of a file instead of those of the shell, and the other keys that audit() reads. `path` names
// the file in findings. `wanted` is what the command line says about the target; the file itself says the rest. Throws Error (Value) if
// the text is none.
nlohmann::json facts_of_settings(const system::Host& host, std::string_view text, const std::string& path,
                                 const Target& wanted = {});
// The same with the settings of a Python program; see lint().
nlohmann::json facts_of_program(const system::Host& host, const std::string& path);

}  // namespace pyflame::tools::doctor
