// libstdc++'s demangler refuses symbols beyond about 1,000 characters, and template libraries of GPU kernels have longer ones: of those
// the qualified name is read here, which is what a person looks for.
#include <cxxabi.h>

#include <cstdlib>

#include "pyflame/inspect/code_object.h"

namespace pyflame::inspect {

namespace {

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

std::string demangle(const std::string& symbol) {
  if (!symbol.starts_with("_Z")) return symbol;
  int status = 0;
  char* text = abi::__cxa_demangle(symbol.c_str(), nullptr, nullptr, &status);
  if (status == 0 && text) {
    std::string out(text);
    std::free(text);
    return out;
  }
  std::free(text);
  const std::string name = qualified_name(symbol);
  return name.empty() ? symbol : name;
}

}  // namespace pyflame::inspect
