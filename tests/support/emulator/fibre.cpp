// See fibre.h.
#include "fibre.h"

#include <sys/mman.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#define EMULATOR_ASAN 1
#endif
#if !defined(__x86_64__)
#include <ucontext.h>
#endif

namespace pyflame::emulator {

namespace {

#ifdef EMULATOR_ASAN
constexpr size_t kStack = size_t{512} << 10;  // red zones make frames several times larger
#else
constexpr size_t kStack = size_t{128} << 10;
#endif
constexpr size_t kGuard = 4096;

Fibre* current = nullptr;
void* host_context = nullptr;
#ifdef EMULATOR_ASAN
const void* host_stack = nullptr;
size_t host_stack_size = 0;
#endif

#if defined(__x86_64__)
extern "C" void pyflame_emulator_switch(void** save, void* to);
// The registers that a called function must keep, by the System V convention.
asm(R"(
.text
.hidden pyflame_emulator_switch
.type pyflame_emulator_switch,@function
pyflame_emulator_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size pyflame_emulator_switch,.-pyflame_emulator_switch
)");
#else
void pyflame_emulator_switch(void** save, void* to) {
  ucontext_t here;
  *save = &here;
  swapcontext(&here, static_cast<ucontext_t*>(to));
}
#endif

}  // namespace

Fibre::Fibre(void (*body)()) : body_(body) {
  void* p = mmap(nullptr, kStack + kGuard, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED || mprotect(p, kGuard, PROT_NONE) != 0) {
    std::perror("emulator: a fibre's stack");
    std::abort();
  }
  stack_ = static_cast<char*>(p) + kGuard;
#if !defined(__x86_64__)
  context_ = new ucontext_t;
#endif
  restart();
}

Fibre::~Fibre() {
#if !defined(__x86_64__)
  delete static_cast<ucontext_t*>(context_);
#endif
  munmap(stack_ - kGuard, kStack + kGuard);
}

void Fibre::restart() {
#ifdef EMULATOR_ASAN
  ASAN_UNPOISON_MEMORY_REGION(stack_, kStack);
  fake_stack_ = nullptr;
#endif
#if defined(__x86_64__)
  // As if enter() had just been called: six saved registers, then where to return to; the stack is 16-byte aligned plus 8 there.
  auto* top = reinterpret_cast<uint64_t*>(stack_ + kStack);
  *--top = 0;
  *--top = reinterpret_cast<uint64_t>(&Fibre::enter);
  for (int i = 0; i < 6; ++i) *--top = 0;
  context_ = top;
#else
  auto* c = static_cast<ucontext_t*>(context_);
  getcontext(c);
  c->uc_stack.ss_sp = stack_;
  c->uc_stack.ss_size = kStack;
  c->uc_link = nullptr;
  makecontext(c, &Fibre::enter, 0);
#endif
}

void Fibre::enter() noexcept {
#ifdef EMULATOR_ASAN
  __sanitizer_finish_switch_fiber(nullptr, &host_stack, &host_stack_size);
#endif
  current->body_();
  std::abort();
}

void Fibre::resume() {
  current = this;
#ifdef EMULATOR_ASAN
  void* fake = nullptr;
  __sanitizer_start_switch_fiber(&fake, stack_, kStack);
#endif
  pyflame_emulator_switch(&host_context, context_);
#ifdef EMULATOR_ASAN
  __sanitizer_finish_switch_fiber(fake, nullptr, nullptr);
#endif
  current = nullptr;
}

bool Fibre::on_stack(const void* p) {
  const auto* at = static_cast<const char*>(p);
  return current && at >= current->stack_ && at < current->stack_ + kStack;
}

void Fibre::suspend() {
  Fibre* self = current;
#ifdef EMULATOR_ASAN
  __sanitizer_start_switch_fiber(&self->fake_stack_, host_stack, host_stack_size);
#endif
  pyflame_emulator_switch(&self->context_, host_context);
#ifdef EMULATOR_ASAN
  __sanitizer_finish_switch_fiber(self->fake_stack_, &host_stack, &host_stack_size);
#endif
}

}  // namespace pyflame::emulator
