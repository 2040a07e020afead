// compile_window: compiles a recorded window to a program. It runs the passes of passes.h in order and makes an
// executable for each group.
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <mutex>
#include <optional>
#include <set>

#include "pyflame/base/env.h"
#include "pyflame/base/fallbacks.h"
#include "pyflame/compile/choices.h"
#include "pyflame/compile/inject.h"
#include "pyflame/compile/passes.h"

namespace pyflame {

namespace {

std::string reasons(const std::vector<Refused>& refused) {
  std::string why;
  for (const Refused& r : refused) why += fmt::format("{}{}: {}", why.empty() ? "" : "; ", r.impl, r.reason);
  return why;
}

// Users should know if an op runs on the slow reference loops.
FallbackEntry* fallback_of(const Problem& p, const Step& step) {
  if (step.refused.empty()) return nullptr;
  const std::string op(op_name(p.root().op)), device = p.graph.device.str(), why = reasons(step.refused);
  return &note_fallback(op, device, step.impl, why,
                        fmt::format("{} runs on the slow reference loops of {} ({})", op, device, why));
}

// On a device, the order of the list is a guess, and measurements are better. An implementation that won before is
// taken. If there is a budget for measuring (PYFLAME_TUNE_BUDGET_MS), the others that accept are noted, and timed at
// the first run.
size_t prefer_measured(const Backend& backend, const Problem& p, std::span<const Impl> impls, size_t chosen,
                       Step& step) {
  if (!has_own_memory(p.graph.device.type) || chosen + 1 >= impls.size()) return chosen;
  const double budget = tune_budget_ms();
  const std::string file = choices_file();
  if (budget == 0 && !std::filesystem::exists(file)) return chosen;
  std::vector<size_t> accepting = {chosen};
  for (size_t i = chosen + 1; i < impls.size(); ++i)
    if (!impls[i].accepts(p)) accepting.push_back(i);
  if (accepting.size() < 2) return chosen;
  const auto best = Choices::in(file).best(environment_of(backend, p.graph.device.index),
                                           std::string(op_name(p.root().op)), problem_key(p));
  for (const size_t i : accepting)
    if (best && *best == impls[i].name) return i;
  if (!best && budget > 0)
    for (size_t i = 1; i < accepting.size(); ++i) step.others.push_back(&impls[accepting[i]]);
  return chosen;
}

void find_effects(const Graph& g, Step& step) {
  const auto add = [](std::vector<SlotId>& v, SlotId s) {
    if (std::find(v.begin(), v.end(), s) == v.end()) v.push_back(s);
  };
  Indexed<BindingId, bool> written(g.bindings.size(), false);
  for (size_t i = 0; i < step.group.nodes.size(); ++i) {
    const Node& n = step.group.node(g, i);
    for (const Operand& o : n.ins)
      if (!o.is_param && !written[o.binding]) add(step.reads, g.slot(o));
    for (const Operand& o : n.outs) {
      written[o.binding] = true;
      add(step.writes, g.slot(o));
    }
  }
  for (const SlotId s : step.writes) {
    bool covers = false;
    for (size_t i = 0; i < step.group.nodes.size(); ++i)
      for (const Operand& o : step.group.node(g, i).outs) covers |= g.slot(o) == s && g.covers_slot(o);
    for (const SlotId r : step.reads) covers &= r != s;
    step.covers.push_back(covers);
  }
}

Step make_step(const Graph& graph, Group group, Selection selection, const Backend& backend) {
  Step step;
  step.group = std::move(group);
  step.refused = std::move(selection.refused);
  const Problem problem{graph, step.group};
  PF_CHECK(selection.impl, NotImplemented, "{}: no implementation on {}; got {}; refusals: {}",
           op_name(problem.root().op), graph.device.str(), describe_node(graph, problem.root()), reasons(step.refused));
  const size_t chosen = prefer_measured(backend, problem, selection.impls, *selection.impl, step);
  const Impl& impl = selection.impls[chosen];
  step.impl = impl.name;
  std::unique_ptr<Executable> executable;
  if (backend.executes()) executable = impl.make(problem);
  if (injecting()) executable = may_fail(problem, std::move(executable));
  step.executable = std::move(executable);
  if (selection.falls_back(backend)) step.fallback = fallback_of(problem, step);
  find_effects(graph, step);
  return step;
}

Graph with_liveness(Graph graph, const Liveness& liveness) {
  for (const SlotId s : graph.slots.ids()) {
    graph.slots[s].live = liveness[s] & 1;
    graph.slots[s].donatable = liveness[s] & 2;
  }
  return graph;
}

// PYFLAME_DEBUG=7.
template <class Describe>
void dump(const char* pass, Describe describe) {
  if (env::debug() >= 7) fmt::print(stderr, "pyflame: pass {}\n{}", pass, describe());
}

}  // namespace

std::shared_ptr<const Program> compile_window(const Window& w, Liveness liveness) {
  const auto p = std::make_shared<Program>();
  p->backend = find_backend(w.device.type);
  p->key = w.key;
  const Backend& backend = *p->backend;
  const Rules rules{backend.fuses() && env::fuse(), backend.loops_in_memory_order()};
  p->graph = legalise(with_liveness(build_graph(w), liveness), rules);
  p->liveness = std::move(liveness);
  const Graph& graph = p->graph;
  dump("legalise", [&] { return describe_graph(graph); });

  Cuts cuts = no_cuts(graph, backend);
  std::vector<Group> groups;
  std::vector<Selection> selections;
  for (;;) {
    groups = group(graph, cuts, rules);
    dump("group", [&] { return describe_groups(graph, groups); });
    selections.clear();
    selections.reserve(groups.size());
    for (const Group& g : groups) selections.push_back(select(graph, g, backend));
    dump("select", [&] { return describe_selections(graph, groups, selections); });
    std::optional<Cuts> stricter = split(graph, groups, selections, backend, cuts);
    if (!stricter) break;
    dump("split", [&] { return describe_cuts(graph, cuts, *stricter); });
    cuts = std::move(*stricter);
  }
  p->steps.reserve(groups.size());
  for (size_t k = 0; k < groups.size(); ++k)
    p->steps.push_back(make_step(graph, std::move(groups[k]), std::move(selections[k]), backend));
  p->memory = plan_memory(graph, p->steps, env::plan_memory());
  dump("plan_memory", [&] { return describe_memory(graph, p->steps, p->memory); });
  return p;
}

std::shared_ptr<const Program> with_replacements(const Program& p, std::vector<Replacement> replacements) {
  const auto q = std::make_shared<Program>(p);
  for (Replacement& r : replacements) {
    q->steps[r.step].impl = r.impl;
    q->steps[r.step].executable = std::move(r.executable);
  }
  q->memory = plan_memory(q->graph, q->steps, env::plan_memory());
  return q;
}

}  // namespace pyflame
