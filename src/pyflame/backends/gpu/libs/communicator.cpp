// Queues collectives on a stream of their own. An event of the device's stream comes before each of them, so it reads what was computed;
// an event comes after it, for which the device's stream waits when the caller says so. Those that are in order run on the device's stream.
#include "pyflame/backends/gpu/libs/communicator.h"

#include <array>
#include <atomic>
#include <cstring>
#include <mutex>
#include <vector>

#include "pyflame/base/error.h"

namespace pyflame::gpu {

namespace {

using Comm = void*;
struct UniqueId {  // ncclUniqueId, which is passed by value
  char bytes[kCommunicatorIdBytes];
};

//   member, name, parameters
#define PYFLAME_COMMUNICATOR_FUNCTIONS(F)                                                                       \
  F(version, "ncclGetVersion", (int* version))                                                                  \
  F(unique_id, "ncclGetUniqueId", (UniqueId * id))                                                              \
  F(init_rank, "ncclCommInitRank", (Comm * comm, int size, UniqueId id, int rank))                              \
  F(destroy, "ncclCommDestroy", (Comm comm))                                                                    \
  F(abort, "ncclCommAbort", (Comm comm))                                                                        \
  F(async_error, "ncclCommGetAsyncError", (Comm comm, int* error))                                              \
  F(all_reduce, "ncclAllReduce",                                                                                \
    (const void* in, void* out, size_t count, int type, int op, Comm comm, Stream stream))                      \
  F(reduce, "ncclReduce",                                                                                       \
    (const void* in, void* out, size_t count, int type, int op, int root, Comm comm, Stream stream))            \
  F(broadcast, "ncclBroadcast",                                                                                 \
    (const void* in, void* out, size_t count, int type, int root, Comm comm, Stream stream))                    \
  F(all_gather, "ncclAllGather", (const void* in, void* out, size_t count, int type, Comm comm, Stream stream)) \
  F(reduce_scatter, "ncclReduceScatter",                                                                        \
    (const void* in, void* out, size_t count, int type, int op, Comm comm, Stream stream))                      \
  F(send, "ncclSend", (const void* in, size_t count, int type, int peer, Comm comm, Stream stream))             \
  F(recv, "ncclRecv", (void* out, size_t count, int type, int peer, Comm comm, Stream stream))                  \
  F(group_start, "ncclGroupStart", ())                                                                          \
  F(group_end, "ncclGroupEnd", ())

struct CommunicatorFunctions {
#define PYFLAME_COMMUNICATOR_MEMBER(member, name, parameters) int(*member) parameters = nullptr;
  PYFLAME_COMMUNICATOR_FUNCTIONS(PYFLAME_COMMUNICATOR_MEMBER)
#undef PYFLAME_COMMUNICATOR_MEMBER
  const char* (*error_string)(int error) = nullptr;
  const char* (*last_error)(Comm comm) = nullptr;  // newer libraries have it
  const char* name = "";
};

// The kernels of collectives are few blocks that others wait for: they go before what the device computes meanwhile.
constexpr int kHighPriority = -1;
constexpr int kCommunicatorBusy = 7;  // ncclInProgress
constexpr int kOldestCommunicator =
    2 * 10000 + 1000;  // 2.10, the first with averages; the number's form is of 2.9 and later

// How a value is handed over: a complex number is two of its parts, a bool is a byte.
struct CommunicatorElement {
  int type;
  size_t each;  // of them for one value
};
CommunicatorElement communicator_element(DType d) {
  constexpr const CommunicatorNumbers& n = kCommunicatorNumbers;
  switch (d) {
    case DType::float64: return {n.float64, 1};
    case DType::float32: return {n.float32, 1};
    case DType::float16: return {n.float16, 1};
    case DType::bfloat16: return {n.bfloat16, 1};
    case DType::int64: return {n.int64, 1};
    case DType::int32: return {n.int32, 1};
    case DType::int8: return {n.int8, 1};
    case DType::uint8:
    case DType::bool_: return {n.uint8, 1};
    case DType::complex64: return {n.float32, 2};
    case DType::complex128: return {n.float64, 2};
    default: return {n.int8, static_cast<size_t>(dtype_size(d))};  // moved only; takes() refuses its reduction
  }
}

int combine_number(DType d, Collective::Combine c) {
  constexpr const CommunicatorNumbers& n = kCommunicatorNumbers;
  switch (c) {
    case Collective::Combine::sum: return d == DType::bool_ ? n.max : n.sum;  // of bools: or
    case Collective::Combine::product: return d == DType::bool_ ? n.min : n.product;
    case Collective::Combine::avg: return n.avg;
    case Collective::Combine::min: return n.min;
    case Collective::Combine::max: return n.max;
  }
  return n.sum;
}

class GpuCollective final : public QueuedCollective {
 public:
  GpuCollective(GpuDevice& device, Stream stream)
      : device_(device), overlaps_(stream != device.own_stream()), done_(device.take_event()) {
    device.check(device.rt().event_record(done_, stream), "marking the stream of collectives");
  }
  ~GpuCollective() override { device_.rt().event_destroy(done_); }
  GpuCollective(const GpuCollective&) = delete;
  GpuCollective& operator=(const GpuCollective&) = delete;
  void join() override {
    if (!overlaps_) return;
    device_.enter();
    device_.check(device_.rt().stream_after(device_.own_stream(), done_, 0), "ordering two streams");
  }
  bool passed() override {
    device_.enter();
    const Result r = device_.rt().event_query(done_);
    if (r == kNotReady) return false;
    device_.check(r, "waiting for a collective");
    return true;
  }
  void wait() override {
    device_.enter();
    device_.check(device_.rt().event_wait(done_), "waiting for a collective");
  }

