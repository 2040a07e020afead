// Bindings of src/pyflame/distributed.
#pragma once
#include "casters.h"

namespace pyflame::python {

void bind_distributed(nb::module_& m);
void bind_gradient_buckets(nb::module_& m);

}  // namespace pyflame::python
