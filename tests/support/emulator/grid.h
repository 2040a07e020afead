// Runs a kernel: one workgroup after another, each thread of a workgroup a fibre. A thread gets a stack of its own only once another one
// waits at a barrier or a wave operation, so kernels without either run as plain loops.
#pragma once
#include <array>
#include <string>

#include "prelude.h"

namespace pyflame::emulator {

struct Grid {
  std::array<unsigned, 3> groups;
  unsigned threads;
  size_t dynamic_shared;
};

// Where a kernel runs: ends the launch with this text.
[[noreturn]] void fail_kernel(const std::string& what);

// Whether the byte belongs to the kernel that runs: to its stack, its constants, its shared memory, its parameters, or to what lanes exchange.
bool is_own(const void* p);

// Empty, or what the kernel did wrong.
std::string run_grid(const EmulatedEntry& kernel, const Grid& grid, void** parameters);

}  // namespace pyflame::emulator
