// The backend that only plans.
#pragma once
#include "pyflame/backends/backend.h"

namespace pyflame {

// Plans and counts memory, but runs nothing, for tests of fusion, memory plans and cache keys. Reading a tensor gives
// zeros.
const Backend& null_backend();

}  // namespace pyflame
