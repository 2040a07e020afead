// The label of a step in a profile. It is made once per program and recording, so that a run logs only numbers.
#include <algorithm>

#include "pyflame/base/location.h"
#include "pyflame/compile/work.h"
#include "pyflame/ops/user_kernel.h"
#include "pyflame/runtime/profiler.h"

namespace pyflame::profiler {

namespace {

int32_t device_number(Device d) { return static_cast<int32_t>(d.type) * 100 + d.index; }

constexpr size_t kMostOps = 12, kMostOperands = 12;

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

// The implementation and the ops of a step.
std::string step_name(const Graph& g, const Step& step) {
  std::string ops;
  const size_t shown = std::min(step.group.nodes.size(), kMostOps);
  for (size_t i = 0; i < shown; ++i)
    ops += fmt::format("{}{}", i ? "+" : "", shown_name(step.group.node(g, i).op, step.group.node(g, i).attrs));
  if (step.group.nodes.size() > shown) ops += fmt::format("+{} more", step.group.nodes.size() - shown);
  return fmt::format("{} {}", step.impl, ops);
}

}  // namespace

events::LabelText text_of(const Program& p, const Step& step) {
  const Graph& g = p.graph;
  events::LabelText t;
  std::string list;
  for (size_t i = 0; i < step.group.nodes.size(); ++i) {
    const Node& n = step.group.node(g, i);
    if (i >= kMostOps) continue;
    list += fmt::format("{}\"{}\"", i ? "," : "", op_name(n.op));
  }
  t.name = step_name(g, step);
  const GroupWork work = work_of(g, step.group);
  t.work = work_name(work.kind);
  t.device = device_number(g.device);
  t.bytes = work.bytes;
  t.flops = work.flops;
  const Node& root = step.group.root(g);
  t.args = fmt::format("\"impl\":\"{}\",\"ops\":[{}],{}", step.impl, list, shape_list(g, step));
  if (root.loc.code) t.place = describe_location(root.loc);
  return t;
}

std::string step_text(const Program& p, const Step& step) {
  const Node& root = step.group.root(p.graph);
  const std::string name = step_name(p.graph, step);
  return root.loc.code ? fmt::format("{} ({})", name, describe_location(root.loc)) : name;
}

std::string replay_text(const Program& p) { return fmt::format("replay of {} steps as a graph", p.steps.size()); }

events::Label replay_label(const Program& p) {
  events::LabelText t;
  t.name = replay_text(p);
  t.work = work_name(Work::Other);
  t.device = device_number(p.graph.device);
  return events::label(t);
}

const std::vector<events::Label>& labels_of(const Program& p, std::vector<events::Label>& labels) {
  if (!labels.empty() && labels[0].recording == events::recording()) return labels;
  labels.clear();
  events::LabelText own;
  own.name = "run program";
  own.args = fmt::format("\"ops\":{},\"steps\":{},\"arena bytes\":{},\"device\":\"{}\"", count_ops(p.graph),
                         p.steps.size(), p.memory.arena_bytes, p.graph.device.str());
  labels.push_back(events::label(own));
  for (const Step& step : p.steps) labels.push_back(events::label(text_of(p, step)));
  return labels;
}

}  // namespace pyflame::profiler
