// The label of a step in a profile. It is made once per program and recording, so that a run logs only numbers.
#include <algorithm>

#include "pyflame/base/location.h"
#include "pyflame/runtime/profiler.h"

namespace pyflame::profiler {

namespace {

int32_t device_number(Device d) { return static_cast<int32_t>(d.type) * 100 + d.index; }

constexpr size_t kMostOps = 12, kMostOperands = 12;

Work work_of(const Graph& g, const Group& group) {
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
    case OpId::matmul: return 2 * size(n.outs[0]) * static_cast<double>(n.ins[0].shape[n.ins[0].shape.size() - 1]);
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

std::string shape_list(const Graph& g, const Step& step) {
  // The inputs of the step, each once.
  std::string shapes, types;
  size_t shown = 0;
  Indexed<BindingId, bool> seen(g.bindings.size(), false);
  for (size_t i = 0; i < step.group.nodes.size(); ++i) {
    const Node& n = step.group.node(g, i);
    for (const Operand& o : n.ins) {
      if (o.is_param || seen[o.binding]) continue;
      seen[o.binding] = true;
      if (shown == kMostOperands) break;
      std::string dims;
      for (const int64_t d : o.shape) dims += fmt::format("{}{}", dims.empty() ? "" : ",", d);
      shapes += fmt::format("{}[{}]", shown ? "," : "", dims);
      types += fmt::format("{}\"{}\"", shown ? "," : "", dtype_name(o.dtype));
      ++shown;
    }
    for (const Operand& o : n.outs) seen[o.binding] = true;
  }
  return fmt::format("\"Input Dims\":[{}],\"Input type\":[{}]", shapes, types);
}

events::LabelText text_of(const Program& p, const Step& step) {
  const Graph& g = p.graph;
  events::LabelText t;
  std::string ops, list;
  for (size_t i = 0; i < step.group.nodes.size(); ++i) {
    const Node& n = step.group.node(g, i);
    t.flops += flops_of(n);
    if (i >= kMostOps) continue;
    ops += fmt::format("{}{}", i ? "+" : "", op_name(n.op));
    list += fmt::format("{}\"{}\"", i ? "," : "", op_name(n.op));
  }
  if (step.group.nodes.size() > kMostOps) ops += fmt::format("+{} more", step.group.nodes.size() - kMostOps);
  t.name = fmt::format("{} {}", step.impl, ops);
  t.work = work_name(work_of(g, step.group));
  t.device = device_number(g.device);
  t.bytes = bytes_of(g, step.group);
  const Node& root = step.group.root(g);
  t.args = fmt::format("\"impl\":\"{}\",\"ops\":[{}],{}", step.impl, list, shape_list(g, step));
  if (root.loc.code) t.place = describe_location(root.loc);
  return t;
}

}  // namespace

events::Label replay_label(const Program& p) {
  events::LabelText t;
  t.name = fmt::format("replay of {} steps as a graph", p.steps.size());
  t.work = work_name(Work::Other);
  t.device = device_number(p.graph.device);
  return events::label(t);
}

const std::vector<events::Label>& labels_of(const Program& p, std::vector<events::Label>& labels) {
  if (!labels.empty() && labels[0].recording == events::recording()) return labels;
  labels.clear();
  events::LabelText own;
  own.name = "run program";
  own.args = fmt::format("\"ops\":{},\"steps\":{},\"arena bytes\":{},\"device\":\"{}\"", p.graph.nodes.size(),
                         p.steps.size(), p.memory.arena_bytes, p.graph.device.str());
  labels.push_back(events::label(own));
  for (const Step& step : p.steps) labels.push_back(events::label(text_of(p, step)));
  return labels;
}

}  // namespace pyflame::profiler
