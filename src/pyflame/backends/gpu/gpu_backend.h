// The class of both GPU backends, over the libraries of a vendor. backends/rocm and backends/cuda create one each.
#pragma once
#include <span>
#include <string>

#include "pyflame/backends/backend.h"
#include "pyflame/backends/gpu/libs/vendor.h"

namespace pyflame::gpu {

class GpuBackend final : public Backend {
 public:
  explicit GpuBackend(const Vendor& vendor);
  const char* name() const override;
  int device_count() const override;
  std::string absence() const override;
  DeviceMemory* memory(int index) const override;
  void* stream(int index) const override;
  DeviceInfo info(int index) const override;
  std::string libraries(int index) const override;
  bool last_is_slow() const override { return false; }
  size_t most_nodes(const Problem& loop) const override;
  bool has_bias_gradient_epilogue(DType d) const override;
  MemoryFormat preferred_format(const ImageResult& r) const override;
  bool computes_with_blocks() const override { return true; }
  bool multiplies_float8(int index, DType a, DType b) const override;
  bool blocks_in_planes() const override { return true; }
  int64_t most_rows_of_blocks() const override;
  std::optional<int64_t> recurrent_bytes(int index, const RecurrentCase& c, std::string* why) const override;
  std::span<const Impl> impls(const Problem& p) const override;
  // Reading a gigabyte takes less than a millisecond here. A lower limit would cut windows in the middle of what can be
  // fused.
  Limits limits() const override { return {512, 512, int64_t{8} << 30, int64_t{8} << 30}; }

 private:
  DeviceType type_;
};

}  // namespace pyflame::gpu
