// Opens devices, launches kernels, and waits for events.
#include "pyflame/backends/gpu/driver/device.h"

#include <pthread.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <memory>
#include <mutex>

#include "pyflame/backends/gpu/driver/arch.h"
#include "pyflame/backends/gpu/driver/graph.h"
#include "pyflame/backends/gpu/driver/pinned.h"
#include "pyflame/base/error.h"
#include "pyflame/kernels/device/launch.h"
// launch.h defines the integers of these.
#include "pyflame/kernels/device/scalar.h"
// The kernels' side of the table of reports.
#include "pyflame/kernels/device/fault.h"

namespace pyflame::gpu {

namespace {

static_assert(sizeof(pf::Fault) == sizeof(FaultTable) && sizeof(pf::FaultReport) == sizeof(FaultReport) &&
                  offsetof(pf::Fault, reports) == offsetof(FaultTable, reports) &&
                  offsetof(pf::FaultReport, value) == offsetof(FaultReport, value),
              "host and device share the table of reports");

// A driver's context does not survive a fork: the child must not use it, not even to free something.
std::atomic<bool> g_forked{false};
void watch_forks() {
  static const int once = pthread_atfork(nullptr, nullptr, [] { g_forked = true; });
  (void)once;
}
void check_forked(DeviceType type, int index) {
  PF_CHECK(!g_forked.load(std::memory_order_relaxed), Device,
           "{}: this process was forked from one that had asked for GPUs; expected them to be asked for after the "
           "fork; hint: multiprocessing.set_start_method('spawn'), or do not use the device before workers are started",
           Device{type, static_cast<int8_t>(index)}.str());
}

Arch read_arch(const Rt& rt, int device) {
  Arch a;
  a.name = arch_name(rt, device);
  a.wave = rt.attribute(Attribute::wave_size, device);
  a.early_kernels = rt.graph_add_edges && rt.attribute(Attribute::major, device) >= 9;
  a.compute_units = compute_units(a.name, rt.attribute(Attribute::compute_units, device));
  a.shared_bytes = rt.attribute(Attribute::shared_per_block, device);
  a.max_threads = rt.attribute(Attribute::threads_per_block, device);
  a.dies = std::max(1, rt.attribute(Attribute::dies, device));
  return a;
}

}  // namespace

thread_local LaunchSink* GpuDevice::t_sink_ = nullptr;

GpuDevice::GpuDevice(const Rt& rt, int index, int ordinal, Arch arch)
    : rt_(rt), index_(index), ordinal_(ordinal), arch_(std::move(arch)) {
  rt_.check(rt_.context_retain(&context_, ordinal_), "opening the device");
  enter();
  rt_.check(rt_.stream_create(&stream_, kNonBlockingStream), "making a stream");
  rt_.check(rt_.allocate(&fault_, sizeof(FaultTable)), "allocating memory");
  rt_.check(rt_.fill(fault_, 0, sizeof(FaultTable), stream_), "clearing memory");
  transfers_ = std::make_unique<Transfers>(*this);
}

GpuDevice::~GpuDevice() = default;

void GpuDevice::enter() const {
  thread_local const void* current = nullptr;  // context
  check_forked(rt_.type, index_);
  if (lost_.load(std::memory_order_acquire)) [[unlikely]] {
    std::lock_guard lock(lost_mutex_);
    fail(ErrorKind::Device, lost_why_);
  }
  if (current == context_) return;
  rt_.check(rt_.context_set(context_), "selecting the device");
  current = context_;
}

void GpuDevice::failed(Result result, const char* what) const {
  if (is_fatal(result)) {
    std::lock_guard lock(lost_mutex_);
    if (!lost_) {
      const char* text = nullptr;
      rt_.error_string(result, &text);
      lost_why_ = fmt::format(
          "{}: the device stopped working; got error {}{}{} while {}; expected success; hint: what was on it is lost, "
          "and this process cannot use it again; tensors on other devices are sound",
          Device{rt_.type, static_cast<int8_t>(index_)}.str(), result, text ? ", " : "", text ? text : "", what);
      lost_.store(true, std::memory_order_release);
    }
    fail(ErrorKind::Device, lost_why_);
  }
  rt_.check(result, what);
  fail(ErrorKind::Runtime, what);  // not reached: the call has failed
}

void GpuDevice::allow_shared(Function f, unsigned shared_bytes) const {
  constexpr int kMaxDynamicSharedBytes = 8;  // the number of the attribute
  if (rt_.type == DeviceType::cuda && shared_bytes > 48 * 1024)
    check(rt_.function_attribute(f, kMaxDynamicSharedBytes, static_cast<int>(shared_bytes)),
          "asking for shared memory");
}

void GpuDevice::launch(const Launch& l) {
  if (LaunchSink* s = sink()) [[unlikely]] {
    s->kernel(l);
    return;
  }
  enter();
  check(rt_.launch(l.function, l.grid[0], l.grid[1], l.grid[2], l.block, 1, 1, l.shared_bytes, stream_, l.parameters,
                   nullptr),
        "launching a kernel");
}

void* GpuDevice::allocate(size_t nbytes) {
  enter();
  void* p = nullptr;
  const Result r = rt_.allocate(&p, nbytes);
  if (r == kOutOfMemory) return nullptr;
  check(r, "allocating memory");
  return p;
}

void GpuDevice::release(void* p) {
  enter();
  check(rt_.stream_wait(stream_), "waiting for the device");
  check(rt_.release(p), "releasing memory");
}

void GpuDevice::from_host(void* to, const void* from, size_t nbytes) {
  enter();
  transfers_->upload(to, from, nbytes);
}

void GpuDevice::to_host(void* to, const void* from, size_t nbytes) {
  enter();
  transfers_->download(to, from, nbytes);
}

void GpuDevice::copy(void* to, const void* from, size_t nbytes) {
  enter();
  if (nbytes > 0) check(rt_.copy(to, from, nbytes, stream()), "copying on the device");
}

void GpuDevice::fill(void* to, uint8_t value, size_t nbytes) {
  enter();
  if (nbytes > 0) check(rt_.fill(to, value, nbytes, stream()), "filling memory");
}

bool GpuDevice::copy_from(void* to, DeviceMemory& other, const void* from, size_t nbytes) {
  auto* source = dynamic_cast<GpuDevice*>(&other);
  if (!source || source->rt_.type != rt_.type) return false;
  // The copy waits for earlier work on the source, and later work on the source waits for the copy.
  const Event ready = source->take_event(), done = take_event();
  source->enter();
  check(rt_.event_record(ready, source->stream_), "marking the stream");
  enter();
  check(rt_.stream_after(stream_, ready, 0), "ordering two streams");
  const Result r = nbytes > 0 ? rt_.copy(to, from, nbytes, stream_) : 0;
  if (is_fatal(r)) failed(r, "copying between devices");
  if (r == 0) {
    check(rt_.event_record(done, stream_), "marking the stream");
    source->enter();
    check(rt_.stream_after(source->stream_, done, 0), "ordering two streams");
  }
  rt_.event_destroy(ready);
  rt_.event_destroy(done);
  return r == 0;
}

void GpuDevice::wait() {
  enter();
  check(rt_.stream_wait(stream_), "waiting for the device");
}

void GpuDevice::room(size_t* free, size_t* total) {
  enter();
  check(rt_.memory_info(free, total), "asking for free memory");
}

void GpuDevice::read_fault(FaultTable* pinned) {
  enter();
  check(rt_.copy_out(pinned, fault_, sizeof(FaultTable), stream_), "copying from the device");
}

FaultTable* GpuDevice::pinned_report() {
  enter();
  void* p = nullptr;
  check(rt_.host_allocate(&p, sizeof(FaultTable), kPortable), "allocating pinned memory");
  return new (p) FaultTable;
}

void GpuDevice::pin_ahead(size_t nbytes) {
  enter();
  transfers_->warmup(nbytes);
}

Event GpuDevice::take_event(unsigned flags) const {
  enter();
  Event e = nullptr;
  check(rt_.event_create(&e, flags), "making an event");
  return e;
}

Event GpuDevice::take_timing_event() {
  std::lock_guard lock(mark_mutex_);
  if (spare_timing_events_.empty()) return take_event(kTiming);
  const Event e = spare_timing_events_.back();
  spare_timing_events_.pop_back();
  return e;
}

void GpuDevice::give_timing_event(Event e) {
  std::lock_guard lock(mark_mutex_);
  spare_timing_events_.push_back(e);
}

// By an event of the driver, which has a resolution of about a microsecond.
// A call of the host in the stream, which ends when it is told to.
class GpuPause final : public Pause {
 public:
  explicit GpuPause(GpuDevice& device) : state_(std::make_shared<State>()) {
    device.enter();
    auto queued = std::make_unique<std::shared_ptr<State>>(state_);
    device.check(device.rt().launch_host(device.own_stream(), wait, queued.get()), "queueing a call of the host");
    static_cast<void>(queued.release());  // now it belongs to the call
  }
  ~GpuPause() override { GpuPause::release(); }
  GpuPause(const GpuPause&) = delete;
  GpuPause& operator=(const GpuPause&) = delete;
  bool release() override {
    const std::lock_guard lock(state_->mutex);
    state_->released = true;
    state_->changed.notify_all();
    return !state_->too_late;
  }

