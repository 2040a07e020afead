// Events, by the device's own timestamps or by the clock.
#include "pyflame/runtime/event.h"

#include "pyflame/base/error.h"
#include "pyflame/record/recorder.h"
#include "pyflame/runtime/device.h"

namespace pyflame {

void Event::record(Device d) {
  cut_window();
  DeviceMemory* memory = device_memory(d);
  moment_ = memory ? memory->moment() : nullptr;
  at_ = std::chrono::steady_clock::now();
  device_ = d;
  recorded_ = true;
}

bool Event::passed() { return !moment_ || moment_->passed(); }

void Event::wait() {
  if (moment_) moment_->wait();
}

double Event::elapsed_ms(Event& later) {
  PF_CHECK(recorded_ && later.recorded_, Runtime,
           "Event.elapsed_time: an event was not recorded; expected record() on both before");
  PF_CHECK(device_ == later.device_, Value,
           "Event.elapsed_time: the events are of two devices; got {} and {}; expected one", device_.str(),
           later.device_.str());
  wait();
  later.wait();
  if (moment_) return later.moment_->ms_since(*moment_);
  return std::chrono::duration<double, std::milli>(later.at_ - at_).count();
}

std::unique_ptr<Pause> pause_device(Device d) {
  cut_window();
  DeviceMemory* memory = device_memory(d);
  return memory ? memory->pause() : nullptr;
}

}  // namespace pyflame
