// `pyflame doctor lint FILE.py`: the rules about programs. Python's own parser reads the file, in a Python that runs the embedded
// doctor/lint package; the program itself is never run.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace pyflame::tools::doctor {

// What the linter says about a file, as the keys that audit() takes: {"lint": […], "env": {…}, "env_lines": {…}, "env_source": FILE,
// "failed_probes": […]}. Raises Error (OS) when there is no Python or no such file.
nlohmann::json lint(const std::string& file);

}  // namespace pyflame::tools::doctor
