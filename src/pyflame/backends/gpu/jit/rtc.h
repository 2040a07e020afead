// Kernels from source at run time: hipRTC or NVRTC behind one function, in background threads, with a cache on disk keyed by source,
// architecture, compiler and flags. A program asks for all of its kernels when it is made; who runs one waits for that one alone.
#pragma once
#include <memory>
#include <string>
#include <string_view>

#include "pyflame/backends/gpu/driver/device.h"

namespace pyflame::gpu {

// A source may begin with lines that name sources of kernels: this, a path in src/pyflame/kernels, '"'. So it stays short until it is compiled.
inline constexpr std::string_view kSourceLine = "#include \"kernels/";
// With the text of each in the place of its name.
std::string whole_source(std::string_view source);

// A source on its way to be code. The same source is compiled once, whoever asks.
class Compilation {
 public:
  virtual ~Compilation() = default;
  virtual bool ready() const = 0;  // on() would not wait for a compiler
  // The function `name` (extern "C") on the device. Waits, or compiles in this thread when nobody has begun to. Runtime error with the
  // compiler's log when it fails.
  virtual Function on(GpuDevice& device, const char* name) = 0;
};
std::shared_ptr<Compilation> compile_later(DeviceType type, const std::string& arch, std::string source);

// The function, waited for.
Function compile(GpuDevice& device, const std::string& source, const std::string& name);

// The code object that the run-time compiler makes of a whole `source` for an architecture ("gfx942"), past all caches. Needs no
// device: so kernels are compiled for GPUs that are not there.
std::string compile_for(DeviceType type, const std::string& arch, const std::string& source);

struct CompileStats {
  uint64_t compiled = 0, from_disk = 0;
  uint64_t waited = 0;      // launches that had to wait for a compiler
  double seconds = 0;       // spent by compilers, in all threads
  double wait_seconds = 0;  // spent by launches
};
CompileStats compile_stats();

}  // namespace pyflame::gpu
