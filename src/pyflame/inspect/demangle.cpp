#include "pyflame/inspect/demangle.h"

#include <cxxabi.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string_view>

namespace pyflame::inspect {

namespace {

constexpr rlim_t kMostMemory = rlim_t{256} << 20;
constexpr int kMostFailures = 3;                // each may take a second
constexpr size_t kHarmlessBackReferences = 24;  // three to a level multiply by 3^8 at most
constexpr size_t kLongestName = 1 << 20;
constexpr size_t kLongestSymbol = 1000;  // that the library reads

#if defined(__SANITIZE_ADDRESS__)
constexpr bool kMayLimit = false;  // it ends the program where memory is short
#else
constexpr bool kMayLimit = true;
#endif

// Data of the process in bytes, as RLIMIT_DATA counts it; 0 when unknown.
rlim_t data_size() {
  std::FILE* f = std::fopen("/proc/self/statm", "r");
  if (!f) return 0;
  unsigned long pages = 0;
  const int n = std::fscanf(f, "%*u %*u %*u %*u %*u %lu", &pages);
  std::fclose(f);
  return n == 1 ? static_cast<rlim_t>(pages) * static_cast<rlim_t>(::sysconf(_SC_PAGESIZE)) : 0;
}

class MemoryBound {
 public:
  MemoryBound() {
    const rlim_t now = data_size();
    if (!kMayLimit || now == 0 || ::getrlimit(RLIMIT_DATA, &before_) != 0) return;
    rlimit limit = before_;
    if (limit.rlim_cur == RLIM_INFINITY || limit.rlim_cur > now + kMostMemory) limit.rlim_cur = now + kMostMemory;
    holds_ = ::setrlimit(RLIMIT_DATA, &limit) == 0;
  }
  ~MemoryBound() {
    if (holds_) ::setrlimit(RLIMIT_DATA, &before_);
  }
  MemoryBound(const MemoryBound&) = delete;
  MemoryBound& operator=(const MemoryBound&) = delete;
  bool holds() const { return holds_; }

 private:
  rlimit before_{};
  bool holds_ = false;
};

// Empty where the library does not read it, or where the name is absurdly long.
std::string library_demangle(const std::string& symbol) {
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> text(abi::__cxa_demangle(symbol.c_str(), nullptr, nullptr, &status),
                                                         &std::free);
  if (status != 0 || !text || std::strlen(text.get()) > kLongestName) return {};
  return text.get();
}

// "S_", "S1_", "T_", "T0_": what stands for something earlier.
size_t back_references(std::string_view symbol) {
  size_t n = 0;
  for (size_t i = 0; i + 1 < symbol.size(); ++i) {
    if (symbol[i] != 'S' && symbol[i] != 'T') continue;
    size_t at = i + 1;
    while (at < symbol.size() && ((symbol[at] >= '0' && symbol[at] <= '9') || (symbol[at] >= 'A' && symbol[at] <= 'Z')))
      ++at;
    n += at < symbol.size() && symbol[at] == '_';
  }
  return n;
}

// "_ZN2ck16kernel_gemm_xdlsINS_…" -> "ck::kernel_gemm_xdls<…>"; empty where the symbol starts otherwise.
std::string qualified_name(std::string_view symbol) {
  size_t at = 2;
  const bool nested = at < symbol.size() && symbol[at] == 'N';
  at += nested;
  std::string out;
  while (at < symbol.size()) {
    size_t length = 0;
    const size_t digits = at;
    while (at < symbol.size() && symbol[at] >= '0' && symbol[at] <= '9' && length < symbol.size())
      length = length * 10 + static_cast<size_t>(symbol[at++] - '0');
    if (at == digits || length == 0 || length > symbol.size() - at) break;
    const std::string_view part = symbol.substr(at, length);
    if (!out.empty()) out += "::";
    out += part.starts_with("_GLOBAL__N") ? "(anonymous namespace)" : part;
    at += length;
    if (!nested) break;
  }
  if (!out.empty() && at < symbol.size() && symbol[at] == 'I') out += "<…>";
  return out;
}

}  // namespace

std::string Demangler::operator()(const std::string& symbol) {
  if (!symbol.starts_with("_Z")) return symbol;
  const bool harmless = back_references(symbol) <= kHarmlessBackReferences;
  std::string out;
  if (harmless) {
    out = library_demangle(symbol);
  } else if (failures_ < kMostFailures) {
    const MemoryBound bound;
    if (bound.holds()) out = library_demangle(symbol);
    failures_ += out.empty() && symbol.size() < kLongestSymbol;
  }
  if (!out.empty()) return out;
  const std::string name = qualified_name(symbol);
  return name.empty() ? symbol : name;
}

}  // namespace pyflame::inspect
