// An RCCL for the emulated devices of several processes of one host, in emulator/working. Ranks meet in a file of shared memory, whose name is
// in the id. A collective is a piece of work of its stream: when the stream comes to it, it waits for the other ranks, and combines what all
// have given in the order of the ranks. Calls that differ between ranks fail. Like the real library it has no int16.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <memory>
#include <string>
#include <utility>
#include <vector>

extern "C" {
int hipLaunchHostFunc(void* stream, void (*fn)(void*), void* data);
}
#define EXPORT extern "C" __attribute__((visibility("default")))

namespace {

constexpr int kFine = 0, kSystem = 2, kInvalid = 4, kMostRanks = 4;
constexpr size_t kRoom = size_t{4} << 20;  // bytes that a rank gives at a time
struct Id {
  char bytes[128];
};
struct Call {
  int kind, type, op, root;
  uint64_t count;
};
struct Shared {
  std::atomic<uint64_t> came[kMostRanks], read[kMostRanks];  // steps of the collectives
  std::atomic<int> members;
  Call calls[kMostRanks];
  uint64_t to[kMostRanks][kMostRanks];  // exchange: bytes from, to
  char data[kMostRanks][kRoom];
};
struct Comm {
  int rank = 0, size = 0;
  Shared* shared = nullptr;
  uint64_t steps = 0;
  std::string name;
  std::atomic<int> error{0};
  std::atomic<bool> aborted{false};
};

size_t width(int type) {
  static constexpr size_t widths[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};
  return widths[type];
}
double get(const char* at, int type, size_t i) {
  switch (type) {
    case 0: return reinterpret_cast<const int8_t*>(at)[i];
    case 1: return reinterpret_cast<const uint8_t*>(at)[i];
    case 2: return reinterpret_cast<const int32_t*>(at)[i];
    case 4: return static_cast<double>(reinterpret_cast<const int64_t*>(at)[i]);
    case 6: return static_cast<double>(reinterpret_cast<const _Float16*>(at)[i]);
    case 7: return static_cast<double>(reinterpret_cast<const float*>(at)[i]);
    case 8: return reinterpret_cast<const double*>(at)[i];
    default: {
      const uint32_t bits = static_cast<uint32_t>(reinterpret_cast<const uint16_t*>(at)[i]) << 16;
      float f;
      std::memcpy(&f, &bits, sizeof f);
      return static_cast<double>(f);
    }
  }
}
void put(char* at, int type, size_t i, double x) {
  switch (type) {
    case 0: reinterpret_cast<int8_t*>(at)[i] = static_cast<int8_t>(static_cast<int64_t>(x)); return;
    case 1: reinterpret_cast<uint8_t*>(at)[i] = static_cast<uint8_t>(static_cast<int64_t>(x)); return;
    case 2: reinterpret_cast<int32_t*>(at)[i] = static_cast<int32_t>(static_cast<int64_t>(x)); return;
    case 4: reinterpret_cast<int64_t*>(at)[i] = static_cast<int64_t>(x); return;
    case 6: reinterpret_cast<_Float16*>(at)[i] = static_cast<_Float16>(x); return;
    case 7: reinterpret_cast<float*>(at)[i] = static_cast<float>(x); return;
    case 8: reinterpret_cast<double*>(at)[i] = x; return;
    default: {
      const auto f = static_cast<float>(x);
      uint32_t bits;
      std::memcpy(&bits, &f, sizeof bits);
      reinterpret_cast<uint16_t*>(at)[i] =
          static_cast<uint16_t>(std::isnan(f) ? 0x7fc0 : (bits + 0x7fff + (bits >> 16 & 1)) >> 16);
    }
  }
}
double combine(int op, double a, double b) {
  return op == 1 ? a * b : op == 2 ? std::fmax(a, b) : op == 3 ? std::fmin(a, b) : a + b;
}

// Whether all ranks have come so far; false: the communicator was ended.
bool wait_for(const Comm& c, const std::atomic<uint64_t>* counters, uint64_t step) {
  for (int r = 0; r < c.size; ++r)
    while (counters[r].load(std::memory_order_acquire) < step) {
      if (c.aborted) return false;
      constexpr timespec pause{0, 50000};
      nanosleep(&pause, nullptr);
    }
  return true;
}

enum Kind { allReduce, reduceTo, broadcastFrom, allGather, reduceScatter, swap };
struct Part {
  bool sends;
  char* data;
  uint64_t bytes;
  int peer;
};
struct Task {
  Comm* comm;
  Call call;
  const char* in;
  char* out;
  std::vector<Part> parts;
};

// Gives bytes, waits for all, and reads; then waits until all have read.
template <class Read>
bool step(Comm& c, const char* from, size_t bytes, const Read& read) {
  ++c.steps;
  if (bytes) std::memcpy(c.shared->data[c.rank], from, bytes);
  c.shared->came[c.rank].store(c.steps, std::memory_order_release);
  if (!wait_for(c, c.shared->came, c.steps)) return false;
  read();
  c.shared->read[c.rank].store(c.steps, std::memory_order_release);
  return wait_for(c, c.shared->read, c.steps);
}

bool same(const Call& a, const Call& b) {
  return a.kind == b.kind && a.type == b.type && a.op == b.op && a.root == b.root && a.count == b.count;
}

bool reduction(Task& t) {
  Comm& c = *t.comm;
  const Call& call = t.call;
  const size_t w = width(call.type), n = static_cast<size_t>(c.size);
  const size_t whole = call.kind == reduceScatter ? call.count * n : call.count;
  const size_t begin = call.kind == reduceScatter ? call.count * static_cast<size_t>(c.rank) : 0;
  for (size_t at = 0; at < whole; at += kRoom / w) {
    const size_t some = std::min(kRoom / w, whole - at);
    const bool ok = step(c, t.in + at * w, some * w, [&] {
      if (call.kind == reduceTo && c.rank != call.root) return;
      for (size_t i = 0; i < some; ++i) {
        const size_t place = at + i;
        if (place < begin || place >= begin + call.count) continue;
        double x = get(c.shared->data[0], call.type, i);
        for (int r = 1; r < c.size; ++r) x = combine(call.op, x, get(c.shared->data[r], call.type, i));
        put(t.out, call.type, place - begin, call.op == 4 ? x / c.size : x);
      }
    });
    if (!ok) return false;
  }
  return true;
}

bool gather(Task& t) {
  Comm& c = *t.comm;
  const size_t bytes = t.call.count * width(t.call.type);
  const bool one = t.call.kind == broadcastFrom;
  for (size_t at = 0; at < bytes; at += kRoom) {
    const size_t some = std::min(kRoom, bytes - at);
    const bool gives = !one || c.rank == t.call.root;
    const bool ok = step(c, t.in + at, gives ? some : 0, [&] {
      if (one) {
        if (!gives) std::memcpy(t.out + at, c.shared->data[t.call.root], some);
        return;
      }
      for (int r = 0; r < c.size; ++r)
        std::memcpy(t.out + static_cast<size_t>(r) * bytes + at, c.shared->data[r], some);
    });
    if (!ok) return false;
  }
  return true;
}

// All ranks take part, also in messages of two of them: tests make these calls on all ranks.
bool exchange(Task& t) {
  Comm& c = *t.comm;
  std::vector<char> all;
  uint64_t to[kMostRanks] = {};
  for (int r = 0; r < c.size; ++r)
    for (const Part& p : t.parts)
      if (p.sends && p.peer == r) all.insert(all.end(), p.data, p.data + p.bytes), to[r] += p.bytes;
  if (all.size() > kRoom) return false;
  for (int r = 0; r < kMostRanks; ++r) c.shared->to[c.rank][r] = to[r];
  bool fits = true;
  const bool ok = step(c, all.data(), all.size(), [&] {
    for (int r = 0; r < c.size; ++r) {
      uint64_t at = 0;
      for (int k = 0; k < c.rank; ++k) at += c.shared->to[r][k];
      const uint64_t end = at + c.shared->to[r][c.rank];
      for (const Part& p : t.parts) {
        if (p.sends || p.peer != r) continue;
        if (at + p.bytes > end) {
          fits = false;
          continue;
        }
        std::memcpy(p.data, c.shared->data[r] + at, p.bytes);
        at += p.bytes;
      }
    }
  });
  return ok && fits;
}

void run(void* data) {
  const std::unique_ptr<Task> t(static_cast<Task*>(data));
  Comm& c = *t->comm;
  if (c.aborted || c.error) return;
  c.shared->calls[c.rank] = t->call;
  bool equal = true;
  const bool ok = step(c, nullptr, 0, [&] {
    for (int r = 0; r < c.size; ++r) equal &= same(c.shared->calls[r], t->call);
  });
  if (!ok) return;
  if (!equal) {
    c.error = kInvalid;
    return;
  }
  const int kind = t->call.kind;
  const bool done = kind == swap                                 ? exchange(*t)
                    : kind == allGather || kind == broadcastFrom ? gather(*t)
                                                                 : reduction(*t);
  if (!done && !c.aborted) c.error = kInvalid;
}

thread_local int grouped = 0;
thread_local std::vector<Part> parts;
thread_local Comm* parts_comm = nullptr;
thread_local void* parts_stream = nullptr;

int queue(Comm* c, Call call, const void* in, void* out, void* stream, std::vector<Part> more = {}) {
  if (const char* failing = std::getenv("PYFLAME_EMULATOR_LIBRARY_FAILS"); failing && std::strcmp(failing, "rccl") == 0)
    return kSystem;
  auto* t = new Task{c, call, static_cast<const char*>(in), static_cast<char*>(out), std::move(more)};
  return hipLaunchHostFunc(stream, run, t) == 0 ? kFine : kSystem;
}

}  // namespace

