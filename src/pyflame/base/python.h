// The Python interpreter that programs start for what only the package computes: commands of `pyflame`, language models.
#pragma once
#include <string>

namespace pyflame {

// `given`; where it is empty, PYFLAME_PYTHON, then the interpreter of the environment that has this program, then
// "python3", which is looked for on PATH.
std::string python_interpreter(const std::string& given);

}  // namespace pyflame
