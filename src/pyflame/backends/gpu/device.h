// One GPU: its context, its stream, its memory. Everything on a device goes through one stream, so order is the order of asking.
#pragma once
#include <array>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "pyflame/backends/backend.h"
#include "pyflame/backends/gpu/rt.h"

namespace pyflame::gpu {

struct Arch {
  std::string name;  // "gfx942", "sm_90"
  int wave = 64, compute_units = 0, shared_bytes = 65536, max_threads = 1024;
};

class GpuDevice final : public DeviceMemory {
 public:
  GpuDevice(const Rt& rt, int index);
  const Rt& rt() const { return rt_; }
  int index() const { return index_; }
  const Arch& arch() const { return arch_; }
  Stream stream() const { return stream_; }
  // Makes this device the calling thread's.
  void enter() const;
  // Some devices want to be asked before a kernel may have more than 48 KiB of dynamic shared memory.
  void allow_shared(Function f, unsigned shared_bytes) const;
  void launch(Function f, std::array<unsigned, 3> grid, unsigned block, unsigned shared_bytes, void** parameters);

  void* allocate(size_t nbytes) override;
  void release(void* p) override;
  void from_host(void* to, const void* from, size_t nbytes) override;
  void to_host(void* to, const void* from, size_t nbytes) override;
  void copy(void* to, const void* from, size_t nbytes) override;
  void wait() override;
  DeviceInfo info() const;

 private:
  void* staging(size_t nbytes);
  const Rt& rt_;
  int index_, ordinal_ = 0;
  Arch arch_;
  void* context_ = nullptr;
  Stream stream_ = nullptr;
  std::mutex staging_mutex_;
  void* staging_ = nullptr;  // pinned: copies from pageable memory wait for the driver's own staging
  size_t staging_bytes_ = 0;
};

// The devices of a type, made when first asked for; empty where there are none.
std::span<const std::unique_ptr<GpuDevice>> devices(DeviceType type);
GpuDevice& device(DeviceType type, int index);

}  // namespace pyflame::gpu
