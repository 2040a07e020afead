// Settings of the machine and of the process that cost speed or stop programs: memory, CPUs, IOMMU, limits, the kind of machine.
#include <fmt/format.h>

#include <algorithm>

#include "tools/system/probes.h"

namespace pyflame::tools::system {

using nlohmann::json;

namespace {

json os_facts(const Host& host) {
  json os = {{"id", nullptr}, {"version_id", nullptr}, {"name", nullptr}};
  Reading r = host.read("/etc/os-release");
  if (!r) r = host.read("/usr/lib/os-release");
  for (std::string_view line : split(r.text, '\n')) {
    const size_t equals = line.find('=');
    if (equals == line.npos) continue;
    std::string_view value = trim(line.substr(equals + 1));
    if (value.size() >= 2 && (value.front() == '"' || value.front() == '\'') && value.back() == value.front())
      value = value.substr(1, value.size() - 2);
    const std::string_view key = trim(line.substr(0, equals));
    if (key == "ID") os["id"] = value;
    if (key == "VERSION_ID") os["version_id"] = value;
    if (key == "PRETTY_NAME") os["name"] = value;
    if (key == "ID_LIKE") os["like"] = value;
  }
  return os;
}

// The kind of container in which this process runs; null if it runs in none.
json container_of(const Host& host) {
  if (host.exists("/run/secrets/kubernetes.io") || host.exists("/var/run/secrets/kubernetes.io")) return "kubernetes";
  if (host.exists("/.dockerenv")) return "docker";
  if (host.exists("/run/.containerenv")) return "podman";
  if (host.exists("/.singularity.d")) return "apptainer";
  if (const auto name = host.line("/run/systemd/container"); name && !name->empty()) return *name;
  const std::string cgroup = host.read("/proc/1/cgroup").text, mounts = host.read("/proc/self/mountinfo").text;
  if (contains(cgroup, "kubepods")) return "kubernetes";
  if (contains(cgroup, "docker") || contains(mounts, "/docker/overlay2/")) return "docker";
  if (contains(cgroup, "libpod") || contains(mounts, "/containers/storage/overlay")) return "podman";
  if (contains(cgroup, "/lxc") || contains(mounts, "lxcfs")) return "lxc";
  if (contains(cgroup, "containerd")) return "unknown";
  return nullptr;
}

bool in_virtual_machine(const Host& host) {
  const Reading cpu = host.read("/proc/cpuinfo", 16384);
  if (const size_t flags = cpu.text.find("\nflags"); flags != std::string::npos) {
    const std::string_view line =
        std::string_view(cpu.text).substr(flags + 1, cpu.text.find('\n', flags + 1) - flags - 1);
    if (contains(line, " hypervisor")) return true;
  }
  return host.line("/sys/hypervisor/type").has_value();
}

json memory_bytes(const Host& host) {
  const Reading r = host.read("/proc/meminfo");
  for (std::string_view line : split(r.text, '\n'))
    if (line.rfind("MemTotal:", 0) == 0)
      if (const auto kib = to_number(line.substr(9, line.rfind("kB") - 9))) return *kib * 1024;
  return nullptr;
}

// "always [madvise] never" → madvise.
json bracketed(const std::optional<std::string>& line) {
  if (!line) return nullptr;
  const size_t open = line->find('['), close = line->find(']');
  return open == line->npos || close == line->npos || close < open ? json(*line)
                                                                   : json(line->substr(open + 1, close - open - 1));
}

json governors(const Host& host) {
  json out = json::object();
  for (const std::string& name : host.list("/sys/devices/system/cpu")) {
    if (name.rfind("cpu", 0) != 0 || !to_number(name.substr(3))) continue;
    if (const auto governor = host.line("/sys/devices/system/cpu/" + name + "/cpufreq/scaling_governor")) {
      json& count = out[*governor];
      count = (count.is_null() ? 0 : count.get<int64_t>()) + 1;
    }
  }
  return out;
}

json user_facts(const Host& host) {
  const User user = host.user();
  json groups = json::array(), ids = json::array();
  for (const auto& [id, name] : user.groups) {
    groups.push_back(name);
    ids.push_back(id);
  }
  return {{"uid", user.uid}, {"name", user.name}, {"groups", std::move(groups)}, {"group_ids", std::move(ids)}};
}

}  // namespace

json host_facts(const Host& host, bool deep) {
  const std::optional<std::string> kernel = host.line("/proc/sys/kernel/osrelease");
  json out = {
      {"kernel", or_null(kernel)},
      {"os", os_facts(host)},
      {"container", container_of(host)},
      {"wsl", host.exists("/dev/dxg") || (kernel && (contains(*kernel, "microsoft") || contains(*kernel, "WSL")))},
      {"dxg", host.exists("/dev/dxg")},
      {"vm", in_virtual_machine(host)},
      {"cmdline", or_null(host.line("/proc/cmdline"))},
      {"user", user_facts(host)}};
  if (!deep) return out;
  out["memory_bytes"] = memory_bytes(host);
  const std::vector<std::string> disks = host.list("/sys/block");
  out["nvme"] = disks.empty() ? json() : json(std::count_if(disks.begin(), disks.end(), [](const std::string& d) {
    return d.starts_with("nvme");
  }));
  const auto count = [&](const char* file) -> json {
    const auto line = host.line(file);
    return line ? json(count_in_ranges(*line)) : json();
  };
  out["cpus"] = count("/sys/devices/system/cpu/online");
  out["numa_nodes"] = count("/sys/devices/system/node/online");
  const auto smt = host.number("/sys/devices/system/cpu/smt/active");
  out["smt"] = smt ? json(*smt != 0) : json();
  out["numa_balancing"] = or_null(host.number("/proc/sys/kernel/numa_balancing"));
  out["thp"] = bracketed(host.line("/sys/kernel/mm/transparent_hugepage/enabled"));
  out["governors"] = governors(host);
  out["compaction_proactiveness"] = or_null(host.number("/proc/sys/vm/compaction_proactiveness"));
  out["compact_unevictable_allowed"] = or_null(host.number("/proc/sys/vm/compact_unevictable_allowed"));
  out["infiniband"] = host.list("/sys/class/infiniband");
  const std::optional<Space> shm = host.space("/dev/shm");
  out["shm_bytes"] = shm ? json(shm->bytes) : json();
  out["shm_free_bytes"] = shm ? json(shm->free) : json();
  const Environment environment = host.environment().value_or(Environment());
  const auto home = environment.find("HOME");
  const std::optional<Space> disk = home == environment.end() ? std::nullopt : host.space(home->second);
  out["home_fs"] = disk ? json(disk->type) : json();
  out["home_free_bytes"] = disk ? json(disk->free) : json();
  return out;
}

json iommu_facts(const Host& host, const std::vector<std::string>& gpu_addresses) {
  std::vector<std::string> groups;
  for (const std::string& address : gpu_addresses)
    if (const auto path = host.real_path(pci_folder(address) + "/iommu_group"))
      if (std::string group = path->substr(path->rfind('/') + 1); to_number(group)) groups.push_back(std::move(group));
  // If no GPU names its group, all groups of the machine are read.
  if (groups.empty()) groups = host.list("/sys/kernel/iommu_groups");
  if (groups.size() > 256) groups.resize(256);
  json mode;
  for (const std::string& group : groups) {
    const auto type = host.line("/sys/kernel/iommu_groups/" + group + "/type");
    if (!type) continue;
    if (mode.is_null()) mode = *type;
    if (mode != *type) mode = "mixed";
  }
  const std::string cmdline = " " + host.line("/proc/cmdline").value_or("") + " ";
  const bool asked = contains(cmdline, " iommu=pt ") || contains(cmdline, " iommu.passthrough=1 ");
  return {{"active", !host.list("/sys/class/iommu").empty()},
          {"mode", mode},
          {"passthrough", mode.is_null() ? asked : mode == "identity"},
          {"asked_for_passthrough", asked}};
}

json process_facts(const Host& host, std::optional<int64_t> pid) {
  const std::string folder = pid ? fmt::format("/proc/{}", *pid) : "/proc/self";
  json out = {
      {"pid", pid ? json(*pid) : json()}, {"memlock_bytes", nullptr}, {"nofile", nullptr}, {"seccomp", nullptr}};
  // "Max locked memory         65536                65536                bytes": the first number, the soft limit, counts
  const Reading limits = host.read(folder + "/limits");
  const auto limit = [&](std::string_view name) -> json {
    for (std::string_view line : split(limits.text, '\n')) {
      if (line.rfind(name, 0) != 0) continue;
      const std::string_view rest = trim(line.substr(name.size()));
      const std::string_view value = rest.substr(0, rest.find(' '));
      if (value == "unlimited") return -1;
      return or_null(to_number(value));
    }
    return nullptr;
  };
  out["memlock_bytes"] = limit("Max locked memory");
  out["nofile"] = limit("Max open files");
  const Reading status = host.read(folder + "/status");
  for (std::string_view line : split(status.text, '\n'))
    if (line.rfind("Seccomp:", 0) == 0) out["seccomp"] = or_null(to_number(line.substr(8)));
  return out;
}

}  // namespace pyflame::tools::system
