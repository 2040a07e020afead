// What a profile says of a device's time. Marks are queued before and after the work, and the device notes when it reaches them, so the host
// waits for nothing. A replay of a graph is marked as a whole, and its time is divided among the steps as in a run that was timed step by step.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "pyflame/backends/backend.h"
#include "pyflame/backends/communicator.h"
#include "pyflame/base/events.h"
#include "pyflame/compile/program.h"

namespace pyflame::profiler {

// The device's time of each step of a program, from the last run that was timed step by step.
struct StepTimes {
  std::vector<double> ns;  // empty: its marks were not read yet
  uint64_t runs_left = 0;  // replays until the next such run
};

// Times one run of a program on a device. A run that fails leaves nothing.
class DeviceRun {
 public:
  DeviceRun(Device device, DeviceMemory& memory, const CachedProgram& program);
  ~DeviceRun();
  DeviceRun(const DeviceRun&) = delete;
  DeviceRun& operator=(const DeviceRun&) = delete;

  // Whether this run must be launched step by step, because the time of a replay could not be divided.
  bool needs_steps() const { return needs_steps_; }
  void before_step(size_t k);
  void after_step();
  uint32_t flow_of(size_t step) const { return flow_ + static_cast<uint32_t>(step); }  // connects a launch and its time
  uint32_t flow_of_replay() const { return flow_; }
  void queued();  // all of it

 private:
  friend class DeviceClock;
  struct Marks {
    size_t step;
    std::shared_ptr<Moment> before, after;
    int64_t asked, launched;  // the host's time before and after the launch
  };
  Device device_;
  DeviceMemory& memory_;
  std::shared_ptr<const Program> program_;
  std::shared_ptr<ProgramState> state_;
  void mark(size_t step);
  std::vector<Marks> marks_;  // of each step, or of all at once
  bool replay_ = false;
  uint32_t flow_ = 0;
  bool needs_steps_ = false;
};

// Queues a collective of a device's tensors. The recording gets the host's time for it, and the device's, which contains the wait for other ranks.
std::unique_ptr<QueuedCollective> queue_collective(Communicator& to, Collective c, Device device);

// Adds all times to the recording. Every device must be idle.
void add_device_times();
void forget_device_times();

}  // namespace pyflame::profiler
