// The profiler's log. A buffer is a list of chunks: its thread appends events, and stop() reads as many events as the
// counts say, so neither takes a lock.
#include "pyflame/base/events.h"

#include <array>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "pyflame/base/error.h"
#include "pyflame/base/fork.h"

namespace pyflame::events {

namespace detail {
std::atomic<uint32_t> current{0};
std::atomic<bool> device_times{false};
}  // namespace detail

namespace {

constexpr size_t kChunk = 1024, kMostLabels = 1 << 16;

struct Chunk {
  std::array<Event, kChunk> events;
  std::atomic<size_t> count{0};
  std::atomic<Chunk*> next{nullptr};
};

struct Buffer {
  uint32_t recording = 0, thread = 0;
  std::string name;
  std::unique_ptr<Chunk> first = std::make_unique<Chunk>();
  Chunk* last = first.get();
  std::atomic<uint64_t> dropped{0};
  std::atomic<int64_t>* room = nullptr;  // number of chunks that all buffers may still add
  Buffer() = default;
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer() {
    for (Chunk* c = first->next; c;) delete std::exchange(c, c->next.load());
  }
};

struct Log {
  std::mutex mutex;
  uint32_t made = 0;  // recordings so far
  Options options;
  int64_t start = 0;
  std::vector<std::shared_ptr<Buffer>> buffers;
  std::vector<LabelText> labels;
  std::unordered_map<std::string, uint32_t> ids;
  std::atomic<int64_t> room{0};
  std::atomic<uint32_t> flows{0};
  Job job;
};
Log& log() {
  static Log* l = new Log;  // leaked: threads may outlive static destruction
  return *l;
}

const AtFork g_events_at_fork{ForkOrder::Events, [] { log().mutex.lock(); }, [](bool) { log().mutex.unlock(); }};

// Under the lock.
std::shared_ptr<Buffer> add_buffer(Log& l, uint32_t recording, std::string name) {
  auto fresh = std::make_shared<Buffer>();
  fresh->recording = recording;
  fresh->thread = static_cast<uint32_t>(l.buffers.size());
  fresh->name = std::move(name);
  fresh->room = &l.room;
  l.buffers.push_back(fresh);
  return fresh;
}

// This thread's buffer of the current recording; null: nothing is recorded.
Buffer* buffer() {
  thread_local std::shared_ptr<Buffer> mine;
  const uint32_t now = detail::current.load(std::memory_order_acquire);
  if (now == 0) return nullptr;
  if (mine && mine->recording == now) return mine.get();
  Log& l = log();
  std::lock_guard lock(l.mutex);
  if (detail::current.load(std::memory_order_relaxed) != now) return nullptr;
  const auto number = l.buffers.size();
  mine = add_buffer(l, now, number == 0 ? "thread 0 (recorded the profile)" : fmt::format("thread {}", number));
  return mine.get();
}

void append(Buffer& b, const Event& e) {
  size_t n = b.last->count.load(std::memory_order_relaxed);
  if (n == kChunk) {
    if (b.room->fetch_sub(1, std::memory_order_relaxed) <= 0) {
      b.room->fetch_add(1, std::memory_order_relaxed);
      b.dropped.fetch_add(1, std::memory_order_relaxed);
      return;
    }
    auto* next = new Chunk;
    b.last->next.store(next, std::memory_order_release);
    b.last = next;
    n = 0;
  }
  b.last->events[n] = e;
  b.last->count.store(n + 1, std::memory_order_release);
}

}  // namespace

const char* kind_name(Kind k) {
  constexpr std::array<const char*, kKinds> names = {"range", "window",   "plan",   "run",   "step", "launch",
                                                     "wait",  "allocate", "memory", "frame", "ready"};
  return names[static_cast<size_t>(k)];
}

void start(const Options& options) {
  PF_CHECK(options.max_events > 0, Value, "profile: max_events must be positive; got {}", options.max_events);
  Log& l = log();
  {
    std::lock_guard lock(l.mutex);
    PF_CHECK(!on(), Runtime, "profile: another profile is being recorded; expected one at a time; hint: stop it first");
    l.options = options;
    l.buffers.clear();
    l.labels.assign(1, {});
    l.labels[0].name = "(more names than are kept)";
    l.ids.clear();
    // Each thread also has a first chunk.
    l.room = static_cast<int64_t>((options.max_events + kChunk - 1) / kChunk) - 1;
    l.start = now();
    detail::device_times = options.device_times;
    detail::current.store(++l.made == 0 ? ++l.made : l.made, std::memory_order_release);
  }
  thread();  // thread number 0 is the one that records
}

Recording stop() {
  Log& l = log();
  std::lock_guard lock(l.mutex);
  PF_CHECK(on(), Runtime, "profile: nothing is being recorded; expected start() before stop()");
  detail::current.store(0, std::memory_order_release);
  Recording r;
  r.start = l.start;
  r.end = now();
  r.device_times = l.options.device_times;
  r.job = l.job;
  r.labels = std::move(l.labels);
  for (const auto& b : l.buffers) {
    r.threads.push_back(b->name);
    for (const Chunk* c = b->first.get(); c; c = c->next.load(std::memory_order_acquire)) {
      const size_t n = c->count.load(std::memory_order_acquire);
      for (size_t i = 0; i < n; ++i) {
        const Event& e = c->events[i];
        // A window that began in an earlier recording is skipped: thread numbers were different there.
        if (e.start >= l.start && e.thread < l.buffers.size() && e.label < r.labels.size()) r.events.push_back(e);
      }
    }
    r.dropped += b->dropped;
  }
  l.buffers.clear();
  l.labels.clear();
  l.ids.clear();
  return r;
}

void set_job(Job job) {
  Log& l = log();
  std::lock_guard lock(l.mutex);
  l.job = job;
}

Label label(const LabelText& text) {
  const uint32_t now = detail::current.load(std::memory_order_acquire);
  if (now == 0) return {};
  const std::string key = fmt::format("{}\n{}\n{}\n{}", text.name, text.device, text.args, text.place);
  Log& l = log();
  std::lock_guard lock(l.mutex);
  if (detail::current.load(std::memory_order_relaxed) != now) return {};
  if (const auto found = l.ids.find(key); found != l.ids.end()) return {now, found->second};
  if (l.labels.size() >= kMostLabels) return {now, 0};
  const auto id = static_cast<uint32_t>(l.labels.size());
  l.labels.push_back(text);
  l.ids.emplace(key, id);
  return {now, id};
}

Label label(std::string_view name) {
  LabelText text;
  text.name = name;
  return label(text);
}

uint32_t thread() {
  const Buffer* b = buffer();
  return b ? b->thread : 0;
}

uint32_t new_flow(uint32_t count) { return log().flows.fetch_add(count, std::memory_order_relaxed) + 1; }

uint32_t new_track(std::string name) {
  Log& l = log();
  std::lock_guard lock(l.mutex);
  const uint32_t now = detail::current.load(std::memory_order_relaxed);
  return now == 0 ? 0 : add_buffer(l, now, std::move(name))->thread;
}

void add_on(uint32_t on_thread, Kind kind, Label label, int64_t start, int64_t end, int64_t value, uint32_t flow) {
  Buffer* b = buffer();
  if (!b || b->recording != label.recording) return;
  append(*b, {start, end, value, flow, label.id, on_thread, kind});
}

void add(Kind kind, Label label, int64_t start, int64_t end, int64_t value, uint32_t flow) {
  Buffer* b = buffer();
  if (!b || b->recording != label.recording) return;
  append(*b, {start, end, value, flow, label.id, b->thread, kind});
}

void Scope::begin(const char* name, int64_t value) {
  label_ = label(name);
  value_ = value;
  start_ = now();
}

}  // namespace pyflame::events
