// Forking while other threads work. Before a fork every lock that threads share is taken, in the order in which threads nest them, and given
// back on both sides; so the child gets everything whole, and a fork waits for the programs that are running. Whoever holds one of these
// locks must never wait for what the forking thread may hold (Python's GIL: see drop_reference in python/src/casters.cpp).
#pragma once
#include <cstdint>

namespace pyflame {

// A thread that holds a lock takes only later ones.
enum class ForkOrder : uint8_t { Recorders, Engine, InFlight, Errors, Programs, Memory, Random, Events, Python, Pool };

// Static objects of the files that have such locks; ready before main().
struct AtFork {
  // give(true) in the child, where no other thread lives.
  AtFork(ForkOrder order, void (*take)(), void (*give)(bool in_child));
};

}  // namespace pyflame
