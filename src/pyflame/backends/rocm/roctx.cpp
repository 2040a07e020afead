// AMD's ranges. rocprofv3 reads those of rocprofiler-sdk's library, the older rocprof those of roctracer's; both have the same
// functions.
#include <dlfcn.h>
#include <fmt/format.h>

#include "pyflame/backends/gpu/driver/dylib.h"
#include "pyflame/backends/rocm/rocm_backend.h"

namespace pyflame {

namespace {

constexpr const char* kRoctxFiles[] = {"librocprofiler-sdk-roctx.so.1", "librocprofiler-sdk-roctx.so.0",
                                       "libroctx64.so.4", "libroctx64.so", nullptr};
const gpu::Dylib kRoctx = {.name = "roctx",
                           .type = DeviceType::rocm,
                           .files = kRoctxFiles,
                           .absent = "roctx (librocprofiler-sdk-roctx.so, libroctx64.so) was not found"};

}  // namespace

std::optional<markers::Sink> roctx_library() {
  // A profiler preloads the library that it reads.
  void* library = RTLD_DEFAULT;
  std::string path = "preloaded";
  if (dlsym(RTLD_DEFAULT, "roctxRangePushA") == nullptr) {
    library = kRoctx.open().handle;
    path = kRoctx.open().path;
    if (library == nullptr) return {};
  }
  markers::Sink s;
  s.name = fmt::format("roctx ({})", path);
  s.push = reinterpret_cast<int (*)(const char*)>(dlsym(library, "roctxRangePushA"));
  s.pop = reinterpret_cast<int (*)()>(dlsym(library, "roctxRangePop"));
  s.mark = reinterpret_cast<void (*)(const char*)>(dlsym(library, "roctxMarkA"));
  s.start = reinterpret_cast<uint64_t (*)(const char*)>(dlsym(library, "roctxRangeStartA"));
  s.stop = reinterpret_cast<void (*)(uint64_t)>(dlsym(library, "roctxRangeStop"));
  if (!s.push || !s.pop || !s.mark || !s.start || !s.stop) return {};
  return s;
}

}  // namespace pyflame
