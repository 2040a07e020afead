// One GPU: its context, its stream, its memory. All work goes through one stream, so it runs in the order in which it
// was queued. After some errors (such as an illegal address) the driver answers nothing else; the device is then lost,
// and every later use says so.
#pragma once
#include <array>
#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "pyflame/backends/backend.h"
#include "pyflame/backends/gpu/driver/rt.h"

namespace pyflame::gpu {

struct Arch {
  std::string name;  // "gfx942", "sm_90"
  int wave = 64, compute_units = 0, shared_bytes = 65536, max_threads = 1024;
  int dies = 1;                // XCDs of an Instinct GPU, or of the partition of it
  bool early_kernels = false;  // a kernel of a graph can start before the one in front of it has ended
};

// A kernel with its grid and parameters. `sizes` has the bytes of each parameter. It may be empty; then parameters
// cannot be compared later.
struct Launch {
  Function function;
  std::array<unsigned, 3> grid;
  unsigned block, shared_bytes;
  void** parameters;
  std::span<const uint32_t> sizes;
  bool early = false;  // it may start before the kernel in front of it has ended, and waits for it
};

// Receives the launches of this thread, instead of the stream, while a replay is made.
class LaunchSink {
 public:
  virtual ~LaunchSink() = default;
  virtual void kernel(const Launch& launch) = 0;
  virtual Stream library() = 0;  // a stream that captures what a library launches on it
};

class Transfers;

class GpuDevice final : public DeviceMemory {
 public:
  // `ordinal`: the driver's number of the device.
  GpuDevice(const Rt& rt, int index, int ordinal, Arch arch);
  ~GpuDevice() override;
  const Rt& rt() const { return rt_; }
  int index() const { return index_; }
  const Arch& arch() const { return arch_; }
  // The stream for a call to a library. It differs while a replay is made, so ask for it at each call.
  Stream stream() const { return sink() ? sink()->library() : stream_; }
  Stream own_stream() const { return stream_; }
  // Makes this device current in the calling thread. DeviceError if it is lost, or if it belongs to the process that
  // this one was forked from.
  void enter() const;
  // Throws Error unless the call succeeded. Some errors mean that the device is lost.
  void check(Result result, const char* what) const {
    if (result != 0) [[unlikely]]
      failed(result, what);
  }
  // Some devices must be told before a kernel may use more than 48 KiB of dynamic shared memory.
  void allow_shared(Function f, unsigned shared_bytes) const;
  void launch(const Launch& launch);

  void* allocate(size_t nbytes) override;
  void release(void* p) override;
  void from_host(void* to, const void* from, size_t nbytes) override;
  void to_host(void* to, const void* from, size_t nbytes) override;
  std::unique_ptr<Download> download(const void* from, size_t nbytes) override;
  void copy(void* to, const void* from, size_t nbytes) override;
  void fill(void* to, uint8_t value, size_t nbytes) override;
  bool copy_from(void* to, DeviceMemory& other, const void* from, size_t nbytes) override;
  void wait() override;
  void room(size_t* free, size_t* total) override;
  void* fault() override { return fault_; }
  void read_fault(FaultTable* pinned) override;
  FaultTable* pinned_report() override;
  void pin_ahead(size_t nbytes) override;
  uint64_t mark() override;
  bool passed(uint64_t mark) override;
  std::unique_ptr<Moment> moment() override;
  std::unique_ptr<Moment> moment_on(Stream stream);  // in the order of another stream
  std::unique_ptr<Pause> pause() override;
  std::unique_ptr<Replay> make_replay() override;
  std::string replay_unsafe() const override;

  DeviceInfo info() const;
  Transfers& transfers() { return *transfers_; }
  Event take_event(unsigned flags = kNoTiming) const;  // a new event
  Event take_timing_event();
  void give_timing_event(Event e);
  // While it exists, this thread's launches go to `sink`.
  class Redirect {
   public:
    explicit Redirect(LaunchSink& sink) { t_sink_ = &sink; }
    ~Redirect() { t_sink_ = nullptr; }
    Redirect(const Redirect&) = delete;
  };

 private:
  static LaunchSink* sink() { return t_sink_; }
  [[noreturn]] void failed(Result result, const char* what) const;
  static thread_local LaunchSink* t_sink_;

  const Rt& rt_;
  int index_, ordinal_ = 0;
  Arch arch_;
  void* context_ = nullptr;
  Stream stream_ = nullptr;
  void* fault_ = nullptr;
  std::unique_ptr<Transfers> transfers_;
  mutable std::atomic<bool> lost_{false};
  mutable std::mutex lost_mutex_;
  mutable std::string lost_why_;
  // Marks: events in stream order, and free ones.
  std::mutex mark_mutex_;
  std::deque<Event> marks_;
  std::vector<Event> spare_events_, spare_timing_events_;
  uint64_t last_mark_ = 0, last_passed_ = 0;
};

// The number of devices of a type; integrated ones come last. Counting opens none of them: a context takes hundreds of
// megabytes of its device, and a full or broken device must not make the others unusable.
int count_devices(DeviceType type);
// Opened at the first use. A failed attempt is repeated at the next use.
GpuDevice& device(DeviceType type, int index);
// Facts about a device that need not be open.
const Arch& arch_of(DeviceType type, int index);

}  // namespace pyflame::gpu
