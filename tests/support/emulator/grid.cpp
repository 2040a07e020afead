// See grid.h. The threads of a workgroup take turns in an order that a setting chooses: where a barrier is missing, another order gives
// another result.
#include "grid.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>
#include <vector>

#include "bounds.h"
#include "fibre.h"
#include "settings.h"

extern "C" __attribute__((visibility("default"))) EmulatedThread emulated;
EmulatedThread emulated;

namespace pyflame::emulator {

namespace {

constexpr unsigned kMostBytes = 64;            // of a lane in one exchange
constexpr unsigned char kSharedPoison = 0xff;  // NaN in every float type

size_t dynamic_shared_bytes = 0;  // of the launch that runs

enum class At : uint8_t { start, ready, barrier, wave, end };

struct Thread {
  At at = At::start;
  int line = 0;
  Fibre* fibre = nullptr;
};

struct Wave {
  unsigned lanes = 0, arrived = 0, bytes = 0, turn = 0;
  int line = 0;
  alignas(64) unsigned char brought
      [2][64 * kMostBytes];  // two, because a lane may bring the next before another has read the last
};

class Group {
 public:
  std::string run(const EmulatedEntry& kernel, const Grid& grid, void** parameters);
  void barrier(int line);
  const void* exchange(const void* mine, unsigned bytes, int from, int line);
  [[noreturn]] void fail(std::string what);
  bool holds(const void* p) const;

 private:
  static void body();
  bool next_thread();
  void resume(unsigned t);
  void release();
  Fibre* idle_fibre();
  std::string where(unsigned t) const;

