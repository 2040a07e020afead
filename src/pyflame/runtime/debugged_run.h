// A run of a program with the debug allocator. Values in between and workspaces get blocks of their own instead of parts of the arena, so that an access
// outside of one of them meets a guard, and after each step the guards are checked.
#pragma once
#include <string>
#include <vector>

#include "pyflame/runtime/blame.h"
#include "pyflame/runtime/debug_memory.h"
#include "pyflame/runtime/replayer.h"
#include "pyflame/runtime/uninitialised.h"

namespace pyflame {

class DebuggedRun {
 public:
  DebuggedRun(const Window& w, const Program& p, DeviceMemory* memory);  // OutOfMemory
  ~DebuggedRun();
  DebuggedRun(const DebuggedRun&) = delete;
  DebuggedRun& operator=(const DebuggedRun&) = delete;

  char* block(SlotId slot) const { return blocks_[slot]; }  // null: the slot is not in the arena
  void* const* workspaces() const { return workspaces_.data(); }

  void before_step(size_t k);
  // Waits for the device. Error: what the step did wrong.
  void after_step(const Frame& frame, size_t k);

 private:
  void check_guards(const Frame& frame, size_t k);
  void follow(const Frame& frame, size_t k);
  struct Owner {
    const char* op;
    std::string buffer;
  };
  Owner owner_of(const Frame& frame, const Step& step, const void* data) const;
  std::vector<SourceLoc> locations(const Step& step) const;
  uninitialised::Origin began_at(const Frame& frame, size_t k, const Node& n, const Operand& out,
                                 bool has_pattern) const;
  uninitialised::Origin origin_of(SlotId slot) const;

  const Window& w_;
  const Program& p_;
  DeviceMemory* memory_;
  Indexed<SlotId, char*> blocks_;
  std::vector<void*> workspaces_;
  std::vector<size_t> workspace_bytes_;
  Indexed<SlotId, uninitialised::Origin> origins_;  // of slots in the arena
  std::string running_;
};

}  // namespace pyflame
