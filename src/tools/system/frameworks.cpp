// Finds Python frameworks without running Python: the names of *.dist-info folders say package and version, and torch/version.py says
// for which HIP it was built. It searches the folders from which the python on PATH, or that of the active environment, would import.
#include <algorithm>
#include <map>
#include <set>

#include "tools/system/probes.h"

namespace pyflame::tools::system {

using nlohmann::json;

namespace {

struct Package {
  std::string_view distribution;  // normalised: lower case, _ for - and .
  std::string_view name, folder;  // its name in the facts; the folder with its files
};

constexpr Package kPackages[] = {
    {"torch", "torch", "torch"},
    {"jax", "jax", "jax"},
    {"jaxlib", "jaxlib", "jaxlib"},
    {"jax_rocm60_plugin", "jax-rocm", "jax_rocm60_plugin"},
    {"jax_rocm7_plugin", "jax-rocm", "jax_rocm7_plugin"},
    {"tensorflow", "tensorflow", "tensorflow"},
    {"tensorflow_rocm", "tensorflow", "tensorflow"},
    {"triton", "triton", "triton"},
    {"pytorch_triton_rocm", "triton", "triton"},
    {"triton_rocm", "triton", "triton"},
    {"vllm", "vllm", "vllm"},
    {"sglang", "sglang", "sglang"},
    {"aiter", "aiter", "aiter"},
    {"amd_aiter", "aiter", "aiter"},
    {"onnxruntime", "onnxruntime", "onnxruntime"},
    {"onnxruntime_rocm", "onnxruntime", "onnxruntime"},
    {"onnxruntime_migraphx", "onnxruntime", "onnxruntime"},
    {"flash_attn", "flash-attn", "flash_attn"},
    {"bitsandbytes", "bitsandbytes", "bitsandbytes"},
    {"deepspeed", "deepspeed", "deepspeed"},
    {"xformers", "xformers", "xformers"},
    {"cupy", "cupy", "cupy"},
    {"cupy_rocm_5_0", "cupy", "cupy"},
    {"rocm", "rocm-sdk", "rocm_sdk"},
    {"rocm_sdk_core", "rocm-sdk", "_rocm_sdk_core"},
    {"pyflame", "pyflame", "pyflame"},
};

std::string normalised(std::string_view name) {
  std::string out(name);
  for (char& c : out) c = c == '-' || c == '.' ? '_' : c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return out;
}

// "torch-2.5.1+rocm6.2.dist-info" → {"torch", "2.5.1+rocm6.2"}.
std::optional<std::pair<std::string, std::string>> distribution_of(std::string_view name) {
  constexpr std::string_view suffix = ".dist-info";
  if (name.size() <= suffix.size() || name.substr(name.size() - suffix.size()) != suffix) return std::nullopt;
  name.remove_suffix(suffix.size());
  const size_t dash = name.rfind('-');
  if (dash == name.npos || dash == 0) return std::nullopt;
  return std::pair(normalised(name.substr(0, dash)), std::string(name.substr(dash + 1)));
}

bool is_known(std::string_view name) {
  const auto distribution = distribution_of(name);
  return std::any_of(std::begin(kPackages), std::end(kPackages), [&](const Package& p) {
    return p.folder == name || (distribution && distribution->first == p.distribution);
  });
}

const std::string* find(const Environment& environment, const char* name) {
  const auto it = environment.find(name);
  return it == environment.end() || it->second.empty() ? nullptr : &it->second;
}

// Adds the folders <prefix>/lib/python3.11/{site,dist}-packages.
void add_prefix(const Host& host, const std::string& prefix, std::vector<std::string>& out) {
  for (const char* lib : {"/lib", "/lib64"})
    for (const std::string& name :
         host.list_if(prefix + lib, [](std::string_view n) { return n.rfind("python3", 0) == 0; }))
      for (const char* packages : {"site-packages", "dist-packages"}) {
        std::string folder = prefix + lib + "/" + name + "/" + packages;
        if (host.exists(folder)) out.push_back(std::move(folder));
      }
}

// Adds the folders of the first python on PATH. If it is a shim of pyenv, those of the chosen versions are added.
void add_python_on_path(const Host& host, const Environment& environment, std::vector<std::string>& out) {
  const std::string* path = find(environment, "PATH");
  const std::string everywhere = path ? *path : "/usr/local/bin:/usr/bin";
  for (std::string_view entry : split(everywhere, ':')) {
    const std::string folder(entry);
    if (folder.empty() || folder[0] != '/' || (!host.exists(folder + "/python3") && !host.exists(folder + "/python")))
      continue;
    const std::string prefix = folder.substr(0, folder.rfind('/'));
    if (folder.size() > 6 && folder.compare(folder.size() - 6, 6, "/shims") == 0) {
      const std::string* chosen = find(environment, "PYENV_VERSION");
      const std::string versions = chosen ? *chosen : host.read(prefix + "/version", 4096).text;
      for (std::string_view version : split(trim(versions), chosen ? ':' : '\n'))
        if (!version.empty() && !contains(version, "/"))
          add_prefix(host, prefix + "/versions/" + std::string(version), out);
      return;
    }
    add_prefix(host, prefix, out);
    if (prefix == "/usr") add_prefix(host, "/usr/local", out);
    return;
  }
}

// The prefix of a running python: /opt/conda/envs/x for /opt/conda/envs/x/bin/python3.11.
std::string prefix_of_process(const Host& host, int64_t pid) {
  const std::string exe = host.real_path("/proc/" + std::to_string(pid) + "/exe").value_or("");
  const size_t bin = exe.rfind("/bin/python");
  return bin == exe.npos ? "" : exe.substr(0, bin);
}

std::vector<std::string> site_folders(const Host& host, const Environment& environment, std::optional<int64_t> pid) {
  std::vector<std::string> out;
  if (const std::string* paths = find(environment, "PYTHONPATH"))
    for (std::string_view p : split(*paths, ':'))
      if (!p.empty() && p[0] == '/') out.emplace_back(p);
  bool isolated = false;
  for (const char* name : {"VIRTUAL_ENV", "CONDA_PREFIX"})
    if (const std::string* prefix = find(environment, name); prefix && !isolated) {
      add_prefix(host, *prefix, out);
      isolated = true;
    }
  if (!isolated) {
    if (const std::string* base = find(environment, "PYTHONUSERBASE")) add_prefix(host, *base, out);
    else if (const std::string* home = find(environment, "HOME")) add_prefix(host, *home + "/.local", out);
    if (const std::string prefix = pid ? prefix_of_process(host, *pid) : ""; !prefix.empty())
      add_prefix(host, prefix, out);
    else add_python_on_path(host, environment, out);
  }
  std::set<std::string> seen;
  std::vector<std::string> unique;
  for (std::string& folder : out)
    if (seen.insert(host.real_path(folder).value_or(folder)).second) unique.push_back(std::move(folder));
  return unique;
}

// The value of `name = '…'` or `name: … = '…'` in torch/version.py; empty for None.
std::string assigned(std::string_view source, std::string_view name) {
  for (std::string_view line : split(source, '\n')) {
    line = trim(line);
    if (line.rfind(name, 0) != 0) continue;
    const char next = line.size() > name.size() ? line[name.size()] : '\0';
    const size_t equals = line.find('=');
    if ((next != ' ' && next != ':' && next != '=') || equals == line.npos) continue;
    const std::string_view value = trim(line.substr(equals + 1));
    if (value.size() >= 2 && (value[0] == '\'' || value[0] == '"'))
      return std::string(value.substr(1, value.find(value[0], 1) - 1));
    return "";
  }
  return "";
}

json torch_facts(const Host& host, const std::string& folder, json entry) {
  const Reading source = host.read(folder + "/version.py", 16384);
  const std::string version = assigned(source.text, "__version__"), hip = assigned(source.text, "hip"),
                    cuda = assigned(source.text, "cuda");
  if (!version.empty()) entry["version"] = version;
  entry["hip"] = or_null(hip);
  entry["cuda"] = or_null(cuda);
  entry["bundled_rocm"] =
      !host.list_if(folder + "/lib", [](std::string_view n) { return n.rfind("libamdhip64.so", 0) == 0; }).empty();
  return entry;
}

}  // namespace

json framework_facts(const Host& host, const Environment& environment, std::optional<int64_t> pid) {
  json out = json::array();
  std::set<std::string> seen;
  for (const std::string& site : site_folders(host, environment, pid)) {
    const std::vector<std::string> names = host.list_if(site, is_known);
    // Two distributions may own one folder (triton); the first one of the list is named.
    std::map<std::string, std::string> versions;
    for (const std::string& name : names)
      if (auto distribution = distribution_of(name)) versions.insert(std::move(*distribution));
    for (const Package& package : kPackages) {
      const auto version = versions.find(std::string(package.distribution));
      const bool folder = std::find(names.begin(), names.end(), package.folder) != names.end();
      // A torch that was built from source has no dist-info, but its version.py says the version.
      if (version == versions.end() && !(package.name == "torch" && folder)) continue;
      if (!seen.insert(std::string(package.name)).second) continue;  // an earlier folder hides it
      const std::string path = site + "/" + std::string(package.folder);
      json entry = {{"name", package.name},
                    {"path", path},
                    {"version", version == versions.end() ? json() : json(version->second)},
                    {"hip", nullptr},
                    {"bundled_rocm", false}};
      if (package.name == "torch") entry = torch_facts(host, path, std::move(entry));
      if (package.name == "rocm-sdk") {
        entry["bundled_rocm"] = true;
        entry["hip"] = entry["version"];
      }
      if (version != versions.end()) entry["distribution"] = package.distribution;
      out.push_back(std::move(entry));
    }
  }
  return out;
}

}  // namespace pyflame::tools::system
