// NVIDIA's GPUs. Present in every build that does not leave it out; without a device it has none.
#pragma once
#include "pyflame/backends/backend.h"

namespace pyflame {

const Backend& cuda_backend();

}  // namespace pyflame
