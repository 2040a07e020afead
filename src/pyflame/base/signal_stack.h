// A stack for signal handlers, of their own. Products of oneDNN (2.6, with AVX2 or AVX-512) use the stack pointer for other purposes: it points into the
// heap while they run. A handler that runs on the thread's stack then overwrites the heap. Python's handlers, and all others that are installed with
// SA_ONSTACK, run on this stack instead.
#pragma once

namespace pyflame {

// Gives the calling thread such a stack, unless it has one. It costs nothing after the first call.
void use_signal_stack();

}  // namespace pyflame
