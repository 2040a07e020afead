// Bindings of runtime/allocator.h.
#pragma once
#include "casters.h"

namespace pyflame::python {

void bind_memory(nb::module_& m);

}  // namespace pyflame::python
