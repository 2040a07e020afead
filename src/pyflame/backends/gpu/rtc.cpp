// See rtc.h.
#include "pyflame/backends/gpu/rtc.h"

#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "pyflame/base/env.h"
#include "pyflame/base/error.h"

namespace pyflame::gpu {

namespace {

//   member, hipRTC's name, NVRTC's name, parameters
#define PYFLAME_RTC_FUNCTIONS(F)                                                                                    \
  F(version, "hiprtcVersion", "nvrtcVersion", (int* major, int* minor))                                             \
  F(create, "hiprtcCreateProgram", "nvrtcCreateProgram",                                                            \
    (void** program, const char* source, const char* name, int headers, const char* const* texts,                   \
     const char* const* names))                                                                                     \
  F(compile, "hiprtcCompileProgram", "nvrtcCompileProgram", (void* program, int count, const char* const* options)) \
  F(log_size, "hiprtcGetProgramLogSize", "nvrtcGetProgramLogSize", (void* program, size_t* size))                   \
  F(log, "hiprtcGetProgramLog", "nvrtcGetProgramLog", (void* program, char* log))                                   \
  F(code_size, "hiprtcGetCodeSize", "nvrtcGetCUBINSize", (void* program, size_t* size))                             \
  F(code, "hiprtcGetCode", "nvrtcGetCUBIN", (void* program, char* code))                                            \
  F(destroy, "hiprtcDestroyProgram", "nvrtcDestroyProgram", (void** program))

struct Rtc {
#define PYFLAME_RTC_MEMBER(member, hip, cuda, parameters) Result(*member) parameters = nullptr;
  PYFLAME_RTC_FUNCTIONS(PYFLAME_RTC_MEMBER)
#undef PYFLAME_RTC_MEMBER
  std::string name, why;
};

constexpr const char* kHiprtc[] = {"libhiprtc.so.7", "libhiprtc.so.6", "libhiprtc.so", "/opt/rocm/lib/libhiprtc.so",
                                   nullptr};
constexpr const char* kNvrtc[] = {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so",
                                  "/usr/local/cuda/lib64/libnvrtc.so", nullptr};

const Rtc& rtc(DeviceType type) {
  static std::once_flag once[2];
  static Rtc* all = new Rtc[2];
  const size_t at = type == DeviceType::rocm ? 0 : 1;
  std::call_once(once[at], [&] {
    Rtc& r = all[at];
    const bool hip = at == 0;
    void* library = open_library(hip ? kHiprtc : kNvrtc);
    if (!library) {
      r.why = hip ? "the HIP run-time compiler (libhiprtc.so) was not found"
                  : "NVRTC (libnvrtc.so) was not found; put its folder on LD_LIBRARY_PATH";
      return;
    }
#define PYFLAME_RTC_LOAD(member, hip_name, cuda_name, parameters)                                      \
  r.member = reinterpret_cast<Result(*) parameters>(find_symbol(library, hip ? hip_name : cuda_name)); \
  if (!r.member) r.why = std::string("the run-time compiler lacks ") + (hip ? hip_name : cuda_name);
    PYFLAME_RTC_FUNCTIONS(PYFLAME_RTC_LOAD)
#undef PYFLAME_RTC_LOAD
    int major = 0, minor = 0;
    if (r.why.empty()) r.version(&major, &minor);
    r.name = fmt::format("{} {}.{}", hip ? "hiprtc" : "nvrtc", major, minor);
  });
  PF_CHECK(all[at].why.empty(), Device, "compile: kernels cannot be compiled; {}", all[at].why);
  return all[at];
}

struct State {
  std::mutex mutex;
  std::unordered_map<std::string, Function> functions;  // by device and source
  CompileStats stats;
};
State& state() {
  static State* s = new State;
  return *s;
}

uint64_t hash(const std::string& text, uint64_t seed) {
  uint64_t h = seed;
  for (const unsigned char c : text) h = (h ^ c) * 0x100000001b3ull;
  return h ^ (h >> 29);
}

std::vector<std::string> flags(DeviceType type, const std::string& arch) {
  // Nothing is contracted, so that a fused group has the bits of its parts; divisions and roots are correctly rounded.
  if (type == DeviceType::rocm) return {"--offload-arch=" + arch, "-O3", "-std=c++17", "-ffp-contract=off"};
  return {"--gpu-architecture=" + arch, "--std=c++17", "--fmad=false"};
}

// A file that is there is whole: written beside and renamed. A folder that cannot be written only costs time.
void store(const std::filesystem::path& path, const std::string& code) {
  std::error_code ec;
  std::filesystem::create_directories(path.parent_path(), ec);
  const std::filesystem::path part = path.string() + fmt::format(".{}", getpid());
  {
    std::ofstream out(part, std::ios::binary);
    out << code;
    if (!out.flush()) {
      std::filesystem::remove(part, ec);
      return;
    }
  }
  std::filesystem::rename(part, path, ec);
  if (ec) std::filesystem::remove(part, ec);
}

}  // namespace

std::string compile_for(DeviceType type, const std::string& arch, const std::string& source) {
  const Rtc& r = rtc(type);
  const std::vector<std::string> options = flags(type, arch);
  void* program = nullptr;
  PF_CHECK(r.create(&program, source.c_str(), "pyflame.cpp", 0, nullptr, nullptr) == 0, Runtime,
           "compile: the compiler did not start");
  std::vector<const char*> raw;
  for (const std::string& o : options) raw.push_back(o.c_str());
  const Result result = r.compile(program, static_cast<int>(raw.size()), raw.data());
  std::string code;
  if (result == 0) {
    size_t size = 0;
    r.code_size(program, &size);
    code.resize(size);
    r.code(program, code.data());
    r.destroy(&program);
    return code;
  }
  size_t size = 0;
  r.log_size(program, &size);
  std::string log(size, '\0');
  if (size > 0) r.log(program, log.data());
  r.destroy(&program);
  PF_FAIL(Runtime, "compile: {} refused a kernel for {} (error {}); its log:\n{}\n{}", r.name, arch, result, log,
          source);
}

Function compile(GpuDevice& device, const std::string& source, const std::string& name) {
  State& s = state();
  const std::string key = fmt::format("{}:{}:{}", device.arch().name, device.index(), source);
  std::lock_guard lock(s.mutex);
  if (const auto it = s.functions.find(key); it != s.functions.end()) return it->second;
  const std::vector<std::string> options = flags(device.rt().type, device.arch().name);
  std::string identity = rtc(device.rt().type).name;
  for (const std::string& o : options) identity += " " + o;
  identity += "\n" + source;
  const std::filesystem::path path =
      std::filesystem::path(env::cache_dir()) / "kernels" / device.arch().name /
      fmt::format("{:016x}{:016x}.bin", hash(identity, 0xcbf29ce484222325ull), hash(identity, 0x9e3779b97f4a7c15ull));
  Module module = nullptr;
  device.enter();
  // The file begins with what it was made from: a hash that meets by chance, or a file that was damaged, is compiled anew.
  if (std::ifstream in(path, std::ios::binary); in) {
    std::string file((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
    if (file.size() > identity.size() + 1 && file.compare(0, identity.size() + 1, identity + '\0') == 0 &&
        device.rt().module_load(&module, file.data() + identity.size() + 1) == 0)
      ++s.stats.from_disk;
    else module = nullptr;
  }
  if (!module) {
    const auto start = std::chrono::steady_clock::now();
    const std::string code = compile_for(device.rt().type, device.arch().name, source);
    s.stats.seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    ++s.stats.compiled;
    device.rt().check(device.rt().module_load(&module, code.data()), "loading a kernel");
    store(path, identity + '\0' + code);
  }
  Function f = nullptr;
  device.rt().check(device.rt().module_function(&f, module, name.c_str()), "finding a kernel in its module");
  s.functions.emplace(key, f);
  return f;
}

CompileStats compile_stats() {
  State& s = state();
  std::lock_guard lock(s.mutex);
  return s.stats;
}

}  // namespace pyflame::gpu
