// The reference backend: every op as plain loops, computed in float64 (integers exactly in int64) and rounded once to
// the output's dtype. It is the oracle of the tests and the last entry of the CPU backend's list, so it accepts any
// strides, any dtype for which the op is defined, and any group.
#pragma once
#include <memory>

#include "pyflame/backends/backend.h"

namespace pyflame {

// Runs the nodes of the group one after the other, whatever its kind. Elided values are stored in the workspace.
std::unique_ptr<Executable> make_reference(const Problem& problem);

// Accepts everything except an op with a dtype for which it is not defined.
extern const Impl kReferenceImpl;

const Backend& reference_backend();  // fuses() is false

}  // namespace pyflame
