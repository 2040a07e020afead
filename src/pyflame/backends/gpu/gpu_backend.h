// The two GPU backends: one class, a device type each. Present in every build; without a device they have none.
#pragma once
#include "pyflame/backends/backend.h"

namespace pyflame {

const Backend& rocm_backend();
const Backend& cuda_backend();

}  // namespace pyflame
