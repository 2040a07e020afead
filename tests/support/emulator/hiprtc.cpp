// The run-time compiler of the emulator: the host's compiler with a prelude in front of the text, and a shared library as the code object.
// What it makes is linked against the emulated runtime beside this library, which has the barriers and lane exchanges that kernels call.
#include <dlfcn.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cctype>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include "code_object.h"
#include "prelude_text.h"
#include "settings.h"

#define EXPORT extern "C" __attribute__((visibility("default"))) int

extern "C" char** environ;

using namespace pyflame::emulator;

namespace {

constexpr int kCompilation = 6, kInvalidProgram = 4;

struct Program {
  std::string source, log, code;
};

// How a kernel is compiled, but for its file names. Part of the compiler's version: code of other flags must not be taken from a cache.
constexpr const char* kFlags[] = {
    PYFLAME_EMULATOR_CXX,
    "-std=c++17",
    "-O1",
    "-ffp-contract=off",
    "-fno-math-errno",
    "-fno-strict-aliasing",
    "-fPIC",
    "-shared",
    "-nostartfiles",
    "-fvisibility=hidden",
    "-fno-exceptions",
    "-fno-rtti",
    "-w",
#if defined(__SANITIZE_ADDRESS__)
    "-fsanitize=address",
    "-g1",
    "-fno-omit-frame-pointer",
#else
    "-nodefaultlibs",
    "-fno-asynchronous-unwind-tables",
#endif
#if defined(__GNUC__) && !defined(__clang__)
    "-fno-gnu-unique",
    "-fno-weak",
#endif
};

std::string own_folder() {
  Dl_info info{};
  dladdr(reinterpret_cast<void*>(&own_folder), &info);
  const std::string path = info.dli_fname ? info.dli_fname : "";
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : path.substr(0, slash);
}

// A kernel that says which tensors it has calls __asan_load4_noabort() and its like (bounds.cpp) at each access. AddressSanitizer checks by itself.
std::vector<std::string> checks([[maybe_unused]] const std::string& source) {
#if !defined(__SANITIZE_ADDRESS__)
  if (settings().bounds && source.find("\nPF_TENSOR(") != std::string::npos) {
    std::vector<std::string> all{"-fsanitize=kernel-address"};
#if defined(__clang__)
    const char* how = "-mllvm";
    const std::string prefix = "-asan-";
#else
    const char* how = "--param";
    const std::string prefix = "asan-";
#endif
    for (const char* each : {"instrumentation-with-call-threshold=0", "stack=0", "globals=0"})
      all.insert(all.end(), {how, prefix + each});
    return all;
  }
#endif
  return {};
}

// A line of PF_EMULATED_ENTRY for each "PF_KERNEL(threads) name(" that is not the macro's own definition.
std::string entries(const std::string& source) {
  std::string text;
  const std::string word = "PF_KERNEL(";
  for (size_t at = source.find(word); at != std::string::npos; at = source.find(word, at + 1)) {
    const size_t line = source.rfind('\n', at) + 1;
    if (source.compare(line, 7, "#define") == 0 || source.substr(line, at - line).find("//") != std::string::npos)
      continue;
    size_t end = at + word.size();
    for (int depth = 1; end < source.size() && depth > 0; ++end)
      depth += source[end] == '(' ? 1 : source[end] == ')' ? -1 : 0;
    const std::string threads = source.substr(at + word.size(), end - 1 - at - word.size());
    while (end < source.size() && std::isspace(static_cast<unsigned char>(source[end]))) ++end;
    size_t name_end = end;
    while (name_end < source.size() &&
           (std::isalnum(static_cast<unsigned char>(source[name_end])) || source[name_end] == '_'))
      ++name_end;
    text += "PF_EMULATED_ENTRY(" + source.substr(end, name_end - end) + ", (" + threads + "))\n";
  }
  return text;
}

bool write_file(const std::string& path, const std::string& text) {
  std::ofstream out(path, std::ios::binary);
  out << text;
  return static_cast<bool>(out.flush());
}

// The whole file or none, whoever else reads or writes it.
bool publish(const std::string& path, const std::string& text) {
  const std::string part = path + "." + std::to_string(getpid());
  return write_file(part, text) && std::rename(part.c_str(), path.c_str()) == 0;
}

std::string hex(const std::string& text) {
  char digits[17];
  std::snprintf(digits, sizeof digits, "%016llx", static_cast<unsigned long long>(checksum(text.data(), text.size())));
  return digits;
}

std::string flags() {
  std::string all = __VERSION__;
  for (const char* f : kFlags) all += std::string(" ") + f;
  return all;
}

std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

// Exit code of the command; its output in a file.
int run(const std::vector<std::string>& command, const std::string& output) {
  std::vector<char*> raw;
  for (const std::string& c : command) raw.push_back(const_cast<char*>(c.c_str()));
  raw.push_back(nullptr);
  // A library that was loaded ahead of the program (a sanitizer's) is not for the compiler.
  std::vector<char*> variables;
  for (char** e = environ; *e; ++e)
    if (std::strncmp(*e, "LD_PRELOAD=", 11) != 0) variables.push_back(*e);
  variables.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 1, output.c_str(), 0x241 /* write, create, truncate */, 0600);
  posix_spawn_file_actions_adddup2(&actions, 1, 2);
  pid_t child = 0;
  int status = -1;
  const int error = posix_spawnp(&child, raw[0], &actions, nullptr, raw.data(), variables.data());
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) {
    write_file(output, "the compiler did not start: " + command[0]);
    return -1;
  }
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