 private:
  struct State {
    std::mutex mutex;
    std::condition_variable changed;
    bool released = false, too_late = false;
  };
  static constexpr std::chrono::milliseconds kLongest{50};

  static void wait(void* data) {
    const std::unique_ptr<std::shared_ptr<State>> mine(static_cast<std::shared_ptr<State>*>(data));
    State& s = **mine;
    std::unique_lock lock(s.mutex);
    s.too_late = !s.changed.wait_for(lock, kLongest, [&] { return s.released; });
  }

  std::shared_ptr<State> state_;
};

class GpuMoment final : public Moment {
 public:
  GpuMoment(GpuDevice& device, Stream stream) : device_(device), event_(device.take_timing_event()) {
    device.check(device.rt().event_record(event_, stream), "marking the stream");
  }
  ~GpuMoment() override { device_.give_timing_event(event_); }
  GpuMoment(const GpuMoment&) = delete;
  GpuMoment& operator=(const GpuMoment&) = delete;
  bool passed() override {
    device_.enter();
    const Result r = device_.rt().event_query(event_);
    if (r == kNotReady) return false;
    device_.check(r, "waiting for the device");
    return true;
  }
  void wait() override {
    device_.enter();
    device_.check(device_.rt().event_wait(event_), "waiting for the device");
  }
  double ms_since(const Moment& earlier) const override {
    float ms = 0;
    device_.enter();
    device_.check(device_.rt().event_elapsed(&ms, static_cast<const GpuMoment&>(earlier).event_, event_), "timing");
    return ms;
  }

