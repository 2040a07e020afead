// Programs, and what the passes return on the way to them, as text for pf.explain() and PYFLAME_DEBUG.
#include <array>
#include <charconv>
#include <cstring>

#include "pyflame/base/location.h"
#include "pyflame/compile/passes.h"
#include "pyflame/compile/work.h"
#include "pyflame/ops/hides.h"
#include "pyflame/ops/user_kernel.h"

namespace pyflame {

namespace {

std::string counted(size_t n, const char* what) { return fmt::format("{} {}{}", n, what, n == 1 ? "" : "s"); }

std::string axes_of(int64_t mask) {
  std::string text;
  for (int d = 0; d < kMaxDims; ++d)
    if (mask >> d & 1) text += fmt::format("{}{}", text.empty() ? "" : ",", d);
  return text.empty() ? "none" : text;
}

// "loop over (64, 128)", "matmul with epilogue", or nothing.
std::string kind_of(const Graph& g, const Group& group) {
  switch (group.kind) {
    case GroupKind::Loop: return fmt::format("loop over {}", group.space.str());
    case GroupKind::Epilogue: return fmt::format("{} with epilogue", op_name(group.root(g).op));
    case GroupKind::Single: break;
  }
  return "";
}

// " [row reduce] [not stored]"
std::string marks_of(const Graph& g, const Group& group, size_t i) {
  static const char* roles[] = {"map", "row reduce", "row map", "column reduce"};
  std::string text;
  if (!group.roles.empty() && group.roles[i] != Role::Map)
    text += fmt::format(" [{}]", roles[static_cast<int>(group.roles[i])]);
  for (const Operand& o : group.node(g, i).outs)
    if (!group.stores(o)) text += " [not stored]";
  return text;
}

std::string placement_of(const Placement& at) {
  const auto in = [&](const char* what) {
    return at.donor.valid() ? fmt::format("{} slot {}", what, at.donor.value()) : std::string();
  };
  switch (at.kind) {
    case Placement::External: return "external";
    case Placement::Allocate: return "new memory";
    case Placement::Donated: return in("takes over");
    case Placement::Arena: return fmt::format("{} at {}", at.donor.valid() ? in("in") : "in the arena", at.offset);
    case Placement::Elided: return "no memory";
  }
  return "";
}

}  // namespace

namespace {
// Text that is put together in a place of fixed size and appended to a string from time to time. Each new problem is
// described to be looked up in the tuning database, and appending each number to a string takes several times as long.
class Text {
 public:
  explicit Text(std::string& to) : to_(to) {}
  Text(const Text&) = delete;
  Text& operator=(const Text&) = delete;
  ~Text() { flush(); }

  void add(char c) {
    if (size_ == room_.size()) flush();
    room_[size_++] = c;
  }
  void add(std::string_view s) {
    if (s.size() > room_.size() - size_) flush();
    if (s.size() > room_.size()) return static_cast<void>(to_.append(s));
    std::memcpy(room_.data() + size_, s.data(), s.size());
    size_ += s.size();
  }
  void add(int64_t n) {
    constexpr size_t kDigits = 20;  // as many as the smallest number has, with its sign
    if (room_.size() - size_ < kDigits) flush();
    char* const end = room_.data() + room_.size();
    size_ = static_cast<size_t>(std::to_chars(room_.data() + size_, end, n).ptr - room_.data());
  }

 private:
  void flush() {
    to_.append(room_.data(), size_);
    size_ = 0;
  }