// What a matrix instruction of the architecture wants of a lane (prelude.h); 0: it has none.
int matrix_depth(const std::string& arch) {
  const std::string generation = arch.substr(0, 5);
  if (generation == "gfx11") return 16;
  if (generation == "gfx12") return 8;
  for (const char* a : {"gfx908", "gfx90a", "gfx940", "gfx941", "gfx942", "gfx950"})
    if (arch == a) return 4;
  return 0;
}

// Instead of compile(): the source alone is kept, once, however many processes have it.
int keep_text(Program& p) {
  const std::string path = settings().texts + "/" + hex(p.source) + ".hip";
  if (access(path.c_str(), F_OK) != 0 && !publish(path, p.source)) {
    p.log = "the folder of PYFLAME_EMULATOR_TEXTS cannot be written: " + settings().texts;
    return kCompilation;
  }
  p.code.assign(kNoCode, sizeof kNoCode);
  return 0;
}

void take_code(Program& p, const std::string& code) {
  CodeHeader header{};
  std::memcpy(header.magic, kMagic, sizeof kMagic);
  header.bytes = code.size();
  header.checksum = checksum(code.data(), code.size());
  p.code.assign(reinterpret_cast<const char*>(&header), sizeof header);
  p.code += code;
}

int compile(Program& p, const std::string& arch) {
  const int wave = arch.rfind("gfx9", 0) == 0 ? 64 : 32;
  const std::string text = "#define PF_EMULATED_WAVE " + std::to_string(wave) + "\n#define PF_EMULATED_DEPTH " +
                           std::to_string(matrix_depth(arch)) +
                           (arch == "gfx90a" ? "\n#define PF_EMULATED_FLUSH 1\n" : "\n") + kPrelude +
                           "\n#line 1 \"kernel\"\n" + p.source + "\n#line 1 \"entries\"\n" + entries(p.source);
  const std::vector<std::string> further = checks(p.source);
  std::string all_flags = flags();
  for (const std::string& f : further) all_flags += " " + f;
  const std::string kept_code =
      settings().codes.empty() ? "" : settings().codes + "/" + hex(text) + hex(all_flags) + ".so";
  if (!kept_code.empty() && access(kept_code.c_str(), F_OK) == 0) {
    take_code(p, read_file(kept_code));
    return 0;
  }
  const char* folder = std::getenv("TMPDIR");
  std::string work = std::string(folder && *folder ? folder : "/tmp") + "/pyflame-emulator-XXXXXX";
  if (!mkdtemp(work.data())) {
    p.log = "no temporary folder: " + work;
    return kCompilation;
  }
  const std::string in = work + "/kernel.cpp", out = work + "/kernel.so", log = work + "/log";
  std::vector<std::string> command(std::begin(kFlags), std::end(kFlags));
  command.insert(command.end(), further.begin(), further.end());
  command.insert(command.end(), {"-o", out, in, own_folder() + "/libamdhip64.so.7", "-lm", "-lc"});
  int result = kCompilation;
  if (!write_file(in, text)) p.log = "the temporary folder cannot be written: " + work;
  else if (run(command, log) == 0) result = 0;
  if (result == 0) {
    const std::string code = read_file(out);
    take_code(p, code);
    if (!kept_code.empty()) publish(kept_code, code);  // where it cannot be kept, it is compiled again
  } else if (p.log.empty()) p.log = read_file(log);
  static std::atomic<int> kept = 0;
  if (!settings().keep.empty())
    write_file(settings().keep + "/" + std::to_string(getpid()) + "-" + std::to_string(kept++) + ".cpp", text);
  for (const std::string& file : {in, out, log}) unlink(file.c_str());
  rmdir(work.c_str());
  return result;
}

