// Copies between the host and a device. Pageable memory is copied through blocks of pinned memory, each guarded by an
// event. So an upload does not wait for the device; it waits only if all blocks are in flight.
//   small (a batch, a scalar)   a ring that is divided into sections, with an event at the end of each section
//   large                       blocks, on a copy stream and through device memory that no kernel uses: the bus works while
//                               kernels run, and the kernels' stream only moves the bytes to their destination
#pragma once
#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <vector>

#include "pyflame/backends/gpu/driver/rt.h"

namespace pyflame::gpu {

class GpuDevice;

struct PinnedStats {
  uint64_t bytes = 0;  // pinned now
  uint64_t uploads = 0, downloads = 0;
  uint64_t waits = 0;  // uploads that found all blocks in flight
};

class Transfers {
 public:
  explicit Transfers(GpuDevice& device) : device_(device) {}
  void upload(void* to, const void* from, size_t nbytes);
  void download(void* to, const void* from, size_t nbytes);
  // Pinned memory where bytes arrive that nobody waits for yet.
  struct Landing {
    char* pinned = nullptr;
    size_t bytes = 0;
    Event arrived = nullptr;
  };
  Landing take_landing(size_t nbytes);
  void give_landing(const Landing& l);
  // Pins memory for this many bytes in flight.
  void warmup(size_t nbytes);
  PinnedStats stats();

 private:
  static constexpr size_t kSmall = 64 << 10, kSection = 256 << 10, kSections = 8;
  static constexpr size_t kBlock = size_t{4} << 20, kMostBlocks = 64, kOverlap = 512 << 10;
  static constexpr size_t kDownloads = 4;
  struct Block {
    char* pinned = nullptr;
    void* staging = nullptr;  // in device memory; the destination of the copy stream
    Event copied = nullptr;   // the pinned memory has been read (for downloads: written)
    Event moved = nullptr;    // the staging memory has been read
    bool used = false, staged = false;
  };
  void upload_small(void* to, const void* from, size_t nbytes);
  void upload_blocks(void* to, const void* from, size_t nbytes);
  Block make_block();
  Block& next_block();
  void* pin(size_t nbytes);

  GpuDevice& device_;
  std::mutex upload_mutex_, download_mutex_;
  char* ring_ = nullptr;
  size_t at_ = 0;  // position in the ring
  std::array<Event, kSections> left_{};
  std::array<bool, kSections> busy_{};
  std::vector<Block> blocks_;  // from oldest to newest, starting at next_
  size_t next_ = 0;
  Stream copies_ = nullptr;
  std::vector<Block> down_;
  std::vector<Landing> landings_;  // that nobody uses; under download_mutex_
  PinnedStats stats_;
  std::atomic<uint64_t> pinned_bytes_{0};
};

}  // namespace pyflame::gpu
