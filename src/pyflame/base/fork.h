// Forking while other threads work. Before a fork, all shared locks are taken, in the order in which threads nest them; afterwards
// both processes release them. So the child gets consistent data, and a fork waits for running programs. A thread with one of these
// locks must never wait for what the forking thread may hold, such as Python's GIL (see drop_reference in python/src/casters.cpp).
#pragma once
#include <cstdint>

namespace pyflame {

// The order of the locks: a thread that holds one may take only later ones.
enum class ForkOrder : uint8_t {
  Recorders,
  Engine,
  InFlight,
  Errors,
  Programs,
  Compiler,
  Memory,
  DebugMemory,
  Random,
  DeviceTimes,
  Fallbacks,
  Events,
  Markers,
  MemoryTrace,
  MemoryLog,
  Python,
  Pool,
  Groups,
  UserKernels
};

// Static objects in the files that have such locks. They are registered before main().
struct AtFork {
  // give(true) runs in the child, which has only this thread.
  AtFork(ForkOrder order, void (*take)(), void (*give)(bool in_child));
};

}  // namespace pyflame
