// NVIDIA's ranges. A tool names its library in NVTX_INJECTION64_PATH; the library's InitializeInjectionNvtx2 gets a function that
// gives it tables of function pointers, into which it writes its own functions. Since version 3 this is done by the program's own
// side of NVTX, which this file is. Without such a tool, version 2's library is used if it is there.
#include <dlfcn.h>
#include <fmt/format.h>

#include <array>
#include <cstdlib>

#include "pyflame/backends/cuda/cuda_backend.h"
#include "pyflame/backends/gpu/driver/dylib.h"

namespace pyflame {

namespace {

constexpr const char* kNvtxFiles[] = {"libnvToolsExt.so.1", "libnvToolsExt.so", nullptr};
const gpu::Dylib kNvtx = {
    .name = "NVTX", .type = DeviceType::cuda, .files = kNvtxFiles, .absent = "NVTX (libnvToolsExt.so.1) was not found"};

using Function = void (*)();

// The numbers of functions in the table of the core module, as the interface defines them.
enum Core : uint8_t { kMarkA = 2, kRangeStartA = 5, kRangeEnd = 7, kRangePushA = 9, kRangePop = 11 };

// A table is a list of addresses of function pointers, by the functions' numbers; a null ends it. Modules: core, names of
// CUDA's, OpenCL's and the runtime's objects, domains, synchronisation.
constexpr size_t kModules = 7, kMostFunctions = 16;
constexpr std::array<unsigned, kModules> kSizes = {0, 16, 9, 15, 7, 16, 7};
std::array<std::array<Function, kMostFunctions>, kModules> g_nvtx_functions;
std::array<std::array<Function*, kMostFunctions + 1>, kModules> g_nvtx_tables;

int module_table(unsigned module, Function*** table, unsigned* size) {
  if (module == 0 || module >= kModules) return 0;
  for (size_t i = 1; i < kSizes[module]; ++i) g_nvtx_tables[module][i] = &g_nvtx_functions[module][i];
  g_nvtx_tables[module][kSizes[module]] = nullptr;
  if (table) *table = g_nvtx_tables[module].data();
  if (size) *size = kSizes[module];
  return 1;
}

struct Callbacks {
  size_t size = sizeof(Callbacks);
  int (*module_table)(unsigned, Function***, unsigned*) = &pyflame::module_table;
};
struct Version {
  size_t size = sizeof(Version);
  uint32_t version = 3, reserved = 0;
  void (*set_tool_version)(uint32_t) = [](uint32_t) {};
};

const void* export_table(uint32_t id) {
  static const Callbacks callbacks;
  static const Version version;
  return id == 1 ? static_cast<const void*>(&callbacks) : id == 3 ? &version : nullptr;
}

template <class F>
F core(Core number) {
  return reinterpret_cast<F>(g_nvtx_functions[1][number]);
}

// A tool may leave functions out.
markers::Sink sink_of_tool(const std::string& path) {
  markers::Sink s;
  s.name = fmt::format("NVTX ({})", path);
  s.push = [](const char* name) {
    return core<int (*)(const char*)>(kRangePushA) ? core<int (*)(const char*)>(kRangePushA)(name) : -2;
  };
  s.pop = [] { return core<int (*)()>(kRangePop) ? core<int (*)()>(kRangePop)() : -2; };
  s.mark = [](const char* name) {
    if (const auto f = core<void (*)(const char*)>(kMarkA)) f(name);
  };
  s.start = [](const char* name) -> uint64_t {
    const auto f = core<uint64_t (*)(const char*)>(kRangeStartA);
    return f ? f(name) : 0;
  };
  s.stop = [](uint64_t range) {
    if (const auto f = core<void (*)(uint64_t)>(kRangeEnd)) f(range);
  };
  return s;
}

std::optional<markers::Sink> injected() {
  const char* path = std::getenv("NVTX_INJECTION64_PATH");
  if (path == nullptr || *path == 0) return {};
  void* library = dlopen(path, RTLD_LAZY | RTLD_LOCAL);
  using Initialize = int (*)(const void* (*)(uint32_t));
  const auto initialize = library ? reinterpret_cast<Initialize>(dlsym(library, "InitializeInjectionNvtx2")) : nullptr;
  if (initialize == nullptr || initialize(&export_table) == 0) {
    fmt::print(stderr, "pyflame: NVTX_INJECTION64_PATH: the library takes no ranges; got '{}'{}\n", path,
               library ? "" : fmt::format(", which cannot be loaded: {}", dlerror()));
    return {};
  }
  return sink_of_tool(path);
}

}  // namespace

std::optional<markers::Sink> nvtx_library() {
  if (auto sink = injected()) return sink;
  void* library = kNvtx.open().handle;
  if (library == nullptr) return {};
  markers::Sink s;
  s.name = fmt::format("NVTX ({})", kNvtx.open().path);
  s.push = reinterpret_cast<int (*)(const char*)>(dlsym(library, "nvtxRangePushA"));
  s.pop = reinterpret_cast<int (*)()>(dlsym(library, "nvtxRangePop"));
  s.mark = reinterpret_cast<void (*)(const char*)>(dlsym(library, "nvtxMarkA"));
  s.start = reinterpret_cast<uint64_t (*)(const char*)>(dlsym(library, "nvtxRangeStartA"));
  s.stop = reinterpret_cast<void (*)(uint64_t)>(dlsym(library, "nvtxRangeEnd"));
  if (!s.push || !s.pop || !s.mark || !s.start || !s.stop) return {};
  return s;
}

}  // namespace pyflame
