// The log that pf.profiler reads: what happened when, on which thread. Off, a place that could be logged costs one relaxed load. On, an
// event goes to a buffer that only its thread writes, so nobody waits for anybody; memory is bounded by a number of events, beyond which
// the newest are counted and left out. Names are interned once per recording, so that an event is a few numbers.
#pragma once
#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace pyflame::events {

enum class Kind : uint8_t {
  Range,     // named by the user, or by PyFlame: backward, optimizer step
  Window,    // from the first op recorded until the cut
  Plan,      // a window that is new becomes a program
  Run,       // a program runs
  Step,      // one group of ops by one implementation
  Launch,    // the same on a device that works by itself: the time is the host's
  Wait,      // the host waits for a device or for another thread
  Allocate,  // memory from the system or the driver
  Memory,    // no span: bytes held from now on
};
constexpr int kKinds = 9;
const char* kind_name(Kind k);

// A name in one recording. One that was made in another is not logged.
struct Label {
  uint32_t recording = 0, id = 0;
};

struct Event {
  int64_t start = 0, end = 0;  // ns of the steady clock
  int64_t value = 0;           // bytes of a Step, an Allocate, a Memory; ops of a Window
  uint32_t flow = 0;           // the same number: a Window and its Run; 0: none
  uint32_t label = 0;
  uint32_t thread = 0;  // index into Recording::threads
  Kind kind = Kind::Range;
};

struct LabelText {
  std::string name;
  std::string args;    // members of a JSON object: `"impl":"cpu.tile","ops":["add"]`, or nothing
  std::string work;    // of steps: what kind of work it is, in the words of the report
  int64_t bytes = 0;   // of steps: read and written
  double flops = 0;    // of steps: 0 where they are not counted
  int32_t device = 0;  // of steps: its type * 100 + its index
};

struct Options {
  size_t max_events = 1'000'000;  // about 48 bytes each
  bool device_times = false;      // wait after each step: its time is the device's, and nothing overlaps
};

struct Recording {
  int64_t start = 0, end = 0;
  std::vector<Event> events;         // by thread, in the order in which they ended
  std::vector<LabelText> labels;     // by Event::label
  std::vector<std::string> threads;  // by Event::thread
  uint64_t dropped = 0;              // beyond Options::max_events
  bool device_times = false;
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
// RuntimeError when there is none. Other threads may still log; what they log after this is left out.
Recording stop();

// The label with this text; the first one of a recording, "", when there are too many or nothing is recorded.
Label label(const LabelText& text);
Label label(std::string_view name);
// This thread's number in the recording.
uint32_t thread();
uint32_t new_flow();

// On this thread's track, unless `on_thread` is another that has logged.
void add(Kind kind, Label label, int64_t start, int64_t end, int64_t value = 0, uint32_t flow = 0);
void add_on(uint32_t on_thread, Kind kind, Label label, int64_t start, int64_t end, int64_t value = 0,
            uint32_t flow = 0);

// Logs its own life.
class Scope {
 public:
  Scope(Kind kind, const char* name, int64_t value = 0) : kind_(kind) {
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
  Kind kind_;
  Label label_;
  int64_t start_ = 0, value_ = 0;
};

}  // namespace pyflame::events
