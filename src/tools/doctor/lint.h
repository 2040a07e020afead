// `pyflame doctor lint FILE.py`: the rules about programs. A Python interpreter runs the embedded package doctor/lint, which parses the file with Python's own parser. The program itself is never run.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace pyflame::tools::doctor {

// What the linter says about a file, as the keys that audit() takes: {"lint": […], "env": {…}, "env_lines": {…}, "env_source": FILE,
// "failed_probes": […]}. Throws Error (OS) if there is no Python or no such file.
nlohmann::json lint(const std::string& file);

}  // namespace pyflame::tools::doctor
