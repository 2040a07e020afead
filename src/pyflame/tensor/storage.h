// Storage: the bytes behind one or more tensors. It may not have bytes yet: an op that is still in a window has only
// promised them. `version` counts in-place writes, for autograd. `exports` counts NumPy/DLPack views that somebody outside
// holds: while it is not zero the storage is "escaped" and ops that touch it are complete before the call returns.
#pragma once
#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>

#include "pyflame/base/error.h"
#include "pyflame/base/ref.h"
#include "pyflame/tensor/device.h"

namespace pyflame {

class Recorder;

// Why the contents are not valid: an op that should have written them failed after its call had returned.
struct Poison {
  ErrorKind kind;
  std::string message;
};

class Storage : public RefCounted {
 public:
  Storage(Device where, size_t bytes) : device(where), nbytes(bytes) {}
  ~Storage() override { free_data(); }

  // Takes over memory that `deleter` frees. Null data with nbytes > 0 means: promised by a pending op.
  void set_data(void* p, std::function<void()> deleter_fn = nullptr) {
    free_data();
    data = p;
    deleter = std::move(deleter_fn);
  }
  bool escaped() const { return exports.load(std::memory_order_relaxed) > 0; }

  const Device device;
  const size_t nbytes;
  const uint64_t id =
      next_id();  // never used again: what is said of a storage after its device has come to it (runtime/in_flight.h)
  void* data = nullptr;
  bool owned_by_allocator = false;  // data came from the device's allocator: it goes back there
  bool foreign = false;             // data belongs to somebody else (from_numpy, DLPack): never donated
  std::function<void()> deleter;
  std::atomic<uint32_t> version{0};
  std::atomic<int32_t> exports{0};
  // The recorder that holds unexecuted ops on this storage; written under that recorder's lock (record/recorder.h).
  std::atomic<Recorder*> writer{nullptr};
  std::atomic<Recorder*> reader{nullptr};
  std::shared_ptr<const Poison> poison;

  void free_data();  // runtime/allocator.cpp

 private:
  // A thread takes many at once.
  static uint64_t next_id() {
    constexpr uint64_t kMany = 4096;
    static std::atomic<uint64_t> taken{1};
    thread_local uint64_t next = 0, end = 0;
    if (next == end) next = taken.fetch_add(kMany, std::memory_order_relaxed), end = next + kMany;
    return next++;
  }
};

}  // namespace pyflame
