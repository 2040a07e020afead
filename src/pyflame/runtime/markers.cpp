#include "pyflame/runtime/markers.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <mutex>

#include "pyflame/base/env.h"

namespace pyflame {

bool profiler_is_attached() {
  // Nsight's tools; rocprofv3; the first rocprof.
  for (const char* variable : {"NVTX_INJECTION64_PATH", "ROCP_TOOL_LIBRARIES", "HSA_TOOLS_LIB"})
    if (const char* value = std::getenv(variable); value && *value) return true;
  // rocprofv3 --marker-trace preloads the library.
  return dlsym(RTLD_DEFAULT, "roctxRangePushA") != nullptr;
}

namespace markers {

bool open_libraries() {
  static std::once_flag once;
  std::call_once(once, [] {
    set_sinks(marker_libraries());
    for (const Sink& s : sinks())
      if (env::debug() >= 1) fmt::print(stderr, "pyflame: ranges go to {}\n", s.name);
  });
  return !sinks().empty();
}

void follow_environment() {
  const std::string& asked = env::emit_ranges();
  if (asked == "0" || (asked == "auto" && !profiler_is_attached())) return;
  if (open_libraries()) emit(true);
  else if (asked == "1")
    fmt::print(stderr,
               "pyflame: PYFLAME_EMIT_RANGES is 1, but neither roctx nor NVTX was found; hint: install ROCm's "
               "rocprofiler-sdk-roctx or roctracer package, or start the program under Nsight Systems\n");
}

}  // namespace markers
}  // namespace pyflame