// Real compilers have state that their exit handlers free, and they register those at their first use: a thread that is inside then
// crashes or hangs. This one says so instead.
class Inside {
 public:
  Inside() {
    static const int once = std::atexit(take_down);
    static_cast<void>(once);
    ++g_inside;
    if (g_taken_down) refuse("it is called after its exit handlers have run");
  }
  ~Inside() {
    if (g_taken_down) refuse("its exit handlers have run before its call returned");
    --g_inside;
  }
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;

 private:
  static void refuse(const char* what) {
    std::fprintf(stderr, "emulator: hiprtc: %s\n", what);
    std::abort();
  }
  static void take_down() {
    g_taken_down = true;
    if (g_inside > 0) refuse("its exit handlers run while a thread compiles");
  }
  static inline std::atomic<int> g_inside{0};
  static inline std::atomic<bool> g_taken_down{false};
};

}  // namespace

EXPORT hiprtcVersion(int* major, int* minor) {
  std::string all = flags() + kPrelude;
  *major = 0;
  if (!settings().bounds) all += "no bounds";
  if (!settings().texts.empty()) all += kNoCode;  // nothing of it in a cache of kernels that run
  *minor = static_cast<int>(checksum(all.data(), all.size()) & 0x7fffffff);
  return 0;
}

EXPORT hiprtcCreateProgram(void** program, const char* source, const char*, int, const char* const*,
                           const char* const*) {
  auto* p = new Program;
  p->source = source;
  *program = p;
  return 0;
}

EXPORT hiprtcCompileProgram(void* program, int count, const char* const* options) {
  const Inside inside;
  Program& p = *static_cast<Program*>(program);
  if (!settings().slow_word.empty() && p.source.find(settings().slow_word) != std::string::npos) {
    write_file(settings().slow_begun, "");
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(settings().slow_seconds);
    while (std::chrono::steady_clock::now() < end && std::filesystem::exists(settings().slow_begun))
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  if (fails(Fault::compile)) {
    p.log = "kernel:1:1: error: this compilation fails, as it was told to";
    return kCompilation;
  }
  if (!settings().texts.empty()) return keep_text(p);
  const std::string option = "--offload-arch=";
  for (int i = 0; i < count; ++i)
    if (const std::string o = options[i]; o.rfind(option, 0) == 0) return compile(p, o.substr(option.size()));
  p.log = "error: no --offload-arch";
  return kInvalidProgram;
}

EXPORT hiprtcGetProgramLogSize(void* program, size_t* size) {
  *size = static_cast<Program*>(program)->log.size() + 1;
  return 0;
}
EXPORT hiprtcGetProgramLog(void* program, char* log) {
  std::strcpy(log, static_cast<Program*>(program)->log.c_str());
  return 0;
}
EXPORT hiprtcGetCodeSize(void* program, size_t* size) {
  *size = static_cast<Program*>(program)->code.size();
  return 0;
}
EXPORT hiprtcGetCode(void* program, char* code) {
  const std::string& c = static_cast<Program*>(program)->code;
  std::memcpy(code, c.data(), c.size());
  return 0;
}
EXPORT hiprtcDestroyProgram(void** program) {
  delete static_cast<Program*>(*program);
  *program = nullptr;
  return 0;
}
