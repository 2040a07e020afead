// A compiled window. It is made once per distinct window (compile.cpp), never changes, and is run many times with
// different pointers and params. What is learnt about it at run time is kept separately (CachedProgram).
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "pyflame/backends/backend.h"
#include "pyflame/compile/added.h"
#include "pyflame/record/recorder.h"

namespace pyflame {

// Where the bytes of a slot are while the program runs.
struct Placement {
  enum Kind : uint8_t {
    External,  // they existed before
    Allocate,  // visible after the window: memory of its own
    Donated,   // takes over the bytes of an external slot that nobody can see any more
    Arena,     // not needed after the window: at a fixed offset in the device's arena, or in a donor that serves as one
    Elided,    // never in memory: produced and consumed inside one group
  } kind = External;
  SlotId donor;
  size_t offset = 0;
};

struct MemoryPlan {
  Indexed<SlotId, Placement> placements;
  std::vector<Placement> workspaces;  // by step: in the arena, or in a donor that serves as one
  size_t arena_bytes = 0;
  size_t new_bytes = 0;  // of Allocate placements
};

struct Refused {
  const char* impl;
  std::string reason;
};

class FallbackEntry;

// An implementation with one of its configurations. An empty one is the implementation's own choice.
struct Candidate {
  const Impl* impl = nullptr;
  std::string configuration;
  std::string name() const;  // "gpu.matmul_units:tile=64x64,splits=2"
  std::unique_ptr<Executable> make(const Problem& p) const;
};

// Limits on groups, which refusals of implementations have led to (split.cpp).
struct Cuts {
  Indexed<NodeId, size_t> most;  // the largest number of nodes in a group that this node opens; 1: it is alone
  Indexed<NodeId, bool> apart;   // the node may not become a bias-gradient epilogue of a matmul (Group::summed)
  std::vector<std::pair<NodeId, std::string>> why;  // the refusals, by the nodes that they limit
};

// The backend's options for the passes.
struct Rules {
  bool fuse = true;           // false: each node is its own group
  bool memory_order = false;  // loops over channels-last images have their dims in memory order
};

struct Step {
  Group group;
  const char* impl = "";
  std::string configuration;  // empty: the implementation's own choice
  bool measured = false;      // a measurement chose it, not the order of the list
  std::vector<Refused> refused;
  std::shared_ptr<Executable> executable;
  FallbackEntry* fallback = nullptr;  // counts its runs (base/fallbacks.h); null: it is no fallback
  std::vector<SlotId> reads, writes;
  std::vector<bool> covers;              // per write: the whole slot is written and the step does not read it
  std::vector<Candidate> others;         // may be faster: the first run times them (runtime/choose.h)
  std::vector<const Impl*> enumerating;  // have an Enumeration of which something was not tried
};

// For each slot, 1: visible after the window; 2: its bytes may be taken over.
using Liveness = Indexed<SlotId, uint8_t>;

struct Program {
  const Backend* backend = nullptr;
  std::vector<uint64_t> key;  // the window's words
  Liveness liveness;
  Graph graph;
  Added added;  // to the window by rewrites
  std::vector<RewriteNote> notes;
  Rules rules;
  Cuts cuts;
  std::vector<Step> steps;
  MemoryPlan memory;
};

std::shared_ptr<const Program> compile_window(const Window& w, Liveness liveness);

// The window's graph as it is compiled: with liveness, after the rewrites that need no values (rewrites.h).
Rewritten prepare_graph(const Window& w, const Liveness& liveness);
// What the rewrites that need no values would do to this window, if they are off. Nothing was added to it.
std::vector<RewriteNote> notes_on_rewrites_that_are_off(const Window& w, const Liveness& liveness);
// A program for the graph, which replaces p for the windows of its key.
std::shared_ptr<const Program> compile_instead(const Program& p, Rewritten rewritten);

// The program with other implementations in some steps.
struct Replacement {
  size_t step;
  Candidate candidate;
  std::shared_ptr<Executable> executable;
};
std::shared_ptr<const Program> with_replacements(const Program& p, std::vector<Replacement> replacements);

// ---- compile/cache.cpp

struct ProgramState;  // what the runtime learns about a program (runtime/state.h)
class KeptValues;     // what it computes of weights alone (runtime/kept.h)

// A program in the cache with its state. The code that runs programs may change both.
struct CachedProgram {
  std::shared_ptr<const Program> program;
  std::shared_ptr<ProgramState> state;  // null until the first run
  std::shared_ptr<KeptValues> kept;     // null: there are none, or it did not run yet
  std::vector<RewriteNote> notes = {};  // on what could not be kept
};
// The program for this window, from the cache or compiled now. The cache is bounded; a full cache is not an error.
std::shared_ptr<CachedProgram> get_program(Window& w, Liveness liveness, bool* was_cached);

struct CacheStats {
  uint64_t hits, misses, evictions, superset_hits, programs;
  uint64_t ops;  // of the windows that the programs in the cache are for
};
CacheStats cache_stats();
void clear_program_cache();
void for_each_program(const std::function<void(CachedProgram&)>& fn);

// ---- text for pf.explain() and PYFLAME_DEBUG >= 4 (compile/describe.cpp)

std::string describe_program(const Program& p);
// Its parts: "6 ops in 2 steps on cpu; arena ...", "step 0: onednn.sgemm, ...", and the step's ops and refusals.
std::string describe_totals(const Program& p);
std::string describe_step(const Program& p, size_t step);
std::vector<std::string> describe_members(const Program& p, size_t step);
std::string describe_node(const Graph& g, const Node& n);
std::string describe_operand(const Operand& o);

}  // namespace pyflame
