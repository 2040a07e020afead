// AMD's GPUs. Present in every build that does not leave it out; without a device it has none.
#pragma once
#include <optional>
#include <string>

#include "pyflame/backends/backend.h"
#include "pyflame/backends/communicator.h"
#include "pyflame/base/markers.h"

namespace pyflame {

const Backend& rocm_backend();
// Null where the library is not there, with the reason in `why`.
const CommunicatorLibrary* rocm_communicators(std::string* why);
// roctx, if it is on this machine. It is opened now.
std::optional<markers::Sink> roctx_library();

}  // namespace pyflame
