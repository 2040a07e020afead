// NVIDIA's GPUs. Present in every build that does not leave it out; without a device it has none.
#pragma once
#include <optional>
#include <string>

#include "pyflame/backends/backend.h"
#include "pyflame/backends/communicator.h"
#include "pyflame/base/markers.h"

namespace pyflame {

const Backend& cuda_backend();
// Null where the library is not there, with the reason in `why`.
const CommunicatorLibrary* cuda_communicators(std::string* why);
// NVTX, if it is on this machine. It is opened now.
std::optional<markers::Sink> nvtx_library();

}  // namespace pyflame
