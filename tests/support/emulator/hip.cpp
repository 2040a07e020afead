// The functions of HIP that PyFlame looks up, over the emulated runtime; complete.cpp holds them to the backend's list.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <set>
#include <thread>

#include "code_object.h"
#include "graph.h"
#include "memory.h"

#define EXPORT extern "C" __attribute__((visibility("default"))) int

using namespace pyflame::emulator;

namespace {

thread_local int current_device = 0;
pid_t initialised_by = 0;
bool device_lost = false;
uint64_t launches = 0;
std::set<void*> slow_functions;

// Every function begins with this: one caller at a time, no use in a forked child, and nothing works on a device that was lost.
#define ENTER                                                                    \
  const std::lock_guard enter_guard(lock());                                     \
  if (initialised_by != 0 && getpid() != initialised_by)                         \
    return refuse(kNotInitialized, "used in a child of the process that began"); \
  if (device_lost) return refuse(kLaunchFailure, "the device was lost");         \
  if (settings().log) std::fprintf(stderr, "pyflame emulator: %s\n", __func__);

Stream& stream_of(void* stream) {
  static Stream* legacy = new Stream;
  return stream ? *static_cast<Stream*>(stream) : *legacy;
}

int wrong_range(const char* what, Kind kind, const void* p, size_t bytes) {
  if (std::string wrong = check(kind, p, bytes); !wrong.empty())
    return refuse(kInvalidValue, std::string(what) + ": " + wrong);
  return kSuccess;
}

int major() { return std::stoi(settings().arch.substr(3, settings().arch.size() - 5)); }
int minor() { return settings().arch[settings().arch.size() - 2] - '0'; }

}  // namespace

namespace pyflame::emulator {
size_t shared_per_group() { return settings().arch == "gfx950" ? size_t{160} << 10 : size_t{64} << 10; }
}  // namespace pyflame::emulator

// For tests of the emulator: the environment is read again, and the device is whole again.
extern "C" __attribute__((visibility("default"))) void emulator_restart() {
  const std::lock_guard guard(lock());
  initialised_by = getpid();
  device_lost = false;
  launches = 0;
  read_settings_again();
}

// --- the device

EXPORT hipInit(unsigned) {
  if (initialised_by == 0) initialised_by = getpid();
  ENTER
  return settings().devices > 0 ? kSuccess : kNoDevice;
}

EXPORT hipDrvGetErrorString(int error, const char** text) {
  *text = words_of(error);
  return kSuccess;
}

EXPORT hipDriverGetVersion(int* version) {
  *version = 60443484;  // of ROCm 6.4, with whose graphs nothing is known to be wrong
  return kSuccess;
}

EXPORT hipGetDeviceCount(int* count) {
  ENTER
  *count = settings().devices;
  return *count > 0 ? kSuccess : kNoDevice;
}

EXPORT hipDeviceGet(int* device, int ordinal) {
  ENTER
  if (ordinal < 0 || ordinal >= settings().devices) return kInvalidDevice;
  *device = ordinal;
  return kSuccess;
}

EXPORT hipDeviceGetName(char* name, int length, int device) {
  ENTER
  std::snprintf(name, static_cast<size_t>(length), "PyFlame wave emulator%s",
                device < settings().integrated ? " (integrated)" : "");
  return kSuccess;
}

EXPORT hipDeviceGetAttribute(int* value, int attribute, int device) {
  ENTER
  switch (attribute) {
    case 16: *value = device < settings().integrated; break;
    case 19: *value = 4 << 20; break;  // L2
    case 23: *value = major(); break;  // compute capability, major and minor
    case 56: *value = 1024; break;     // threads of a workgroup
    case 61: *value = minor(); break;
    case 63: *value = 4; break;                                     // compute units; on RDNA HIP counts pairs
    case 74: *value = static_cast<int>(shared_per_group()); break;  // LDS of a workgroup
    case 87: *value = static_cast<int>(settings().wave); break;     // wave
    case 10018: *value = settings().wave == 64 ? 2 : 1; break;      // dies that have a second-level cache each (XCDs)
    default: return kInvalidValue;
  }
  return kSuccess;
}

