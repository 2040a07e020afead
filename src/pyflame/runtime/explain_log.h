// What the executor writes to the log of pf.explain() (runtime/explain.h is the interface for callers).
#pragma once
#include "pyflame/compile/program.h"

namespace pyflame {

// Called before the program runs, by the thread that cut the window, under the engine's lock.
void explain_log(const Window& w, const CachedProgram& p, const char* reason, bool cached, double plan_us);

}  // namespace pyflame
