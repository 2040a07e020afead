// select: chooses the implementation of a group.
//
// Takes    a group of the graph.
// Returns  the first of the backend's implementations that accepts the group, with the refusals of those before it;
// none if all refuse. If one is forced (force.h), the others count as refusing.
// Ensures  nothing is made yet: an implementation is asked once per group, and the answer depends on the group alone.
#include "pyflame/base/error.h"
#include "pyflame/compile/force.h"
#include "pyflame/compile/passes.h"
#include "pyflame/compile/plugins.h"

namespace pyflame {

bool Selection::falls_back(const Backend& backend) const {
  return backend.last_is_slow() && impls.size() > 1 && impl == impls.size() - 1;
}

namespace {

// Whether the name is that of an implementation for the other kind of device.
bool is_elsewhere(const Problem& p, const std::string& name) {
  const bool on_gpu = name.starts_with("gpu.") || name.starts_with("rocm.") || name.starts_with("cuda.");
  return on_gpu != has_own_memory(p.graph.device.type);
}

// The name that must be taken; empty: any. One for another kind of device does not matter here; one that does not exist
// is an error.
std::string forced_name(const Problem& p, std::span<const Impl> impls) {
  const auto forced = forced_entry(op_name(p.root().op));
  if (!forced) return "";
  std::string names;
  for (const Impl& i : impls) {
    if (forced->impl == i.name) return forced->impl;
    names += (names.empty() ? "" : ", ") + std::string(i.name);
  }
  if (is_elsewhere(p, forced->impl)) return "";
  PF_FAIL(Value,
          "{}: an implementation is forced that does not exist; got '{}'; expected one of {}; hint: change "
          "PYFLAME_FORCE or pf.tuning.force",
          op_name(p.root().op), forced->impl, names);
}

}  // namespace

Selection select(const Graph& graph, const Group& group, const Backend& backend) {
  const Problem problem{graph, group};
  Selection s;
  s.impls = impls_with_plugins(backend, problem);
  const std::string forced = forced_name(problem, s.impls);
  for (size_t i = 0; i < s.impls.size() && !s.impl; ++i) {
    const Impl& impl = s.impls[i];
    if (impl.plugin && impl.plugin->op != problem.root().op) continue;
    Refusal no;
    if (!forced.empty() && forced != impl.name) no = "another implementation is forced";
    else if (forced.empty() && impl.plugin) no = "a plug-in, which computes where it was measured to be faster";
    else no = refusal_of(impl, problem);
    if (no) s.refused.push_back({s.impls[i].name, std::move(*no)});
    else s.impl = i;
  }
  return s;
}

}  // namespace pyflame