 private:
  GpuDevice& device_;
  bool overlaps_;
  Event done_;
};

class GpuCommunicator final : public Communicator {
 public:
  GpuCommunicator(const CommunicatorFunctions& f, GpuDevice& device, const std::string& id, int rank, int size)
      : f_(f), device_(device), rank_(rank), size_(size) {
    PF_CHECK(id.size() == kCommunicatorIdBytes, Value, "distributed: not an id of {}; got {} bytes; expected {}",
             f.name, id.size(), kCommunicatorIdBytes);
    UniqueId bytes;
    std::memcpy(bytes.bytes, id.data(), sizeof bytes.bytes);
    device.enter();
    check(f.init_rank(&comm_, size, bytes, rank), "connect the devices");
    device.check(device.rt().stream_create_first(&stream_, kNonBlockingStream, kHighPriority), "making a stream");
    before_ = device.take_event();
  }
  ~GpuCommunicator() override {
    try {
      device_.enter();
    } catch (const Error&) {
      return;  // the device is lost, or the parent's: nothing can be given back
    }
    if (!aborted_) f_.destroy(comm_);
    device_.rt().event_destroy(before_);
    device_.rt().stream_destroy(stream_);
  }
  GpuCommunicator(const GpuCommunicator&) = delete;
  GpuCommunicator& operator=(const GpuCommunicator&) = delete;

  std::unique_ptr<QueuedCollective> queue(const Collective& c) override {
    PF_CHECK(!aborted_, Runtime,
             "distributed: the communicator of {} was ended by an earlier failure; hint: start the processes again",
             f_.name);
    device_.enter();
    const Stream own = device_.own_stream(), on = c.in_order ? own : stream_;
    // All ranks run the collectives of a communicator one after the other.
    if (!c.in_order) order(own, stream_);
    else if (overlapped_) order(stream_, own);
    overlapped_ = !c.in_order;
    std::shared_ptr<Moment> before = c.timed ? device_.moment_on(on) : nullptr;
    call(c, on);
    auto queued = std::make_unique<GpuCollective>(device_, on);
    if (c.timed) queued->after = device_.moment_on(on);
    queued->before = std::move(before);
    return queued;
  }

  std::string failure() override {
    if (aborted_) return "it was ended";
    int error = 0;
    if (const int asked = f_.async_error(comm_, &error)) error = asked;
    return error == 0 || error == kCommunicatorBusy ? "" : words_of(error);
  }

  void abort() override {
    if (aborted_.exchange(true)) return;
    f_.abort(comm_);
  }

