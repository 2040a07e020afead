// What the runtime keeps for a program, besides the program itself.
#pragma once
#include "pyflame/runtime/replayer.h"

namespace pyflame {

struct ProgramState {
  explicit ProgramState(const Program& p);
  bool reports = false;  // one of its kernels may report a fault
  Replayer replayer;
};

}  // namespace pyflame
