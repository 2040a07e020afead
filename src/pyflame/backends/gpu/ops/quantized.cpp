// Weights in GGUF's blocks have no kernels here: Backend::computes_with_blocks says so, and the ops refuse before they are recorded.
#include "pyflame/backends/gpu/ops/impls.h"

namespace pyflame::gpu {

std::span<const Impl> quantized_linear_impls(DeviceType) { return {}; }
std::span<const Impl> decode_blocks_impls(DeviceType) { return {}; }

}  // namespace pyflame::gpu
