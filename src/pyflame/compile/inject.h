// Makes kernels fail on purpose, for tests of what follows a failure: which tensors are poisoned, what the error says,
// what still runs. Executables are wrapped when a program is made, and all programs are made anew when injection starts
// and stops, so it costs nothing while it is off. While it is on, backends that only plan (null) go through the
// executor as well: nothing is computed, but failures and poison are the same.
#pragma once
#include <cstdint>
#include <memory>
#include <string>

#include "pyflame/backends/backend.h"

namespace pyflame {

struct Injection {
  std::string op;      // only steps with this op are counted and can fail; empty: all steps
  uint64_t run = 0;    // which of their runs fails, counted from 0
  bool after = false;  // fails after its outputs have been written, instead of before
  // Instead of failing, the chosen run really accesses memory that is not the kernel's, relative to the first byte of its result: writes
  // bytes, or reads them (on the host). Or it leaves out the whole computation, so that the result stays as it was.
  enum Misbehaviour : uint8_t { Fails, Writes, Reads, Skips } misbehaviour = Fails;
  int64_t offset = 0, count = 0;  // bytes
};

// The caller makes sure that nothing is pending.
void start_injecting(Injection injection);
uint64_t stop_injecting();  // returns how many runs were counted
bool injecting();
// An executable that fails at the chosen run and otherwise runs `e` (null: does nothing).
std::unique_ptr<Executable> may_fail(const Problem& p, std::unique_ptr<Executable> e);

}  // namespace pyflame
