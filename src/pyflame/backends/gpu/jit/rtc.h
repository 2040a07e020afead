// Compiles kernels from source at run time: hipRTC or NVRTC behind one function, in background threads, with a cache on
// disk. The key is source, architecture, compiler and flags. A program requests all its kernels when it is made; a run
// waits only for the kernel that it needs.
#pragma once
#include <memory>
#include <string>
#include <string_view>

#include "pyflame/backends/gpu/driver/device.h"

namespace pyflame::gpu {

// A source may begin with lines that name other sources: this prefix, a path in src/pyflame/kernels, '"'. So it stays
// short until it is compiled.
inline constexpr std::string_view kSourceLine = "#include \"kernels/";
// Replaces each of these lines by the text that it names.
std::string whole_source(std::string_view source);

// A compilation that is requested, running or done. The same source is compiled once, even if several programs need it.
class Compilation {
 public:
  virtual ~Compilation() = default;
  virtual bool ready() const = 0;  // whether on() would not wait for a compiler
  // The function `name` (extern "C") on the device. Waits, or compiles in this thread if the compilation has not
  // started. If it fails, a RuntimeError with the compiler's log.
  virtual Function on(GpuDevice& device, const char* name) = 0;
};
std::shared_ptr<Compilation> compile_later(DeviceType type, const std::string& arch, std::string source);

// Waits for the function.
Function compile(GpuDevice& device, const std::string& source, const std::string& name);

// Compiles a whole `source` for an architecture ("gfx942") and returns the code object, without any cache. It needs no
// device, so kernels can be compiled for any GPU.
std::string compile_for(DeviceType type, const std::string& arch, const std::string& source);

struct CompileStats {
  uint64_t compiled = 0, from_disk = 0;
  uint64_t waited = 0;      // launches that waited for a compiler
  double seconds = 0;       // spent by compilers, in all threads
  double wait_seconds = 0;  // spent by launches
};
CompileStats compile_stats();

}  // namespace pyflame::gpu
