// scaled_mm by the vendors' libraries. It is recorded only where the device's matrix cores take the formats (GpuBackend::multiplies_float8).
#include "pyflame/backends/gpu/libs/library.h"
#include "pyflame/backends/gpu/ops/impls.h"

namespace pyflame::gpu {

namespace {

Refusal accepts_scaled(const Problem& p) {
  const Product g(p.root());
  if (auto no = library_refuses(p, g)) return no;
  return library_has_no_kernel(p);
}
std::unique_ptr<Executable> make_scaled(const Problem& p) { return make_library(p); }
std::unique_ptr<Executable> make_algorithm_of_scaled(const Problem& p, const std::string& algorithm) {
  return make_library(p, algorithm);
}
constexpr Configurations kScaledAlgorithms{library_algorithms, make_algorithm_of_scaled};
constexpr Impl kScaledLibrary{"gpu.blas", accepts_scaled, make_scaled, &kScaledAlgorithms};

}  // namespace

std::span<const Impl> scaled_mm_impls(DeviceType) { return {&kScaledLibrary, 1}; }

}  // namespace pyflame::gpu
