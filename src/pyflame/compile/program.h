// A compiled window. It is made once per distinct window (compile.cpp), never changes, and is run many times with fresh pointers and params.
// What is learnt of it while it runs is beside it (CachedProgram).
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "pyflame/backends/backend.h"
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

struct MemoryPlan {
  Indexed<SlotId, Placement> placements;
  std::vector<size_t> workspaces;  // by step: offset in the arena
  size_t arena_bytes = 0;
  size_t new_bytes = 0;  // of Allocate placements
};

struct Refused {
  const char* impl;
  std::string reason;
};

struct Step {
  Group group;
  const char* impl = "";
  std::vector<Refused> refused;
  std::shared_ptr<Executable> executable;
  std::vector<SlotId> reads, writes;
  std::vector<bool> covers;  // per write: the whole slot is written and the step does not read it
  std::vector<const Impl*>
      others;  // entries that accept it too and may be faster: the first run times them (runtime/choose.h)
};

// Of each slot, 1: somebody can see it after the window; 2: its bytes may be taken over.
using Liveness = Indexed<SlotId, uint8_t>;

struct Program {
  const Backend* backend = nullptr;
  std::vector<uint64_t> key;  // the window's words
  Liveness liveness;
  Graph graph;
  std::vector<Step> steps;
  MemoryPlan memory;
};

std::shared_ptr<const Program> compile_window(const Window& w, Liveness liveness);

// The program with other implementations in some steps.
struct Replacement {
  size_t step;
  const char* impl;
  std::shared_ptr<Executable> executable;
};
std::shared_ptr<const Program> with_replacements(const Program& p, std::vector<Replacement> replacements);

// ---- compile/cache.cpp

struct ProgramState;  // what the runtime learns of a program (runtime/state.h)

// A program in the cache and its state. Whoever runs programs may change both.
struct CachedProgram {
  std::shared_ptr<const Program> program;
  std::shared_ptr<ProgramState> state;  // null until the first run
};
// For this window, from the cache or made now. Bounded; never throws because of its size.
std::shared_ptr<CachedProgram> get_program(const Window& w, Liveness liveness, bool* was_cached);

struct CacheStats {
  uint64_t hits, misses, evictions, superset_hits, programs;
};
CacheStats cache_stats();
void clear_program_cache();

// ---- text for pf.explain() and PYFLAME_DEBUG >= 4 (compile/describe.cpp)

std::string describe_program(const Program& p);
std::string describe_node(const Graph& g, const Node& n);
std::string describe_operand(const Operand& o);

}  // namespace pyflame
