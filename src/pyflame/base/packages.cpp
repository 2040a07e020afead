// Finds the site-packages of a program without Python.
#include "pyflame/base/packages.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <utility>

namespace pyflame {

namespace {

namespace fs = std::filesystem;

std::vector<std::string>& given() {
  static auto* folders = new std::vector<std::string>;  // leaked: threads may outlive static destruction
  return *folders;
}

void add_site_packages(const fs::path& prefix, std::vector<std::string>& to) {
  std::error_code ec;
  for (fs::directory_iterator entry(prefix / "lib", ec), end; !ec && entry != end; entry.increment(ec)) {
    const fs::path folder = entry->path() / "site-packages";
    std::error_code none;
    if (entry->path().filename().string().starts_with("python3") && fs::is_directory(folder, none))
      to.push_back(folder.string());
  }
}

}  // namespace

void set_package_folders(std::vector<std::string> folders) { given() = std::move(folders); }

std::vector<std::string> package_folders() {
  if (!given().empty()) return given();
  std::vector<std::string> found;
  std::error_code ec;
  if (const fs::path program = fs::read_symlink("/proc/self/exe", ec); !ec)
    add_site_packages(program.parent_path().parent_path(), found);
  for (const char* variable : {"VIRTUAL_ENV", "CONDA_PREFIX"})
    if (const char* prefix = std::getenv(variable)) add_site_packages(prefix, found);
  return found;
}

}  // namespace pyflame
