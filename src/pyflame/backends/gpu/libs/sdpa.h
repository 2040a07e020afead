// Attention by a vendor's library: cuDNN has it, ROCm's libraries do not.
#pragma once
#include <array>
#include <memory>
#include <string>

#include "pyflame/backends/backend.h"
#include "pyflame/backends/gpu/driver/device.h"
#include "pyflame/tensor/dims.h"

namespace pyflame::gpu {

// The tensors of an attention; those from grad on are the gradient's alone. All are [B, H, T, D] of the problem's dtype, except the
// logsumexp, [B, H, T] dense float32.
enum class SdpaTensor { q, k, v, out, lse, grad, dq, dk, dv };
constexpr size_t kSdpaTensors = 9;

// An attention as a library is told of it. Causal: query t sees the keys up to t.
struct SdpaProblem {
  bool gradient = false, causal = false;
  bool any_order = false;  // a gradient whose bits vary between runs will do
  DType dtype = DType::bfloat16;
  Dims queries, keys;  // shapes of q and k
  std::array<Dims, kSdpaTensors> strides;
};

// One way to compute it, the same in every run unless any order was asked for. Unlike our own kernels, it may let a NaN through from keys that a query does not see.
class SdpaPlan {
 public:
  virtual ~SdpaPlan() = default;
  virtual size_t workspace() const = 0;
  // Asynchronous, on the device's stream. Pointers are aligned to 16 bytes. One thread at a time.
  virtual void run(GpuDevice& device, const std::array<void*, kSdpaTensors>& tensors, double scale,
                   void* workspace) = 0;
};

// Null where there is none, with the reason in `why`. Quick for a problem that was asked about before.
std::unique_ptr<SdpaPlan> cudnn_sdpa(GpuDevice& device, const SdpaProblem& p, std::string* why);

// Can the device type's library take it, attention or its gradient? `any_order`: in a way whose bits vary, which the op has to allow.
Refusal sdpa_refuses(const Problem& p, bool any_order);
// It by the library; `own` runs where pointers are not aligned as the library was promised, and where not all keys count.
std::unique_ptr<Executable> make_sdpa(const Problem& p, bool any_order, std::unique_ptr<Executable> own);

}  // namespace pyflame::gpu
