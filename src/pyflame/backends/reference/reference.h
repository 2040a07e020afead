// The reference backend: every op of the table in plain loops, float64 inside (integers exactly in int64), rounded once
// to the output's dtype. It is the oracle of the tests and the last entry of the cpu backend's list, so it takes any
// strides, any dtype that has a meaning for the op, and any group.
#pragma once
#include <memory>

#include "pyflame/backends/backend.h"

namespace pyflame {

// Runs the nodes of the group one after the other, whatever its kind; values without memory (elided) live in the
// workspace.
std::unique_ptr<Executable> make_reference(const Problem& problem);

// Accepts everything but an op on a dtype for which it has no meaning.
extern const Impl kReferenceImpl;

const Backend& reference_backend();  // fuses() is false

}  // namespace pyflame
