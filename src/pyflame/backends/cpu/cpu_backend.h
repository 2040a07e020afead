#pragma once
#include "pyflame/backends/backend.h"

namespace pyflame {

const Backend& cpu_backend();

}  // namespace pyflame