  const EmulatedEntry* kernel_ = nullptr;
  void** parameters_ = nullptr;
  unsigned threads_ = 0, width_ = 64, begun_ = 0, ended_ = 0, arrived_ = 0;
  std::vector<unsigned> order_;
  std::vector<Thread> thread_;
  std::vector<Wave> wave_;
  std::vector<std::unique_ptr<Fibre>> fibres_;
  std::vector<Fibre*> idle_;
  Fibre* running_ = nullptr;
  std::string failure_;
  std::mt19937_64 random_;
};

Group& group() {
  static Group* g = new Group;  // leaked: kernels may run while the process ends
  return *g;
}

Fibre* Group::idle_fibre() {
  if (idle_.empty()) {
    fibres_.push_back(std::make_unique<Fibre>(&Group::body));
    return fibres_.back().get();
  }
  Fibre* f = idle_.back();
  idle_.pop_back();
  return f;
}

// On a fibre: runs threads that have not begun, one after another on the same stack; one that waits keeps the stack.
void Group::body() {
  Group& g = group();
  for (;;) {
    while (g.next_thread()) {
      g.kernel_->call(g.parameters_);
      g.thread_[emulated.thread].at = At::end;
      ++g.ended_;
    }
    g.idle_.push_back(g.running_);
    Fibre::suspend();
  }
}

bool within(const void* p, const void* begin, size_t bytes) {
  const auto *at = static_cast<const char*>(p), *first = static_cast<const char*>(begin);
  return at >= first && at < first + bytes;
}

bool Group::holds(const void* p) const {
  if (within(p, kernel_->module, static_cast<size_t>(kernel_->shared_end - kernel_->module)) ||
      within(p, wave_.data(), wave_.size() * sizeof(Wave)) || within(p, parameters_, kernel_->count * sizeof(void*)))
    return true;
  for (unsigned i = 0; i < kernel_->count; ++i)
    if (within(p, parameters_[i], kernel_->parameters[i].bytes)) return true;
  return false;
}

bool Group::next_thread() {
  if (begun_ == threads_) return false;
  const unsigned t = order_[begun_++];
  emulated.thread = t;
  thread_[t].fibre = running_;
  thread_[t].at = At::ready;
  return true;
}

void Group::resume(unsigned t) {
  running_ = thread_[t].fibre;
  emulated.thread = t;
  running_->resume();
}

void Group::fail(std::string what) {
  failure_ = std::move(what);
  Fibre::suspend();  // never resumed
  std::abort();
}

std::string Group::where(unsigned t) const {
  const Thread& x = thread_[t];
  const std::string name = "thread " + std::to_string(t);
  switch (x.at) {
    case At::end: return name + " has ended";
    case At::barrier: return name + " is at the barrier of line " + std::to_string(x.line);
    case At::wave: return name + " is at the wave operation of line " + std::to_string(x.line);
    default: return name + " runs";
  }
}

void Group::barrier(int line) {
  const unsigned t = emulated.thread;
  thread_[t].at = At::barrier;
  thread_[t].line = line;
  ++arrived_;
  Fibre::suspend();
}

const void* Group::exchange(const void* mine, unsigned bytes, int from, int line) {
  const unsigned t = emulated.thread, lane = t % width_;
  Wave& w = wave_[t / width_];
  if (bytes > kMostBytes)
    fail("a wave operation of " + std::to_string(bytes) + " bytes a lane; the emulator has room for 64");
  if (from < 0 || static_cast<unsigned>(from) >= w.lanes)
    fail("line " + std::to_string(line) + ": lane " + std::to_string(lane) + " asks for lane " + std::to_string(from) +
         " of a wave of " + std::to_string(w.lanes));
  if (w.arrived > 0 && (w.line != line || w.bytes != bytes))
    fail("lanes of one wave are at different wave operations, of lines " + std::to_string(w.line) + " and " +
         std::to_string(line));
  w.line = line;
  w.bytes = bytes;
  unsigned char* all = w.brought[w.turn];
  std::memcpy(all + size_t{lane} * bytes, mine, bytes);
  const unsigned char* result = all + static_cast<size_t>(from) * bytes;
  if (++w.arrived == w.lanes) {
    w.arrived = 0;
    w.turn ^= 1;
    const unsigned first = t / width_ * width_;
    for (unsigned i = first; i < first + w.lanes; ++i)
      if (i != t) thread_[i].at = At::ready;
    return result;
  }
  thread_[t].at = At::wave;
  thread_[t].line = line;
  Fibre::suspend();
  return result;
}

// Everybody waits. That is right only where all are at the same barrier.
void Group::release() {
  for (unsigned t = 0; t < threads_; ++t)
    if (thread_[t].at != At::barrier || thread_[t].line != thread_[0].line) {
      unsigned other = 0;
      for (unsigned u = 0; u < threads_; ++u)
        if (thread_[u].at != thread_[t].at || thread_[u].line != thread_[t].line) other = u;
      failure_ = "threads of a workgroup do not meet: " + where(t) + ", " + where(other);
      return;
    }
  arrived_ = 0;
  for (unsigned t = 0; t < threads_; ++t) thread_[t].at = At::ready;
}

std::string Group::run(const EmulatedEntry& kernel, const Grid& grid, void** parameters) {
  kernel_ = &kernel;
  parameters_ = parameters;
  width_ = kernel.wave;
  if (threads_ != grid.threads || settings().order == Order::shuffled) {
    threads_ = grid.threads;
    order_.resize(threads_);
    std::iota(order_.begin(), order_.end(), 0u);
    if (settings().order == Order::descending) std::reverse(order_.begin(), order_.end());
    if (settings().order == Order::shuffled) {
      random_.seed(settings().seed);
      std::shuffle(order_.begin(), order_.end(), random_);
    }
  }
  thread_.assign(threads_, {});
  wave_.resize((threads_ + width_ - 1) / width_);
  for (size_t i = 0; i < wave_.size(); ++i) {
    wave_[i].arrived = wave_[i].turn = 0;
    wave_[i].lanes = std::min<unsigned>(width_, threads_ - static_cast<unsigned>(i) * width_);
  }
  begun_ = ended_ = arrived_ = 0;
  failure_.clear();
  while (begun_ < threads_ && failure_.empty()) {
    running_ = idle_fibre();
    running_->resume();
  }
  while (ended_ < threads_ && failure_.empty()) {
    bool went_on = false;
    for (const unsigned t : order_) {
      if (thread_[t].at != At::ready) continue;
      went_on = true;
      resume(t);
      if (!failure_.empty()) break;
    }
    if (!went_on && failure_.empty()) release();
  }
  if (!failure_.empty()) {  // what waits is forgotten with its stack
    idle_.clear();
    for (const auto& f : fibres_) {
      f->restart();
      idle_.push_back(f.get());
    }
  }
  return failure_;
}

// Not by memset: under AddressSanitizer that would be taken for an access beyond the first variable.
#if defined(__SANITIZE_ADDRESS__)
__attribute__((no_sanitize("address")))
#endif
void poison(char* begin, char* end) {
  for (volatile char* p = begin; p < end; ++p) *p = static_cast<char>(kSharedPoison);
}

}  // namespace

void fail_kernel(const std::string& what) { group().fail("thread " + std::to_string(emulated.thread) + " " + what); }

bool is_own(const void* p) {
  return Fibre::on_stack(p) || group().holds(p) || within(p, &emulated, sizeof emulated) ||
         within(p, emulated.dynamic_shared, dynamic_shared_bytes);
}

std::string run_grid(const EmulatedEntry& kernel, const Grid& grid, void** parameters) {
  const OwnTensors tensors;
  dynamic_shared_bytes = grid.dynamic_shared;
  emulated.threads = grid.threads;
  std::copy(grid.groups.begin(), grid.groups.end(), emulated.groups);
  void* shared = nullptr;
  if (grid.dynamic_shared > 0 && posix_memalign(&shared, 256, grid.dynamic_shared) != 0)
    return "no memory for shared memory";
  const std::unique_ptr<void, void (*)(void*)> owner(shared, std::free);
  emulated.dynamic_shared = shared;
  const uint64_t count = uint64_t{grid.groups[0]} * grid.groups[1] * grid.groups[2];
  const bool backwards = settings().order == Order::descending;
  for (uint64_t i = 0; i < count; ++i) {
    const uint64_t g = backwards ? count - 1 - i : i;
    emulated.group[0] = static_cast<unsigned>(g % grid.groups[0]);
    emulated.group[1] = static_cast<unsigned>(g / grid.groups[0] % grid.groups[1]);
    emulated.group[2] = static_cast<unsigned>(g / grid.groups[0] / grid.groups[1]);
    poison(kernel.shared_begin, kernel.shared_end);
    if (shared) std::memset(shared, kSharedPoison, grid.dynamic_shared);
    std::string failure = group().run(kernel, grid, parameters);
    if (!failure.empty())
      return "workgroup (" + std::to_string(emulated.group[0]) + ", " + std::to_string(emulated.group[1]) + ", " +
             std::to_string(emulated.group[2]) + "): " + failure;
  }
  return {};
}

}  // namespace pyflame::emulator

extern "C" __attribute__((visibility("default"))) void emulated_barrier(int line) {
  pyflame::emulator::group().barrier(line);
}
extern "C" __attribute__((visibility("default"))) const void* emulated_exchange(const void* mine, unsigned bytes,
                                                                                int from, int line) {
  return pyflame::emulator::group().exchange(mine, bytes, from, line);
}
