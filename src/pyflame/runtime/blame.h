// Whose fault it was, in words and in poison: shared by failures that are seen at once and by those that a device tells later.
#pragma once
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "pyflame/compile/program.h"

namespace pyflame {

using Poisons = std::vector<std::shared_ptr<const Poison>>;  // by slot

// "what", then the op with its shapes, implementation and device, where it was recorded, and what ran with it as one kernel. `locs`: of the
// group's nodes, or of the first alone.
std::string with_context(const std::string& what, const Program& p, const Step& step, std::span<const SourceLoc> locs);
// The first of them that nobody has seen is raised by the next mark or synchronize().
std::shared_ptr<const Poison> make_poison(ErrorKind kind, std::string message);
// Poison goes through a step from node to node. False when nothing sound is left to compute.
bool spread_poison(const Program& p, const Step& step, Poisons& poison);

}  // namespace pyflame
