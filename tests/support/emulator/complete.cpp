// Takes every function of the backend's list by its HIP name, so that the emulated runtime does not link when one is missing in it.
#include "pyflame/backends/gpu/driver/rt.h"

namespace pyflame::gpu {

#define PF_DECLARE(member, hip, cuda, parameters) extern "C" Result pyflame_emulated_##member parameters asm(hip);
PYFLAME_RT_FUNCTIONS(PF_DECLARE)
#undef PF_DECLARE

#define PF_TAKE(member, hip, cuda, parameters) reinterpret_cast<void*>(&pyflame_emulated_##member),
__attribute__((used)) void* const emulated_functions[] = {PYFLAME_RT_FUNCTIONS(PF_TAKE)};
#undef PF_TAKE

}  // namespace pyflame::gpu
