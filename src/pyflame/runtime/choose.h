// Tuning: which of the implementations that accept a step is the fastest. They are timed at the program's first run
// with the step's own operands, within the process's budget (PYFLAME_TUNE_BUDGET_MS). An implementation can win only if
// its results are close to those of the reference implementation (oracle.h). Where that would take long or has no bound, a sample of elements must be right
// (samples.h), and the others must be close to those of the step's own one. If it fails or computes something else, it is recorded as unsound. If the step's own one does, that is reported, and another one computes.
// A program with the winner is used from the next run on, in this process and in later ones. See docs/internals/tuning.md.
#pragma once
#include <optional>

#include "pyflame/runtime/replayer.h"

namespace pyflame {

// Whether some step of the program has several implementations to time, and there is budget left.
bool worth_choosing(const Program& p);
// Times the implementations of step k, before the step runs, and returns the one that is faster than the step's own, if
// there is one. The step's inputs are computed; the step itself overwrites its outputs afterwards.
std::optional<Replacement> time_entries(const Frame& frame, size_t k);

struct ChoiceStats {
  uint64_t problems = 0, entries = 0, unsound = 0, changed = 0;  // changed: winners that were not the first in the list
  uint64_t neighbours = 0;                                       // entries of the second stage
  uint64_t not_looked_at = 0;                                    // places of Enumerations behind the last one
  double spent_ms = 0;
};
ChoiceStats choice_stats();
// For tests: each candidate takes a millisecond of the budget, and nothing else takes time.
void count_candidates_as_milliseconds(bool on);

}  // namespace pyflame