 private:
  std::string words_of(int error) const {
    const char* text = f_.error_string(error);
    const char* more = f_.last_error ? f_.last_error(nullptr) : nullptr;
    return fmt::format("error {}, {}{}{}", error, text ? text : "unknown", more && *more ? ": " : "", more ? more : "");
  }
  void check(int error, const char* what) const {
    PF_CHECK(
        error == 0 || aborted_, Runtime,
        "distributed: {} cannot {}; got {} on rank {} of {}, on {}; expected success; hint: NCCL_DEBUG=INFO prints "
        "what it does",
        f_.name, what, words_of(error), rank_, size_,
        Device{device_.rt().type, static_cast<int8_t>(device_.index())}.str());
  }
  void order(Stream first, Stream then) {
    device_.check(device_.rt().event_record(before_, first), "marking the stream");
    device_.check(device_.rt().stream_after(then, before_, 0), "ordering two streams");
  }
  void call(const Collective& c, Stream on) {
    const CommunicatorElement e = communicator_element(c.dtype);
    const int op = combine_number(c.dtype, c.combine);
    const size_t n = c.count * e.each;
    switch (c.kind) {
      case Collective::Kind::all_reduce:
        if (!c.sends.empty()) return reduce_all(c, e, op, on);
        return check(f_.all_reduce(c.in, c.out, n, e.type, op, comm_, on), "queue an all_reduce");
      case Collective::Kind::reduce:
        return check(f_.reduce(c.in, c.out, n, e.type, op, c.root, comm_, on), "queue a reduce");
      case Collective::Kind::broadcast:
        return check(f_.broadcast(c.in, c.out, n, e.type, c.root, comm_, on), "queue a broadcast");
      case Collective::Kind::all_gather:
        return check(f_.all_gather(c.in, c.out, n, e.type, comm_, on), "queue an all_gather");
      case Collective::Kind::reduce_scatter:
        return check(f_.reduce_scatter(c.in, c.out, n, e.type, op, comm_, on), "queue a reduce_scatter");
      case Collective::Kind::exchange: return exchange(c, e, on);
    }
  }
  // The library launches what is between the start and the end of a group as one kernel.
  void reduce_all(const Collective& c, const CommunicatorElement& e, int op, Stream on) {
    check(f_.group_start(), "begin several reductions");
    int error = 0;
    for (size_t i = 0; i < c.sends.size() && error == 0; ++i)
      error = f_.all_reduce(c.sends[i].data, c.takes[i].data, c.sends[i].count * e.each, e.type, op, comm_, on);
    const int ended = f_.group_end();
    check(error ? error : ended, "queue an all_reduce");
  }
  // What a rank sends to itself is a copy.
  void exchange(const Collective& c, const CommunicatorElement& e, Stream on) {
    std::vector<const Collective::Part*> own;
    check(f_.group_start(), "begin an exchange");
    int error = 0;
    for (const Collective::Part& p : c.sends) {
      if (p.peer == rank_) own.push_back(&p);
      else if (error == 0 && p.count) error = f_.send(p.data, p.count * e.each, e.type, p.peer, comm_, on);
    }
    for (const Collective::Part& p : c.takes)
      if (p.peer != rank_ && error == 0 && p.count)
        error = f_.recv(p.data, p.count * e.each, e.type, p.peer, comm_, on);
    const int ended = f_.group_end();
    check(error ? error : ended, "queue an exchange");
    size_t next = 0;
    for (const Collective::Part& p : c.takes) {
      if (p.peer != rank_ || next == own.size()) continue;
      const Collective::Part& from = *own[next++];
      if (p.count)
        device_.check(device_.rt().copy(p.data, from.data, p.count * static_cast<size_t>(dtype_size(c.dtype)), on),
                      "copying on the device");
    }
  }

  const CommunicatorFunctions& f_;
  GpuDevice& device_;
  int rank_, size_;
  Comm comm_ = nullptr;
  Stream stream_ = nullptr;
  Event before_ = nullptr;
  bool overlapped_ = false;  // the last collective was on the stream of collectives
  std::atomic<bool> aborted_{false};
};

class GpuCommunicatorLibrary final : public CommunicatorLibrary {
 public:
  GpuCommunicatorLibrary(DeviceType type, const CommunicatorNames& names) : type_(type) {
    const Dylib::Opened& opened = names.library->open();
    why = opened.why;
    f_.name = names.name;
    if (!opened.handle) return;
    const auto load = [&](auto& member, const char* name) {
      member = reinterpret_cast<std::remove_reference_t<decltype(member)>>(find_symbol(opened.handle, name));
      if (!member) why = fmt::format("{} lacks {}", names.library->name, name);
    };
#define PYFLAME_COMMUNICATOR_LOAD(member, name, parameters) load(f_.member, name);
    PYFLAME_COMMUNICATOR_FUNCTIONS(PYFLAME_COMMUNICATOR_LOAD)
#undef PYFLAME_COMMUNICATOR_LOAD
    load(f_.error_string, "ncclGetErrorString");
    f_.last_error = reinterpret_cast<const char* (*)(Comm)>(find_symbol(opened.handle, "ncclGetLastError"));
    if (!why.empty()) return;
    if (f_.version(&version_) != 0 || version_ < kOldestCommunicator)
      why = fmt::format("{} is too old; got {}; expected 2.10 or later", names.library->name, version());
  }
  std::string version() const override {
    return fmt::format("{} {}.{}.{}", f_.name, version_ / 10000, version_ / 100 % 100, version_ % 100);
  }
  bool takes(DType d) const override { return d != DType::int16; }
  std::string new_id() const override {
    UniqueId id;
    const int error = f_.unique_id(&id);
    PF_CHECK(error == 0, Runtime, "distributed: {} makes no id for a group; got error {}, {}; expected success",
             f_.name, error, f_.error_string(error));
    return {id.bytes, sizeof id.bytes};
  }
  std::unique_ptr<Communicator> connect(int index, const std::string& id, int rank, int size) const override {
    return std::make_unique<GpuCommunicator>(f_, device(type_, index), id, rank, size);
  }

  std::string why;  // why it cannot be used

 private:
  DeviceType type_;
  CommunicatorFunctions f_;
  int version_ = 0;
};

}  // namespace

const CommunicatorLibrary* communicator_library(DeviceType type, const CommunicatorNames& names, std::string* why) {
  static std::array<std::once_flag, 2> once;
  static std::array<const GpuCommunicatorLibrary*, 2> all{};  // leaked: threads may outlive static destruction
  const size_t at = type == DeviceType::rocm ? 0 : 1;
  std::call_once(once[at], [&] { all[at] = new GpuCommunicatorLibrary(type, names); });
  if (!all[at]->why.empty() && why) *why = all[at]->why;
  return all[at]->why.empty() ? all[at] : nullptr;
}

}  // namespace pyflame::gpu
