// How an implementation's loops are divided among threads, as configurations that all implementations for the CPU have. A division
// never changes a bit of the result.
#pragma once
#include "pyflame/backends/backend.h"

namespace pyflame::cpu {

// The implementation with these configurations besides its own.
Impl with_divisions(const Impl& impl);

}  // namespace pyflame::cpu
