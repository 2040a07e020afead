// The mode of deterministic algorithms. It is read when an op is recorded and becomes one of the op's attributes. So
// programs and measurements of both modes are kept apart, and an op follows the mode of its call, whenever it runs.
#include <atomic>

#include "pyflame/ops/family.h"

namespace pyflame {

namespace {
std::atomic<bool> g_deterministic{true};
}  // namespace

bool are_deterministic_algorithms_enabled() { return g_deterministic.load(std::memory_order_relaxed); }
void use_deterministic_algorithms(bool mode) { g_deterministic.store(mode, std::memory_order_relaxed); }

int64_t any_order(Device device) { return has_own_memory(device.type) && !are_deterministic_algorithms_enabled(); }

}  // namespace pyflame
