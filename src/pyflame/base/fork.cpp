// One fork handler for the whole process: several pthread_atfork handlers would run in the order of registration, which
// is the order of static initialisation.
// that of static initialisation.
#include "pyflame/base/fork.h"

#include <pthread.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <mutex>

namespace pyflame {

namespace {

struct Entry {
  ForkOrder order;
  void (*take)();
  void (*give)(bool in_child);
};

constexpr size_t kMost = 32;
// Constant-initialised, so that it exists before the first AtFork.
constinit std::mutex g_mutex;
constinit std::array<Entry, kMost> g_entries{};
constinit size_t g_entry_count = 0;

void before() {
  g_mutex.lock();
  for (size_t i = 0; i < g_entry_count; ++i) g_entries[i].take();
}

void after(bool in_child) {
  for (size_t i = g_entry_count; i-- > 0;) g_entries[i].give(in_child);
  g_mutex.unlock();
}

}  // namespace

AtFork::AtFork(ForkOrder order, void (*take)(), void (*give)(bool in_child)) {
  const std::lock_guard lock(g_mutex);
  if (g_entry_count == kMost) {  // a programming error, found at the start of any program
    std::fputs("pyflame: more AtFork objects than kMost in base/fork.cpp\n", stderr);
    std::abort();
  }
  if (g_entry_count == 0)
    pthread_atfork(
        before, [] { after(false); }, [] { after(true); });
  size_t at = g_entry_count++;
  for (; at > 0 && g_entries[at - 1].order > order; --at) g_entries[at] = g_entries[at - 1];
  g_entries[at] = {order, take, give};
}

}  // namespace pyflame
