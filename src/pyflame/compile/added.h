// A graph after rewrites. A node that another program computes, or that nothing needs, has no operands any more: it is
// skipped.
//
// What rewrites add follows the slots, bindings, params and nodes of the window in number. A run adds it to the window as well
// (runtime/added.h).
#pragma once
#include <vector>

#include "pyflame/compile/rewrite_note.h"
#include "pyflame/record/ir.h"

namespace pyflame {

struct Added {
  struct At {  // a binding
    SlotId slot;
    int64_t byte_offset;
  };
  struct Number {  // a param: a number, or one over another param
    Param value;
    ParamId inverse_of = {};
  };
  std::vector<size_t> slots;  // bytes
  std::vector<At> bindings;
  std::vector<Number> params;
  std::vector<NodeId> lines;  // by node: a node of the window, whose line of the program it gets
  bool empty() const { return slots.empty() && bindings.empty() && params.empty() && lines.empty(); }
};

struct Rewritten {
  Graph graph;
  Added added;
  std::vector<RewriteNote> notes = {};
};

inline bool is_skipped(const Node& n) { return n.outs.empty(); }
inline void skip(Node& n) {
  n.ins.clear();
  n.outs.clear();
}
inline size_t count_ops(const Graph& g) {
  size_t ops = 0;
  for (const Node& n : g.nodes) ops += !is_skipped(n);
  return ops;
}

}  // namespace pyflame
