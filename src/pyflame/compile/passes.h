// The passes from a recorded window to its program, in order. Each takes values and returns values; none changes its
// arguments, and none knows how a program runs. compile_window (compile.cpp) calls them.
//
//   rewrite_graph  the recorded graph            -> the graph with patterns replaced                    rewrites.h
//   legalise     the rewritten graph            -> the graph that is compiled                            legalise.cpp
//   group        the graph and cuts            -> groups of nodes, aligned to their spaces (align.h)    group.cpp
//   select       groups                        -> for each the first implementation that accepts        select.cpp
//   prefer       a group and who accepts it    -> who computes it, by measurements                      prefer.cpp
//   split        groups and refusals           -> stricter cuts, with which `group` runs again          split.cpp
//   plan_memory  the graph and its steps       -> where the bytes of every slot are                     plan_memory.cpp
//
// PYFLAME_DEBUG=7 prints the result of each pass (describe.cpp).
#pragma once
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "pyflame/backends/backend.h"
#include "pyflame/compile/program.h"

namespace pyflame {

Graph legalise(Graph graph, const Rules& rules);

// No limits: groups are as large as the patterns allow.
Cuts no_cuts(const Graph& graph, const Backend& backend);

std::vector<Group> group(const Graph& graph, const Cuts& cuts, const Rules& rules);
// Fills Group::elided (elide.cpp).
void find_elided(const Graph& graph, std::vector<Group>& groups);

// Why a node is not in the group of another one, whose value it reads. `group` with the same arguments has put them apart.
struct Apart {
  NodeId reader, writer;
};
std::vector<std::string> why_apart(const Graph& graph, const Cuts& cuts, const Rules& rules,
                                   std::span<const Apart> pairs);

// The implementation for a group, and the refusals of those before it. If `impl` is empty, all have refused.
struct Selection {
  std::span<const Impl> impls;
  std::optional<size_t> impl;
  std::vector<Refused> refused;
  // Only the backend's slow general loops accept it.
  bool falls_back(const Backend& backend) const;
};
Selection select(const Graph& graph, const Group& group, const Backend& backend);

struct Preference {
  Candidate chosen;
  std::vector<Candidate> others = {};         // worth measuring
  bool measured = false;                      // a measurement chose it
  std::vector<const Impl*> enumerating = {};  // have an Enumeration of which something was not tried
};
Preference prefer(const Backend& backend, const Problem& p, const Selection& s);
// The candidates that differ in one part from an entry ("gpu.matmul:tile=64x64,splits=2"), as far as they may be measured.
std::vector<Candidate> neighbours(const Backend& backend, const Problem& p, const std::string& entry);

// Empty: every group of several nodes has a fast implementation.
std::optional<Cuts> split(const Graph& graph, std::span<const Group> groups, std::span<const Selection> selections,
                          const Backend& backend, const Cuts& cuts);

// group, select and split, until no group has to become smaller.
struct Grouping {
  Cuts cuts;
  std::vector<Group> groups;
  std::vector<Selection> selections;  // by group
};
Grouping group_and_select(const Graph& graph, const Backend& backend, const Rules& rules);

MemoryPlan plan_memory(const Graph& graph, std::span<const Step> steps, bool enabled);

std::string describe_graph(const Graph& g);
std::string describe_groups(const Graph& g, std::span<const Group> groups);
std::string describe_selections(const Graph& g, std::span<const Group> groups, std::span<const Selection> selections);
std::string describe_cuts(const Graph& g, const Cuts& before, const Cuts& after);
std::string describe_memory(const Graph& g, std::span<const Step> steps, const MemoryPlan& m);

}  // namespace pyflame
