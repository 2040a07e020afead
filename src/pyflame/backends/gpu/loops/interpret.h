// Runs groups of elementwise nodes while their own kernel is being compiled: one kernel interprets them as programs. It
// is compiled once and cached on disk like all kernels. Generated kernels replace it when they are ready; the bits are
// the same.
#pragma once
#include <memory>

#include "pyflame/backends/backend.h"

namespace pyflame::gpu {

class Interpreter : public Executable {
 public:
  // Whether run() would not wait for a compiler.
  virtual bool ready(int device_index) const = 0;
};

// Null if the interpreter does not support the group: reductions, ops without inputs, float64, too many values.
std::unique_ptr<Interpreter> interpreter(const Problem& p);

// The text of the interpreter's kernel; floats are computed as float32.
std::string interpreter_source();

}  // namespace pyflame::gpu
