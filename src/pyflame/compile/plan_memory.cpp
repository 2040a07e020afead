// plan_memory: decides where each slot is in memory.
//
// Takes    the graph and its steps (groups, and the workspaces that their executables ask for).
// Returns  a placement for each slot, an offset for each workspace, and the size of the arena.
// Holds    two slots share bytes only if no step needs both, and no slot that is visible afterwards is in the arena.
//
// Values that nobody sees after the window share one arena: slots and workspaces are intervals over the steps, placed
// largest first at the lowest offset that is free during the whole interval. Values that are visible afterwards get
// their own memory, or take over the bytes of an external storage whose last handle died (donation). If the arena would
// be large, such storages are used as additional arenas after their last read, because they are freed only after the
// window. An op that may overwrite one of its inputs can use that input's bytes for its output.
#include <algorithm>
#include <limits>
#include <numeric>
#include <optional>
#include <utility>

#include "pyflame/compile/passes.h"

namespace pyflame {

namespace {

constexpr size_t kAlign = 64;
size_t aligned(size_t n) { return (n + kAlign - 1) / kAlign * kAlign; }

// Below this size, donors are not used as arenas: small programs are replayed and need stable addresses, and other
// programs need an arena of this size anyway.
constexpr size_t kLargeArena = size_t{64} << 20;

struct Interval {
  SlotId slot;  // or of a step:
  size_t workspace_of;
  int first, last;
  size_t bytes;
  SlotId over = {};  // whose last reader writes this one
  SlotId donor = {};
  size_t offset = 0;
};

// Memory that intervals share.
struct Region {
  size_t bytes = std::numeric_limits<size_t>::max();
  SlotId donor = {};                         // none: the arena
  int busy = -1;                             // in use until this step
  size_t total = 0;                          // in use
  std::vector<const Interval*> placed = {};  // by offset

  bool take(Interval& it) {
    if (it.first < busy || (it.first == busy && it.over != donor)) return false;
    size_t at = 0;
    for (const Interval* p : placed) {
      if (p->last < it.first || it.last < p->first) continue;
      if (at + it.bytes <= p->offset) break;
      at = std::max(at, p->offset + aligned(p->bytes));
    }
    if (it.bytes > bytes || at > bytes - it.bytes) return false;
    it.offset = at;
    it.donor = donor;
    total = std::max(total, at + aligned(it.bytes));
    placed.insert(
        std::upper_bound(placed.begin(), placed.end(), at, [](size_t o, const Interval* p) { return o < p->offset; }),
        &it);
    return true;
  }
};

// Returns the size of the arena. `donors`: sorted by size, smallest first.
size_t place(std::vector<Interval>& items, std::vector<Region> donors) {
  std::vector<size_t> order(items.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return items[a].bytes > items[b].bytes; });
  Region arena;
  for (const size_t i : order) {
    Interval& it = items[i];
    if (!std::any_of(donors.begin(), donors.end(), [&](Region& d) { return d.take(it); })) arena.take(it);
  }
  return arena.total;
}

// For an op that may overwrite an input: the slot whose bytes it may write, and the slot that it writes.
std::optional<std::pair<SlotId, SlotId>> takes_over(const Graph& g, const Node& n) {
  const int input = n.info().overwritten;
  if (input < 0) return std::nullopt;
  const Operand &from = n.ins[static_cast<size_t>(input)], &to = n.outs[0];
  if (from.is_param) return std::nullopt;
  const SlotId a = g.slot(from), b = g.slot(to);
  const auto whole = [&](const Operand& o) { return o.contiguous && g.covers_slot(o); };
  if (a == b || from.dtype != to.dtype || !whole(from) || !whole(to)) return std::nullopt;
  const auto reads_it = [&](const Operand& o) { return !o.is_param && g.slot(o) == a; };
  if (std::count_if(n.ins.begin(), n.ins.end(), reads_it) != 1) return std::nullopt;
  return std::pair{a, b};
}

// When a slot is used.
struct Lifetime {
  int first = -1, last = -1;  // steps
  bool elided = true;
  SlotId over;  // the slot whose last reader writes this one
};
using Lifetimes = Indexed<SlotId, Lifetime>;

Lifetimes lifetimes_of(const Graph& g, std::span<const Step> steps) {
  Lifetimes life(g.slots.size());
  for (size_t k = 0; k < steps.size(); ++k) {
    const Group& group = steps[k].group;
    const auto visit = [&](const Operand& o) {
      if (o.is_param) return;
      Lifetime& l = life[g.slot(o)];
      if (l.first < 0) l.first = static_cast<int>(k);
      l.last = static_cast<int>(k);
      if (group.stores(o)) l.elided = false;
    };
    for (const NodeId m : group.nodes) {
      for (const Operand& o : g.nodes[m].ins) visit(o);
      for (const Operand& o : g.nodes[m].outs) visit(o);
    }
  }
  for (const Step& step : steps)
    if (const auto taken = takes_over(g, step.group.root(g)))
      if (const auto [from, to] = *taken; life[from].last == life[to].first) life[to].over = from;
  return life;
}

// Whether `s` may have the bytes of `donor`, all of them.
bool follows(const Lifetimes& life, SlotId s, SlotId donor) {
  return life[donor].last < life[s].first || (life[donor].last == life[s].first && life[s].over == donor);
}

// Places the intervals, and stores the offsets in the plan.
void place_in(MemoryPlan& plan, const Graph& g, std::vector<Interval> items, const Indexed<SlotId, bool>& taken,
              const Lifetimes& life) {
  plan.arena_bytes = place(items, {});
  if (plan.arena_bytes >= kLargeArena) {
    std::vector<Region> donors;
    for (const SlotId d : g.slots.ids())
      if (g.slots[d].donatable && !taken[d]) donors.push_back({g.slots[d].nbytes, d, life[d].last});
    std::stable_sort(donors.begin(), donors.end(), [](const Region& a, const Region& b) { return a.bytes < b.bytes; });
    plan.arena_bytes = place(items, std::move(donors));
  }
  for (const Interval& it : items) {
    Placement& at = it.slot.valid() ? plan.placements[it.slot] : plan.workspaces[it.workspace_of];
    at.offset = it.offset;
    at.donor = it.donor;
  }
}

}  // namespace

