// Describes failures and spreads poison, for failures that are noticed at once and for those that a device reports
// later.
#pragma once
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "pyflame/compile/program.h"

namespace pyflame {

using Poisons = Indexed<SlotId, std::shared_ptr<const Poison>>;

// The message: "what", then the op with its shapes, implementation and device, where it was recorded, and the ops that
// ran with it as one kernel. `locs`: the source locations of the group's nodes, or of the first node alone.
std::string with_context(const std::string& what, const Program& p, const Step& step, std::span<const SourceLoc> locs);
// Makes the poison of a failure. The next structural mark or synchronize() raises the oldest one that was not raised
// yet.
std::shared_ptr<const Poison> make_poison(ErrorKind kind, std::string message);
// Spreads poison through a step from node to node. False if all outputs are poisoned, so the step need not run.
bool spread_poison(const Program& p, const Step& step, Poisons& poison);

}  // namespace pyflame