EXPORT hipDeviceTotalMem(size_t* bytes, int) {
  ENTER
  *bytes = settings().memory;
  return kSuccess;
}

EXPORT hipDeviceGetPCIBusId(char* id, int length, int device) {
  ENTER
  std::snprintf(id, static_cast<size_t>(length), "0000:%02x:00.0", device + 1);
  return kSuccess;
}

EXPORT hipGetDevicePropertiesR0600(void* properties, int device) {
  ENTER
  if (device < 0 || device >= settings().devices) return kInvalidDevice;
  constexpr size_t kBytes = 1472;
  std::memset(properties, 0, kBytes);
  char* p = static_cast<char*>(properties);
  std::snprintf(p, 256, "PyFlame wave emulator");
  std::snprintf(p + 1160, 256, "%s:sramecc+:xnack-", settings().arch.c_str());
  return kSuccess;
}

EXPORT hipDevicePrimaryCtxRetain(void** context, int device) {
  ENTER
  if (device < 0 || device >= settings().devices) return kInvalidDevice;
  if (device == settings().broken) return kOutOfMemory;
  static int contexts[16];
  *context = &contexts[device];
  contexts[device] = device;
  return kSuccess;
}

EXPORT hipCtxSetCurrent(void* context) {
  ENTER
  if (!context) return kInvalidContext;
  current_device = *static_cast<int*>(context);
  return kSuccess;
}

// --- memory

EXPORT hipMemGetInfo(size_t* free_bytes, size_t* total) {
  ENTER
  *total = settings().memory;
  *free_bytes = *total - used_memory(current_device);
  return kSuccess;
}

EXPORT hipMalloc(void** p, size_t bytes) {
  ENTER
  if (const int error = refuse_beside_capture("hipMalloc")) return error;
  *p = nullptr;
  if (bytes == 0) return kSuccess;
  if (fails(Fault::allocate)) return kOutOfMemory;
  *p = allocate(Kind::device, bytes, current_device);
  return *p ? kSuccess : kOutOfMemory;
}

EXPORT hipFree(void* p) {
  ENTER
  if (const int error = refuse_beside_capture("hipFree")) return error;
  if (!p) return kSuccess;
  for (Stream* s : streams()) run_until(*s);
  if (std::string wrong = release(Kind::device, p); !wrong.empty()) return refuse(kInvalidValue, wrong);
  return kSuccess;
}

EXPORT hipHostMalloc(void** p, size_t bytes, unsigned) {
  ENTER
  if (const int error = refuse_beside_capture("hipHostMalloc")) return error;
  *p = nullptr;
  if (fails(Fault::host_allocate)) return kOutOfMemory;
  *p = allocate(Kind::pinned, bytes, current_device);
  return *p ? kSuccess : kOutOfMemory;
}

EXPORT hipHostFree(void* p) {
  ENTER
  if (const int error = refuse_beside_capture("hipHostFree")) return error;
  if (!p) return kSuccess;
  if (std::string wrong = release(Kind::pinned, p); !wrong.empty()) return refuse(kInvalidValue, wrong);
  return kSuccess;
}

// --- copies: with pinned memory they happen when the stream comes to them, else before the function returns

namespace {
int copy(Stream& s, const Work& w, bool later) {
  if (fails(Fault::copy)) return refuse(kUnknown, "a copy failed, as it was told to");
  if (!later)
    if (const int error = refuse_in_capture(s, "a copy with pageable memory")) return error;
  if (const int error = submit(s, w)) return error;
  return later ? kSuccess : drain(s);
}
}  // namespace

EXPORT hipMemcpyHtoDAsync(void* to, const void* from, size_t bytes, void* stream) {
  ENTER
  if (const int error = wrong_range("copy to the device", Kind::device, to, bytes)) return error;
  Work w;
  w.kind = Work::Kind::copy, w.to = to, w.from = from, w.bytes = bytes, w.from_device = false;
  if (is_pinned(from))
    if (const int error = wrong_range("copy to the device", Kind::pinned, from, bytes)) return error;
  return copy(stream_of(stream), w, is_pinned(from));
}

