// Traces of PyTorch without work of a device: the CPU's operators are what is analysed.
#pragma once
#include "tools/profile/trace.h"

namespace pyflame::tools::profile {

// If the trace has operators and nothing of a device, not even calls of its runtime, makes each operator's own time (without the
// operators inside it) an event of the device "CPU", and sets `on_host` and `operators`. Call it after link().
void use_operators_as_work(Trace& trace);

}  // namespace pyflame::tools::profile
