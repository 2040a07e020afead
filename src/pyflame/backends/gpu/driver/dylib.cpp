// Searches for the vendors' libraries and opens them.
#include "pyflame/backends/gpu/driver/dylib.h"

#include <dlfcn.h>
#include <fmt/core.h>
#include <link.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <vector>

#include "pyflame/base/env.h"
#include "pyflame/base/packages.h"

namespace pyflame::gpu {

namespace {

namespace fs = std::filesystem;
using Folders = std::vector<std::string>;

constexpr const char* kHipFiles[] = {"libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so", nullptr};
constexpr const char* kCudaFiles[] = {"libcuda.so.1", "libcuda.so", nullptr};
constexpr const char* kHiprtcFiles[] = {"libhiprtc.so.7", "libhiprtc.so.6", "libhiprtc.so", nullptr};
constexpr const char* kNvrtcFiles[] = {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so", nullptr};

// What variables name, and what the installer would take.
Folders named_folders(DeviceType type) {
  const bool rocm = type == DeviceType::rocm;
  Folders folders;
  for (const char* variable : {rocm ? "ROCM_PATH" : "CUDA_HOME", rocm ? "" : "CUDA_PATH"})
    if (const char* root = std::getenv(variable); root && *root)
      folders.push_back(std::string(root) + (rocm ? "/lib" : "/lib64"));
  return folders;
}
Folders default_folders(DeviceType type) {
  return {type == DeviceType::rocm ? PYFLAME_ROCM_PATH "/lib" : "/usr/local/cuda/lib64"};
}

// Subfolders of `folder` whose names begin so, in the order of their names.
Folders subfolders(const std::string& folder, const std::string& prefix) {
  Folders found;
  std::error_code ec;
  for (fs::directory_iterator entry(folder, ec), end; !ec && entry != end; entry.increment(ec))
    if (entry->path().filename().string().starts_with(prefix)) found.push_back(entry->path().string());
  std::sort(found.begin(), found.end());
  return found;
}

// Where wheels put them: AMD's own wheels, PyTorch's for ROCm, NVIDIA's. Folders of one element belong to one release.
std::vector<Folders> package_libraries(DeviceType type) {
  std::vector<Folders> releases;
  const auto add = [&](Folders roots) {
    for (std::string& root : roots) root += "/lib";
    releases.push_back(std::move(roots));
  };
  for (const std::string& site : package_folders()) {
    add(type == DeviceType::rocm ? subfolders(site, "_rocm_sdk_") : subfolders(site + "/nvidia", ""));
    if (type == DeviceType::rocm) add({site + "/torch"});
  }
  return releases;
}

std::string path_of(void* handle) {
  link_map* map = nullptr;
  return dlinfo(handle, RTLD_DI_LINKMAP, &map) == 0 && map && map->l_name ? map->l_name : "";
}

bool within(const std::string& path, const Folders& folders) {
  std::error_code ec;
  const fs::path file = fs::weakly_canonical(path, ec);
  return std::any_of(folders.begin(), folders.end(),
                     [&](const std::string& f) { return fs::weakly_canonical(f, ec) == file.parent_path(); });
}

// Opens a file; what is wrong with one that is there goes to `broken`.
void* open_file(const std::string& path, std::string& broken) {
  if (void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) return handle;
  const char* said = dlerror();
  const std::string error = said ? said : "";
  if (broken.empty() && !error.starts_with(path + ": cannot open shared object file")) broken = error;
  return nullptr;
}

void* open_in(const Folders& folders, const char* const* files, std::string& broken) {
  for (const std::string& folder : folders)
    for (const char* const* file = files; *file; ++file) {
      const std::string path = folder + "/" + *file;
      std::error_code ec;
      if (!fs::exists(path, ec)) continue;
      if (void* handle = open_file(path, broken)) return handle;
    }
  return nullptr;
}

void* open_by_name(const char* const* files, std::string& broken) {
  for (const char* const* file = files; *file; ++file)
    if (void* handle = open_file(*file, broken)) return handle;
  return nullptr;
}

void* find(const Dylib& library, std::string& broken) {
  const std::vector<Folders> packages = package_libraries(library.type);
  const auto by_name = [&] { return open_by_name(library.files, broken); };
  const auto in = [&](const Folders& folders) { return open_in(folders, library.files, broken); };
  void* found = nullptr;
  if (library.type == DeviceType::rocm && &library != &kHip) {
    for (const Folders& release : packages)
      if (within(kHip.open().path, release)) return in(release);
    for (const Folders& f : {Folders{}, named_folders(library.type), default_folders(library.type)})
      if ((found = f.empty() ? by_name() : in(f))) return found;
    return nullptr;
  }
  if ((found = by_name())) return found;
  if ((found = in(named_folders(library.type)))) return found;
  for (const Folders& release : packages)
    if ((found = in(release))) return found;
  return in(default_folders(library.type));
}

}  // namespace

const Dylib kHip = {.name = "the HIP runtime",
                    .type = DeviceType::rocm,
                    .files = kHipFiles,
                    .absent = "the HIP runtime (libamdhip64.so) was not found; install ROCm's runtime packages"};
const Dylib kCuda = {.name = "the CUDA driver",
                     .type = DeviceType::cuda,
                     .files = kCudaFiles,
                     .absent = "the CUDA driver library (libcuda.so.1) was not found; install NVIDIA's driver"};
const Dylib kHiprtc = {
    .name = "the HIP run-time compiler",
    .type = DeviceType::rocm,
    .files = kHiprtcFiles,
    .absent = "the HIP run-time compiler (libhiprtc.so) was not found; install ROCm's hiprtc package"};
const Dylib kNvrtc = {.name = "NVRTC",
                      .type = DeviceType::cuda,
                      .files = kNvrtcFiles,
                      .absent =
                          "NVRTC (libnvrtc.so) was not found; install it with pip (nvidia-cuda-nvrtc) or with the "
                          "CUDA toolkit"};

const Dylib::Opened& Dylib::open() const {
  std::call_once(once, [this] {
    auto* o = new Opened;  // leaked: threads may outlive static destruction
    if (computes && !env::gpu_libraries()) {
      o->why = "PYFLAME_GPU_LIBRARIES is 0";
    } else {
      for (const Dylib* const* need = needs; need && *need; ++need) (*need)->open();
      std::string broken;
      o->handle = find(*this, broken);
      if (o->handle) o->path = path_of(o->handle);
      else o->why = broken.empty() ? absent : fmt::format("{} cannot be loaded: {}", name, broken);
      if (o->handle && env::debug() >= 1) fmt::print(stderr, "pyflame: {}: {}\n", name, o->path);
    }
    opened = o;
  });
  return *opened;
}

void* find_symbol(void* library, const char* name) { return library ? dlsym(library, name) : nullptr; }

}  // namespace pyflame::gpu
