// Storage: the bytes behind one or more tensors. It has no bytes yet if the op that computes it is still in a window.
// `version` counts in-place writes, for autograd. `exports` counts the NumPy and DLPack views of it. While that is not
// zero, the storage is "escaped", and each op on it runs before its call returns.
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

// Why the contents are invalid: an op that should have written them failed after its call had returned.
struct Poison {
  ErrorKind kind;
  std::string message;
};

class Storage : public RefCounted {
 public:
  Storage(Device where, size_t bytes) : device(where), nbytes(bytes) {}
  ~Storage() override { free_data(); }

  // Takes over memory that `deleter` frees. Null data with nbytes > 0: the bytes are allocated when the pending op runs.
  void set_data(void* p, std::function<void()> deleter_fn = nullptr) {
    free_data();
    data = p;
    deleter = std::move(deleter_fn);
  }
  bool escaped() const { return exports.load(std::memory_order_relaxed) > 0; }

  const Device device;
  const size_t nbytes;
  // Never reused: a fault may name a storage after its address was given to another one (runtime/in_flight.h).
  const uint64_t id = next_id();
  void* data = nullptr;
  bool owned_by_allocator = false;  // data came from the device's allocator and returns to it
  bool foreign = false;             // data belongs to other code (from_numpy, DLPack) and is never donated
  std::function<void()> deleter;
  std::atomic<uint32_t> version{0};
  std::atomic<int32_t> exports{0};
  // The recorder that has pending ops on this storage; written under that recorder's lock (record/recorder.h).
  std::atomic<Recorder*> writer{nullptr};
  std::atomic<Recorder*> reader{nullptr};
  std::shared_ptr<const Poison> poison;

  void free_data();

 private:
  // A thread reserves many ids at once.
  static uint64_t next_id() {
    constexpr uint64_t kMany = 4096;
    static std::atomic<uint64_t> taken{1};
    thread_local uint64_t next = 0, end = 0;
    if (next == end) next = taken.fetch_add(kMany, std::memory_order_relaxed), end = next + kMany;
    return next++;
  }
};

}  // namespace pyflame
