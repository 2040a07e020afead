// The backend that only plans.
#pragma once
#include "pyflame/backends/backend.h"

namespace pyflame {

// Plans and counts, runs nothing: what tests of fusion, memory and cache keys look at. Reading a tensor gives zeros.
const Backend& null_backend();

}  // namespace pyflame
