// The switches of the compiler's rewrites.
#pragma once
#include <nanobind/nanobind.h>

namespace pyflame::python {

void bind_rewrites(nanobind::module_& m);

}  // namespace pyflame::python
