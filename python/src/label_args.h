// A label's members and line as a JSON object: the rows of a profile and the steps of pf.explain are compared by it.
#pragma once
#include <string>

namespace pyflame::python {

std::string args_of(const std::string& members, const std::string& place);

}  // namespace pyflame::python
