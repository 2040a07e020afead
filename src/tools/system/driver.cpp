// Facts about the kernel's driver: whether the amdgpu module is installed and loaded, what keeps it from loading, and whether this user may
// open its devices.
#include <fmt/format.h>

#include <algorithm>

#include "tools/system/probes.h"

namespace pyflame::tools::system {

using nlohmann::json;

namespace {

// The file with a line that forbids the module: a file of modprobe, or the kernel's command line; null if there is none.
json blacklisted_in(const Host& host) {
  for (const char* folder : {"/etc/modprobe.d", "/run/modprobe.d", "/lib/modprobe.d", "/usr/lib/modprobe.d"})
    for (const std::string& name : host.list(folder)) {
      if (name.size() < 6 || name.compare(name.size() - 5, 5, ".conf") != 0) continue;
      const std::string path = std::string(folder) + "/" + name;
      const Reading r = host.read(path);
      for (std::string_view line : split(r.text, '\n')) {
        line = trim(line);
        if (line == "blacklist amdgpu" ||
            (line.rfind("install amdgpu ", 0) == 0 && (contains(line, "/false") || contains(line, "/true"))))
          return path;
      }
    }
  const std::string cmdline = " " + host.line("/proc/cmdline").value_or("") + " ";
  for (const char* option : {"modprobe.blacklist=", "module_blacklist="})
    if (const size_t at = cmdline.find(option); at != cmdline.npos) {
      std::string_view rest = std::string_view(cmdline).substr(at + std::string_view(option).size());
      for (std::string_view module : split(rest.substr(0, rest.find(' ')), ','))
        if (module == "amdgpu") return "/proc/cmdline";
    }
  return nullptr;
}

// The module's file for the running kernel; null if there is none.
json module_file(const Host& host) {
  const auto kernel = host.line("/proc/sys/kernel/osrelease");
  if (!kernel || contains(*kernel, "/")) return nullptr;
  for (const char* folder : {"updates/dkms", "extra", "extra/amdgpu", "updates", "weak-updates/amdgpu",
                             "kernel/drivers/gpu/drm/amd/amdgpu"}) {
    const std::string path = fmt::format("/lib/modules/{}/{}", *kernel, folder);
    for (const std::string& name : host.list_if(path, [](std::string_view n) { return n.rfind("amdgpu.ko", 0) == 0; }))
      return path + "/" + name;
  }
  return nullptr;
}

json dkms_version(const Host& host) {
  for (const std::string& name :
       host.list_if("/usr/src", [](std::string_view n) { return n.rfind("amdgpu-", 0) == 0; }))
    if (name.size() > 7 && name[7] >= '0' && name[7] <= '9') return name.substr(7);
  return nullptr;
}

}  // namespace

json driver_facts(const Host& host) {
  const std::optional<std::string> state = host.line("/sys/module/amdgpu/initstate"),
                                   version = host.line("/sys/module/amdgpu/version");
  const bool loaded = state ? *state == "live" : host.exists("/sys/module/amdgpu");
  const json file = module_file(host), dkms = dkms_version(host);
  const bool from_dkms = version || (file.is_string() && !contains(file.get<std::string>(), "/kernel/drivers/"));
  return {{"loaded", loaded},
          {"initstate", or_null(state)},
          {"version", or_null(version)},
          {"rocm", or_null(version ? rocm_of_driver(*version) : std::string())},
          {"kind", loaded || !file.is_null() ? json(from_dkms ? "dkms" : "kernel") : json()},
          {"module", file},
          {"dkms_source", dkms},
          {"blacklisted", blacklisted_in(host)},
          {"nomodeset", contains(" " + host.line("/proc/cmdline").value_or("") + " ", " nomodeset ")},
          {"nvidia_loaded", host.exists("/sys/module/nvidia")}};
}

json kfd_facts(const Host& host, const Kfd& kfd) {
  const Status s = host.status("/dev/kfd");
  json out = {{"exists", s.exists},
              {"readable", s.readable},
              {"writable", s.writable},
              {"group", or_null(s.group)},
              {"gid", s.exists ? json(s.gid) : json()},
              {"mode", s.exists ? json(fmt::format("{:04o}", s.mode)) : json()},
              {"topology", kfd.present},
              {"nodes", kfd.nodes.size()},
              {"denied_nodes", kfd.denied}};
  // Whether the user was added to the group, but has not logged in again since.
  bool listed = false;
  const User user = host.user();
  const Reading all_groups = s.exists && !user.in_group(s.gid) ? host.read("/etc/group") : Reading();
  for (std::string_view line : split(all_groups.text, '\n')) {
    const std::vector<std::string_view> fields = split(line, ':');
    if (fields.size() < 4 || fields[0] != s.group) continue;
    const std::vector<std::string_view> members = split(trim(fields[3]), ',');
    listed = std::find(members.begin(), members.end(), user.name) != members.end();
  }
  out["group_not_active"] = listed;
  return out;
}

}  // namespace pyflame::tools::system
