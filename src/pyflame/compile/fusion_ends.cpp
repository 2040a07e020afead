#include "pyflame/compile/fusion_ends.h"

#include <algorithm>
#include <map>

#include "pyflame/compile/align.h"
#include "pyflame/compile/passes.h"

namespace pyflame {

namespace {

// Who stores the newest value of each slot, and how many steps read it.
struct Stored {
  size_t step = 0;
  NodeId node;
  bool valid = false;
};

struct ThroughMemory {
  size_t from, to;
  NodeId writer, reader;
  SlotId slot;
  int64_t bytes;
};

// Each value that goes through memory from one step to another, once for each step that reads it.
std::vector<ThroughMemory> values_between_steps(const Program& p) {
  const Graph& g = p.graph;
  Indexed<SlotId, Stored> stored(g.slots.size());
  std::vector<ThroughMemory> values;
  for (size_t k = 0; k < p.steps.size(); ++k) {
    const Group& group = p.steps[k].group;
    Indexed<SlotId, bool> seen(g.slots.size(), false);
    for (size_t i = 0; i < group.nodes.size(); ++i) {
      for (const Operand& o : group.node(g, i).ins) {
        if (o.is_param || seen[g.slot(o)]) continue;
        const Stored& s = stored[g.slot(o)];
        seen[g.slot(o)] = true;
        if (s.valid && s.step != k)
          values.push_back({s.step, k, s.node, group.nodes[i], g.slot(o),
                            static_cast<int64_t>(std::min(g.slot_info(o).nbytes, o.nbytes()))});
      }
      for (const Operand& o : group.node(g, i).outs) {
        stored[g.slot(o)] = {k, group.nodes[i], true};
        seen[g.slot(o)] = true;
      }
    }
  }
  return values;
}

}  // namespace

std::vector<FusionEnd> fusion_ends(const Program& p) {
  const std::vector<ThroughMemory> values = values_between_steps(p);
  Indexed<SlotId, int> readers(p.graph.slots.size(), 0);
  for (const ThroughMemory& v : values) ++readers[v.slot];
  std::map<std::pair<size_t, size_t>, FusionEnd> ends;  // by the steps: the one that reads first
  std::map<std::pair<size_t, size_t>, int64_t> largest;
  for (const ThroughMemory& v : values) {
    const std::pair key(v.to, v.from);
    FusionEnd& end = ends[key];
    end.from = v.from, end.to = v.to;
    const SlotInfo& slot = p.graph.slots[v.slot];
    const bool needed = slot.live || slot.external || readers[v.slot] > 1;
    end.saves += needed ? v.bytes : 2 * v.bytes;
    if (v.bytes <= largest[key] && end.reader.valid()) continue;
    largest[key] = v.bytes;
    end.writer = v.writer, end.reader = v.reader;
  }
  std::vector<FusionEnd> all;
  std::vector<Apart> pairs;
  for (auto& [key, end] : ends) {
    pairs.push_back({end.reader, end.writer});
    all.push_back(std::move(end));
  }
  const std::vector<std::string> why = why_apart(p.graph, p.cuts, p.rules, pairs);
  for (size_t i = 0; i < all.size(); ++i) all[i].why = why[i];
  std::stable_sort(all.begin(), all.end(), [](const FusionEnd& a, const FusionEnd& b) {
    return a.to != b.to ? a.to < b.to : a.saves > b.saves;
  });
  return all;
}

}  // namespace pyflame
