// Recurrent layers: the vendors' libraries. They are recorded only where a library takes them (GpuBackend::recurrent_bytes); otherwise the layers record
// their steps, with kernels of our own (ops/recurrent.h).
#include "pyflame/backends/gpu/libs/recurrent.h"

#include "pyflame/backends/gpu/ops/impls.h"

namespace pyflame::gpu {

namespace {
constexpr Impl kRecurrent[] = {{"gpu.dnn", recurrent_refuses, make_recurrent}};
}  // namespace

std::span<const Impl> recurrent_impls(DeviceType) { return kRecurrent; }
std::span<const Impl> recurrent_grad_impls(DeviceType) { return kRecurrent; }

}  // namespace pyflame::gpu
