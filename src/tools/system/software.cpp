// Finds the installed ROCm by the names of its files. No library is loaded and no program is run.
#include <algorithm>
#include <set>

#include "tools/system/probes.h"

namespace pyflame::tools::system {

using nlohmann::json;

namespace {

struct Install {
  std::string path, version;
};

// The version that an installation names; empty if it names none.
std::string version_in(const Host& host, const std::string& folder) {
  for (const char* file : {"/.info/version", "/.info/version-rocm", "/.info/version-dev"})
    if (const auto line = host.line(folder + file); line && parse_version(*line)) return *line;
  const size_t dash = folder.rfind('-');
  if (dash != folder.npos && parse_version(folder.substr(dash + 1))) return folder.substr(dash + 1);
  return "";
}

// ROCm's own packages use lib. Packages of a distribution use the distribution's folder for libraries.
std::vector<std::string> library_folders(const std::string& prefix) {
  std::vector<std::string> out;
  for (const char* folder : {"/lib", "/lib64", "/lib/x86_64-linux-gnu", "/lib/aarch64-linux-gnu"})
    out.push_back(prefix + folder);
  return out;
}

struct Library {
  std::string path, version;
};

// The name of a library in the facts, and its file's name between lib and .so.
constexpr std::pair<const char*, const char*> kLibraries[] = {
    {"hip", "amdhip64"},
    {"hsa", "hsa-runtime64"},
    {"rocblas", "rocblas"},
    {"hipblaslt", "hipblaslt"},
    {"miopen", "MIOpen"},
    {"rccl", "rccl"},
    {"hiprtc", "hiprtc"},
    {"comgr", "amd_comgr"},
    {"rocfft", "rocfft"},
    {"hipblas", "hipblas"},
    {"roctracer", "roctracer64"},
    {"rocprofiler", "rocprofiler64"},
    {"rocprofiler-sdk", "rocprofiler-sdk"},
};

bool is_library(std::string_view name, std::string_view stem) {
  return name.rfind("lib", 0) == 0 && name.compare(3, stem.size(), stem) == 0 &&
         name.compare(3 + stem.size(), 3, ".so") == 0;
}

std::vector<std::string> library_names(const Host& host, const std::string& folder) {
  return host.list_if(folder, [](std::string_view name) {
    return std::any_of(std::begin(kLibraries), std::end(kLibraries),
                       [&](const auto& l) { return is_library(name, l.second); });
  });
}

// libamdhip64.so, libamdhip64.so.6, libamdhip64.so.6.3.60300: the longest name has the full version.
std::optional<Library> find_library(const std::string& folder, const std::vector<std::string>& names,
                                    const std::string& stem) {
  std::optional<Library> best;
  const size_t end = 3 + stem.size() + 3;  // of lib….so
  for (const std::string& name : names) {
    if (!is_library(name, stem)) continue;
    std::string version = name.size() > end + 1 && name[end] == '.' ? name.substr(end + 1) : "";
    if (!best || version.size() > best->version.size()) best = Library{folder + "/" + name, std::move(version)};
  }
  return best;
}

std::optional<Library> find_library(const Host& host, const std::string& prefix, const std::string& stem) {
  for (const std::string& folder : library_folders(prefix))
    if (auto library = find_library(folder, library_names(host, folder), stem)) return library;
  return std::nullopt;
}

std::vector<Install> find_installs(const Host& host, const Environment& environment) {
  std::vector<Install> out;
  std::set<std::string> seen;
  const auto add = [&](const std::string& folder) {
    const std::string real = host.real_path(folder).value_or(folder);
    if (!seen.insert(real).second) return;
    std::string version = version_in(host, folder);
    if (version.empty()) version = version_in(host, real);
    const std::optional<Library> hip = find_library(host, real, "amdhip64");
    if (!hip && !find_library(host, real, "hsa-runtime64") && (version.empty() || !host.exists(real + "/.info")))
      return;
    // HIP's version begins with that of its ROCm: HIP 5.7.31921 belongs to ROCm 5.7.
    if (const Version v = hip ? parse_version(hip->version) : Version(); version.empty() && v.minor + v.patch > 0)
      version = std::to_string(v.major) + "." + std::to_string(v.minor);
    out.push_back({real, std::move(version)});
  };
  for (const char* name : {"ROCM_PATH", "ROCM_HOME", "HIP_PATH"})
    if (const auto it = environment.find(name); it != environment.end() && it->second.rfind('/', 0) == 0)
      add(it->second);
  if (host.exists("/opt/rocm")) add("/opt/rocm");
  for (const std::string& name : host.list_if("/opt", [](std::string_view n) { return n.rfind("rocm-", 0) == 0; }))
    add("/opt/" + name);
  for (const std::string& name :
       host.list_if("/opt/rocm", [](std::string_view n) { return n == "core" || n.rfind("core-", 0) == 0; }))
    add("/opt/rocm/" + name);
  add("/usr");  // packages of the distributions
  return out;
}

// "…_gfx90a-xnack+.hsaco" → "gfx90a".
std::string gfx_in(std::string_view name) {
  const size_t at = name.find("gfx");
  if (at == name.npos) return "";
  size_t end = at + 3;
  while (end < name.size() && ((name[end] >= '0' && name[end] <= '9') || (name[end] >= 'a' && name[end] <= 'f'))) ++end;
  return end - at < 6 ? "" : std::string(name.substr(at, end - at));
}

json archs_in(const Host& host, const std::vector<std::string>& folders) {
  std::set<std::string> archs;
  for (const std::string& folder : folders)
    for (const std::string& name : host.list(folder))
      if (std::string gfx = gfx_in(name); !gfx.empty()) archs.insert(std::move(gfx));
  return archs;
}

}  // namespace

json rocm_facts(const Host& host, const Environment& environment) {
  const std::vector<Install> installs = find_installs(host, environment);
  json list = json::array(), libraries = json::object(), databases;
  for (const Install& install : installs)
    list.push_back({{"path", install.path}, {"version", or_null(install.version)}});
  for (const auto& [key, stem] : kLibraries) libraries[key] = nullptr;
  std::vector<std::string> rocblas, hipblaslt, miopen;
  std::string version;
  if (!installs.empty()) {
    const Install& first = installs.front();
    version = first.version;
    for (const std::string& folder : library_folders(first.path)) {
      const std::vector<std::string> names = library_names(host, folder);
      for (const auto& [key, stem] : kLibraries) {
        if (!libraries[key].is_null()) continue;
        if (const auto library = find_library(folder, names, stem))
          libraries[key] = {{"path", library->path}, {"version", or_null(library->version)}};
      }
      rocblas.push_back(folder + "/rocblas/library");
      hipblaslt.push_back(folder + "/hipblaslt/library");
    }
    miopen.push_back(first.path + "/share/miopen/db");
  }
  // "gfx942130.HIP.fdb.txt": architecture and number of compute units, as MIOpen writes them
  std::set<std::string> shipped;
  for (const std::string& folder : miopen)
    for (const std::string& name : host.list_if(folder, [](std::string_view n) { return n.rfind("gfx", 0) == 0; }))
      shipped.insert(name.substr(0, name.find('.')));
  return {{"version", or_null(version.substr(0, version.find('-')))},
          {"installs", std::move(list)},
          {"libraries", std::move(libraries)},
          {"miopen_db", shipped},
          {"rocblas_archs", archs_in(host, rocblas)},
          {"hipblaslt_archs", archs_in(host, hipblaslt)}};
}

}  // namespace pyflame::tools::system
