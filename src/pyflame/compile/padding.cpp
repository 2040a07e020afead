// The rewrite skipped_padding. Attention of a sequence to itself has a mask with one row for all queries where the mask
// hides padding. A query at the position of such a key is padding itself. If nothing reads its result, it need not be
// computed, nor its gradient. That nothing reads it is the user's promise.
#include "pyflame/compile/rewrites.h"
#include "pyflame/ops/attrs.h"

namespace pyflame {

namespace {

// Whether the operand has one row for all queries, in the shape [B, H, T, S] of the scores.
bool one_row_for_all(const Operand& mask) {
  const int at = mask.shape.size() - 2;
  return at < 0 || mask.shape[at] == 1 || mask.strides[at] == 0;
}

}  // namespace

Rewritten skip_padding(Rewritten graph) {
  Graph& g = graph.graph;
  for (const NodeId id : g.nodes.ids()) {
    Node& n = g.nodes[id];
    const bool forward = n.op == OpId::attention;
    if (is_skipped(n) || (!forward && n.op != OpId::attention_grad)) continue;
    const auto attrs = n.attr<AttentionAttrs>();
    if (!attrs.has_mask) continue;
    const size_t first = forward ? 0 : 1;
    const Operand &q = n.ins[first], &k = n.ins[first + 1], &mask = n.ins[forward ? 3 : 6];
    const char* reason = nullptr;
    if (q.shape[2] != k.shape[2]) reason = "there are not as many queries as keys";
    else if (!one_row_for_all(mask)) reason = "the mask has a row for each query";
    if (reason) {
      if (forward) graph.notes.push_back({Rewrite::SkippedPadding, false, id, reason});
      continue;
    }
    n.attrs = {attrs.causal, attrs.has_mask, attrs.any_order, 1};
    if (forward)
      graph.notes.push_back(
          {Rewrite::SkippedPadding, true, id, "queries at positions that the mask hides are left out"});
  }
  return graph;
}

}  // namespace pyflame
