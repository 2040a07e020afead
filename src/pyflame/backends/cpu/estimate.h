// How long work takes that threads share, by arithmetic: tuning tries the divisions with the shortest estimates first. Only comparisons
// matter, so the figures are those of a usual server.
#pragma once
#include <algorithm>
#include <cmath>

namespace pyflame::cpu {

// Tasks of one length. Rates are per microsecond.
struct Tasks {
  double number = 1;
  double computes_us = 0;  // of a task
  double bytes = 0;        // that a task reads and writes, from wherever they are
  double all_bytes = 0;    // of all operands and results, each once
};

// The time is that of the thread with the most tasks, or that of memory, whichever is longer:
//   thread = tasks of the thread * (hand-out + max(what it computes, bytes / caches))
//   memory = all bytes / min(bandwidth of the threads that take part, bandwidth of memory)
// Other threads must wake up first.
inline double tasks_us(const Tasks& t, double threads) {
  constexpr double kHandOutUs = 0.3, kWakeUs = 5;
  constexpr double kCaches = 60e3, kOfThread = 12e3, kOfMemory = 60e3;  // bytes
  const double taking_part = std::max(1.0, std::min(threads, t.number)), each = std::ceil(t.number / taking_part);
  const double busy = each * (kHandOutUs + std::max(t.computes_us, t.bytes / kCaches));
  return (taking_part > 1 ? kWakeUs : 0) + std::max(busy, t.all_bytes / std::min(kOfThread * taking_part, kOfMemory));
}

}  // namespace pyflame::cpu
