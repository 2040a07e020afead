// Groups of maps without waiting for a compiler: one kernel that runs them as programs, compiled once and kept on
// disk like all others. Generated kernels take over when they are ready; the bits are the same.
#pragma once
#include <memory>

#include "pyflame/backends/backend.h"

namespace pyflame::gpu {

class Interpreter : public Executable {
 public:
  // run() would not wait for a compiler.
  virtual bool ready(int device_index) const = 0;
};

// Null where the group is not one that the interpreter takes: reductions, sources of numbers, float64, too many values.
std::unique_ptr<Interpreter> interpreter(const Problem& p);

// The interpreter's text: floats are computed as float32.
std::string interpreter_source();

}  // namespace pyflame::gpu