EXPORT hipMemcpyDtoHAsync(void* to, const void* from, size_t bytes, void* stream) {
  ENTER
  if (const int error = wrong_range("copy from the device", Kind::device, from, bytes)) return error;
  Work w;
  w.kind = Work::Kind::copy, w.to = to, w.from = from, w.bytes = bytes, w.to_device = false;
  if (is_pinned(to)) {
    if (const int error = wrong_range("copy from the device", Kind::pinned, to, bytes)) return error;
  }
  return copy(stream_of(stream), w, is_pinned(to));
}

EXPORT hipMemcpyDtoDAsync(void* to, const void* from, size_t bytes, void* stream) {
  ENTER
  if (const int error = wrong_range("copy", Kind::device, to, bytes)) return error;
  if (const int error = wrong_range("copy", Kind::device, from, bytes)) return error;
  Work w;
  w.kind = Work::Kind::copy, w.to = to, w.from = from, w.bytes = bytes;
  return copy(stream_of(stream), w, true);
}

EXPORT hipMemsetD8Async(void* to, unsigned char value, size_t bytes, void* stream) {
  ENTER
  if (const int error = wrong_range("fill", Kind::device, to, bytes)) return error;
  Work w;
  w.kind = Work::Kind::set, w.to = to, w.bytes = bytes, w.value = value;
  return submit(stream_of(stream), w);
}

// --- streams and events

EXPORT hipStreamCreateWithFlags(void** stream, unsigned) {
  ENTER
  auto* s = new Stream;
  s->device = current_device;
  streams().push_back(s);
  *stream = s;
  return kSuccess;
}
EXPORT hipStreamCreateWithPriority(void** stream, unsigned flags, int) {
  return hipStreamCreateWithFlags(stream, flags);
}

EXPORT hipStreamSynchronize(void* stream) {
  ENTER
  if (fails(Fault::wait)) return refuse(kUnknown, "a wait failed, as it was told to");
  Stream& s = stream_of(stream);
  if (const int error = refuse_in_capture(s, "waiting for a stream")) return error;
  return drain(s);
}

EXPORT hipStreamQuery(void* stream) {
  ENTER
  Stream& s = stream_of(stream);
  if (const int error = refuse_in_capture(s, "asking a stream")) return error;
  return s.work.empty() ? kSuccess : kNotReady;
}

EXPORT hipStreamDestroy(void* stream) {
  ENTER
  auto* s = static_cast<Stream*>(stream);
  drain(*s);
  streams().erase(std::find(streams().begin(), streams().end(), s));
  // Not deleted: events may name it.
  return kSuccess;
}

EXPORT hipStreamWaitEvent(void* stream, void* event, unsigned) {
  ENTER
  Stream& s = stream_of(stream);
  const auto* e = static_cast<const Event*>(event);
  if (e->captured) {
    if (s.capture && s.capture != e->captured) return refuse(kCaptureIsolation, "capture: an event of another capture");
    if (!s.capture) s.capture_after.clear();
    s.capture = e->captured;
    s.capture_after.insert(s.capture_after.end(), e->captured_nodes.begin(), e->captured_nodes.end());
    return kSuccess;
  }
  if (s.capture) {
    s.capture_broken = true;
    return refuse(kCaptureIsolation, "capture: waiting for an event outside of it");
  }
  if (!e->stream || e->stream == &s) return kSuccess;
  put(s, [from = e->stream, at = e->at] {
    run_until(*from, at);
    return 0;  // the other stream's errors are told to who waits for it
  });
  return kSuccess;
}

// Libraries beside the emulator queue their work by this.
EXPORT hipLaunchHostFunc(void* stream, void (*fn)(void*), void* data) {
  ENTER
  Work w;
  w.kind = Work::Kind::host, w.call = fn, w.data = data;
  return submit(stream_of(stream), w);
}

EXPORT hipEventCreateWithFlags(void** event, unsigned) {
  ENTER
  *event = new Event;
  return kSuccess;
}

EXPORT hipEventDestroy(void* event) {
  ENTER
  // Work that has not run yet may name it.
  delete_later(static_cast<Event*>(event));
  return kSuccess;
}

