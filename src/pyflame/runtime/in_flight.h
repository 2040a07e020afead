// Work that was queued on a device and is not known to be done. It is needed when the device reports a failure
// afterwards:
//   a report         A kernel found a value that it cannot use (kernels/device/fault.h). The report names the step. The step's outputs,
//                    and everything computed from them since, are tainted: reading them raises the error. The device goes on
//                    working. If more steps report than the device's table holds, every step that may have reported by then is
//                    treated as if it had.
//   a lost device    The driver says at a later call that something went wrong. Any step in flight may have caused it.
// Reports need no wait of their own. They are read at waits that happen anyway, and between waits from copies that have
// arrived.
#pragma once
#include <cstdint>
#include <memory>

#include "pyflame/backends/backend.h"
#include "pyflame/base/events.h"
#include "pyflame/runtime/blame.h"

namespace pyflame {

// The number under which the first step of a run reports; the other steps have the following numbers.
int32_t new_sites(size_t steps);
// A run, from before its first kernel is queued: another thread may read a report of it while later kernels are still being queued. The
// engine's lock is held, so a device has one such run at most. `reports`: some of its kernels may report. If any of its inputs is poisoned or
// tainted, `poison` gets an entry for each slot.
class QueuedRun {
 public:
  QueuedRun(const std::shared_ptr<const Program>& p, const Window& w, int32_t site, bool reports, Poisons& poison);
  ~QueuedRun();
  QueuedRun(const QueuedRun&) = delete;
  QueuedRun& operator=(const QueuedRun&) = delete;
  // All kernels are queued. Reads reports that have arrived.
  void complete();

 private:
  Device device_;
};

void before_wait(Device d, DeviceMemory& m);
void after_wait(Device d, DeviceMemory& m);
// What the work that is queued by now will have reported. Later work and other requests do not change it.
struct RequestedReport {
  FaultTable* table = nullptr;   // in host memory, which read_report() takes back; null: nothing can be reported
  uint64_t last = 0, whole = 0;  // the last run that has begun, and the last one of which all kernels are queued
};
RequestedReport request_report(Device d, DeviceMemory& m);
// That work has completed, and so has the copy.
void read_report(Device d, RequestedReport& r);
void drop_report(Device d, RequestedReport& r);  // unread
// If the error says that the device is lost, the error with a list of what was in flight.
Error blamed(Device d, const Error& e);

template <class Wait>
void wait_for_device(Device d, DeviceMemory& m, Wait wait) {
  try {
    const events::Scope log(events::Kind::Wait, "wait for the device");
    before_wait(d, m);
    wait();
    after_wait(d, m);
  } catch (const Error& e) {
    throw blamed(d, e);
  }
}

// The error of a storage that a report has tainted, otherwise null. It costs little while nothing is tainted.
std::shared_ptr<const Poison> taint_of(const Storage& s);
void raise_if_tainted(const Storage& s);
// Waits for the device if kernels that may report are in flight. Afterwards taint_of() knows about all work that was queued before. A copy
// between devices needs this: the copy has another storage, which no report names.
void wait_for_reports(Device d, DeviceMemory& m);
}  // namespace pyflame
