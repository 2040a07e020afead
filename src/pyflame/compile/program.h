// A compiled window. Made once per distinct window, run many times with fresh pointers and params.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "pyflame/backends/backend.h"
#include "pyflame/base/events.h"
#include "pyflame/record/recorder.h"

namespace pyflame {

// Where a slot's bytes are while the program runs.
struct Placement {
  enum Kind : uint8_t {
    External,  // they were there before
    Allocate,  // somebody can see them afterwards: memory of their own
    Donated,   // takes over the bytes of an external slot that nobody can see any more
    Arena,     // dead at the end: a fixed offset in the stream's arena, or in a donor that serves as one
    Elided,    // never in memory: produced and consumed inside one group
  } kind = External;
  SlotId donor;
  size_t offset = 0;
};

struct Refused {
  const char* impl;
  std::string reason;
};

struct Step {
  Group group;
  const char* impl = "";
  std::vector<Refused> refused;
  std::unique_ptr<Executable> executable;
  std::vector<SlotId> reads, writes;
  std::vector<bool> covers;            // per write: the whole slot is written and the step does not read it
  size_t workspace_offset = 0;         // in the arena
  // While it is to be measured (runtime/choose.h): the other entries that accept it, and the one that turned out to be faster.
  std::vector<const Impl*> others;
  std::unique_ptr<Executable> winner;
  const char* winner_name = nullptr;
};

using Liveness = Indexed<SlotId, uint8_t>;  // 1: live, 2: donatable

struct ProgramState;  // what the runtime knows of a program (runtime/state.h)

struct Program {
  const Backend* backend = nullptr;
  std::vector<uint64_t> key;      // the window's words
  Liveness liveness;
  Graph graph;                    // as fused: operands of Loop groups are aligned to the group's space
  std::vector<Step> steps;
  Indexed<SlotId, Placement> placements;
  size_t arena_bytes = 0;
  size_t new_bytes = 0;  // bytes of Allocate placements
  uint64_t runs = 0;
  std::shared_ptr<ProgramState> state;
  std::vector<events::Label> event_labels;  // of the profile that is being recorded (runtime/profiler.h)
};

// Cuts the graph's nodes into groups (compile/fuse.cpp) and rewrites operands of Loop groups to the group's space.
// What implementations have refused so far, per node. `most`: a group of more nodes that this one opened; 1: it may not be in a group with
// others. `apart`: this sum beside a product (Group::summed).
struct Refusals {
  Indexed<NodeId, size_t> most;
  Indexed<NodeId, bool> apart;
};
std::vector<Group> fuse(Graph& graph, bool enabled, const Refusals& refusals);
// Fills Group::elided from the final grouping.
void find_elided(const Graph& graph, std::vector<Group>& groups);

// Everything: fuse, select implementations, plan memory.
std::shared_ptr<Program> compile_window(const Window& w, Liveness liveness);

// compile/plan_memory.cpp
void plan_memory(Program& p, bool enabled);

struct CacheStats {
  uint64_t hits, misses, evictions, superset_hits, programs;
};
// The program for this window, from the cache or made now. Bounded; never throws because of its size.
std::shared_ptr<Program> get_program(const Window& w, Liveness liveness, bool* was_cached);
CacheStats cache_stats();
void clear_program_cache();

// Text for pf.explain() and PYFLAME_DEBUG >= 4.
std::string describe_program(const Program& p);
std::string describe_node(const Graph& g, const Node& n);
std::string describe_operand(const Operand& o);

}  // namespace pyflame
