// Loads the functions of HIP or CUDA.
#include "pyflame/backends/gpu/driver/rt.h"

#include <dlfcn.h>

#include <cstdlib>
#include <mutex>
#include <vector>

#include "pyflame/backends/gpu/driver/arch.h"
#include "pyflame/base/env.h"
#include "pyflame/base/error.h"

namespace pyflame::gpu {

namespace {

constexpr const char* kHip[] = {"libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so", nullptr};
constexpr const char* kCuda[] = {"libcuda.so.1", "libcuda.so", nullptr};

struct Loaded {
  std::once_flag once;
  Rt rt;
  bool ok = false;
  std::string why;
};

void load(DeviceType type, Loaded& out) {
  const bool hip = type == DeviceType::rocm;
  void* library = open_library(type, hip ? kHip : kCuda);
  if (!library) {
    out.why = hip ? "the HIP runtime (libamdhip64.so) was not found; install ROCm's runtime packages"
                  : "the CUDA driver library (libcuda.so.1) was not found; install NVIDIA's driver";
    return;
  }
  out.rt.type = type;
  out.rt.library = library;
  std::string missing;
#define PYFLAME_RT_LOAD(member, hip_name, cuda_name, parameters)                                            \
  out.rt.member = reinterpret_cast<Result(*) parameters>(find_symbol(library, hip ? hip_name : cuda_name)); \
  if (!out.rt.member) missing += (missing.empty() ? "" : ", ") + std::string(hip ? hip_name : cuda_name);
  PYFLAME_RT_FUNCTIONS(PYFLAME_RT_LOAD)
#undef PYFLAME_RT_LOAD
  if (hip && !find_symbol(library, kHipProperties))
    missing += (missing.empty() ? "" : ", ") + std::string(kHipProperties);
  if (!missing.empty()) {
    out.why = fmt::format("the {} is too old: it lacks {}{}", hip ? "HIP runtime" : "CUDA driver", missing,
                          hip ? "; install ROCm 6.0 or later" : "");
    return;
  }
  if (hip)
    if (out.why = override_refusal(); !out.why.empty()) return;
  int count = 0;
  Result result = out.rt.init(0);
  if (result == 0) result = out.rt.device_count(&count);
  if (result != 0 || count == 0) {
    const char* text = nullptr;
    if (result != 0) out.rt.error_string(result, &text);
    out.why = fmt::format("the {} sees no device{}{}", hip ? "HIP runtime" : "CUDA driver", text ? ": " : "",
                          text ? text : "");
    return;
  }
  out.ok = true;
}

// Where the vendors' installers put libraries; the loader's own path is searched first.
std::vector<std::string> library_folders(DeviceType type) {
  const auto variable = [](const char* name) {
    const char* value = std::getenv(name);
    return value ? std::string(value) : std::string();
  };
  std::vector<std::string> folders;
  if (type == DeviceType::rocm) {
    for (const std::string& root : {variable("ROCM_PATH"), std::string(PYFLAME_ROCM_PATH)})
      if (!root.empty()) folders.push_back(root + "/lib");
  } else {
    for (const std::string& root : {variable("CUDA_HOME"), variable("CUDA_PATH"), std::string("/usr/local/cuda")})
      if (!root.empty()) folders.push_back(root + "/lib64");
  }
  return folders;
}

}  // namespace

void* open_library(DeviceType type, const char* const* names) {
  const auto open = [](const std::string& path) { return dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL); };
  for (const char* const* name = names; *name; ++name)
    if (void* library = open(*name)) return library;
  for (const std::string& folder : library_folders(type))
    for (const char* const* name = names; *name; ++name)
      if (void* library = open(folder + "/" + *name)) return library;
  return nullptr;
}

void* open_math_library(DeviceType type, const char* const* names, const char* absent, std::string& why) {
  void* library = env::gpu_libraries() ? open_library(type, names) : nullptr;
  if (!library) why = env::gpu_libraries() ? absent : "PYFLAME_GPU_LIBRARIES is 0";
  return library;
}

void* find_symbol(void* library, const char* name) { return library ? dlsym(library, name) : nullptr; }

const Rt* runtime(DeviceType type, std::string* why) {
  static Loaded* loaded = new Loaded[2];  // leaked: threads may outlive static destruction
  PF_CHECK(has_own_memory(type), Value, "runtime: not a GPU; got '{}'", Device{type}.str());
  Loaded& l = loaded[type == DeviceType::rocm ? 0 : 1];
  std::call_once(l.once, [&] { load(type, l); });
  if (!l.ok && why) *why = l.why;
  return l.ok ? &l.rt : nullptr;
}

bool is_fatal(Result result) {
  // Uncorrectable memory error, illegal address, timeout, assert, hardware stack, illegal instruction, misaligned
  // address, address space, program counter, launch failure: HIP and CUDA use the same numbers.
  for (const Result r : {46, 214, 700, 702, 710, 714, 715, 716, 717, 718, 719})
    if (result == r) return true;
  return false;
}

int Rt::attribute(Attribute which, int device) const {
  const AttributeNumbers n = kAttributeNumbers[static_cast<size_t>(which)];
  int value = 0;
  return device_attribute(&value, type == DeviceType::rocm ? n.hip : n.cuda, device) == 0 ? value : 0;
}

void Rt::check(Result result, const char* what) const {
  if (result == 0) return;
  const char* text = nullptr;
  error_string(result, &text);
  const std::string words = fmt::format("{}: {} failed with error {}{}{}", type == DeviceType::rocm ? "rocm" : "cuda",
                                        what, result, text ? ": " : "", text ? text : "");
  if (result == kOutOfMemory) fail(ErrorKind::OutOfMemory, words);  // the same number in HIP and CUDA
  fail(is_fatal(result) ? ErrorKind::Device : ErrorKind::Runtime, words);
}

}  // namespace pyflame::gpu
