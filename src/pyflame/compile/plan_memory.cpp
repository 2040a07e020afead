// Where each slot lives. What nobody sees after the window shares one arena: slots and workspaces are intervals over the steps, placed
// largest first at the lowest offset that is free for the whole interval. What somebody sees gets memory of its own, or takes over the
// bytes of an external storage whose last handle died (donation).
#include <algorithm>
#include <numeric>

#include "pyflame/compile/program.h"

namespace pyflame {

namespace {

constexpr size_t kAlign = 64;
size_t aligned(size_t n) { return (n + kAlign - 1) / kAlign * kAlign; }

struct Interval {
  int32_t slot;  // -1: a step's workspace
  int first, last;
  size_t bytes;
  size_t offset = 0;
};

size_t place(std::vector<Interval>& items) {
  std::vector<size_t> order(items.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return items[a].bytes > items[b].bytes; });
  std::vector<const Interval*> placed;  // by offset
  size_t total = 0;
  for (size_t i : order) {
    Interval& it = items[i];
    size_t at = 0;
    for (const Interval* p : placed) {
      if (p->last < it.first || it.last < p->first) continue;
      if (at + it.bytes <= p->offset) break;
      at = std::max(at, p->offset + aligned(p->bytes));
    }
    it.offset = at;
    total = std::max(total, at + aligned(it.bytes));
    placed.insert(
        std::upper_bound(placed.begin(), placed.end(), at, [](size_t o, const Interval* p) { return o < p->offset; }),
        &it);
  }
  return total;
}

}  // namespace

void plan_memory(Program& p, bool enabled) {
  const Graph& g = p.graph;
  const size_t n = g.slots.size();
  std::vector<int> first(n, -1), last(n, -1);
  std::vector<bool> elided(n, true);
  for (size_t k = 0; k < p.steps.size(); ++k) {
    Step& step = p.steps[k];
    auto visit = [&](const Operand& o) {
      if (o.is_param) return;
      const auto s = static_cast<size_t>(g.bindings[static_cast<size_t>(o.index)].slot);
      if (first[s] < 0) first[s] = static_cast<int>(k);
      last[s] = static_cast<int>(k);
      if (!step.group.elided[static_cast<size_t>(o.index)]) elided[s] = false;
    };
    for (int32_t m : step.group.nodes) {
      for (const Operand& o : g.nodes[static_cast<size_t>(m)].ins) visit(o);
      for (const Operand& o : g.nodes[static_cast<size_t>(m)].outs) visit(o);
    }
  }
  p.placements.assign(n, {});
  std::vector<Interval> items;
  std::vector<bool> taken(n, false);
  for (size_t s = 0; s < n; ++s) {
    const SlotInfo& slot = g.slots[s];
    Placement& place_of = p.placements[s];
    if (slot.external) continue;
    if (elided[s]) {
      place_of.kind = Placement::Elided;
    } else if (!slot.live && enabled) {
      place_of.kind = Placement::Arena;
      items.push_back({static_cast<int32_t>(s), first[s], last[s], slot.nbytes});
    } else {
      place_of.kind = Placement::Allocate;
      for (size_t d = 0; d < n && enabled; ++d) {
        if (!g.slots[d].donatable || taken[d] || g.slots[d].nbytes != slot.nbytes || slot.nbytes == 0 ||
            last[d] >= first[s])
          continue;
        taken[d] = true;
        place_of.kind = Placement::Donated;
        place_of.donor = static_cast<int32_t>(d);
        break;
      }
      if (place_of.kind == Placement::Allocate) p.new_bytes += slot.nbytes;
    }
  }
  for (size_t k = 0; k < p.steps.size(); ++k) {
    const size_t bytes = p.steps[k].executable ? p.steps[k].executable->workspace() : 0;
    if (bytes) items.push_back({-1 - static_cast<int32_t>(k), static_cast<int>(k), static_cast<int>(k), bytes});
  }
  p.arena_bytes = place(items);
  for (const Interval& it : items) {
    if (it.slot >= 0) p.placements[static_cast<size_t>(it.slot)].offset = it.offset;
    else p.steps[static_cast<size_t>(-1 - it.slot)].workspace_offset = it.offset;
  }
}

}  // namespace pyflame
