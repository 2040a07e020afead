#include "pyflame/compile/work.h"

#include <algorithm>

namespace pyflame {

namespace {

Work kind_of_work(const Graph& g, const Group& group) {
  const auto of = [&](size_t i) { return group.node(g, i).info().kind_of_work; };
  if (group.kind != GroupKind::Loop) return of(0);
  bool moves = true;
  for (size_t i = 0; i < group.nodes.size(); ++i) {
    if (group.roles[i] == Role::RowReduce || group.roles[i] == Role::ColReduce) return Work::Reduction;
    moves = moves && of(i) == Work::Memory;
  }
  return moves ? Work::Memory : Work::Elementwise;
}

double attention_flops(const Node& n, const Operand& q, const Operand& k, int products) {
  if (q.shape.size() != 4) return 0;
  const double pairs = static_cast<double>(q.shape[2]) * static_cast<double>(k.shape[2]);
  const double heads = static_cast<double>(q.shape[0] * q.shape[1] * q.shape[3]);
  return 2 * products * pairs * heads * (n.attr<AttentionAttrs>().causal ? 0.5 : 1);
}

// Floating-point operations of ops whose speed arithmetic limits.
double flops_of(const Node& n) {
  const auto size = [](const Operand& o) { return static_cast<double>(o.numel()); };
  const auto filters = [](const Operand& weight) { return static_cast<double>(std::max<int64_t>(1, weight.shape[0])); };
  switch (n.op) {
    case OpId::scaled_mm:
    case OpId::matmul: return 2 * size(n.outs[0]) * static_cast<double>(n.ins[0].shape[n.ins[0].shape.size() - 1]);
    // Of all layers, the first of which may have other inputs: each step multiplies with all weights. The gradient does so twice.
    case OpId::recurrent:
    case OpId::recurrent_grad: {
      const auto a = n.attr<RecurrentAttrs>();
      const bool gradient = n.op == OpId::recurrent_grad;
      double elements = 0;
      for (const Operand& o : gradient ? n.outs : n.ins)
        if (!o.is_param && o.shape.size() == 2) elements += size(o);
      const Operand& y = gradient ? n.ins[0] : n.outs[0];
      return (gradient ? 4 : 2) * size(y) / static_cast<double>(std::max<int64_t>(1, a.directions * a.hidden)) *
             elements;
    }
    // Each row is multiplied with one of the matrices, whatever groups there are.
    case OpId::grouped_mm: return 2 * size(n.ins[0]) * static_cast<double>(n.outs[0].shape[n.outs[0].shape.size() - 1]);
    // Each pair of an output and an input that contributes to it, once per image. This holds for all three
    // convolutions.
    case OpId::conv2d: return 2 * size(n.outs[0]) * size(n.ins[1]) / filters(n.ins[1]);
    case OpId::conv2d_grad_input: return 2 * size(n.ins[0]) * size(n.ins[1]) / filters(n.ins[1]);
    case OpId::conv2d_grad_weight: return 2 * size(n.ins[0]) * size(n.outs[0]) / filters(n.outs[0]);
    // Two products over the pairs of a query and a key; a causal query sees half of the keys. The gradient has five.
    case OpId::attention: return attention_flops(n, n.ins[0], n.ins[1], 2);
    case OpId::attention_grad: return attention_flops(n, n.ins[1], n.ins[2], 5);
    default: return 0;
  }
}

// What an op that moves elements can read of an operand: no more than it writes. Rows that are selected from a table are not the whole table.
size_t most_read(const Graph& g, const Group& group) {
  const Node& n = group.node(g, 0);
  if (group.kind != GroupKind::Single || n.info().kind_of_work != Work::Memory) return SIZE_MAX;
  size_t bytes = 0;
  for (const Operand& o : n.outs) bytes += o.nbytes();
  return bytes;
}

// The bytes of memory traffic: each operand once, and nothing for values inside the group. A broadcast operand has the
// group's shape.
int64_t bytes_of(const Graph& g, const Group& group) {
  const size_t most = most_read(g, group);
  Indexed<BindingId, bool> read(g.bindings.size(), false), written(read);
  size_t bytes = 0;
  const auto count = [&](const Operand& o) { bytes += std::min(g.slot_info(o).nbytes, o.nbytes()); };
  for (size_t i = 0; i < group.nodes.size(); ++i) {
    const Node& n = group.node(g, i);
    for (const Operand& o : n.ins) {
      if (o.is_param) continue;
      if (!read[o.binding] && !written[o.binding]) bytes += std::min({g.slot_info(o).nbytes, o.nbytes(), most});
      read[o.binding] = true;
    }
    for (const Operand& o : n.outs) {
      if (!written[o.binding] && group.stores(o)) count(o);
      written[o.binding] = true;
    }
  }
  return static_cast<int64_t>(bytes);
}

}  // namespace

GroupWork work_of(const Graph& g, const Group& group) {
  GroupWork work;
  work.kind = kind_of_work(g, group);
  work.bytes = bytes_of(g, group);
  for (size_t i = 0; i < group.nodes.size(); ++i) work.flops += flops_of(group.node(g, i));
  const Node& root = group.root(g);
  work.dtype = root.ins.empty() || root.ins[0].is_param ? root.outs[0].dtype : root.ins[0].dtype;
  return work;
}

}  // namespace pyflame
