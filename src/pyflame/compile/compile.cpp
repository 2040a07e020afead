// Window -> Program: fuse, select an implementation for each group, plan memory. And the cache of programs.
#include <algorithm>
#include <bit>
#include <cstdio>
#include <filesystem>
#include <list>
#include <mutex>
#include <optional>
#include <set>
#include <unordered_map>

#include "pyflame/base/env.h"
#include "pyflame/base/fork.h"
#include "pyflame/compile/choices.h"
#include "pyflame/compile/inject.h"
#include "pyflame/compile/program.h"

namespace pyflame {

namespace {

// A fallback to the slow reference loops is a fact that the user should know of: printed once per op and reason.
void note_fallback(const Problem& p, const Step& step) {
  static std::mutex mutex;
  static auto& seen = *new std::set<std::string>;  // leaked: programs compute in exit handlers
  if (step.refused.empty()) return;
  std::string why;
  for (const Refused& r : step.refused) why += fmt::format("{}{}: {}", why.empty() ? "" : "; ", r.impl, r.reason);
  std::lock_guard lock(mutex);
  if (!seen.insert(std::string(op_name(p.root().op)) + why).second) return;
  fmt::print(stderr, "pyflame: {} runs on the slow reference loops of {} ({}); printed once\n", op_name(p.root().op),
             p.graph.device.str(), why);
}

// The index of the implementation that takes the group, if one does.
std::optional<size_t> find_impl(const Problem& p, std::span<const Impl> impls, std::vector<Refused>& refused) {
  for (size_t i = 0; i < impls.size(); ++i) {
    Refusal no = impls[i].accepts(p);
    if (!no) return i;
    refused.push_back({impls[i].name, std::move(*no)});
  }
  return std::nullopt;
}

size_t select(const Problem& p, std::span<const Impl> impls, std::vector<Refused>& refused) {
  if (const auto chosen = find_impl(p, impls, refused)) return *chosen;
  std::string why;
  for (const Refused& r : refused) why += fmt::format("{}{}: {}", why.empty() ? "" : "; ", r.impl, r.reason);
  PF_FAIL(NotImplemented, "{}: no implementation on {}; got {}; refusals: {}", op_name(p.root().op),
          p.graph.device.str(), describe_node(p.graph, p.root()), why);
}

// On a device the list's order is a guess, and what was measured is better: an entry that won before is taken, and where there is a
// budget for measuring (PYFLAME_TUNE_BUDGET_MS) the others that accept are noted for the first run.
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
  auto add = [](std::vector<SlotId>& v, SlotId s) {
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

}  // namespace

std::shared_ptr<Program> compile_window(const Window& w, Liveness liveness) {
  auto p = std::make_shared<Program>();
  p->backend = find_backend(w.device.type);
  p->key = w.key;
  p->liveness = std::move(liveness);
  Refusals refusals;
  refusals.most.assign(w.ops.size(), w.ops.size());
  std::vector<Group> groups;
  const bool enabled = p->backend->fuses() && env::fuse();
  for (bool again = true; again;) {
    again = false;
    p->graph = build_graph(w);
    if (refusals.apart.empty())
      for (const Node& n : p->graph.nodes) refusals.apart.push_back(!p->backend->sums_beside_products(n.outs[0].dtype));
    for (const SlotId s : p->graph.slots.ids()) {
      p->graph.slots[s].live = p->liveness[s] & 1;
      p->graph.slots[s].donatable = p->liveness[s] & 2;
    }
    groups = fuse(p->graph, enabled, refusals);
    find_elided(p->graph, groups);
    for (const Group& group : groups) {
      if (group.nodes.size() < 2) continue;
      const Problem problem{p->graph, group};
      const auto impls = p->backend->impls(problem);
      std::vector<Refused> refused;
      // What only the general loops would take is split, so that no more than the node in question is slow.
      const auto chosen = find_impl(problem, impls, refused);
      if (chosen && (*chosen + 1 < impls.size() || impls.size() == 1 || !p->backend->last_is_slow())) continue;
      again = true;
      if (group.summed >= 0) {
        for (const NodeId m : group.nodes)
          if (p->graph.nodes[m].info().cls == OpClass::Reduce) refusals.apart[m] = true;
      } else if (group.kind == GroupKind::Epilogue) {
        // Its first nodes may do: a library adds a bias, and a loop does the rest.
        refusals.most[group.nodes[0]] = group.nodes.size() - 1;
      } else {
        for (const NodeId m : group.nodes) refusals.most[m] = 1;
      }
    }
  }
  for (Group& group : groups) {
    Step& step = p->steps.emplace_back();
    step.group = std::move(group);
    const Problem problem{p->graph, step.group};
    const auto impls = p->backend->impls(problem);
    const size_t first = select(problem, impls, step.refused);
    const size_t chosen = prefer_measured(*p->backend, problem, impls, first, step);
    step.impl = impls[chosen].name;
    if (p->backend->executes()) step.executable = impls[chosen].make(problem);
    if (injecting()) step.executable = may_fail(problem, std::move(step.executable));
    if (chosen > 0 && chosen + 1 == impls.size() && p->backend->last_is_slow()) note_fallback(problem, step);
    find_effects(p->graph, step);
  }
  plan_memory(*p, env::plan_memory());
  return p;
}

// ---- the cache

namespace {

struct Cache {
  struct Entry {
    uint64_t hash;
    std::shared_ptr<Program> program;
  };
  std::mutex mutex;
  std::list<Entry> recent;  // newest first
  std::unordered_multimap<uint64_t, std::list<Entry>::iterator> by_hash;
  CacheStats stats{};
};

Cache& cache() {
  static Cache* c = new Cache;
  return *c;
}

const AtFork g_at_fork{ForkOrder::Programs, [] { cache().mutex.lock(); }, [](bool) { cache().mutex.unlock(); }};

// Variants of one window that differ in liveness only: after this many a program for more live slots will do.
constexpr int kLivenessVariants = 4;

uint64_t hash_words(const std::vector<uint64_t>& words) {
  uint64_t a = 0x9e3779b97f4a7c15ull, b = 0xd1b54a32d192ed03ull;
  size_t i = 0;
  for (; i + 1 < words.size(); i += 2) {
    a = (std::rotl(a, 5) ^ words[i]) * 0x9e3779b97f4a7c15ull;
    b = (std::rotl(b, 7) ^ words[i + 1]) * 0xc2b2ae3d27d4eb4full;
  }
  if (i < words.size()) a = (std::rotl(a, 5) ^ words[i]) * 0x9e3779b97f4a7c15ull;
  return a ^ std::rotl(b, 32);
}

bool serves(const Liveness& have, const Liveness& want) {
  for (const SlotId s : have.ids()) {
    if ((want[s] & 1) && !(have[s] & 1)) return false;  // live, but planned as dead
    if ((have[s] & 2) && !(want[s] & 2)) return false;  // planned as donated, but still in use
  }
  return true;
}

}  // namespace

std::shared_ptr<Program> get_program(const Window& w, Liveness liveness, bool* was_cached) {
  Cache& c = cache();
  const uint64_t hash = hash_words(w.key);
  *was_cached = true;
  {
    std::lock_guard lock(c.mutex);
    auto [first, last] = c.by_hash.equal_range(hash);
    std::shared_ptr<Program> superset;
    int variants = 0;
    for (auto it = first; it != last; ++it) {
      const std::shared_ptr<Program>& p = it->second->program;
      if (p->key != w.key) continue;
      ++variants;
      if (p->liveness == liveness) {
        c.recent.splice(c.recent.begin(), c.recent, it->second);
        ++c.stats.hits;
        return p;
      }
      if (serves(p->liveness, liveness)) superset = p;
    }
    if (superset && variants >= kLivenessVariants) {
      ++c.stats.hits;
      ++c.stats.superset_hits;
      return superset;
    }
    ++c.stats.misses;
  }
  *was_cached = false;
  std::shared_ptr<Program> p = compile_window(w, std::move(liveness));
  std::lock_guard lock(c.mutex);
  c.recent.push_front({hash, p});
  c.by_hash.emplace(hash, c.recent.begin());
  const size_t limit = static_cast<size_t>(std::max<int64_t>(1, env::cache_size()));
  while (c.recent.size() > limit) {
    auto oldest = std::prev(c.recent.end());
    auto [first, last] = c.by_hash.equal_range(oldest->hash);
    for (auto it = first; it != last; ++it)
      if (it->second == oldest) {
        c.by_hash.erase(it);
        break;
      }
    c.recent.pop_back();
    ++c.stats.evictions;
  }
  return p;
}

CacheStats cache_stats() {
  Cache& c = cache();
  std::lock_guard lock(c.mutex);
  CacheStats s = c.stats;
  s.programs = c.recent.size();
  return s;
}

void clear_program_cache() {
  Cache& c = cache();
  std::lock_guard lock(c.mutex);
  c.by_hash.clear();
  c.recent.clear();
}

}  // namespace pyflame
