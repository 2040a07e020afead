// The two GPU backends: one class for both device types. Every build has them; without a GPU they have no devices.
#pragma once
#include "pyflame/backends/backend.h"

namespace pyflame {

const Backend& rocm_backend();
const Backend& cuda_backend();

}  // namespace pyflame
