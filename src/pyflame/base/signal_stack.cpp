#include "pyflame/base/signal_stack.h"

#include <sys/auxv.h>
#include <sys/mman.h>

#include <algorithm>
#include <csignal>
#include <cstddef>

namespace pyflame {

namespace {

constexpr size_t kForTheHandler = size_t{64} << 10;  // beside what the system stores there

class SignalStack {
 public:
  SignalStack() {
    stack_t present{};
    if (sigaltstack(nullptr, &present) != 0 || (present.ss_flags & SS_DISABLE) == 0) return;
#ifdef AT_MINSIGSTKSZ
    const size_t least = getauxval(AT_MINSIGSTKSZ);  // the registers of this CPU
#else
    const size_t least = 0;
#endif
    stack_t ours{};
    ours.ss_size = std::max<size_t>(least, size_t{16} << 10) + kForTheHandler;
    ours.ss_sp = mmap(nullptr, ours.ss_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
    if (ours.ss_sp == MAP_FAILED) return;
    if (sigaltstack(&ours, nullptr) == 0) stack_ = ours;
    else munmap(ours.ss_sp, ours.ss_size);
  }
  ~SignalStack() {
    if (!stack_.ss_sp) return;
    stack_t present{};
    // Somebody else may have replaced it, or a handler may be running on it.
    if (sigaltstack(nullptr, &present) != 0 || (present.ss_flags & SS_ONSTACK) != 0) return;
    if (present.ss_sp == stack_.ss_sp) {
      stack_t none{};
      none.ss_flags = SS_DISABLE;
      if (sigaltstack(&none, nullptr) != 0) return;
    }
    munmap(stack_.ss_sp, stack_.ss_size);
  }
  SignalStack(const SignalStack&) = delete;
  SignalStack& operator=(const SignalStack&) = delete;

 private:
  stack_t stack_{};
};

}  // namespace

void use_signal_stack() { thread_local const SignalStack stack; }

}  // namespace pyflame
