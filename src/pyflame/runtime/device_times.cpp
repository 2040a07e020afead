// Reads the marks of timed runs. Times of the device are put on the host's clock: when a recording meets a device for the first time, the device is
// idle, and the host notes when a mark passes. Each later mark is placed by its distance from an earlier one.
#include "pyflame/runtime/device_times.h"

#include <algorithm>
#include <deque>
#include <list>
#include <mutex>
#include <numeric>
#include <utility>

#include "pyflame/base/fork.h"
#include "pyflame/runtime/device.h"
#include "pyflame/runtime/profiler.h"
#include "pyflame/runtime/state.h"

namespace pyflame::profiler {

namespace {

constexpr uint64_t kRunsPerTimed = 64;  // replays for each run that is timed step by step
constexpr size_t kMostUnread = 16384;   // marks, before the oldest runs are read
constexpr int kReadAtOnce = 2;          // runs, so that the program is not held up for long
constexpr int64_t kSlowLaunch =
    5'000;  // ns; more than a kernel's launch takes: a graph, or the host compiled or was interrupted
constexpr int kCalibrations = 8;

int64_t ns_between(const Moment& earlier, const Moment& later) { return std::llround(later.ms_since(earlier) * 1e6); }

}  // namespace

// The clock of one device in one recording, and the runs whose marks were not read yet.
class DeviceClock {
 public:
  struct Unread {
    std::shared_ptr<ProgramState> state;  // null: a collective
    std::vector<events::Label> labels;
    std::vector<DeviceRun::Marks> marks;  // of each step, or of all at once
    bool replay;
    uint32_t flow;
  };

  DeviceClock(Device device, DeviceMemory& memory) : device_(device), track_(events::new_track(device.str())) {
    memory.wait();
    empty_ = INT64_MAX;
    for (int i = 0; i < kCalibrations; ++i) {
      auto before = memory.moment(), after = memory.moment();
      while (!after->passed()) continue;  // a wait would return later
      anchor_at_ = events::now();
      empty_ = std::min(empty_, ns_between(*before, *after));
      anchor_ = std::move(after);
    }
  }

  Device device() const { return device_; }

  void add(Unread run) {
    marks_ += 2 * run.marks.size();
    unread_.push_back(std::move(run));
    for (int i = 0; i < kReadAtOnce && marks_ > kMostUnread && unread_.front().marks.back().after->passed(); ++i)
      read();
  }
  void read_all() {
    while (!unread_.empty()) read();
  }

 private:
  void read() {
    Unread& run = unread_.front();
    run.marks.back().after->wait();
    marks_ -= 2 * run.marks.size();
    if (!run.state) read_collective(run);
    else if (run.replay) read_replay(run);
    else read_steps(run);
    unread_.pop_front();
  }

  // When the device worked between two marks, in the host's time, less what the marks themselves take.
  std::pair<int64_t, int64_t> span(DeviceRun::Marks& m) {
    const int64_t took = std::max<int64_t>(ns_between(*m.before, *m.after) - empty_, 0);
    const int64_t end = anchor_at_ + ns_between(*anchor_, *m.after);
    anchor_ = m.after;
    anchor_at_ = end;
    // A mark that passed during a long launch says nothing of the kernels, which were queued when the launch ended.
    if (m.launched - m.asked > kSlowLaunch) return {std::clamp(m.launched, end - took, end), end};
    return {end - took, end};
  }

  void read_steps(Unread& run) {
    StepTimes& times = run.state->step_times;
    times.ns.assign(run.labels.size() - 1, 0);
    for (DeviceRun::Marks& m : run.marks) {
      const auto [start, end] = span(m);
      events::add_on(track_, events::Kind::Step, run.labels[m.step + 1], start, end, 0,
                     run.flow + static_cast<uint32_t>(m.step));
      times.ns[m.step] = static_cast<double>(end - start);
    }
  }

  // Its stream is another one: work of the device's own may have passed later marks before, so it places no marks.
  void read_collective(Unread& run) {
    if (collectives_ == 0) collectives_ = events::new_track("collectives of " + device_.str());
    const DeviceRun::Marks& m = run.marks.front();
    const int64_t end = anchor_at_ + ns_between(*anchor_, *m.after);
    const int64_t took = std::max<int64_t>(ns_between(*m.before, *m.after) - empty_, 0);
    events::add_on(collectives_, events::Kind::Step, run.labels[0], end - took, end, 0, run.flow);
  }

  void read_replay(Unread& run) {
    const auto [begin, end] = span(run.marks.front());
    const std::vector<double>& ns = run.state->step_times.ns;
    const double sum = std::accumulate(ns.begin(), ns.end(), 0.0);
    const auto took = static_cast<double>(end - begin);
    const auto at = [&, first = begin](double part) { return first + std::llround(took * part / sum); };
    double before = 0;
    for (size_t k = 0; k < ns.size() && sum > 0; ++k) {
      if (ns[k] == 0) continue;
      events::add_on(track_, events::Kind::Step, run.labels[k + 1], at(before), at(before + ns[k]), 1, run.flow);
      before += ns[k];
    }
  }

