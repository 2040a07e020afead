// The end of the process: who is asked to stop, who is waited for, and for how long.
#include "pyflame/base/exit.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <thread>

#include "pyflame/base/env.h"
#include "pyflame/base/error.h"
#include "pyflame/base/fork.h"

namespace pyflame {

namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kMostStops = 8;
constexpr std::chrono::milliseconds kLook{1};         // between two looks at the calls under way
constexpr std::chrono::milliseconds kPatience{1000};  // after which the user is told what is waited for

// Constant initialisation, and no destructor: exit handlers of other libraries may still use it. No lock is held while anybody waits, so
// a fork needs none of it.
constinit std::atomic<int> g_calls{0};             // work under way
constinit thread_local int t_depth = 0;            // calls into libraries of this thread, one inside of the other
constinit std::atomic<bool> g_closed{false};       // no call may begin any more
constinit std::atomic<bool> g_left_behind{false};  // this is a child of fork, and its parent was inside of a library
constinit std::atomic<size_t> g_count{0};
constinit std::array<std::atomic<void (*)()>, kMostStops> g_stops{};
constinit std::atomic<Clock::rep> g_deadline{0};  // 0: the end has not begun
constinit std::atomic<bool> g_given_up{false};

bool under_way() { return g_calls.load() > 0; }

Clock::duration exit_wait() noexcept {
  double seconds = 5;
  try {
    seconds = env::exit_wait();
  } catch (const Error&) {  // at_exit() has refused it
  }
  return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

#if defined(__GLIBC__)
// Runs before the handlers that were registered earlier, and leaves them out where they would meet a thread inside of their library.
void end_at_once(int status, void*) {
  if (!under_way() && !g_left_behind) return;
  std::fflush(nullptr);
  _exit(status);
}
void skip_other_handlers() { on_exit(end_at_once, nullptr); }
#else
void skip_other_handlers() {}
#endif

void wait_for_calls(bool (*give_up)()) noexcept {
  if (!under_way()) return;
  const Clock::time_point start = Clock::now(), end{Clock::duration{g_deadline.load()}};
  bool told = false;
  while (under_way()) {
    const Clock::time_point now = Clock::now();
    if (now >= end || g_given_up) return;
    if (give_up && give_up()) {
      g_given_up = true;  // nor does anybody wait later
      return;
    }
    if (!told && now - start >= kPatience && end - now > kPatience) {
      told = true;
      std::fprintf(stderr,
                   "pyflame: the process waits for GPU kernels that are being compiled, so that they are kept for its "
                   "next run; at most %.0f s more (PYFLAME_EXIT_WAIT)\n",
                   std::chrono::duration<double>(end - now).count());
    }
    std::this_thread::sleep_for(kLook);
  }
}

void close() {
  g_closed = true;
  begin_exit();
}

// The main thread's destructors of thread_local objects run before all exit handlers of the process. Other threads end long before it.
struct MainThread {
  bool yes = false;
  ~MainThread() {
    if (yes) close();
  }
};
thread_local MainThread t_main;
const bool g_watches_main = [] { return t_main.yes = syscall(SYS_gettid) == getpid(); }();

const AtFork g_at_fork{ForkOrder::Pool, [] {},
                       [](bool in_child) {
                         if (!in_child) return;
                         t_main.yes = true;  // the thread that forked is the child's main thread
                         if (!under_way()) return;
                         g_left_behind = true;
                         g_calls = 0;
                       }};

}  // namespace

WorkUnderWay::WorkUnderWay() { ++g_calls; }
WorkUnderWay::~WorkUnderWay() { --g_calls; }

LibraryCall::LibraryCall() {
  PF_CHECK(t_depth > 0 || !g_closed, Runtime,
           "exit: the process is ending; got a call that needs a compiler; expected it before the end; hint: read "
           "results before main() returns");
  ++t_depth;
}

LibraryCall::~LibraryCall() {
  // By now the library has registered its handlers, so this one runs before them.
  static std::once_flag once;
  std::call_once(once, [] { std::atexit(close); });
  --t_depth;
}

void at_exit(void (*stop)()) {
  static_cast<void>(g_watches_main);
  static_cast<void>(env::exit_wait());  // a malformed value is refused here
  const size_t at = g_count.fetch_add(1);
  PF_CHECK(at < kMostStops, Runtime, "at_exit: too many functions; got {}; expected at most {}", at + 1, kMostStops);
  g_stops[at] = stop;
}

void begin_exit(bool (*give_up)()) noexcept {
  Clock::rep not_begun = 0;
  if (g_deadline.compare_exchange_strong(not_begun, (Clock::now() + exit_wait()).time_since_epoch().count()))
    for (const auto& stop : g_stops)
      if (void (*f)() = stop.load()) f();
  wait_for_calls(give_up);
  if (under_way() || g_left_behind) skip_other_handlers();
}

}  // namespace pyflame
