// The CPU backend: one object, its implementation lists are in cpu_backend.cpp.
#pragma once
#include "pyflame/backends/backend.h"

namespace pyflame {

const Backend& cpu_backend();

}  // namespace pyflame
