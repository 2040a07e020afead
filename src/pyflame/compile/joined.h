// What a cut between two windows costs: both are grouped once more as if they were one window. For pf.explain.
#pragma once
#include <cstdint>
#include <memory>
#include <string>

#include "pyflame/compile/program.h"

namespace pyflame {

// A program, and what its slots and bindings stand for in one of its windows.
struct Placed {
  std::shared_ptr<const Program> program;
  Indexed<SlotId, uint64_t> storages;   // Storage::id
  Indexed<BindingId, int64_t> offsets;  // in bytes
};

struct Across {
  int64_t saves = 0;  // bytes of memory traffic
  std::string ops;    // "mul -> add": with the largest value that would not be stored, or not be read again; or empty
};
Across saved_by_joining(const Placed& first, const Placed& second);

}  // namespace pyflame