 private:
  GpuDevice& device_;
  Event event_;
};

// Through pinned memory of its own, which Transfers keeps for the next one.
class GpuDownload final : public Download {
 public:
  GpuDownload(GpuDevice& device, const void* from, size_t nbytes)
      : device_(device), block_(device.transfers().take_landing(nbytes)) {
    if (nbytes > 0)
      device.check(device.rt().copy_out(block_.pinned, from, nbytes, device.own_stream()), "copying from the device");
    device.check(device.rt().event_record(block_.arrived, device.own_stream()), "marking the stream");
  }
  ~GpuDownload() override { device_.transfers().give_landing(block_); }
  GpuDownload(const GpuDownload&) = delete;
  GpuDownload& operator=(const GpuDownload&) = delete;
  const void* wait() override {
    device_.enter();
    device_.check(device_.rt().event_wait(block_.arrived), "waiting for the device");
    return block_.pinned;
  }

 private:
  GpuDevice& device_;
  Transfers::Landing block_;
};

std::unique_ptr<Download> GpuDevice::download(const void* from, size_t nbytes) {
  enter();
  return std::make_unique<GpuDownload>(*this, from, nbytes);
}

uint64_t GpuDevice::mark() {
  enter();
  std::lock_guard lock(mark_mutex_);
  Event e = nullptr;
  if (spare_events_.empty()) {
    e = take_event();
  } else {
    e = spare_events_.back();
    spare_events_.pop_back();
  }
  check(rt_.event_record(e, stream_), "marking the stream");
  marks_.push_back(e);
  return ++last_mark_;
}

bool GpuDevice::passed(uint64_t mark) {
  std::lock_guard lock(mark_mutex_);
  if (mark <= last_passed_) return true;
  enter();
  while (last_passed_ < last_mark_) {
    const Result r = rt_.event_query(marks_.front());
    if (r == kNotReady) break;
    check(r, "waiting for the device");
    spare_events_.push_back(marks_.front());
    marks_.pop_front();
    ++last_passed_;
  }
  return mark <= last_passed_;
}

std::unique_ptr<Pause> GpuDevice::pause() { return std::make_unique<GpuPause>(*this); }

std::unique_ptr<Moment> GpuDevice::moment() { return moment_on(own_stream()); }

std::unique_ptr<Moment> GpuDevice::moment_on(Stream stream) { return std::make_unique<GpuMoment>(*this, stream); }

std::unique_ptr<Replay> GpuDevice::make_replay() { return std::make_unique<GpuReplay>(*this); }

std::string GpuDevice::replay_unsafe() const {
  int version = 0;
  rt_.driver_version(&version);
  return graphs_corrupt(rt_.type, arch_.name, version);
}

DeviceInfo GpuDevice::info() const {
  enter();
  DeviceInfo info;
  char name[256] = {};
  rt_.device_name(name, sizeof name - 1, ordinal_);
  info.name = name;
  info.architecture = arch_.name;
  size_t free_bytes = 0, total = 0;
  rt_.memory_info(&free_bytes, &total);
  info.total_memory = total;
  info.free_memory = free_bytes;
  info.compute_units = arch_.compute_units;
  info.wave_size = arch_.wave;
  int version = 0;
  rt_.driver_version(&version);
  info.extra.emplace_back("driver", std::to_string(version));
  char pci[32] = {};
  if (rt_.device_pci(pci, sizeof pci - 1, ordinal_) == 0) info.extra.emplace_back("pci", pci);
  return info;
}

namespace {

// A device of the machine, and the facts about it that need no context.
struct Slot {
  int ordinal = 0;  // the driver's number of the device
  Arch arch;
  std::mutex mutex;
  std::atomic<GpuDevice*> opened{nullptr};  // leaked: threads may outlive static destruction
};

struct Devices {
  std::mutex mutex;
  std::deque<Slot> all;
  std::atomic<bool> looked{false};
};

// An integrated GPU is slower and has less memory, so it comes after all discrete ones.
void look(const Rt& rt, std::deque<Slot>& out) {
  watch_forks();
  int count = 0;
  rt.check(rt.device_count(&count), "counting the devices");
  for (const bool integrated : {false, true})
    for (int i = 0; i < count; ++i) {
      int device = 0;
      if (rt.device_get(&device, i) != 0 || (rt.attribute(Attribute::integrated, device) != 0) != integrated) continue;
      Slot& slot = out.emplace_back();
      slot.ordinal = device;
      slot.arch = read_arch(rt, device);
    }
}

std::deque<Slot>& slots(DeviceType type) {
  static auto* both = new Devices[2];
  Devices& d = both[type == DeviceType::rocm ? 0 : 1];
  if (d.looked.load(std::memory_order_acquire)) return d.all;
  std::lock_guard lock(d.mutex);
  if (d.looked) return d.all;
  d.all.clear();
  if (const Rt* rt = runtime(type)) look(*rt, d.all);
  d.looked.store(true, std::memory_order_release);
  return d.all;
}

Slot& slot(DeviceType type, int index) {
  std::deque<Slot>& all = slots(type);
  PF_CHECK(index >= 0 && static_cast<size_t>(index) < all.size(), Device,
           "{}: no such device; got index {}; expected one below {}", Device{type}.str(), index, all.size());
  return all[static_cast<size_t>(index)];
}

}  // namespace

int count_devices(DeviceType type) { return static_cast<int>(slots(type).size()); }

const Arch& arch_of(DeviceType type, int index) { return slot(type, index).arch; }

GpuDevice& device(DeviceType type, int index) {
  Slot& s = slot(type, index);
  if (GpuDevice* d = s.opened.load(std::memory_order_acquire)) return *d;
  check_forked(type, index);
  std::lock_guard lock(s.mutex);
  if (!s.opened) s.opened.store(new GpuDevice(*runtime(type), index, s.ordinal, s.arch), std::memory_order_release);
  return *s.opened;
}

}  // namespace pyflame::gpu
