// Decides where each slot is in memory. Values that nobody sees after the window share one arena: slots and workspaces
// are intervals over the steps, placed largest first at the lowest offset that is free during the whole interval.
// Values that are visible afterwards get their own memory, or take over the bytes of an external storage whose last
// handle died (donation). If the arena would be large, such storages are used as additional arenas after their last
// read, because they are freed only after the window. An op that may overwrite one of its inputs can use that input's
// bytes for its output.
#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "pyflame/compile/program.h"

namespace pyflame {

namespace {

constexpr size_t kAlign = 64;
size_t aligned(size_t n) { return (n + kAlign - 1) / kAlign * kAlign; }

// Below this size, donors are not used as arenas: small programs are replayed and need stable addresses, and other
// programs need an arena of this size anyway.
constexpr size_t kLargeArena = size_t{64} << 20;

struct Interval {
  int32_t slot;  // negative: a step's workspace
  int first, last;
  size_t bytes;
  int32_t over = -1;  // the slot whose last reader writes this one
  int32_t donor = -1;
  size_t offset = 0;
};

// Memory that intervals share.
struct Region {
  size_t bytes = std::numeric_limits<size_t>::max();
  int32_t donor = -1;                        // slot; -1: the arena
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
    const bool placed =
        it.slot >= 0 && std::any_of(donors.begin(), donors.end(), [&](Region& d) { return d.take(it); });
    if (!placed) arena.take(it);
  }
  return arena.total;
}

// For an op that may overwrite an input: the slot whose bytes it may write, and the slot that it writes; -1: none.
std::pair<int32_t, int32_t> takes_over(const Graph& g, const Node& n) {
  const int input = n.info().overwritten;
  if (input < 0) return {-1, -1};
  const auto slot_of = [&](const Operand& o) {
    return o.is_param ? -1 : g.bindings[static_cast<size_t>(o.index)].slot;
  };
  const Operand &from = n.ins[static_cast<size_t>(input)], &to = n.outs[0];
  const int32_t a = slot_of(from), b = slot_of(to);
  const auto whole = [&](const Operand& o, int32_t s) {
    return o.contiguous &&
           static_cast<size_t>(o.numel() * dtype_size(o.dtype)) == g.slots[static_cast<size_t>(s)].nbytes;
  };
  if (a == b || from.dtype != to.dtype || !whole(from, a) || !whole(to, b)) return {-1, -1};
  if (std::count_if(n.ins.begin(), n.ins.end(), [&](const Operand& o) { return slot_of(o) == a; }) != 1)
    return {-1, -1};
  return {a, b};
}

// For each slot: the first and the last step that use it.
struct Lifetimes {
  std::vector<int> first, last;
  std::vector<bool> elided;
  std::vector<int32_t> over;  // the slot whose last reader writes this one; -1: none

  explicit Lifetimes(const Program& p)
      : first(p.graph.slots.size(), -1), last(first), elided(first.size(), true), over(first.size(), -1) {
    const Graph& g = p.graph;
    for (size_t k = 0; k < p.steps.size(); ++k) {
      const Group& group = p.steps[k].group;
      auto visit = [&](const Operand& o) {
        if (o.is_param) return;
        const auto s = static_cast<size_t>(g.bindings[static_cast<size_t>(o.index)].slot);
        if (first[s] < 0) first[s] = static_cast<int>(k);
        last[s] = static_cast<int>(k);
        if (!group.elided[static_cast<size_t>(o.index)]) elided[s] = false;
      };
      for (int32_t m : group.nodes) {
        for (const Operand& o : g.nodes[static_cast<size_t>(m)].ins) visit(o);
        for (const Operand& o : g.nodes[static_cast<size_t>(m)].outs) visit(o);
      }
    }
    for (const Step& step : p.steps) {
      const auto [from, to] = takes_over(g, g.nodes[static_cast<size_t>(step.group.nodes[0])]);
      if (from >= 0 && last[static_cast<size_t>(from)] == first[static_cast<size_t>(to)])
        over[static_cast<size_t>(to)] = from;
    }
  }
  // Whether `s` may have all the bytes of `donor`.
  bool follows(size_t s, size_t donor) const {
    return last[donor] < first[s] || (last[donor] == first[s] && over[s] == static_cast<int32_t>(donor));
  }
};

// Places the intervals, and stores the offsets in the program.
void place_in(Program& p, std::vector<Interval> items, const std::vector<bool>& taken, const Lifetimes& life) {
  const Graph& g = p.graph;
  p.arena_bytes = place(items, {});
  if (p.arena_bytes >= kLargeArena) {
    std::vector<Region> donors;
    for (size_t d = 0; d < g.slots.size(); ++d)
      if (g.slots[d].donatable && !taken[d])
        donors.push_back({g.slots[d].nbytes, static_cast<int32_t>(d), life.last[d]});
    std::stable_sort(donors.begin(), donors.end(), [](const Region& a, const Region& b) { return a.bytes < b.bytes; });
    p.arena_bytes = place(items, std::move(donors));
  }
  for (const Interval& it : items) {
    if (it.slot < 0) {
      p.steps[static_cast<size_t>(-1 - it.slot)].workspace_offset = it.offset;
      continue;
    }
    Placement& at = p.placements[static_cast<size_t>(it.slot)];
    at.offset = it.offset;
    at.donor = it.donor;
  }
}

}  // namespace

void plan_memory(Program& p, bool enabled) {
  const Graph& g = p.graph;
  const size_t n = g.slots.size();
  const Lifetimes life(p);
  p.placements.assign(n, {});
  p.new_bytes = 0;
  std::vector<Interval> items;
  std::vector<bool> taken(n, false);
  const auto in_arena = [&](size_t s) {
    return enabled && !g.slots[s].external && !g.slots[s].live && !life.elided[s];
  };
  std::vector<int32_t> shared(n, -1);  // per slot in the arena: the slot that is written over it
  for (size_t s = 0; s < n; ++s)
    if (const int32_t from = life.over[s];
        from >= 0 && in_arena(s) && in_arena(static_cast<size_t>(from)) && life.over[static_cast<size_t>(from)] < 0)
      shared[static_cast<size_t>(from)] = static_cast<int32_t>(s);
  const auto shares = [&](size_t s) {
    return life.over[s] >= 0 && shared[static_cast<size_t>(life.over[s])] == static_cast<int32_t>(s);
  };
  for (size_t s = 0; s < n; ++s) {
    const SlotInfo& slot = g.slots[s];
    Placement& place_of = p.placements[s];
    if (slot.external) continue;
    if (life.elided[s]) {
      place_of.kind = Placement::Elided;
    } else if (in_arena(s)) {
      place_of.kind = Placement::Arena;
      const int last = life.last[shared[s] >= 0 ? static_cast<size_t>(shared[s]) : s];
      if (!shares(s)) items.push_back({static_cast<int32_t>(s), life.first[s], last, slot.nbytes, life.over[s]});
    } else {
      place_of.kind = Placement::Allocate;
      for (size_t d = 0; d < n && enabled; ++d) {
        if (!g.slots[d].donatable || taken[d] || g.slots[d].nbytes != slot.nbytes || slot.nbytes == 0 ||
            !life.follows(s, d))
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
  place_in(p, std::move(items), taken, life);
  for (size_t s = 0; s < n; ++s)
    if (shares(s)) p.placements[s] = p.placements[static_cast<size_t>(life.over[s])];
}

}  // namespace pyflame
