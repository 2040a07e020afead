// The rocm and cuda backends: they dispatch groups to the lists of implementations.
#include "pyflame/backends/gpu/gpu_backend.h"

#include "pyflame/backends/gpu/driver/device.h"
#include "pyflame/backends/gpu/libs/blas.h"
#include "pyflame/backends/gpu/libs/versions.h"
#include "pyflame/backends/gpu/loops/loop.h"
#include "pyflame/backends/gpu/ops/impls.h"

namespace pyflame {

namespace {

class GpuBackend final : public Backend {
 public:
  explicit GpuBackend(DeviceType type) : type_(type) {}
  const char* name() const override { return type_ == DeviceType::rocm ? "rocm" : "cuda"; }
  int device_count() const override { return gpu::count_devices(type_); }
  std::string absence() const override {
    std::string why;
    gpu::runtime(type_, &why);
    return why;
  }
  DeviceMemory* memory(int index) const override { return &gpu::device(type_, index); }
  DeviceInfo info(int index) const override { return gpu::device(type_, index).info(); }
  std::string libraries(int index) const override { return gpu::library_versions(gpu::device(type_, index)); }
  bool last_is_slow() const override { return false; }
  bool sums_beside_products(DType d) const override {
    return is_float(d) && dtype_size(d) == 2 && gpu::blas(type_) != nullptr;
  }
  std::span<const Impl> impls(const Problem& p) const override {
    switch (p.group.kind) {
      case GroupKind::Loop: return {&gpu::kLoop, 1};
      // If no implementation takes an epilogue, the group is split.
      case GroupKind::Epilogue: return gpu::epilogue_impls(p);
      case GroupKind::Single:
        if (p.root().info().cls == OpClass::Reduce) return {&gpu::kEmptyReduction, 1};
        return gpu::op_impls(p.root().op);
    }
    return {};
  }

  // Reading a gigabyte takes less than a millisecond here. A lower limit would cut windows in the middle of what can be
  // fused.
  Limits limits() const override { return {512, 512, int64_t{8} << 30, int64_t{8} << 30}; }

 private:
  DeviceType type_;
};

}  // namespace

const Backend& rocm_backend() {
  static const GpuBackend backend(DeviceType::rocm);
  return backend;
}
const Backend& cuda_backend() {
  static const GpuBackend backend(DeviceType::cuda);
  return backend;
}

}  // namespace pyflame
