// Compiles kernels in background threads, and keeps them in a cache on disk.
#include "pyflame/backends/gpu/jit/rtc.h"

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <optional>
#include <thread>
#include <unordered_map>
#include <vector>

#include "pyflame/base/embedded.h"
#include "pyflame/base/env.h"
#include "pyflame/base/error.h"
#include "pyflame/base/exit.h"
#include "pyflame/base/fork.h"

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

const Rtc& rtc(DeviceType type) {
  static std::once_flag once[2];
  static Rtc* all = new Rtc[2];
  const size_t at = type == DeviceType::rocm ? 0 : 1;
  std::call_once(once[at], [&] {
    Rtc& r = all[at];
    const bool hip = at == 0;
    const Dylib::Opened& opened = (hip ? kHiprtc : kNvrtc).open();
    void* library = opened.handle;
    if (!library) {
      r.why = opened.why;
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

uint64_t hash(std::string_view text, uint64_t seed) {
  uint64_t h = seed;
  for (const unsigned char c : text) h = (h ^ c) * 0x100000001b3ull;
  return h ^ (h >> 29);
}

std::vector<std::string> flags(DeviceType type, const std::string& arch) {
  // No contraction, so that a fused group has the same bits as its parts; divisions and square roots are correctly
  // rounded.
  if (type == DeviceType::rocm) return {"--offload-arch=" + arch, "-O3", "-std=c++17", "-ffp-contract=off"};
  // Lambdas that are passed on are host functions for NVRTC unless all functions are the device's.
  return {"--gpu-architecture=" + arch, "--std=c++17", "--fmad=false", "--device-as-default-execution-space"};
}

// --- the cache on disk. A file has what it was made from, the code, and a checksum of both. A file that is damaged,
// truncated or for another source is compiled anew and replaced. Files are written under another name and then renamed,
// so no process sees a partial file. If the folder cannot be written, that only costs time.
struct CacheFile {
  std::filesystem::path path;
  std::string identity;  // compiler, flags and source

  CacheFile(DeviceType type, const std::string& arch, const std::string& source) : identity(rtc(type).name) {
    for (const std::string& o : flags(type, arch)) identity += " " + o;
    identity += "\n" + source;
    path = std::filesystem::path(env::cache_dir()) / "kernels" / arch /
           fmt::format("{:016x}{:016x}.bin", hash(identity, 0xcbf29ce484222325ull), hash(identity, kSecondSeed));
  }

  std::optional<std::string> read() const {
    std::error_code ec;
    if (!std::filesystem::is_regular_file(path, ec)) return std::nullopt;
    std::ifstream in(path, std::ios::binary);
    if (!in) return std::nullopt;
    std::string file((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
    const size_t head = identity.size() + 1 + sizeof(uint64_t);
    if (in.bad() || file.size() <= head || file.compare(0, identity.size() + 1, identity + '\0') != 0)
      return std::nullopt;
    uint64_t check = 0;
    std::memcpy(&check, file.data() + identity.size() + 1, sizeof check);
    file.erase(0, head);
    if (check != hash(file, kSecondSeed)) return std::nullopt;
    return file;
  }

  void write(const std::string& code) const {
    static std::atomic<unsigned> count{0};
    std::error_code ec;
    std::filesystem::create_directories(path.parent_path(), ec);
    const std::filesystem::path part = path.string() + fmt::format(".{}.{}", getpid(), count++);
    const uint64_t check = hash(code, kSecondSeed);
    std::ofstream out(part, std::ios::binary);
    out << identity << '\0';
    out.write(reinterpret_cast<const char*>(&check), sizeof check);
    out << code;
    out.close();
    bool ok = !out.fail();
    if (ok) {
      std::filesystem::rename(part, path, ec);
      ok = !ec;
    }
    if (ok) return;
    std::filesystem::remove(part, ec);
    static std::once_flag once;
    std::call_once(once, [&] {
      if (env::debug() >= 1)
        fmt::print(stderr, "pyflame: kernels cannot be kept in {}; each process compiles them again\n",
                   path.parent_path().string());
    });
  }

 private:
  static constexpr uint64_t kSecondSeed = 0x9e3779b97f4a7c15ull;
};

// The name of the kernel in its text: what stands between its attributes and its parameters.
std::string name_in(const std::string& text) {
  constexpr std::string_view kBefore = ") pf_";
  const size_t at = text.rfind(kBefore), end = at == std::string::npos ? at : text.find('(', at + kBefore.size());
  return end == std::string::npos ? "kernel" : text.substr(at + 2, end - at - 2);
}

using Clock = std::chrono::steady_clock;
double since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

class Job;
struct State {
  std::mutex mutex;
  std::condition_variable work, done;
  std::unordered_map<std::string, std::shared_ptr<Job>> jobs;  // by device type, architecture and source
  std::deque<std::shared_ptr<Job>> queue;
  pid_t owner = 0;  // the process that started the threads: a forked child has none of them
  bool stopping = false;
  CompileStats stats;
};
State& state() {
  static State* s = new State;
  return *s;
}

class Job final : public Compilation {
 public:
  Job(std::string key, DeviceType type, std::string arch, std::string source)
      : key_(std::move(key)), type_(type), arch_(std::move(arch)), source_(std::move(source)) {}

  bool ready() const override { return done_.load(std::memory_order_acquire); }

  // True for the caller who must compile it.
  bool claim() {
    bool no = false;
    return begun_.compare_exchange_strong(no, true);
  }

  void make() noexcept {
    try {
      const WorkUnderWay work;  // a kernel that was kept needs no compiler: it can be read while the process ends
      const std::string text = whole_source(source_);
      const CacheFile file(type_, arch_, text);
      if (auto code = file.read()) {
        code_ = std::move(*code);
        from_disk_ = true;
      } else {
        build(file, text);
      }
      if (env::debug() >= 5) show(file.path, text, env::debug() >= 6, true);
      if (!env::kernels_dir().empty())
        show(std::filesystem::path(env::kernels_dir()) / (name_in(text) + "-" + file.path.filename().string()), text,
             true, false);
    } catch (const Error& e) {
      error_ = e;
    } catch (const std::exception& e) {
      error_ = Error(ErrorKind::Runtime, fmt::format("compile: {}", e.what()));
    }
    State& s = state();
    std::lock_guard lock(s.mutex);
    if (from_disk_) ++s.stats.from_disk;
    if (error_) s.jobs.erase(key_);  // a later program may try again
    done_.store(true, std::memory_order_release);
    s.done.notify_all();
  }

  Function on(GpuDevice& device, const char* name) override {
    wait();
    if (error_) throw *error_;
    std::lock_guard lock(mutex_);
    for (const Loaded& l : loaded_)
      if (l.device == device.index()) return l.function;
    device.enter();
    Module module = nullptr;
    Result result = device.rt().module_load(&module, code_.data());
    if (result != 0 && from_disk_) {  // intact, but not for this driver
      from_disk_ = false;
      const std::string text = whole_source(source_);
      build(CacheFile(type_, arch_, text), text);
      result = device.rt().module_load(&module, code_.data());
    }
    device.rt().check(result, "loading a kernel");
    Function f = nullptr;
    device.rt().check(device.rt().module_function(&f, module, name), "finding a kernel in its module");
    loaded_.push_back({device.index(), f});
    return f;
  }

 private:
  void build(const CacheFile& file, const std::string& text) {
    const LibraryCall call;  // to the end: the file is written with it
    const auto start = Clock::now();
    code_ = compile_for(type_, arch_, text);
    {
      State& s = state();
      std::lock_guard lock(s.mutex);
      s.stats.seconds += since(start);
      ++s.stats.compiled;
    }
    file.write(code_);
  }

  // Writes the source, and the code object for `pyflame inspect` and disassemblers, with other extensions. PYFLAME_DEBUG
  // wants them next to the cached kernel.
  void show(std::filesystem::path path, const std::string& text, bool code_too, bool tell) const {
    const auto put = [&](const char* extension, const std::string& content) {
      path.replace_extension(extension);
      std::error_code ec;
      std::filesystem::create_directories(path.parent_path(), ec);
      std::ofstream out(path, std::ios::binary);
      out << content;
      out.close();
      if (tell || out.fail())
        fmt::print(stderr, "pyflame: kernel for {}: {}{}\n", arch_, path.string(),
                   out.fail() ? " could not be written" : "");
    };
    put(".cpp", text);
    if (code_too) put(type_ == DeviceType::rocm ? ".co" : ".cubin", code_);
  }

  void wait() {
    if (ready()) return;
    const auto start = Clock::now();
    State& s = state();
    // Nobody has started it, or the thread that did was lost in a fork.
    if (claim() || (s.owner != 0 && s.owner != getpid())) {
      make();
    } else {
      std::unique_lock lock(s.mutex);
      s.done.wait(lock, [&] { return ready(); });
    }
    std::lock_guard lock(s.mutex);
    ++s.stats.waited;
    s.stats.wait_seconds += since(start);
  }

  const std::string key_;
  const DeviceType type_;
  const std::string arch_, source_;
  std::atomic<bool> begun_{false}, done_{false};
  std::string code_;
  bool from_disk_ = false;
  std::optional<Error> error_;
  struct Loaded {
    int device;
    Function function;
  };
  std::mutex mutex_;
  std::vector<Loaded> loaded_;
};

void work() {
  State& s = state();
  while (true) {
    std::shared_ptr<Job> job;
    {
      std::unique_lock lock(s.mutex);
      s.work.wait(lock, [&] { return s.stopping || !s.queue.empty(); });
      if (s.stopping) return;
      job = std::move(s.queue.front());
      s.queue.pop_front();
    }
    if (job->claim()) job->make();
  }
}

// At the end of the process (base/exit.h), compilations that have not begun are dropped. A thread that still needs one does it itself.
void stop() {
  State& s = state();
  if (s.owner != getpid()) return;
  {
    std::lock_guard lock(s.mutex);
    s.stopping = true;
    s.queue.clear();
  }
  s.work.notify_all();
}

const AtFork g_at_fork{ForkOrder::Compiler, [] { state().mutex.lock(); }, [](bool) { state().mutex.unlock(); }};

void start_threads(State& s) {
  if (s.owner != 0 || s.stopping) return;
  constexpr unsigned kMostThreads = 16;
  at_exit(stop);
  s.owner = getpid();
  const unsigned n = std::min(kMostThreads, std::max(1u, std::thread::hardware_concurrency()));
  for (unsigned i = 0; i < n; ++i) std::thread(work).detach();  // they outlive static destruction: all they use does
}

}  // namespace

std::string whole_source(std::string_view source) {
  std::string whole;
  while (source.starts_with(kSourceLine)) {
    const size_t end = source.find('\n');
    const std::string_view name = source.substr(kSourceLine.size(), end - kSourceLine.size() - 1);
    const std::string_view text = device_source(fmt::format("kernels/{}", name));
    PF_CHECK(!text.empty(), Runtime, "compile: a source is not part of this build; got '{}'", name);
    whole += text;
    source.remove_prefix(end + 1);
  }
  return whole.append(source);
}

std::string compile_for(DeviceType type, const std::string& arch, const std::string& source) {
  const Rtc& r = rtc(type);
  const LibraryCall call;
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

std::shared_ptr<Compilation> compile_later(DeviceType type, const std::string& arch, std::string source) {
  State& s = state();
  const std::string key = fmt::format("{}:{}:{}", static_cast<int>(type), arch, source);
  std::lock_guard lock(s.mutex);
  if (const auto it = s.jobs.find(key); it != s.jobs.end()) return it->second;
  auto job = std::make_shared<Job>(key, type, arch, std::move(source));
  bool compiler = true;
  try {
    rtc(type);
  } catch (const Error&) {
    compiler = false;  // the error is raised when the kernel runs
  }
  if (compiler) start_threads(s);
  s.jobs.emplace(key, job);
  if (compiler && s.owner == getpid() && !s.stopping) {
    s.queue.push_back(job);
    s.work.notify_one();
  }
  return job;
}

Function compile(GpuDevice& device, const std::string& source, const std::string& name) {
  return compile_later(device.rt().type, device.arch().name, source)->on(device, name.c_str());
}

CompileStats compile_stats() {
  State& s = state();
  std::lock_guard lock(s.mutex);
  return s.stats;
}

}  // namespace pyflame::gpu
