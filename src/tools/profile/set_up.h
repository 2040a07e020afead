// What a step did once, in its first run, before it worked as in the runs after it: a library set itself up, threads started.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "tools/profile/trace.h"

namespace pyflame::tools::profile {

struct SetUp {
  std::string step;
  int64_t start = 0, end = 0;
};

// Finds set-up in a trace of pf.profiler that began with the program, and takes its time away from the events: a first run begins
// so late that it took as long as the runs after it. Each piece of time is in the result once, by start. Before link().
std::vector<SetUp> take_set_up(Trace& trace);

}  // namespace pyflame::tools::profile
