// Collectives of the devices of several processes: what a vendor's library of them does for the runtime.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "pyflame/base/collective_event.h"
#include "pyflame/tensor/device.h"
#include "pyflame/tensor/dtype.h"

namespace pyflame {

class Moment;

// What the devices of a group of processes do together. Addresses are of the communicator's device. Each process makes the same calls in
// the same order.
struct Collective {
  enum class Kind : uint8_t { all_reduce, reduce, broadcast, all_gather, reduce_scatter, exchange };
  enum class Combine : uint8_t { sum, avg, product, min, max };
  struct Part {
    int peer;
    void* data;
    size_t count;
  };
  Kind kind = Kind::all_reduce;
  DType dtype = DType::float32;
  Combine combine = Combine::sum;
  const void* in = nullptr;
  void* out = nullptr;
  size_t count = 0;  // elements: of `out` for reduce_scatter, else of `in`
  int root = 0;      // reduce, broadcast
  // exchange: parts between two ranks have the same order on both.
  // all_reduce: several reductions as one, of each part of `sends` into the part of `takes` at the same place.
  std::vector<Part> sends = {}, takes = {};
  // Runs between the work of the device that was queued before it and what is queued afterwards. For collectives that are so small that the
  // host's time for a stream of their own is more than what runs beside them would save.
  bool in_order = false;
  bool timed = false;  // QueuedCollective::before and after are wanted
};

// A collective that was queued. It runs after all work of the device that was queued before it; on a stream of its own, unless it is in order.
class QueuedCollective {
 public:
  virtual ~QueuedCollective() = default;
  virtual void join() = 0;    // later work of the device comes after it; does not wait. In order: nothing to do
  virtual bool passed() = 0;  // whether the device has done it; does not wait
  virtual void wait() = 0;
  std::shared_ptr<Moment> before, after;  // on its stream
};

// One process's end of a group of devices. One thread at a time calls queue(); any thread may call the others.
class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual std::unique_ptr<QueuedCollective> queue(const Collective& c) = 0;
  virtual std::string failure() = 0;  // what the library noticed since; empty: nothing
  virtual void abort() = 0;           // ends what is under way, on the device as well; nothing can be queued afterwards
  // For profiles: the group, the library, and the next collective with the line that makes it.
  struct Named {
    events::GroupName group;
    std::string library, op, call;
  } named;
};

// The vendor's library of collectives.
class CommunicatorLibrary {
 public:
  virtual ~CommunicatorLibrary() = default;
  virtual std::string version() const = 0;  // "nccl 2.28.9"
  virtual bool takes(DType dtype) const = 0;
  virtual std::string new_id() const = 0;  // bytes, which one process makes and all of its group get
  // Returns when all processes of the group have called it.
  virtual std::unique_ptr<Communicator> connect(int device, const std::string& id, int rank, int size) const = 0;
};

}  // namespace pyflame
