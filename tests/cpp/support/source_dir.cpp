#include "support/source_dir.h"

namespace pyflame::test {

std::string file_of_project(const std::string& name) { return PYFLAME_SOURCE_DIR "/" + name; }

}  // namespace pyflame::test
