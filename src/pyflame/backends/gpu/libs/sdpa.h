// Attention by a vendor's library: cuDNN. ROCm's libraries have no attention.
#pragma once
#include <array>
#include <memory>
#include <string>

#include "pyflame/backends/backend.h"
#include "pyflame/backends/gpu/driver/device.h"
#include "pyflame/tensor/dims.h"

namespace pyflame::gpu {

// The tensors of an attention; those from grad on belong to the gradient only. All are [B, H, T, D] of the problem's
// dtype, except the logsumexp, which is contiguous float32 [B, H, T].
enum class SdpaTensor { q, k, v, out, lse, grad, dq, dk, dv };
constexpr size_t kSdpaTensors = 9;

// An attention in the form that libraries take. Causal: query t sees the keys up to t.
struct SdpaProblem {
  bool gradient = false, causal = false;
  bool any_order = false;  // the bits of a gradient may vary between runs
  DType dtype = DType::bfloat16;
  Dims queries, keys;  // shapes of q and k
  std::array<Dims, kSdpaTensors> strides;
};

// A plan to compute it, with the same bits in every run unless any_order is set. Unlike our own kernels, it may let a
// NaN through from keys that a query does not see.
class SdpaPlan {
 public:
  virtual ~SdpaPlan() = default;
  virtual size_t workspace() const = 0;
  // Asynchronous, on the device's stream. Pointers are aligned to 16 bytes. One thread at a time.
  virtual void run(GpuDevice& device, const std::array<void*, kSdpaTensors>& tensors, double scale,
                   void* workspace) = 0;
};

// Whether the library of the device type can compute the attention or its gradient. `any_order`: with an algorithm
// whose bits vary, which the op must allow.
Refusal sdpa_refuses(const Problem& p, bool any_order);
// The attention by the library. `own` is a kernel of ours, which runs if a pointer lacks the alignment that the plan
// needs, or if some keys are masked by length.
std::unique_ptr<Executable> make_sdpa(const Problem& p, bool any_order, std::unique_ptr<Executable> own);

}  // namespace pyflame::gpu
