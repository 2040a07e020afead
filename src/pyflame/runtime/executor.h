// Runs windows. A failure never leaves execute_window as an exception: it poisons exactly the storages that were not wholly written,
// and is raised at the first read of one of them, at the next structural mark, or by synchronize(), whichever comes first.
#pragma once
#include "pyflame/record/recorder.h"

namespace pyflame {

void execute_window(Window& w, CutReason reason) noexcept;

// Every device that was used has nothing left to do; what its kernels reported is known.
void wait_for_devices();
// Raises the oldest failure that nobody has seen yet.
void raise_pending_error();
// The poison has just been raised by a read.
void forget_pending_error(const Poison* p);

}  // namespace pyflame
