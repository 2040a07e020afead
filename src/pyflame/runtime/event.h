// A point in the order of a device's work, with the time at which the device reached it.
#pragma once
#include <chrono>
#include <memory>

#include "pyflame/backends/backend.h"

namespace pyflame {

class Event {
 public:
  // Ends this thread's window and marks the end of what is queued then. A GPU keeps the time itself, and nothing waits. On the CPU the work
  // is complete by then, and the clock is read. A second call moves the event.
  void record(Device d);
  bool recorded() const { return recorded_; }
  Device device() const { return device_; }
  // Whether the work before the event is complete; true if it was not recorded. It does not wait.
  bool passed();
  void wait();
  // Milliseconds from this event to a later one of the same device. Waits for both.
  double elapsed_ms(Event& later);

 private:
  bool recorded_ = false;
  Device device_;
  std::unique_ptr<Moment> moment_;  // null: of the host
  std::chrono::steady_clock::time_point at_;
};

// Ends this thread's window. The device's work that is queued afterwards waits for a call of release(). Null on the CPU, which computes at once.
std::unique_ptr<Pause> pause_device(Device d);

}  // namespace pyflame