MemoryPlan plan_memory(const Graph& g, std::span<const Step> steps, bool enabled) {
  const size_t n = g.slots.size();
  const Lifetimes life = lifetimes_of(g, steps);
  MemoryPlan plan;
  plan.placements.resize(n);
  plan.workspaces.resize(steps.size(), {.kind = Placement::Arena, .donor = {}});
  std::vector<Interval> items;
  Indexed<SlotId, bool> taken(n, false);
  const auto in_arena = [&](SlotId s) {
    return enabled && !g.slots[s].external && !g.slots[s].live && !life[s].elided;
  };
  Indexed<SlotId, SlotId> shared(n);  // for a slot in the arena: the slot that is written over it
  for (const SlotId s : g.slots.ids())
    if (const SlotId from = life[s].over; from.valid() && in_arena(s) && in_arena(from) && !life[from].over.valid())
      shared[from] = s;
  const auto shares = [&](SlotId s) { return life[s].over.valid() && shared[life[s].over] == s; };
  for (const SlotId s : g.slots.ids()) {
    const SlotInfo& slot = g.slots[s];
    Placement& place_of = plan.placements[s];
    if (slot.external) continue;
    if (life[s].elided) {
      place_of.kind = Placement::Elided;
    } else if (in_arena(s)) {
      place_of.kind = Placement::Arena;
      const int last = life[shared[s].valid() ? shared[s] : s].last;
      if (!shares(s)) items.push_back({s, 0, life[s].first, last, slot.nbytes, life[s].over});
    } else {
      place_of.kind = Placement::Allocate;
      for (const SlotId d : g.slots.ids()) {
        if (!enabled) break;
        if (!g.slots[d].donatable || taken[d] || g.slots[d].nbytes != slot.nbytes || slot.nbytes == 0 ||
            !follows(life, s, d))
          continue;
        taken[d] = true;
        place_of.kind = Placement::Donated;
        place_of.donor = d;
        break;
      }
      if (place_of.kind == Placement::Allocate) plan.new_bytes += slot.nbytes;
    }
  }
  for (size_t k = 0; k < steps.size(); ++k) {
    const size_t bytes = steps[k].executable ? steps[k].executable->workspace() : 0;
    if (bytes) items.push_back({SlotId(), k, static_cast<int>(k), static_cast<int>(k), bytes});
  }
  place_in(plan, g, std::move(items), taken, life);
  for (const SlotId s : g.slots.ids())
    if (shares(s)) plan.placements[s] = plan.placements[life[s].over];
  return plan;
}

}  // namespace pyflame
