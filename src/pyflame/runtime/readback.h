// The values of a tensor on their way to the host, while the device goes on with later work. Tensor::to_device waits for everything that is
// queued; this waits only for what was queued when it was made.
#pragma once
#include <memory>

#include "pyflame/backends/backend.h"
#include "pyflame/runtime/in_flight.h"
#include "pyflame/tensor/tensor.h"

namespace pyflame {

class Readback {
 public:
  // Ends this thread's window, which starts to run, and queues the copy. On the CPU the values are complete by then.
  explicit Readback(const Tensor& x);
  ~Readback();
  Readback(const Readback&) = delete;
  Readback& operator=(const Readback&) = delete;
  // The values, on the CPU, when they have arrived. Raises what failed before they were computed. Every call gives the same tensor.
  Tensor wait();

 private:
  Tensor source_, result_;
  RequestedReport report_;
  std::unique_ptr<Download> download_;  // null: of the host
};

}  // namespace pyflame