  Device device_;
  uint32_t track_, collectives_ = 0;
  std::shared_ptr<Moment> anchor_;
  int64_t anchor_at_ = 0, empty_ = 0;
  std::deque<Unread> unread_;
  size_t marks_ = 0;
};

namespace {

struct Clocks {
  std::mutex mutex;
  uint32_t recording = 0;
  std::list<DeviceClock> all;
};
Clocks& clocks() {
  static Clocks* c = new Clocks;
  return *c;
}

const AtFork g_clocks_at_fork{ForkOrder::DeviceTimes, [] { clocks().mutex.lock(); },
                              [](bool) { clocks().mutex.unlock(); }};

// Under the lock. Of the recording that runs now.
DeviceClock& clock_of(Device device, DeviceMemory& memory) {
  Clocks& c = clocks();
  if (c.recording != events::recording()) c.all.clear();
  c.recording = events::recording();
  const auto found =
      std::find_if(c.all.begin(), c.all.end(), [&](const DeviceClock& x) { return x.device() == device; });
  return found != c.all.end() ? *found : c.all.emplace_back(device, memory);
}

}  // namespace

DeviceRun::DeviceRun(Device device, DeviceMemory& memory, const CachedProgram& program)
    : device_(device),
      memory_(memory),
      program_(program.program),
      state_(program.state),
      flow_(events::new_flow(static_cast<uint32_t>(program.program->steps.size()))) {
  std::lock_guard lock(clocks().mutex);
  (void)clock_of(device, memory);
  if (!state_->replayer.on()) return;
  StepTimes& times = state_->step_times;
  needs_steps_ = times.runs_left == 0;
  times.runs_left = needs_steps_ ? kRunsPerTimed : times.runs_left - 1;
  if (needs_steps_) return;
  replay_ = true;
  mark(0);
}

DeviceRun::~DeviceRun() = default;

// While the device is still busy with the step before, the end of that one is the start of this one, and needs no mark.
void DeviceRun::mark(size_t step) {
  std::shared_ptr<Moment> before = marks_.empty() ? nullptr : marks_.back().after;
  if (!before || before->passed()) before = memory_.moment();
  marks_.push_back({step, std::move(before), nullptr, events::now(), 0});
}

void DeviceRun::before_step(size_t k) {
  if (replay_) marks_.clear();  // it is launched step by step after all
  replay_ = false;
  mark(k);
}

void DeviceRun::after_step() {
  Marks& m = marks_.back();
  m.launched = events::now();
  m.after = memory_.moment();
}

void DeviceRun::queued() {
  if (replay_) after_step();
  std::erase_if(marks_, [](const Marks& m) { return m.after == nullptr; });  // the step failed
  if (marks_.empty()) return;
  std::lock_guard lock(clocks().mutex);
  if (clocks().recording != events::recording()) return;  // the recording ended meanwhile
  clock_of(device_, memory_).add({state_, labels_of(*program_, state_->labels), std::move(marks_), replay_, flow_});
}

std::unique_ptr<QueuedCollective> queue_collective(Communicator& to, Collective c, Device device) {
  if (!events::on()) return to.queue(c);
  size_t elements = c.kind == Collective::Kind::reduce_scatter ? c.count * to.named.group.ranks.size() : c.count;
  for (const Collective::Part& p : c.sends.empty() ? c.takes : c.sends) elements += p.count;
  const auto item = static_cast<int64_t>(dtype_size(c.dtype));
  const events::Label label = events::label({.op = to.named.op,
                                             .dtype = dtype_name(c.dtype),
                                             .bytes = static_cast<int64_t>(elements) * item,
                                             .item = item,
                                             .call = to.named.call,
                                             .by = to.named.library,
                                             .device = static_cast<int32_t>(device.type) * 100 + device.index},
                                            to.named.group);
  DeviceMemory& memory = *device_memory(device);
  c.timed = events::device_times();
  if (c.timed) {
    const std::lock_guard lock(clocks().mutex);
    (void)clock_of(device, memory);
  }
  const uint32_t flow = events::new_flow();
  const int64_t asked = events::now();
  std::unique_ptr<QueuedCollective> queued = to.queue(c);
  const int64_t launched = events::now();
  events::add(events::Kind::Launch, label, asked, launched, 0, flow);
  const std::lock_guard lock(clocks().mutex);
  if (c.timed && clocks().recording == events::recording())
    clock_of(device, memory)
        .add({nullptr, {label}, {{0, queued->before, queued->after, asked, launched}}, false, flow});
  return queued;
}

void add_device_times() {
  std::lock_guard lock(clocks().mutex);
  if (clocks().recording == events::recording())
    for (DeviceClock& c : clocks().all) c.read_all();
  clocks().all.clear();
}

void forget_device_times() {
  std::lock_guard lock(clocks().mutex);
  clocks().all.clear();
}

}  // namespace pyflame::profiler
