// Ranges for the profilers of the GPU vendors (rocprofv3, Nsight Systems): names with a begin and an end on a thread, which their
// libraries (roctx, NVTX) take. While nothing is passed on, a range costs one relaxed load.
#pragma once
#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

namespace pyflame::markers {

// The functions of one library. A depth is negative if no tool listens.
struct Sink {
  std::string name;  // "roctx (/opt/rocm/lib/libroctx64.so.4)"
  int (*push)(const char*) = nullptr;
  int (*pop)() = nullptr;
  void (*mark)(const char*) = nullptr;
  uint64_t (*start)(const char*) = nullptr;  // a range that may end on another thread
  void (*stop)(uint64_t) = nullptr;
};

namespace detail {
extern std::atomic<bool> on;
}  // namespace detail

// Whether ops, modules and PyFlame's own ranges are passed on.
inline bool on() { return detail::on.load(std::memory_order_relaxed); }
void emit(bool on);

// The libraries that take ranges. Set once, before anything is passed on.
void set_sinks(std::vector<Sink> sinks);
const std::vector<Sink>& sinks();

// These do what they say whether on() or not: a program may push its own ranges. The depth is the first library's, -1
// without a library.
int push(const char* name);
int pop();
void mark(const char* name);
// 0 without a library. stop() of another number than start() returned does nothing.
uint64_t start(const char* name);
void stop(uint64_t range);

// A range from its construction to its destruction, if on().
class Scope {
 public:
  explicit Scope(const char* name) : pushed_(on()) {
    if (pushed_) [[unlikely]]
      push(name);
  }
  ~Scope() {
    if (pushed_) [[unlikely]]
      pop();
  }
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

 private:
  bool pushed_;
};

}  // namespace pyflame::markers
