// Which libraries take ranges for the vendors' profilers, and whether a profiler is there. See base/markers.h.
#pragma once
#include "pyflame/base/markers.h"

namespace pyflame {

// The libraries of this build's vendors that are on this machine; opened now. In register_backends.cpp.
std::vector<markers::Sink> marker_libraries();
// Whether a profiler that reads ranges has started this process. It looks at variables and preloaded symbols only.
bool profiler_is_attached();

namespace markers {

// Opens the libraries, once. Returns whether there is one.
bool open_libraries();
// What PYFLAME_EMIT_RANGES says: with `auto`, ranges are passed on if a profiler is attached. For the start of a process.
void follow_environment();

}  // namespace markers
}  // namespace pyflame
