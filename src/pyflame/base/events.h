// The log that pf.profiler reads: what happened, when, and on which thread. While nothing is recorded, logging costs one relaxed
// load. While a recording runs, each thread writes events into its own buffer, so no thread waits for another. The number of
// events is limited; later ones are dropped and counted. Names are interned once per recording, so an event is a few numbers.
#pragma once
#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "pyflame/base/markers.h"

namespace pyflame::events {

enum class Kind : uint8_t {
  Range,     // a region named by the user or by PyFlame (backward, optimizer step)
  Window,    // from the first op recorded until the cut
  Plan,      // a new window is compiled to a program
  Run,       // a program runs
  Step,      // one group of ops by one implementation; on a GPU it is on the device's own track
  Launch,    // a step on an asynchronous device, or a replay of many: the host's time
  Wait,      // the host waits for a device or for another thread
  Allocate,  // memory from the system or the driver
  Memory,    // the bytes that are held from now on; not a span
  Frame,     // a Python function was on the stack, by samples
  Ready,     // the thread could have run, but no processor was free
};
constexpr int kKinds = 11;
const char* kind_name(Kind k);

// A name in one recording. Labels of earlier recordings are ignored.
struct Label {
  uint32_t recording = 0, id = 0;
};

struct Event {
  int64_t start = 0, end = 0;  // ns of the steady clock
  int64_t value = 0;  // bytes of an Allocate, a Memory; ops of a Window; 1: a Step's time is its share of a replay's
  // A Window and its Run have the same number, a Launch and its Steps too. Of a Step of the CPU that is a collective: its number in the group. 0: none
  uint32_t flow = 0;
  uint32_t label = 0;
  uint32_t thread = 0;  // index into Recording::threads
  Kind kind = Kind::Range;
};

struct LabelText {
  std::string name;
  std::string args;    // members of a JSON object, such as `"impl":"cpu.tile","ops":["add"]`; or empty
  std::string place;   // the line of the program that recorded it; or empty
  std::string work;    // of steps: the class of work, with the names of the report
  int64_t bytes = 0;   // of steps: read and written
  double flops = 0;    // of steps: 0 where they are not counted
  int32_t device = 0;  // of steps: its type * 100 + its index
};

struct Options {
  size_t max_events = 1'000'000;  // about 48 bytes each
  bool device_times = true;       // time the steps on a GPU by its own clock (runtime/device_times.h)
};

// This process among those of its job.
struct Job {
  int rank = -1, size = 1;
};

struct Recording {
  int64_t start = 0, end = 0;
  std::vector<Event> events;         // by thread, in the order in which they ended
  std::vector<LabelText> labels;     // by Event::label
  std::vector<std::string> threads;  // by Event::thread
  uint64_t dropped = 0;              // beyond Options::max_events
  bool device_times = false;
  Job job;
  std::vector<std::string> fallbacks;  // what ran slower, or elsewhere, than was asked, in sentences
};

namespace detail {
extern std::atomic<uint32_t> current;  // number of the recording; 0: none
extern std::atomic<bool> device_times;
}  // namespace detail

inline bool on() { return detail::current.load(std::memory_order_relaxed) != 0; }
inline bool device_times() { return on() && detail::device_times.load(std::memory_order_relaxed); }
inline uint32_t recording() { return detail::current.load(std::memory_order_relaxed); }
inline int64_t now() { return std::chrono::steady_clock::now().time_since_epoch().count(); }

// One recording at a time: RuntimeError when there is one.
void start(const Options& options);
// RuntimeError if there is no recording. Events that other threads log afterwards are left out.
Recording stop();

// A process is part of a job from then on, also when its connections have ended: its traces are compared with those of the others.
void set_job(Job job);

// The label with this text. If there are too many labels, or nothing is recorded, the recording's first label, "".
Label label(const LabelText& text);
Label label(std::string_view name);
// This thread's number in the recording.
uint32_t thread();
uint32_t new_flow(uint32_t count = 1);  // the first of `count` numbers
// A track for events that no thread does, such as a device's. 0: nothing is recorded.
uint32_t new_track(std::string name);

// Adds an event to this thread's track, or to the track of `on_thread`.
void add(Kind kind, Label label, int64_t start, int64_t end, int64_t value = 0, uint32_t flow = 0);
void add_on(uint32_t on_thread, Kind kind, Label label, int64_t start, int64_t end, int64_t value = 0,
            uint32_t flow = 0);

// Logs the time from its construction to its destruction, and passes it on to the vendors' profilers.
class Scope {
 public:
  Scope(Kind kind, const char* name, int64_t value = 0) : marker_(name), kind_(kind) {
    if (on()) [[unlikely]]
      begin(name, value);
  }
  ~Scope() {
    if (label_.recording) [[unlikely]]
      add(kind_, label_, start_, now(), value_);
  }
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

 private:
  void begin(const char* name, int64_t value);
  markers::Scope marker_;
  Kind kind_;
  Label label_;
  int64_t start_ = 0, value_ = 0;
};

}  // namespace pyflame::events
