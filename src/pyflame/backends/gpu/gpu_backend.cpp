// See gpu_backend.h.
#include "pyflame/backends/gpu/gpu_backend.h"

#include "pyflame/backends/gpu/device.h"
#include "pyflame/backends/gpu/loop.h"
#include "pyflame/backends/gpu/ops.h"

namespace pyflame {

namespace {

class GpuBackend final : public Backend {
 public:
  explicit GpuBackend(DeviceType type) : type_(type) {}
  const char* name() const override { return type_ == DeviceType::rocm ? "rocm" : "cuda"; }
  int device_count() const override { return static_cast<int>(gpu::devices(type_).size()); }
  std::string absence() const override {
    std::string why;
    gpu::runtime(type_, &why);
    return why;
  }
  DeviceMemory* memory(int index) const override { return &gpu::device(type_, index); }
  DeviceInfo info(int index) const override { return gpu::device(type_, index).info(); }
  std::span<const Impl> impls(const Problem& p) const override {
    if (p.group.kind == GroupKind::Loop) return {type_ == DeviceType::rocm ? &gpu::kLoopRocm : &gpu::kLoopCuda, 1};
    // An epilogue is not fused yet: no implementation takes the group, and it is split.
    return p.size() == 1 ? gpu::op_impls(type_, p.root().op) : std::span<const Impl>();
  }

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
