// legalise: rewrites the recorded graph to the form that the later passes expect.
//
// Takes    the graph as it was recorded.
// Returns  the same nodes over the same slots and bindings, some with another op or other dims:
//            a reduction over dims of size one becomes a cast;
//            an elementwise node or a reduction over channels-last images gets its dims in the order N, H, W, C, if the backend
//            loops in memory order.
// Ensures  each node is rewritten alone, so that its numbers do not depend on what it is fused with.
#include "pyflame/compile/added.h"
#include "pyflame/compile/align.h"
#include "pyflame/compile/passes.h"

namespace pyflame {

namespace {

// Converts axes (a mask) of N, C, H, W to axes of N, H, W, C.
int64_t channels_last_axes(int64_t axes) {
  return (axes & 1) | (axes >> 2 & 1) << 1 | (axes >> 3 & 1) << 2 | (axes >> 1 & 1) << 3;
}

void drop_trivial_reduction(Node& n) {
  if (n.info().cls != OpClass::Reduce || n.ins[0].numel() == 0) return;
  const int64_t axes = n.attr<ReduceAttrs>().axes;
  for (int d = 0; d < n.ins[0].shape.size(); ++d)
    if ((axes >> d & 1) && n.ins[0].shape[d] > 1) return;
  n.op = OpId::cast;
  n.attrs.clear();
}

// Operands of elementwise nodes are first broadcast to the output's shape; those of a reduction are whole images.
std::optional<Node> in_memory_order(const Node& n) {
  const bool reduces = n.info().cls == OpClass::Reduce;
  if (!reduces && !is_elementwise(n.info().cls)) return std::nullopt;
  const Operand& image = reduces ? n.ins[0] : n.outs[0];
  if (!is_channels_last(image)) return std::nullopt;
  const Dims from = image.shape;
  Node permuted = n;
  const auto permute = [&](Operand& o, bool whole) {
    if (o.is_param) return true;
    if (!whole && !restride(o, from, from)) return false;
    o = as_nhwc(std::move(o));
    return true;
  };
  for (Operand& o : permuted.ins)
    if (!permute(o, reduces)) return std::nullopt;
  for (Operand& o : permuted.outs)
    if (!permute(o, !reduces)) return std::nullopt;
  if (reduces) permuted.attrs[0] = channels_last_axes(n.attrs[0]);
  return permuted;
}

}  // namespace

Graph legalise(Graph graph, const Rules& rules) {
  for (Node& n : graph.nodes) {
    if (is_skipped(n)) continue;
    if (rules.memory_order)
      if (auto permuted = in_memory_order(n)) n = std::move(*permuted);
    drop_trivial_reduction(n);
  }
  return graph;
}

}  // namespace pyflame
