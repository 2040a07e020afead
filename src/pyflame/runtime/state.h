// What the runtime keeps for a program, besides the program itself.
#pragma once
#include "pyflame/runtime/replayer.h"

namespace pyflame {

// Whether a kernel of the node may report a fault: it takes indices or offsets, which are integers of these.
bool may_report(const Node& n);

struct ProgramState {
  explicit ProgramState(const Program& p);
  bool reports = false;  // one of its kernels may report a fault
  Replayer replayer;
};

}  // namespace pyflame