EXPORT hipEventRecord(void* event, void* stream) {
  ENTER
  auto* e = static_cast<Event*>(event);
  Stream& s = stream_of(stream);
  e->captured = s.capture;
  e->captured_nodes = s.capture_after;
  if (s.capture) return kSuccess;
  put(s, [e] {
    e->seconds = now();
    return 0;
  });
  e->stream = &s;
  e->at = s.asked;
  return kSuccess;
}

EXPORT hipEventQuery(void* event) {
  ENTER
  const auto* e = static_cast<const Event*>(event);
  if (e->captured) return refuse(kCapturedEvent, "asking an event of a capture");
  if (!e->stream || e->stream->done >= e->at) return kSuccess;
  // Who asks again and again must see the device go on: a question is a piece of time.
  run_until(*e->stream, e->stream->done + 1);
  return kNotReady;
}

EXPORT hipEventSynchronize(void* event) {
  ENTER
  const auto* e = static_cast<const Event*>(event);
  if (e->captured) return refuse(kCapturedEvent, "waiting for an event of a capture");
  if (fails(Fault::wait)) return refuse(kUnknown, "a wait failed, as it was told to");
  return e->stream ? drain(*e->stream, e->at) : kSuccess;
}

EXPORT hipEventElapsedTime(float* ms, void* begin, void* end) {
  ENTER
  const auto *b = static_cast<Event*>(begin), *e = static_cast<Event*>(end);
  if (!b->stream || !e->stream) return kInvalidHandle;
  if (b->stream->done < b->at || e->stream->done < e->at) return kNotReady;
  *ms = static_cast<float>((e->seconds - b->seconds) * 1e3);
  return kSuccess;
}

// --- modules and kernels

namespace {
// With PYFLAME_EMULATOR_TEXTS all modules are one, without kernels.
int load_nothing(void** module, const void* image) {
  static char nothing;
  if (std::memcmp(image, kNoCode, sizeof kNoCode) != 0)
    return refuse(kInvalidImage, "module: code where only texts are kept");
  *module = &nothing;
  return kSuccess;
}
}  // namespace

EXPORT hipModuleLoadData(void** module, const void* image) {
  ENTER
  if (const int error = refuse_beside_capture("hipModuleLoadData")) return error;
  if (fails(Fault::load)) return refuse(kInvalidImage, "a module was not loaded, as it was told to");
  if (!settings().texts.empty()) return load_nothing(module, image);
  Module* m = nullptr;
  const int error = load_module(&m, image);
  *module = m;
  return error;
}

EXPORT hipModuleGetFunction(void** function, void* module, const char* name) {
  ENTER
  if (!settings().texts.empty()) {
    *function = module;
    return kSuccess;
  }
  Function* f = nullptr;
  const int error = find_function(&f, static_cast<Module*>(module), name);
  const std::string& slow = settings().slow_kernel;
  if (!slow.empty() && std::strstr(name, slow.c_str())) slow_functions.insert(f);
  *function = f;
  return error;
}

EXPORT hipFuncSetAttribute(const void*, int, int) {
  ENTER
  return kSuccess;
}

EXPORT hipModuleLaunchKernel(void* function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                             unsigned bz, unsigned shared_bytes, void* stream, void** parameters, void** extra) {
  ENTER
  if (++launches == settings().lost) {
    device_lost = true;
    return refuse(kLaunchFailure, "the device was lost, as it was told to");
  }
  if (fails(Fault::launch)) return refuse(kLaunchFailure, "a launch failed, as it was told to");
  if (!settings().texts.empty()) return kSuccess;
  if (by != 1 || bz != 1 || extra)
    return refuse(kInvalidValue, "a launch with more than one dimension of threads, or packed parameters");
  Work w;
  if (const int error = kernel_work(w, static_cast<Function*>(function), {{gx, gy, gz}, bx, shared_bytes}, parameters))
    return error;
  Stream& s = stream_of(stream);
  if (slow_functions.count(function) && !s.capture)
    put(s, [] {
      std::this_thread::sleep_for(std::chrono::milliseconds(settings().slow_milliseconds));
      return 0;
    });
  return submit(s, std::move(w));
}
