#include "apps/command.h"

#include <csignal>

namespace pyflame::apps {

namespace {
volatile std::sig_atomic_t g_interrupted = 0;
}

void catch_interrupts() {
  struct sigaction action {};
  action.sa_handler = [](int) { g_interrupted = 1; };
  sigemptyset(&action.sa_mask);
  // On a stack of its own: see base/signal_stack.h.
  action.sa_flags = static_cast<int>(SA_RESTART | SA_RESETHAND | SA_ONSTACK);
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

bool interrupted() { return g_interrupted != 0; }

}  // namespace pyflame::apps
