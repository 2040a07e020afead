// Programs as text, for pf.explain() and PYFLAME_DEBUG.
#include "pyflame/compile/program.h"
#include "pyflame/record/location.h"

namespace pyflame {

namespace {

std::string counted(size_t n, const char* what) { return fmt::format("{} {}{}", n, what, n == 1 ? "" : "s"); }

std::string axes_of(int64_t mask) {
  std::string text;
  for (int d = 0; d < kMaxDims; ++d)
    if (mask >> d & 1) text += fmt::format("{}{}", text.empty() ? "" : ",", d);
  return text.empty() ? "none" : text;
}

}  // namespace

std::string describe_operand(const Operand& o) {
  if (o.is_param) return fmt::format("param {}", dtype_name(o.dtype));
  return fmt::format("{}{}{}", dtype_name(o.dtype), o.shape.str(),
                     o.contiguous ? "" : fmt::format(" strides {}", o.strides.str()));
}

std::string describe_node(const Graph& g, const Node& n) {
  (void)g;
  std::string text = fmt::format("{}(", op_name(n.op));
  for (size_t i = 0; i < n.ins.size() && i < 8; ++i) text += (i ? ", " : "") + describe_operand(n.ins[i]);
  if (n.ins.size() > 8) text += fmt::format(", … {} more", n.ins.size() - 8);
  text += ")";
  std::string_view names = n.info().attr_names;
  for (size_t i = 0; i < n.attrs.size(); ++i) {
    const size_t comma = names.find(',');
    const std::string_view field = names.substr(0, comma);
    text += fmt::format(" {}={}", field, field == "axes" ? axes_of(n.attrs[i]) : std::to_string(n.attrs[i]));
    names = comma == std::string_view::npos ? std::string_view() : names.substr(comma + 1);
  }
  text += " -> ";
  for (size_t i = 0; i < n.outs.size() && i < 4; ++i) text += (i ? ", " : "") + describe_operand(n.outs[i]);
  if (n.outs.size() > 4) text += fmt::format(", … {} more", n.outs.size() - 4);
  return text;
}

std::string describe_program(const Program& p) {
  static const char* roles[] = {"map", "row reduce", "row map", "column reduce"};
  const Graph& g = p.graph;
  std::string text = fmt::format("{} in {} on {}; arena {} bytes, new memory {} bytes\n", counted(g.nodes.size(), "op"),
                                 counted(p.steps.size(), "step"), g.device.str(), p.arena_bytes, p.new_bytes);
  for (size_t k = 0; k < p.steps.size(); ++k) {
    const Step& s = p.steps[k];
    text += fmt::format("  step {}: {}", k, s.impl);
    if (s.executable && !s.executable->repeats()) text += ", not deterministic";
    if (s.group.kind == GroupKind::Loop) text += fmt::format(", loop over {}", s.group.space.str());
    if (s.group.kind == GroupKind::Epilogue)
      text += fmt::format(", {} with epilogue", op_name(s.group.root(g).op));
    text += s.group.nodes.size() > 1 ? fmt::format(", {} ops fused\n", s.group.nodes.size()) : "\n";
    for (size_t i = 0; i < s.group.nodes.size(); ++i) {
      const Node& n = s.group.node(g, i);
      text += fmt::format("    {}", describe_node(g, n));
      if (!s.group.roles.empty() && s.group.roles[i] != Role::Map)
        text += fmt::format(" [{}]", roles[static_cast<int>(s.group.roles[i])]);
      for (const Operand& o : n.outs)
        if (!s.group.stores(o)) text += " [not stored]";
      if (n.loc.code) text += fmt::format("  {}", describe_location(n.loc));
      text += "\n";
    }
    for (const Refused& r : s.refused) text += fmt::format("    refused by {}: {}\n", r.impl, r.reason);
  }
  return text;
}

}  // namespace pyflame
