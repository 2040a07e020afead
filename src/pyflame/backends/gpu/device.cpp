// See device.h.
#include "pyflame/backends/gpu/device.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "pyflame/backends/gpu/arch.h"
#include "pyflame/base/error.h"

namespace pyflame::gpu {

namespace {
constexpr size_t kStagingBytes = size_t{8} << 20;
constexpr unsigned kNonBlocking = 1;
}  // namespace

GpuDevice::GpuDevice(const Rt& rt, int index) : rt_(rt), index_(index) {
  rt_.check(rt_.device_get(&ordinal_, index), "finding the device");
  rt_.check(rt_.context_retain(&context_, ordinal_), "opening the device");
  enter();
  rt_.check(rt_.stream_create(&stream_, kNonBlocking), "making a stream");
  arch_.name = arch_name(rt_, ordinal_);
  arch_.wave = rt_.attribute(Attribute::wave_size, ordinal_);
  arch_.compute_units = rt_.attribute(Attribute::compute_units, ordinal_);
  arch_.shared_bytes = rt_.attribute(Attribute::shared_per_block, ordinal_);
  arch_.max_threads = rt_.attribute(Attribute::threads_per_block, ordinal_);
}

void GpuDevice::enter() const {
  thread_local const GpuDevice* current = nullptr;
  if (current == this) return;
  rt_.check(rt_.context_set(context_), "selecting the device");
  current = this;
}

void GpuDevice::allow_shared(Function f, unsigned shared_bytes) const {
  constexpr int kMaxDynamicSharedBytes = 8;  // the attribute's number
  if (rt_.type == DeviceType::cuda && shared_bytes > 48 * 1024)
    rt_.check(rt_.function_attribute(f, kMaxDynamicSharedBytes, static_cast<int>(shared_bytes)),
              "asking for shared memory");
}

void GpuDevice::launch(Function f, std::array<unsigned, 3> grid, unsigned block, unsigned shared_bytes,
                       void** parameters) {
  enter();
  rt_.check(rt_.launch(f, grid[0], grid[1], grid[2], block, 1, 1, shared_bytes, stream_, parameters, nullptr),
            "launching a kernel");
}

void* GpuDevice::allocate(size_t nbytes) {
  enter();
  void* p = nullptr;
  const Result r = rt_.allocate(&p, nbytes);
  if (r == 2) return nullptr;
  rt_.check(r, "allocating memory");
  return p;
}

void GpuDevice::release(void* p) {
  enter();
  rt_.stream_wait(stream_);
  rt_.release(p);
}

void* GpuDevice::staging(size_t nbytes) {
  if (nbytes > staging_bytes_) {
    if (staging_) rt_.host_release(staging_);
    staging_ = nullptr, staging_bytes_ = 0;
    rt_.check(rt_.host_allocate(&staging_, kStagingBytes, 0), "allocating pinned memory");
    staging_bytes_ = kStagingBytes;
  }
  return staging_;
}

void GpuDevice::from_host(void* to, const void* from, size_t nbytes) {
  enter();
  std::lock_guard lock(staging_mutex_);
  for (size_t at = 0; at < nbytes; at += kStagingBytes) {
    const size_t n = std::min(kStagingBytes, nbytes - at);
    void* pinned = staging(n);
    rt_.check(rt_.stream_wait(stream_), "waiting for the device");
    std::memcpy(pinned, static_cast<const char*>(from) + at, n);
    rt_.check(rt_.copy_in(static_cast<char*>(to) + at, pinned, n, stream_), "copying to the device");
  }
}

void GpuDevice::to_host(void* to, const void* from, size_t nbytes) {
  enter();
  std::lock_guard lock(staging_mutex_);
  for (size_t at = 0; at < nbytes || at == 0; at += kStagingBytes) {
    const size_t n = std::min(kStagingBytes, nbytes - at);
    if (n > 0)
      rt_.check(rt_.copy_out(staging(n), static_cast<const char*>(from) + at, n, stream_), "copying from the device");
    rt_.check(rt_.stream_wait(stream_), "waiting for the device");
    if (n > 0) std::memcpy(static_cast<char*>(to) + at, staging_, n);
  }
}

void GpuDevice::copy(void* to, const void* from, size_t nbytes) {
  enter();
  if (nbytes > 0) rt_.check(rt_.copy(to, from, nbytes, stream_), "copying on the device");
}

void GpuDevice::wait() {
  enter();
  rt_.check(rt_.stream_wait(stream_), "waiting for the device");
}

DeviceInfo GpuDevice::info() const {
  enter();
  DeviceInfo info;
  char name[256] = {};
  rt_.device_name(name, sizeof name - 1, ordinal_);
  info.name = name;
  info.architecture = arch_.name;
  size_t free_bytes = 0, total = 0;
  rt_.memory_info(&free_bytes, &total);
  info.total_memory = total;
  info.free_memory = free_bytes;
  info.compute_units = arch_.compute_units;
  info.wave_size = arch_.wave;
  return info;
}

std::span<const std::unique_ptr<GpuDevice>> devices(DeviceType type) {
  static std::mutex mutex;
  static auto* all = new std::vector<std::unique_ptr<GpuDevice>>[2];
  static bool looked[2] = {};
  const size_t at = type == DeviceType::rocm ? 0 : 1;
  std::lock_guard lock(mutex);
  if (!looked[at]) {
    looked[at] = true;
    if (const Rt* rt = runtime(type)) {
      int count = 0;
      rt->device_count(&count);
      for (int i = 0; i < count; ++i) all[at].push_back(std::make_unique<GpuDevice>(*rt, i));
    }
  }
  return all[at];
}

GpuDevice& device(DeviceType type, int index) {
  const auto all = devices(type);
  PF_CHECK(index >= 0 && static_cast<size_t>(index) < all.size(), Device,
           "{}: no such device; got index {}; expected one below {}", Device{type}.str(), index, all.size());
  return *all[static_cast<size_t>(index)];
}

}  // namespace pyflame::gpu
