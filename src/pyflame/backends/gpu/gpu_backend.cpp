// The rocm and cuda backends: they dispatch groups to the lists of implementations.
#include "pyflame/backends/gpu/gpu_backend.h"

#include "pyflame/backends/gpu/driver/device.h"
#include "pyflame/backends/gpu/libs/blas.h"
#include "pyflame/backends/gpu/libs/vendor.h"
#include "pyflame/backends/gpu/libs/versions.h"
#include "pyflame/backends/gpu/loops/loop.h"
#include "pyflame/backends/gpu/ops/impls.h"
#include "pyflame/backends/gpu/shapes/conv_case.h"
#include "pyflame/base/gpu_arch.h"
#include "pyflame/ops/ops.h"
#include "pyflame/tensor/float8.h"

namespace pyflame::gpu {

GpuBackend::GpuBackend(const Vendor& vendor) : type_(vendor.type) { register_vendor(vendor); }

const char* GpuBackend::name() const { return type_ == DeviceType::rocm ? "rocm" : "cuda"; }

int GpuBackend::device_count() const { return count_devices(type_); }

std::string GpuBackend::absence() const {
  std::string why;
  runtime(type_, &why);
  return why;
}

DeviceMemory* GpuBackend::memory(int index) const { return &device(type_, index); }

void* GpuBackend::stream(int index) const {
  GpuDevice& d = device(type_, index);
  d.enter();
  return d.stream();
}

DeviceInfo GpuBackend::info(int index) const { return device(type_, index).info(); }

std::string GpuBackend::libraries(int index) const { return library_versions(device(type_, index)); }

size_t GpuBackend::most_nodes(const Problem& loop) const { return gpu::most_nodes(loop); }

bool GpuBackend::has_bias_gradient_epilogue(DType d) const {
  return is_float(d) && dtype_size(d) == 2 && blas(type_) != nullptr;
}

MemoryFormat GpuBackend::preferred_format(const ImageResult& r) const {
  const auto rounds = [this] {
    if (float32_conv_precision() == MatmulPrecision::highest) return false;
    const DnnLibrary* library = vendor(type_).convolutions(nullptr);
    return library && library->rounds_float32();
  };
  const bool last = r.given == MemoryFormat::channels_last || prefers_channels_last(r, rounds());
  return last ? MemoryFormat::channels_last : MemoryFormat::contiguous;
}

bool GpuBackend::multiplies_float8(int index, DType a, DType b) const {
  if (!blas(type_)) return false;
  const GpuArch* arch = find_gpu_arch(device(type_, index).arch().name);
  const Fp8Kind has = arch ? arch->fp8 : Fp8Kind::none;
  const auto kind = [](DType d) {
    return float8_format(d).codes == Float8Codes::NanAtMinusZero ? Fp8Kind::fnuz : Fp8Kind::ocp;
  };
  const auto narrow = [](DType d) { return float8_format(d).fraction == 2; };
  // cuBLASLt has no product of two matrices with 2 bits of fraction.
  return has != Fp8Kind::none && kind(a) == has && kind(b) == has && !(narrow(a) && narrow(b));
}

int64_t GpuBackend::most_rows_of_blocks() const { return kMostRowsOfBlocks; }

std::optional<int64_t> GpuBackend::recurrent_bytes(int index, const RecurrentCase& c, std::string* why) const {
  std::shared_ptr<const RecurrentPlan> plan;
  const Refusal no = recurrent_refuses(type_, index, c, &plan);
  if (no && why) *why = *no;
  if (no) return std::nullopt;
  return c.attrs.kept ? static_cast<int64_t>(plan->kept) : 0;
}

std::span<const Impl> GpuBackend::impls(const Problem& p) const {
  switch (p.group.kind) {
    case GroupKind::Loop: return {&kLoop, 1};
    // If no implementation takes an epilogue, the group is split.
    case GroupKind::Epilogue: return epilogue_impls(p);
    case GroupKind::Single:
      if (p.root().info().cls == OpClass::Reduce) return {&kEmptyReduction, 1};
      return op_impls(p);
  }
  return {};
}

}  // namespace pyflame::gpu
