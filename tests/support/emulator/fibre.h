// A stack of its own to run on, switched to by a plain call. Our own dozen instructions instead of a library: a kernel's barrier is
// two switches for each thread, and swapcontext() makes a system call for each.
#pragma once
#include <cstddef>

namespace pyflame::emulator {

class Fibre {
 public:
  explicit Fibre(void (*body)());  // `body` never returns
  ~Fibre();
  Fibre(const Fibre&) = delete;
  Fibre& operator=(const Fibre&) = delete;

  void resume();                        // from the host's stack: go on with this fibre until it suspends
  static void suspend();                // from a fibre: back to the host's stack
  static bool on_stack(const void* p);  // of the fibre that runs
  void restart();                       // forget what is on the stack; the next resume() begins with `body`

 private:
  static void enter() noexcept;
  void (*body_)();
  char* stack_ = nullptr;
  void* context_ = nullptr;  // saved stack pointer, or the ucontext_t
  void* fake_stack_ = nullptr;
};

}  // namespace pyflame::emulator