EXPORT int ncclGetVersion(int* version) {
  *version = 22203;
  return kFine;
}
EXPORT const char* ncclGetErrorString(int error) {
  return error == kInvalid ? "invalid argument" : "unhandled system error";
}
EXPORT const char* ncclGetLastError(void*) { return ""; }
EXPORT int ncclGetUniqueId(Id* id) {
  std::memset(id, 0, sizeof *id);
  static std::atomic<int> made{0};
  std::snprintf(id->bytes, sizeof id->bytes, "/dev/shm/pyflame-rccl-%d-%d", getpid(), made++);
  const int fd = open(id->bytes, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (fd < 0 || ftruncate(fd, sizeof(Shared)) != 0) return kSystem;
  close(fd);
  return kFine;
}
EXPORT int ncclCommInitRank(Comm** comm, int size, Id id, int rank) {
  if (const char* failing = std::getenv("PYFLAME_EMULATOR_LIBRARY_FAILS");
      failing && std::strcmp(failing, "ncclCommInitRank") == 0)
    return kSystem;
  if (size > kMostRanks) return kInvalid;
  const int fd = open(id.bytes, O_RDWR | O_CLOEXEC);
  if (fd < 0) return kSystem;
  void* at = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  if (at == MAP_FAILED) return kSystem;
  auto* c = new Comm;
  c->rank = rank, c->size = size, c->shared = static_cast<Shared*>(at), c->name = id.bytes;
  ++c->shared->members;
  while (c->shared->members < size) {
    constexpr timespec pause{0, 50000};
    nanosleep(&pause, nullptr);
  }
  unlink(id.bytes);
  *comm = c;
  return kFine;
}
// Work that has not run yet may name it.
EXPORT int ncclCommDestroy(Comm*) { return kFine; }
EXPORT int ncclCommAbort(Comm* c) {
  c->aborted = true;
  return kFine;
}
EXPORT int ncclCommGetAsyncError(Comm* c, int* error) {
  *error = c->error;
  return kFine;
}
EXPORT int ncclAllReduce(const void* in, void* out, size_t count, int type, int op, Comm* c, void* stream) {
  return queue(c, {allReduce, type, op, 0, count}, in, out, stream);
}
EXPORT int ncclReduce(const void* in, void* out, size_t count, int type, int op, int root, Comm* c, void* stream) {
  return queue(c, {reduceTo, type, op, root, count}, in, out, stream);
}
EXPORT int ncclBroadcast(const void* in, void* out, size_t count, int type, int root, Comm* c, void* stream) {
  return queue(c, {broadcastFrom, type, 0, root, count}, in, out, stream);
}
EXPORT int ncclAllGather(const void* in, void* out, size_t count, int type, Comm* c, void* stream) {
  return queue(c, {allGather, type, 0, 0, count}, in, out, stream);
}
EXPORT int ncclReduceScatter(const void* in, void* out, size_t count, int type, int op, Comm* c, void* stream) {
  return queue(c, {reduceScatter, type, op, 0, count}, in, out, stream);
}
EXPORT int ncclSend(const void* in, size_t count, int type, int peer, Comm* c, void* stream) {
  parts.push_back({true, const_cast<char*>(static_cast<const char*>(in)), count * width(type), peer});
  parts_comm = c, parts_stream = stream;
  return grouped ? kFine : kInvalid;
}
EXPORT int ncclRecv(void* out, size_t count, int type, int peer, Comm* c, void* stream) {
  parts.push_back({false, static_cast<char*>(out), count * width(type), peer});
  parts_comm = c, parts_stream = stream;
  return grouped ? kFine : kInvalid;
}
EXPORT int ncclGroupStart() {
  ++grouped;
  return kFine;
}
EXPORT int ncclGroupEnd() {
  if (--grouped > 0 || parts.empty()) return kFine;
  return queue(parts_comm, {swap, 0, 0, 0, 0}, nullptr, nullptr, parts_stream, std::exchange(parts, {}));
}
