// What the executor writes to the log of pf.explain() (compile/explain.h is the interface for callers).
#pragma once
#include "pyflame/compile/program.h"

namespace pyflame {

void explain_log(const Program& p, const char* reason, bool cached, double plan_us);

}  // namespace pyflame
