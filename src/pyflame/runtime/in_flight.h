// What was asked of a device and is not known to be done. It is looked at when the device tells of a failure after the fact:
//   a report     a kernel met a value that it cannot use (kernels/device/fault.h). The report names the step; what the step wrote, and
//                what was computed from that since, is tainted, and whoever reads it gets the error. The device goes on working. Of
//                several reports before a wait only the first is known.
//   a lost device    the driver says at some later call that something went wrong: one of the steps in flight it was.
// Reports cost no wait of their own: they are looked at when somebody waits anyway, and in passing by copies that have arrived.
#pragma once
#include <cstdint>
#include <memory>

#include "pyflame/base/events.h"
#include "pyflame/compile/program.h"

namespace pyflame {

// The number under which a run's first step reports; the others follow.
int32_t new_sites(size_t steps);
// The run has been asked of the device. `reports`: some of its kernels may report.
void note_run(const std::shared_ptr<Program>& p, const Window& w, int32_t site, bool reports);

void before_wait(Device d, DeviceMemory& m);
void after_wait(Device d, DeviceMemory& m);
// The error with what was in flight, when it says that the device is lost.
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

// The error of a storage that a report has tainted, null otherwise; cheap when nothing is.
std::shared_ptr<const Poison> taint_of(const Storage& s);
void raise_if_tainted(const Storage& s);
// It was written anew, wholly, or carries the taint as its poison by now.
void forget_taint(const Storage& s);

}  // namespace pyflame
