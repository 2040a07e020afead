#include "tools/inspect/disasm_find.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <set>
#include <string_view>

namespace pyflame::tools::inspect {

namespace fs = std::filesystem;

namespace {

// "llvm-9" comes before "llvm-22": numbers in names are compared as numbers.
bool natural_less(std::string_view a, std::string_view b) {
  const auto digit = [](char c) { return c >= '0' && c <= '9'; };
  size_t i = 0, j = 0;
  while (i < a.size() && j < b.size()) {
    if (digit(a[i]) && digit(b[j])) {
      const size_t start_a = i, start_b = j;
      while (i < a.size() && digit(a[i])) ++i;
      while (j < b.size() && digit(b[j])) ++j;
      const std::string_view x = a.substr(start_a, i - start_a), y = b.substr(start_b, j - start_b);
      if (x.size() != y.size()) return x.size() < y.size();
      if (x != y) return x < y;
    } else {
      if (a[i] != b[j]) return a[i] < b[j];
      ++i;
      ++j;
    }
  }
  return a.size() - i < b.size() - j;
}

std::vector<fs::path> entries(const fs::path& folder, std::string_view prefix) {
  std::vector<fs::path> found;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    if (it->path().filename().string().starts_with(prefix)) found.push_back(it->path());
  }
  std::sort(found.begin(), found.end(),
            [](const fs::path& a, const fs::path& b) { return natural_less(b.native(), a.native()); });
  return found;
}

class Search {
 public:
  std::vector<DisassemblerKind> result() {
    std::vector<DisassemblerKind> all = libraries_;
    all.insert(all.end(), comgrs_.begin(), comgrs_.end());
    all.insert(all.end(), tools_.begin(), tools_.end());
    return all;
  }

  void file(const fs::path& path) {
    const std::string name = path.filename().string();
    if (name.find("objdump") != std::string::npos) add(tools_, DisassemblerKind::Kind::tool, path);
    else if (name.find("comgr") != std::string::npos) add(comgrs_, DisassemblerKind::Kind::comgr, path);
    else if (name.find(".so") != std::string::npos) add(libraries_, DisassemblerKind::Kind::library, path);
  }

  void folder(const fs::path& path) {
    // libLLVM.so, libLLVM-15.so.1, libLLVM.so.22.1, but not libLLVMSupport.so of a build with component libraries.
    for (const fs::path& p : entries(path, "libLLVM")) {
      const std::string rest = p.filename().string().substr(7);
      if ((rest.starts_with(".so") || rest.starts_with("-")) && rest.find(".so") != std::string::npos) file(p);
    }
    for (const fs::path& p : entries(path, "libamd_comgr.so")) file(p);
    for (const fs::path& p : entries(path, "llvm-objdump")) file(p);
  }

  // An installation of LLVM or ROCm, or the folder of the libraries or tools itself.
  void installation(const fs::path& path) {
    for (const char* part : {"", "lib", "lib64", "bin", "llvm/lib", "llvm/bin", "lib/llvm/lib", "lib/llvm/bin"})
      folder(part[0] ? path / part : path);
  }

 private:
  void add(std::vector<DisassemblerKind>& list, DisassemblerKind::Kind kind, const fs::path& path) {
    std::error_code error;
    const fs::path real = fs::canonical(path, error);
    if (error || !fs::is_regular_file(real, error) || !seen_.insert(real.native()).second) return;
    // A link is not resolved: distributions link many tools to one program, which checks the name that it was called by.
    list.push_back({kind, kind == DisassemblerKind::Kind::tool ? path.native() : real.native()});
  }

  std::set<std::string> seen_;
  std::vector<DisassemblerKind> libraries_, comgrs_, tools_;
};

}  // namespace

std::vector<DisassemblerKind> find_disassemblers(const std::string& given) {
  Search s;
  if (!given.empty()) {
    std::error_code error;
    if (fs::is_directory(given, error)) s.installation(given);
    else s.file(given);
    return s.result();
  }
  for (const char* variable : {"LLVM_PATH", "ROCM_PATH", "HIP_PATH"}) {
    const char* path = std::getenv(variable);
    if (path && *path) s.installation(path);
  }
  for (const fs::path& p : entries("/opt", "rocm")) s.installation(p);
  // PyTorch for ROCm contains comgr, and ROCm is also available as a wheel.
  for (const char* variable : {"VIRTUAL_ENV", "CONDA_PREFIX"}) {
    const char* path = std::getenv(variable);
    if (!path || !*path) continue;
    for (const fs::path& python : entries(fs::path(path) / "lib", "python3")) {
      s.folder(python / "site-packages/torch/lib");
      s.installation(python / "site-packages/_rocm_sdk_core");
    }
  }
  for (const fs::path& p : entries("/usr/lib", "llvm")) s.installation(p);
  for (const char* p :
       {"/usr/lib64/rocm/llvm", "/usr/lib64", "/usr/lib/x86_64-linux-gnu", "/usr/lib", "/usr/local/lib"})
    s.folder(p);
  const char* path = std::getenv("PATH");
  for (std::string_view rest = path ? path : ""; !rest.empty();) {
    const size_t colon = rest.find(':');
    const std::string_view part = rest.substr(0, colon);
    if (!part.empty() && part.front() == '/') {
      for (const fs::path& p : entries(part, "llvm-objdump")) s.file(p);
    }
    rest = colon == std::string_view::npos ? std::string_view() : rest.substr(colon + 1);
  }
  return s.result();
}

}  // namespace pyflame::tools::inspect
