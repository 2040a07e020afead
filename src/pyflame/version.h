// The only place where the version is written: CMakeLists.txt and pyproject.toml read this line. A plain header, not a generated
// one, so that all build trees compile with the same command lines and share the compiler cache.
#pragma once

// The version as text.
#define PYFLAME_VERSION "0.1.0"
