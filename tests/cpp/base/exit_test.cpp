// What the end of a process waits for. How processes end that use a GPU: tests/faults/test_exit.py.
#include "pyflame/base/exit.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <thread>

#include "pyflame/base/error.h"

namespace pyflame {
namespace {

std::atomic<bool> g_inside{false}, g_ending{false};

// Ends while another thread is inside of a call. The thread's exit code tells what a call gets that it makes then.
template <class Outer>
[[noreturn]] void end_meanwhile() {
  at_exit([] { g_ending = true; });
  std::thread([] {
    const Outer outer;
    g_inside = true;
    while (!g_ending) std::this_thread::yield();
    try {
      const LibraryCall call;
    } catch (const Error&) {
      _exit(2);
    }
    _exit(1);
  }).detach();
  while (!g_inside) std::this_thread::yield();
  std::exit(0);
}

TEST(ExitDeathTest, ACallWithinACallIsLetIn) {
  EXPECT_EXIT(end_meanwhile<LibraryCall>(), testing::ExitedWithCode(1), "");
}

TEST(ExitDeathTest, ANewCallIsRefused) { EXPECT_EXIT(end_meanwhile<WorkUnderWay>(), testing::ExitedWithCode(2), ""); }

}  // namespace
}  // namespace pyflame
