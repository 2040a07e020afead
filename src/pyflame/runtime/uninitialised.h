// Follows memory that nothing has written (debug_memory.h fills it with a pattern) through the steps of programs, so that a read of such a value names
// the step where it began.
#pragma once
#include <memory>
#include <string>

#include "pyflame/compile/program.h"
#include "pyflame/tensor/tensor.h"

namespace pyflame::uninitialised {

// Where the pattern was seen first: "in the result of add(...), which reads ...". Null: the value is sound.
using Origin = std::shared_ptr<const std::string>;

Origin origin_of(const Storage& s);
void set_origin(const Storage& s, const Origin& origin);  // null: it is sound now

struct Found {
  int64_t pattern = 0;  // elements that hold the pattern
  int64_t nan = 0;      // elements that are NaN, with those
};
// Looks at an operand's elements. `memory`: null for the host.
Found look(const Operand& o, const void* data, DeviceMemory* memory);

// Raises an error if the tensor's values hold the pattern, or are NaN that came from it. It has its bytes.
void check_read(const Tensor& x);

}  // namespace pyflame::uninitialised
