// The CPU backend: one object. Its lists of implementations are in cpu_backend.cpp.
#pragma once
#include "pyflame/backends/backend.h"

namespace pyflame {

const Backend& cpu_backend();

}  // namespace pyflame
