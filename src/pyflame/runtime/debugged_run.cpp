// Gives each value a block, and says what a step did to memory that is not its own.
#include "pyflame/runtime/debugged_run.h"

#include <algorithm>

#include "pyflame/runtime/allocator.h"
#include "pyflame/runtime/memory_log.h"

namespace pyflame {

namespace {

using debug_memory::Violation;

bool in_arena(const Program& p, SlotId s) { return p.memory.placements[s].kind == Placement::Arena; }

const char* verb_of(const Violation& v) {
  return v.kind == Violation::Read ? "read" : v.kind == Violation::Written ? "wrote" : "accessed";
}

const char* plural(size_t n) { return n == 1 ? "" : "s"; }

std::string count_of(const Violation& v) {
  if (v.count) return fmt::format("{} byte{} changed", v.count, plural(v.count));
  return "an access";
}

// "add: wrote outside of a buffer; got 4 bytes changed, 0 bytes behind the end of ...".
std::string words_of(const Violation& v, const std::string& op, const std::string& owner) {
  const std::string buffer = fmt::format("a buffer of {} bytes{}", v.bytes, owner);
  std::string text;
  switch (v.side) {
    case Violation::Behind:
      text = fmt::format("{}: {} outside of a buffer; got {} {} byte{} behind the end of {}", op, verb_of(v),
                         count_of(v), v.offset, plural(v.offset), buffer);
      break;
    case Violation::Before:
      text = fmt::format("{}: {} outside of a buffer; got {}, the nearest {} byte{} before the start of {}", op,
                         verb_of(v), count_of(v), v.offset, plural(v.offset), buffer);
      break;
    case Violation::Freed:
      text = fmt::format("{}: {} freed memory; got {}, at byte {} of what was {}", op, verb_of(v), count_of(v),
                         v.offset, buffer);
      break;
    case Violation::Nowhere:
      text = fmt::format("{}: {} memory that belongs to no buffer; got {}", op, verb_of(v), count_of(v));
      break;
  }
  text += "; expected accesses inside the step's own buffers";
  if (v.at.code) text += fmt::format("\n  the buffer was taken for {}", describe_location(v.at));
  if (v.more) text += fmt::format("\n  {} more buffers were touched by the same step", v.more);
  return text;
}

}  // namespace

DebuggedRun::DebuggedRun(const Window& w, const Program& p, DeviceMemory* memory) : w_(w), p_(p), memory_(memory) {
  blocks_.assign(w.slots.size(), nullptr);
  origins_.resize(w.slots.size());
  workspaces_.assign(p.steps.size(), nullptr);
  workspace_bytes_.assign(p.steps.size(), 0);
  // What an earlier step or code outside of PyFlame did is not this run's.
  if (const auto v = debug_memory::check()) {
    const std::string text =
        words_of(*v, "debug allocator", "") + "\n  no step of PyFlame ran then: other code of the process did it";
    debug_memory::found(text);
    make_poison(ErrorKind::Runtime, text);
  }
  for (const SlotId s : w.slots.ids()) {
    if (!in_arena(p, s)) continue;
    const memory_log::Site site(p.graph.nodes.empty() ? SourceLoc{} : w.ops[NodeId(0)].loc);
    blocks_[s] =
        static_cast<char*>(allocate_raw(w.device, std::max<size_t>(1, p.graph.slots[s].nbytes), MemoryUse::arena));
  }
  for (size_t k = 0; k < p.steps.size(); ++k) {
    workspace_bytes_[k] = p.steps[k].executable ? p.steps[k].executable->workspace() : 0;
    if (workspace_bytes_[k]) workspaces_[k] = allocate_raw(w.device, workspace_bytes_[k], MemoryUse::arena);
  }
}

DebuggedRun::~DebuggedRun() {
  debug_memory::running(nullptr);
  for (const SlotId s : blocks_.ids())
    if (blocks_[s]) free_raw(w_.device, blocks_[s], std::max<size_t>(1, p_.graph.slots[s].nbytes), MemoryUse::arena);
  for (size_t k = 0; k < workspaces_.size(); ++k)
    if (workspaces_[k]) free_raw(w_.device, workspaces_[k], workspace_bytes_[k], MemoryUse::arena);
}

void DebuggedRun::before_step(size_t k) {
  running_ = with_context("", p_, p_.steps[k], locations(p_.steps[k]));
  debug_memory::running(running_.c_str());
}

void DebuggedRun::after_step(const Frame& frame, size_t k) {
  debug_memory::running(nullptr);
  if (memory_) memory_->wait();
  if (debug_memory::blocks()) check_guards(frame, k);
  if (debug_memory::fills()) follow(frame, k);
}

// Which value of the step a block holds, and the op that has it; without one, the first op of the step.
DebuggedRun::Owner DebuggedRun::owner_of(const Frame& frame, const Step& step, const void* data) const {
  const char* op = op_name(step.group.root(p_.graph).op);
  const std::vector<NodeId>& nodes = step.group.nodes;
  for (size_t i = 0; i < nodes.size(); ++i) {
    const Node& n = step.group.node(p_.graph, i);
    for (const auto* operands : {&n.outs, &n.ins})
      for (const Operand& o : *operands)
        if (!o.is_param && frame.bases[p_.graph.slot(o)] == data)
          return {op_name(n.op), fmt::format(", the {} {} of {}", operands == &n.outs ? "result" : "input",
                                             describe_operand(o), op_name(n.op))};
  }
  for (size_t k = 0; k < workspaces_.size(); ++k)
    if (workspaces_[k] == data) return {op, fmt::format(", the workspace of step {}", k + 1)};
  return {op, ""};
}

void DebuggedRun::check_guards(const Frame& frame, size_t k) {
  const auto v = debug_memory::check();
  if (!v) return;
  const Step& step = p_.steps[k];
  const Owner owner = owner_of(frame, step, v->data);
  const std::string text =
      fmt::format("{}\n  in step {} of {}", words_of(*v, owner.op, owner.buffer), k + 1, p_.steps.size());
  debug_memory::found(with_context(text, p_, step, locations(step)));
  throw Error(ErrorKind::Runtime, text);
}

std::vector<SourceLoc> DebuggedRun::locations(const Step& step) const {
  std::vector<SourceLoc> locs;
  for (const NodeId m : step.group.nodes) locs.push_back(w_.ops[m].loc);
  return locs;
}

uninitialised::Origin DebuggedRun::origin_of(SlotId slot) const {
  return blocks_[slot] ? origins_[slot] : uninitialised::origin_of(*w_.slots[slot].storage);
}

// Why a result holds the pattern, or NaN that comes from it, with the op and its line. Null: NaN that has another cause.
// Some GPUs write one NaN for all, so that the pattern is only in the inputs.
uninitialised::Origin DebuggedRun::began_at(const Frame& frame, size_t k, const Node& n, const Operand& out,
                                            bool has_pattern) const {
  const Step& step = p_.steps[k];
  const auto is_result = [&](SlotId s) {
    return std::find(step.writes.begin(), step.writes.end(), s) != step.writes.end();
  };
  std::string why = has_pattern ? "which did not write all of it" : "";
  for (size_t i = 0; i < step.group.nodes.size(); ++i)
    for (const Operand& in : step.group.node(p_.graph, i).ins) {
      if (in.is_param || is_result(p_.graph.slot(in)) || frame.pointers[in.binding] == frame.pointers[out.binding])
        continue;
      if (uninitialised::look(in, frame.pointers[in.binding], memory_).pattern)
        why = fmt::format("whose input {} holds memory that nothing has written", describe_operand(in));
    }
  if (why.empty()) return nullptr;
  const std::string what = fmt::format("first seen in the result {} of {}, {}; step {} of {}", describe_operand(out),
                                       op_name(n.op), why, k + 1, p_.steps.size());
  return std::make_shared<const std::string>(with_context(what, p_, step, locations(step)));
}

void DebuggedRun::follow(const Frame& frame, size_t k) {
  const Step& step = p_.steps[k];
  uninitialised::Origin before;
  for (const SlotId s : step.reads)
    if (!before) before = origin_of(s);
  for (size_t i = 0; i < step.group.nodes.size(); ++i) {
    const Node& n = step.group.node(p_.graph, i);
    for (const Operand& out : n.outs) {
      if (out.is_param || !step.group.stores(out) || !frame.pointers[out.binding]) continue;
      const uninitialised::Found seen = uninitialised::look(out, frame.pointers[out.binding], memory_);
      uninitialised::Origin origin = seen.pattern || (before && seen.nan) ? before : nullptr;
      if (seen.nan && !origin) origin = began_at(frame, k, n, out, seen.pattern > 0);
      if (!origin && !p_.graph.covers_slot(out)) continue;
      const SlotId slot = p_.graph.slot(out);
      if (blocks_[slot]) origins_[slot] = origin;
      else uninitialised::set_origin(*w_.slots[slot].storage, origin);
    }
  }
}

}  // namespace pyflame
