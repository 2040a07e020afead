#include "tools/inspect/demangle.h"

#include <cxxabi.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <string_view>

namespace pyflame::tools::inspect {

namespace {

// 40 references, three on each level, multiply the text by 3^13. That takes less than a second and 50 MB. After several such names, a file gets a lower limit.
constexpr size_t kMostReferences = 40, kFewReferences = 16;
constexpr int kMostAbsurd = 8;
constexpr size_t kLongestName = 64 << 10;

// "S_", "S1_", "T_", "T0_": references to an earlier part.
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

// "_ZN2ck16kernel_gemm_xdlsINS_…" -> "ck::kernel_gemm_xdls<…>"; empty if the symbol starts otherwise.
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
  if (back_references(symbol) <= (absurd_ < kMostAbsurd ? kMostReferences : kFewReferences)) {
    int status = 0;
    const std::unique_ptr<char, decltype(&std::free)> text(
        abi::__cxa_demangle(symbol.c_str(), nullptr, nullptr, &status), &std::free);
    const bool read = status == 0 && text;
    if (read && std::strlen(text.get()) <= kLongestName) return text.get();
    absurd_ += read;
  }
  const std::string name = qualified_name(symbol);
  return name.empty() ? symbol : name;
}

}  // namespace pyflame::tools::inspect
