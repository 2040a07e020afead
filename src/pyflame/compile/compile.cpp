// compile_window: compiles a recorded window to a program. It runs the passes of passes.h in order and makes an
// executable for each group.
#include <algorithm>
#include <cstdio>
#include <mutex>
#include <optional>
#include <set>

#include "pyflame/base/env.h"
#include "pyflame/base/fallbacks.h"
#include "pyflame/compile/force.h"
#include "pyflame/compile/inject.h"
#include "pyflame/compile/passes.h"
#include "pyflame/compile/rewrites.h"
#include "pyflame/record/rewrite_mask.h"

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

// The candidate's executable. What was measured with another driver may not exist any more; then the first
// implementation computes, which is a fallback.
std::unique_ptr<Executable> make_candidate(const Problem& p, const Selection& selection, Candidate& chosen) {
  try {
    return chosen.make(p);
  } catch (const Error& e) {
    const Candidate first{&selection.impls[*selection.impl], ""};
    const bool forced = forced_entry(op_name(p.root().op)).has_value();
    if (forced && !chosen.configuration.empty()) throw ForcedError(e.kind(), e.what());
    if (forced || chosen.name() == first.name()) throw;
    const std::string op(op_name(p.root().op)), device = p.graph.device.str();
    note_fallback(op, device, first.name(), e.what(),
                  fmt::format("{} runs on {} of {}, because the tuned {} cannot be made ({})", op, first.name(), device,
                              chosen.name(), e.what()));
    chosen = first;
    return first.make(p);
  }
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
  Preference preference = prefer(backend, problem, selection);
  std::unique_ptr<Executable> executable;
  if (backend.executes()) executable = make_candidate(problem, selection, preference.chosen);
  step.impl = preference.chosen.impl->name;
  step.configuration = preference.chosen.configuration;
  step.measured = preference.measured;
  step.others = std::move(preference.others);
  step.enumerating = std::move(preference.enumerating);
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

Grouping group_and_select(const Graph& graph, const Backend& backend, const Rules& rules) {
  Grouping r{no_cuts(graph, backend), {}, {}};
  for (;;) {
    r.groups = group(graph, r.cuts, rules);
    dump("group", [&] { return describe_groups(graph, r.groups); });
    r.selections.clear();
    r.selections.reserve(r.groups.size());
    for (const Group& g : r.groups) r.selections.push_back(select(graph, g, backend));
    dump("select", [&] { return describe_selections(graph, r.groups, r.selections); });
    std::optional<Cuts> stricter = split(graph, r.groups, r.selections, backend, r.cuts);
    if (!stricter) return r;
    dump("split", [&] { return describe_cuts(graph, r.cuts, *stricter); });
    r.cuts = std::move(*stricter);
  }
}

namespace {

std::shared_ptr<const Program> compile_graph(const std::vector<uint64_t>& key, Liveness liveness, Rewritten recorded) {
  const auto p = std::make_shared<Program>();
  p->backend = find_backend(recorded.graph.device.type);
  p->key = key;
  const Backend& backend = *p->backend;
  const Rules& rules = p->rules = {backend.fuses() && fuses(key), backend.loops_in_memory_order()};
  p->graph = legalise(std::move(recorded.graph), rules);
  p->added = std::move(recorded.added);
  p->notes = std::move(recorded.notes);
  p->liveness = std::move(liveness);
  const Graph& graph = p->graph;
  dump("legalise", [&] { return describe_graph(graph); });

  auto [cuts, groups, selections] = group_and_select(graph, backend, rules);
  p->cuts = std::move(cuts);
  p->steps.reserve(groups.size());
  for (size_t k = 0; k < groups.size(); ++k)
    p->steps.push_back(make_step(graph, std::move(groups[k]), std::move(selections[k]), backend));
  p->memory = plan_memory(graph, p->steps, env::plan_memory());
  dump("plan_memory", [&] { return describe_memory(graph, p->steps, p->memory); });
  return p;
}

}  // namespace

Rewritten prepare_graph(const Window& w, const Liveness& liveness) {
  return rewrite_graph(with_liveness(build_graph(w), liveness), rewrites_of(w));
}

std::vector<RewriteNote> notes_on_rewrites_that_are_off(const Window& w, const Liveness& liveness) {
  const uint32_t active = rewrites_of(w);
  std::vector<RewriteNote> notes = rewrite_graph(with_liveness(build_graph(w), liveness), ~active).notes;
  std::erase_if(notes, [](const RewriteNote& n) { return !n.fired; });
  for (RewriteNote& n : notes) {
    n.fired = false;
    if (n.rewrite == Rewrite::FiniteFills) n.text += ", if all scores are smaller in size than that number less 104";
    if (n.rewrite == Rewrite::SkippedPadding) n.text += ", if nothing reads their results";
    n.text =
        fuses(w.key)
            ? fmt::format("it is off; hint: pf.rewrites.enable(\"{}\") makes {}", rewrite_info(n.rewrite).name, n.text)
            : "ops that are not to be fused are not replaced (pf.no_fuse, fuse=False, PYFLAME_FUSE=0): " + n.text;
  }
  return notes;
}

std::shared_ptr<const Program> compile_window(const Window& w, Liveness liveness) {
  Rewritten graph = prepare_graph(w, liveness);
  count_fired(graph.notes);
  return compile_graph(w.key, std::move(liveness), std::move(graph));
}

std::shared_ptr<const Program> compile_instead(const Program& p, Rewritten rewritten) {
  return compile_graph(p.key, p.liveness, std::move(rewritten));
}

std::shared_ptr<const Program> with_replacements(const Program& p, std::vector<Replacement> replacements) {
  const auto q = std::make_shared<Program>(p);
  for (Replacement& r : replacements) {
    q->steps[r.step].impl = r.candidate.impl->name;
    q->steps[r.step].configuration = r.candidate.configuration;
    q->steps[r.step].measured = true;
    q->steps[r.step].executable = std::move(r.executable);
  }
  q->memory = plan_memory(q->graph, q->steps, env::plan_memory());
  return q;
}

}  // namespace pyflame