  std::string& to_;
  std::array<char, 256> room_;
  size_t size_ = 0;
};

void add_dims(Text& text, const Dims& dims) {  // as Dims::str
  text.add('(');
  for (int i = 0; i < dims.size(); ++i) {
    if (i > 0) text.add(',');
    if (i > 0) text.add(' ');
    text.add(dims[i]);
  }
  if (dims.size() == 1) text.add(',');
  text.add(')');
}

void add_operand(Text& text, const Operand& o) {
  if (o.is_param) text.add("param ");
  text.add(dtype_name(o.dtype));
  if (o.is_param) return;
  add_dims(text, o.shape);
  if (o.contiguous) return;
  text.add(" strides ");
  add_dims(text, o.strides);
}

void add_operands(Text& text, std::span<const Operand> all, size_t most) {
  for (size_t i = 0; i < all.size() && i < most; ++i) {
    if (i > 0) text.add(',');
    if (i > 0) text.add(' ');
    add_operand(text, all[i]);
  }
  if (all.size() > most) text.add(fmt::format(", … {} more", all.size() - most));
}

void add_attributes(Text& text, const Node& n) {
  std::string_view names = n.op == OpId::where ? HidesAttrs::kFields : n.info().attr_names;
  for (const int64_t value : n.attrs) {
    const size_t comma = names.find(',');
    const std::string_view field = names.substr(0, comma);
    text.add(' ');
    text.add(field);
    text.add('=');
    if (field == "axes") text.add(axes_of(value));
    else text.add(value);
    names = comma == std::string_view::npos ? std::string_view() : names.substr(comma + 1);
  }
}
}  // namespace

std::string describe_operand(const Operand& o) {
  std::string all;
  {
    Text text(all);
    add_operand(text, o);
  }
  return all;
}

std::string describe_node(const Graph& g, const Node& n) {
  (void)g;
  std::string all;
  {
    Text text(all);
    text.add(shown_name(n.op, n.attrs));
    text.add('(');
    add_operands(text, n.ins, 8);
    text.add(')');
    add_attributes(text, n);
    text.add(" -> ");
    add_operands(text, n.outs, 4);
  }
  return all;
}

std::string describe_totals(const Program& p) {
  const Graph& g = p.graph;
  return fmt::format("{} in {} on {}; arena {} bytes, new memory {} bytes", counted(count_ops(g), "op"),
                     counted(p.steps.size(), "step"), g.device.str(), p.memory.arena_bytes, p.memory.new_bytes);
}

std::string describe_step(const Program& p, size_t k) {
  const Graph& g = p.graph;
  const Step& s = p.steps[k];
  const std::string kind = kind_of(g, s.group);
  std::string text = fmt::format("step {}: {}", k, s.impl);
  if (!s.configuration.empty()) text += fmt::format(":{}", s.configuration);
  if (s.executable && !s.executable->repeats()) text += ", not deterministic";
  if (!kind.empty()) text += ", " + kind;
  if (s.group.nodes.size() > 1) text += fmt::format(", {} ops fused", s.group.nodes.size());
  return text;
}

std::vector<std::string> describe_members(const Program& p, size_t k) {
  const Graph& g = p.graph;
  const Step& s = p.steps[k];
  std::vector<std::string> lines;
  for (size_t i = 0; i < s.group.nodes.size(); ++i) {
    const Node& n = s.group.node(g, i);
    lines.push_back(describe_node(g, n) + marks_of(g, s.group, i));
    if (n.loc.code) lines.back() += "  " + describe_location(n.loc);
  }
  for (const Refused& r : s.refused) lines.push_back(fmt::format("refused by {}: {}", r.impl, r.reason));
  return lines;
}

std::string describe_program(const Program& p) {
  std::string text = describe_totals(p) + "\n";
  for (size_t k = 0; k < p.steps.size(); ++k) {
    const GroupWork work = work_of(p.graph, p.steps[k].group);
    text += fmt::format("  {}; {} bytes", describe_step(p, k), work.bytes);
    if (work.flops > 0) text += fmt::format(", {:.0f} FLOP", work.flops);
    text += "\n";
    for (const std::string& line : describe_members(p, k)) text += "    " + line + "\n";
  }
  return text;
}

// ---- what the passes return, for PYFLAME_DEBUG=7; nodes, slots and groups by their numbers

std::string describe_graph(const Graph& g) {
  std::string text;
  for (const NodeId id : g.nodes.ids()) {
    const Node& n = g.nodes[id];
    text += fmt::format("  node {}: {}; slots", id.value(), describe_node(g, n));
    for (const Operand& o : n.ins)
      if (!o.is_param) text += fmt::format(" {}", g.slot(o).value());
    text += " ->";
    for (const Operand& o : n.outs) text += fmt::format(" {}", g.slot(o).value());
    text += "\n";
  }
  return text;
}

std::string describe_groups(const Graph& g, std::span<const Group> groups) {
  std::string text;
  for (size_t k = 0; k < groups.size(); ++k) {
    const Group& group = groups[k];
    const std::string kind = kind_of(g, group);
    text += fmt::format("  group {}: {}{}\n", k, kind.empty() ? "single" : kind,
                        group.kind == GroupKind::Loop
                            ? fmt::format(", {} outer", counted(static_cast<size_t>(group.split), "dim"))
                            : "");
    for (size_t i = 0; i < group.nodes.size(); ++i)
      text += fmt::format("    node {}: {}{}\n", group.nodes[i].value(), describe_node(g, group.node(g, i)),
                          marks_of(g, group, i));
  }
  return text;
}

std::string describe_selections(const Graph& g, std::span<const Group> groups, std::span<const Selection> selections) {
  std::string text;
  for (size_t k = 0; k < selections.size(); ++k) {
    const Selection& s = selections[k];
    text += fmt::format("  group {} of {}: {}\n", k, op_name(groups[k].root(g).op),
                        s.impl ? s.impls[*s.impl].name : "no implementation");
    for (const Refused& r : s.refused) text += fmt::format("    refused by {}: {}\n", r.impl, r.reason);
  }
  return text;
}

std::string describe_cuts(const Graph& g, const Cuts& before, const Cuts& after) {
  std::string text;
  for (const NodeId id : g.nodes.ids()) {
    const auto name = op_name(g.nodes[id].op);
    if (after.most[id] < before.most[id])
      text += fmt::format("  node {} ({}) opens a group of at most {}\n", id.value(), name,
                          counted(after.most[id], "node"));
    if (after.apart[id] && !before.apart[id])
      text += fmt::format("  node {} ({}) is not in the group of a product\n", id.value(), name);
  }
  return text;
}

std::string describe_memory(const Graph& g, std::span<const Step> steps, const MemoryPlan& m) {
  std::string text = fmt::format("  arena {} bytes, new memory {} bytes\n", m.arena_bytes, m.new_bytes);
  for (const SlotId s : g.slots.ids())
    text += fmt::format("  slot {}: {} bytes, {}\n", s.value(), g.slots[s].nbytes, placement_of(m.placements[s]));
  for (size_t k = 0; k < steps.size(); ++k)
    if (const size_t bytes = steps[k].executable ? steps[k].executable->workspace() : 0)
      text += fmt::format("  step {}: {} bytes of workspace, {}\n", k, bytes, placement_of(m.workspaces[k]));
  return text;
}

}  // namespace pyflame
