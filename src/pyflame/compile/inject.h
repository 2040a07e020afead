// Kernels that fail on purpose, for tests of what follows a failure: which tensors are poisoned, what the error says, what runs on.
// Executables are wrapped when a program is made, and programs are made anew when this begins and when it ends, so that it costs nothing
// where it is not asked for. While it is on, backends that only plan (null) pass through the executor too: nothing is computed, but what
// fails and what is poisoned by it is the same.
#pragma once
#include <cstdint>
#include <memory>
#include <string>

#include "pyflame/backends/backend.h"

namespace pyflame {

struct Injection {
  std::string op;      // a step fails that has this op among its own; empty: any step
  uint64_t run = 0;    // this one of their runs, counted from 0
  bool after = false;  // when its outputs have been written, instead of before
};

// The caller has seen to it that nothing is pending.
void start_injecting(Injection injection);
uint64_t stop_injecting();  // how many runs were counted
bool injecting();
// What fails at its turn, and otherwise runs `e` (null: does nothing).
std::unique_ptr<Executable> may_fail(const Problem& p, std::unique_ptr<Executable> e);

}  // namespace pyflame
