// The passes from a recorded window to its program, in order. Each takes values and returns values; none changes its
// arguments, and none knows how a program runs. compile_window (compile.cpp) calls them.
//
//   legalise     the recorded graph            -> the graph that is compiled                            legalise.cpp
//   group        the graph and cuts            -> groups of nodes, aligned to their spaces (align.h)    group.cpp
//   select       groups                        -> for each the first implementation that accepts        select.cpp
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

// The backend's options for the passes.
struct Rules {
  bool fuse = true;           // false: each node is its own group
  bool memory_order = false;  // loops over channels-last images have their dims in memory order
};

Graph legalise(Graph graph, const Rules& rules);

// Limits on groups.
struct Cuts {
  Indexed<NodeId, size_t> most;  // the largest number of nodes in a group that this node opens; 1: it is alone
  Indexed<NodeId, bool> apart;   // the node may not become a bias-gradient epilogue of a matmul (Group::summed)
};
// No limits: groups are as large as the patterns allow.
Cuts no_cuts(const Graph& graph, const Backend& backend);

std::vector<Group> group(const Graph& graph, const Cuts& cuts, const Rules& rules);

// The implementation for a group, and the refusals of those before it. If `impl` is empty, all have refused.
struct Selection {
  std::span<const Impl> impls;
  std::optional<size_t> impl;
  std::vector<Refused> refused;
  // Only the backend's slow general loops accept it.
  bool falls_back(const Backend& backend) const;
};
Selection select(const Graph& graph, const Group& group, const Backend& backend);

// Empty: every group of several nodes has a fast implementation.
std::optional<Cuts> split(const Graph& graph, std::span<const Group> groups, std::span<const Selection> selections,
                          const Backend& backend, const Cuts& cuts);

MemoryPlan plan_memory(const Graph& graph, std::span<const Step> steps, bool enabled);

std::string describe_graph(const Graph& g);
std::string describe_groups(const Graph& g, std::span<const Group> groups);
std::string describe_selections(const Graph& g, std::span<const Group> groups, std::span<const Selection> selections);
std::string describe_cuts(const Graph& g, const Cuts& before, const Cuts& after);
std::string describe_memory(const Graph& g, std::span<const Step> steps, const MemoryPlan& m);

}  // namespace pyflame
