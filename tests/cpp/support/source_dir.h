// The folder of the sources, for tests that read files of the project.
#pragma once
#include <string>

namespace pyflame::test {

// file_of_project("tests/x.json"): its whole path.
std::string file_of_project(const std::string& name);

}  // namespace pyflame::test
