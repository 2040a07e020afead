// Which of the entries that accept a step is the fastest, measured at the program's first run with its own operands, within the budget of
// the process (PYFLAME_TUNE_BUDGET_MS). An entry may win only with results that are near those of the first entry; an entry that fails or
// computes something else is kept in the record as unsound. The winner serves from the next run on, in this process and in later ones.
#pragma once
#include "pyflame/runtime/replayer.h"

namespace pyflame {

// Whether some step of the program has entries to choose among, and there is budget left.
bool worth_choosing(const Program& p);
// Before step k runs: times the entries. The step's inputs are computed; its outputs are overwritten afterwards by the step itself.
void time_entries(const Frame& frame, size_t k);
// After the run: the winners take their places, and memory is planned again.
void seat_winners(Program& p);

struct ChoiceStats {
  uint64_t problems = 0, entries = 0, unsound = 0, changed = 0;  // measured; winners that were not the first entry
  double spent_ms = 0;
};
ChoiceStats choice_stats();

}  // namespace pyflame
