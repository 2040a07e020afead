// The libraries of collectives of this build's backends.
#pragma once
#include <string>

#include "pyflame/backends/communicator.h"

namespace pyflame {

// Null where there is none, with the reason in `why`. Defined in register_backends.cpp.
const CommunicatorLibrary* communicators(DeviceType type, std::string* why);

}  // namespace pyflame
