// What the runtime knows of a program beside the program itself.
#pragma once
#include "pyflame/runtime/replayer.h"

namespace pyflame {

struct ProgramState {
  explicit ProgramState(const Program& p);
  bool reports = false;  // a kernel of it may report a fault
  Replayer replayer;
};

}  // namespace pyflame
