// What changes while a program is run: counts, its replay, its labels in a profile. The program itself never changes. If
// another implementation turns out to be faster, a new program takes its place (choose.h).
#pragma once
#include "pyflame/base/events.h"
#include "pyflame/runtime/device_times.h"
#include "pyflame/runtime/replayer.h"

namespace pyflame {

// Whether a kernel of the node may report a fault: it takes indices or offsets, which are integers of these.
bool may_report(const Node& n);

struct ProgramState {
  explicit ProgramState(const Program& p);
  bool reports = false;  // one of its kernels may report a fault
  Replayer replayer;
  uint64_t runs = 0;
  std::vector<events::Label> labels;  // in the profile that is being recorded (profiler.h)
  profiler::StepTimes step_times;
};

}  // namespace pyflame
