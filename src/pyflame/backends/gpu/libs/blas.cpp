// Loads cuBLASLt, hipBLASLt and rocBLAS.
#include "pyflame/backends/gpu/libs/blas.h"

#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>
#include <map>
#include <mutex>
#include <string>
#include <type_traits>
#include <vector>

#include "pyflame/base/error.h"

namespace pyflame::gpu {

namespace {

struct Loaded {
  std::once_flag once;
  Blas blas;
  std::string why;
};

void load(DeviceType type, Loaded& out) {
  const BlasNumbers& numbers = type == DeviceType::rocm ? kRocmBlas : kCudaBlas;
  void* library = open_math_library(type, numbers.libraries, numbers.absent, out.why);
  if (!library) return;
  out.blas.numbers = &numbers;
#define PYFLAME_BLAS_LOAD(member, suffix, parameters)                                          \
  {                                                                                            \
    const std::string name = std::string(numbers.prefix) + (suffix);                           \
    out.blas.member = reinterpret_cast<int(*) parameters>(find_symbol(library, name.c_str())); \
    if (!out.blas.member) out.why = numbers.name + (" lacks " + name);                         \
  }
  PYFLAME_BLAS_FUNCTIONS(PYFLAME_BLAS_LOAD)
  out.blas.version = find_symbol(library, (std::string(numbers.prefix) + "GetVersion").c_str());
#undef PYFLAME_BLAS_LOAD
}

}  // namespace

const Blas* blas(DeviceType type, std::string* why) {
  static Loaded* loaded = new Loaded[2];  // leaked: threads may outlive static destruction
  Loaded& l = loaded[type == DeviceType::rocm ? 0 : 1];
  std::call_once(l.once, [&] { load(type, l); });
  if (!l.why.empty() && why) *why = l.why;
  return l.why.empty() ? &l.blas : nullptr;
}

BlasHandle blas_handle(const Blas& library, GpuDevice& device) {
  static std::mutex mutex;
  static auto* handles = new std::map<const GpuDevice*, BlasHandle>;
  std::lock_guard lock(mutex);
  BlasHandle& handle = (*handles)[&device];
  if (!handle) {
    device.enter();
    const int status = library.create(&handle);
    if (status != 0) handle = nullptr;
    PF_CHECK(status == 0, Runtime, "{}: no handle on {}; got status {}", library.numbers->name, device.arch().name,
             status);
  }
  return handle;
}

std::string blas_version(const Blas& library, GpuDevice& device) {
  std::string name = library.numbers->name;
  if (!library.version) return name;
  if (!library.numbers->version_by_handle)
    return fmt::format("{} {}", name, reinterpret_cast<size_t (*)()>(library.version)());
  try {
    int version = 0;
    const auto get = reinterpret_cast<int (*)(BlasHandle, int*)>(library.version);
    if (get(blas_handle(library, device), &version) == 0) return fmt::format("{} {}", name, version);
  } catch (const Error&) {  // without a handle the library cannot compute either
  }
  return name;
}

const RocBlas* rocblas(std::string* why) {
  struct Found {
    RocBlas blas;
    std::string why;
  };
  static const Found* found = [] {
    auto* f = new Found;
    void* library = open_math_library(DeviceType::rocm, kRocBlasLibraries,
                                      "rocBLAS (librocblas.so) was not found; install ROCm's rocblas package", f->why);
    if (!library) return f;
    const auto bind = [&](auto& function, const char* name) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(find_symbol(library, name));
      if (!function) f->why = std::string("rocBLAS lacks ") + name;
    };
    bind(f->blas.version, "rocblas_get_version_string");
    bind(f->blas.create, "rocblas_create_handle");
    bind(f->blas.set_stream, "rocblas_set_stream");
    bind(f->blas.set_workspace, "rocblas_set_workspace");
    bind(f->blas.gemm, "rocblas_gemm_strided_batched_ex");
    return f;
  }();
  if (why) *why = found->why;
  return found->why.empty() ? &found->blas : nullptr;
}

// rocBLAS ends the process if it has no kernel file for a GPU, so its files are checked first. It searches where a
// variable says, or else next to the library.
bool rocblas_has_kernels(const RocBlas& library, const std::string& gfx) {
  namespace fs = std::filesystem;
  static std::mutex mutex;
  static auto* known = new std::map<std::string, bool>;
  std::lock_guard lock(mutex);
  const auto [at, fresh] = known->try_emplace(gfx, false);
  if (!fresh) return at->second;
  std::vector<fs::path> folders;
  if (const char* said = std::getenv("ROCBLAS_TENSILE_LIBPATH")) {
    folders = {said, fs::path(said) / gfx};
  } else if (Dl_info info{}; dladdr(reinterpret_cast<const void*>(library.create), &info) && info.dli_fname) {
    const fs::path beside = fs::path(info.dli_fname).parent_path();
    for (const char* folder : {"rocblas/library", "rocblas/5/library", "../rocblas/library", "../../Tensile/library"})
      folders.push_back(beside / folder);
  }
  std::error_code ec;
  for (const fs::path& folder : folders)
    for (fs::directory_iterator entry(folder, ec), end; !ec && entry != end; entry.increment(ec)) {
      const std::string name = entry->path().filename().string();
      if (name.starts_with("TensileLibrary") && name.find(gfx) != std::string::npos) at->second = true;
    }
  return at->second;
}

BlasHandle rocblas_handle(const RocBlas& library, GpuDevice& device) {
  constexpr size_t kWorkspace = size_t{32} << 20;
  static std::mutex mutex;
  static auto* handles = new std::map<const GpuDevice*, BlasHandle>;
  std::lock_guard lock(mutex);
  BlasHandle& handle = (*handles)[&device];
  if (!handle) {
    device.enter();
    BlasHandle made = nullptr;
    int status = library.create(&made);
    if (status == 0) status = library.set_stream(made, device.stream());
    void* memory = status == 0 ? device.allocate(kWorkspace) : nullptr;
    if (memory) status = library.set_workspace(made, memory, kWorkspace);
    PF_CHECK(status == 0, Runtime, "rocblas: no handle on {}; got status {}", device.arch().name, status);
    handle = made;
  }
  return handle;
}

}  // namespace pyflame::gpu
