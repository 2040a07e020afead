// See runtime.h.
#include "runtime.h"

#include <dlfcn.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>

#include "code_object.h"
#include "memory.h"

namespace pyflame::emulator {

namespace {
std::string& words() {
  static std::string* w = new std::string;
  return *w;
}
int words_error = 0;
}  // namespace

const char* words_of(int error) {
  if (error != 0 && error == words_error) return words().c_str();
  switch (error) {
    case kSuccess: return "no error";
    case kInvalidValue: return "invalid argument";
    case kOutOfMemory: return "out of memory";
    case kNotInitialized: return "not initialized";
    case kNoDevice: return "no device";
    case kInvalidDevice: return "invalid device ordinal";
    case kInvalidImage: return "device kernel image is invalid";
    case kInvalidContext: return "invalid device context";
    case kInvalidHandle: return "invalid resource handle";
    case kNotFound: return "named symbol not found";
    case kNotReady: return "device not ready";
    case kIllegalAddress: return "an illegal memory access was encountered";
    case kLaunchFailure: return "unspecified launch failure";
    case kNotSupported: return "operation not supported";
    case kCaptureUnsupported: return "operation not permitted when stream is capturing";
    case kCaptureInvalidated: return "operation failed due to a previous error during capture";
    case kCaptureUnmatched: return "capture was not initiated in this stream";
    case kCaptureUnjoined: return "capturing stream has unjoined work";
    case kCaptureIsolation: return "dependency created on uncaptured work in another stream";
    case kCaptureImplicit: return "operation would make the legacy stream depend on a capturing stream";
    case kCapturedEvent: return "operation not permitted on an event last recorded in a capturing stream";
    case kGraphUpdateFailure: return "the graph could not be updated";
    default: return "unknown error";
  }
}

int refuse(int error, const std::string& what) {
  words() = what;
  words_error = error;
  std::fprintf(stderr, "pyflame emulator: %s\n", what.c_str());
  return error;
}

std::recursive_mutex& lock() {
  static auto* m = new std::recursive_mutex;
  return *m;
}

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

std::vector<Stream*>& streams() {
  static auto* s = new std::vector<Stream*>;
  return *s;
}

void delete_later(Event* event) {
  static auto* gone = new std::vector<std::unique_ptr<Event>>;
  gone->emplace_back(event);
}

void put(Stream& stream, std::function<int()> work) {
  stream.work.push_back(std::move(work));
  ++stream.asked;
  constexpr size_t kMost = 4096;  // a longer list would only cost memory
  if (settings().eager || stream.work.size() > kMost) run_until(stream);
}

void run_until(Stream& stream, uint64_t upto) {
  while (!stream.work.empty() && stream.done < upto) {
    const std::function<int()> work = std::move(stream.work.front());
    stream.work.pop_front();
    ++stream.done;
    const int error = work();
    if (stream.error == 0) stream.error = error;
  }
}

int drain(Stream& stream, uint64_t upto) {
  run_until(stream, upto);
  const std::string wrong = check_guards();
  if (!wrong.empty() && stream.error == 0) stream.error = refuse(kIllegalAddress, wrong);
  const int error = stream.error;
  stream.error = 0;
  return error;
}

int kernel_work(Work& work, Function* f, Grid grid, void** parameters) {
  const EmulatedEntry& e = *f->entry;
#if defined(__SANITIZE_ADDRESS__)
  const size_t static_shared = 0;  // red zones are not the kernel's
#else
  const auto static_shared = static_cast<size_t>(e.shared_end - e.shared_begin);
#endif
  constexpr unsigned kMostThreads = 1024;
  if (grid.threads == 0 || grid.threads > kMostThreads || grid.threads > e.most_threads)
    return refuse(kInvalidValue, f->name + ": " + std::to_string(grid.threads) +
                                     " threads in a workgroup; the kernel was compiled for " +
                                     std::to_string(e.most_threads));
  if (grid.groups[0] == 0 || grid.groups[1] == 0 || grid.groups[2] == 0 || grid.groups[1] > 65535 ||
      grid.groups[2] > 65535)
    return refuse(kInvalidValue, f->name + ": a grid of " + std::to_string(grid.groups[0]) + " x " +
                                     std::to_string(grid.groups[1]) + " x " + std::to_string(grid.groups[2]) +
                                     " workgroups");
  if (static_shared + grid.dynamic_shared > shared_per_group())
    return refuse(kInvalidValue, f->name + ": " + std::to_string(static_shared) + " + " +
                                     std::to_string(grid.dynamic_shared) + " bytes of shared memory; a workgroup has " +
                                     std::to_string(shared_per_group()));
  work.kind = Work::Kind::kernel;
  work.function = f;
  work.grid = grid;
  work.parameters.clear();
  for (unsigned i = 0; i < e.count; ++i) {
    const char* p = static_cast<const char*>(parameters[i]);
    work.parameters.emplace_back(p, p + e.parameters[i].bytes);
  }
  return kSuccess;
}

namespace {

int run_kernel(const Work& w) {
  const EmulatedEntry& e = *w.function->entry;
  std::vector<std::vector<char>> copies = w.parameters;
  std::vector<void*> addresses;
  for (unsigned i = 0; i < e.count; ++i) {
    addresses.push_back(copies[i].data());
    if (!e.parameters[i].pointer) continue;
    void* p = nullptr;
    std::memcpy(&p, copies[i].data(), sizeof p);
    if (!is_reachable(p)) {
      const std::string why = check(Kind::device, p, 1);
      return refuse(kIllegalAddress, w.function->name + ": parameter " + std::to_string(i) + ": " + why);
    }
  }
  const std::string wrong = run_grid(e, w.grid, addresses.data());
  return wrong.empty() ? kSuccess : refuse(kLaunchFailure, w.function->name + ": " + wrong);
}

}  // namespace

int execute(const Work& w) {
  switch (w.kind) {
    case Work::Kind::nothing: return kSuccess;
    case Work::Kind::kernel: return run_kernel(w);
    case Work::Kind::copy: {
      for (const auto& [device, p] : {std::pair<bool, const void*>{w.to_device, w.to}, {w.from_device, w.from}})
        if (device)
          if (const std::string wrong = check(Kind::device, p, w.bytes); !wrong.empty())
            return refuse(kIllegalAddress, "copy: " + wrong);
      std::memmove(w.to, w.from, w.bytes);
      return kSuccess;
    }
    case Work::Kind::set: {
      if (const std::string wrong = check(Kind::device, w.to, w.bytes); !wrong.empty())
        return refuse(kIllegalAddress, "set: " + wrong);
      for (size_t at = 0; at < w.bytes; at += w.width) std::memcpy(static_cast<char*>(w.to) + at, &w.value, w.width);
      return kSuccess;
    }
    case Work::Kind::host: w.call(w.data); return kSuccess;
  }
  return kUnknown;
}

int load_module(Module** module, const void* image) {
  CodeHeader header;
  std::memcpy(header.magic, image, sizeof header.magic);
  if (std::memcmp(header.magic, kMagic, sizeof kMagic) != 0)
    return refuse(kInvalidImage, "module: not a code object of the emulator's compiler");
  std::memcpy(&header, image, sizeof header);
  const char* code = static_cast<const char*>(image) + sizeof header;
  if (checksum(code, header.bytes) != header.checksum) return refuse(kInvalidImage, "module: a damaged code object");
  const char* folder = std::getenv("TMPDIR");
  std::string path = std::string(folder && *folder ? folder : "/tmp") + "/pyflame-emulator-XXXXXX";
  const int fd = mkstemp(path.data());
  if (fd < 0) return refuse(kUnknown, "module: no temporary file: " + path);
  bool written = true;
  for (size_t at = 0; at < header.bytes && written;) {
    const ssize_t n = write(fd, code + at, header.bytes - at);
    written = n > 0;
    if (written) at += static_cast<size_t>(n);
  }
  close(fd);
  void* library = written ? dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL) : nullptr;
  const char* error = library || !written ? nullptr : dlerror();
  const int result = library ? kSuccess
                             : refuse(kInvalidImage, std::string("module: ") +
                                                         (error ? error : "the temporary file could not be written"));
  unlink(path.c_str());
  if (library) {
    static auto* loaded = new std::deque<Module>;  // as long as the process: nobody unloads
    static std::mutex mutex;
    std::lock_guard lock(mutex);
    *module = &loaded->emplace_back();
    (*module)->library = library;
  }
  return result;
}

int find_function(Function** function, Module* module, const char* name) {
  const auto* entry =
      static_cast<const EmulatedEntry*>(dlsym(module->library, (std::string("emulated_entry_") + name).c_str()));
  if (!entry) return refuse(kNotFound, std::string("module: it has no kernel '") + name + "'");
  if (entry->wave != settings().wave)
    return refuse(kInvalidImage, std::string(name) + ": compiled for waves of " + std::to_string(entry->wave) +
                                     ", the device's are of " + std::to_string(settings().wave));
  module->functions.push_back({entry, name});
  *function = &module->functions.back();
  return kSuccess;
}

}  // namespace pyflame::emulator
