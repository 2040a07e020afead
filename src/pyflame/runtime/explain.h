// pf.explain(): what the engine did with the ops of this thread between start and stop: windows and why they were cut,
// fused groups, selected implementations, refusals, planned bytes, cache hits.
#pragma once
#include <string>

namespace pyflame {

void explain_start();
std::string explain_stop();

}  // namespace pyflame
