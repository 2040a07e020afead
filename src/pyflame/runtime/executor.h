// Runs windows. execute_window never throws. A failure poisons exactly the storages that were not wholly written. It is
// raised at the first read of one of them, at the next structural mark, or by synchronize(), whichever comes first.
#pragma once
#include <functional>

#include "pyflame/record/recorder.h"

namespace pyflame {

void execute_window(Window& w, CutReason reason) noexcept;

// Frees the arenas and the allocators' cached blocks of all devices.
void release_unused_memory();
// Waits until all devices that were used are idle; the reports of their kernels are known afterwards.
void wait_for_devices();
// Calls it while no program runs.
void between_programs(const std::function<void()>& fn);
// Raises the oldest failure that was not raised yet.
void raise_pending_error();
// A read has just raised this poison.
void forget_pending_error(const Poison* p);

}  // namespace pyflame
