// The view of a machine that all probes go through: the live one, or a recorded tree of files. A probe cannot tell them apart, so a
// report can be made from a tree that somebody else sent, and each kind of machine can be tested without having it.
//
// A recorded tree is a folder DIR with
//   DIR/sys/… DIR/proc/… DIR/etc/… DIR/opt/…   plain files with the contents they have on the machine, at the same paths
//   DIR/pyflame-record.json                    what plain files cannot hold; every key but "schema" may be absent:
//   {"schema": "pyflame.record/1",
//    "env":  {"HIP_VISIBLE_DEVICES": "0", "HOME": "/home/user", …},      of the process that recorded (see keeps_variable())
//    "process_env": {"123": {…}},                                    of other processes (doctor --pid 123)
//    "user": {"uid": 1000, "name": "u", "groups": [{"id": 1000, "name": "u"}, {"id": 44, "name": "video"}]},
//    "nodes": {"/dev/kfd": {"mode": "0660", "uid": 0, "gid": 109, "owner": "root", "group": "render"},
//              "/dev/dri/renderD128": {…, "readable": false, "writable": false}},
//             device nodes and whatever else has no contents (libraries). readable and writable, where absent, follow from mode,
//             uid and gid and from "user", as the kernel would decide. A node needs no file in the tree.
//    "links": {"/sys/bus/pci/devices/0000:05:00.0": "/sys/devices/pci0000:00/0000:00:01.1/0000:05:00.0", "/opt/rocm": "/opt/rocm-6.3.0"},
//             symbolic links, absolute to absolute; followed when files below them are read. A link needs no target in the tree:
//             a path that is not found through the link is looked for without it. So a tree may have plain folders at
//             /sys/bus/pci/devices/<address>, and the link for real_path() only.
//    "listed": {"/opt/rocm/lib": ["libamdhip64.so.6", …]},            names of a folder whose files were not read
//    "unreadable": {"/sys/…/power1_cap": "denied" | "Input/output error"},   exists, but reading it fails
//    "filesystems": {"/dev/shm": {"type": "tmpfs", "bytes": 67108864, "free": 67108864}, "/home/user": {"type": "nfs"}}}
// A path that is in neither the tree nor the record is missing on that machine. Symbolic links of the tree itself are never followed (they
// count as missing), so a tree cannot read outside of itself. Files are read up to a limit; links are followed up to 32 times in a row.
//
// What the probes read (a synthetic tree needs no more; everything is optional):
//   /sys/class/kfd/kfd/topology/nodes/<n>/{properties,gpu_id}, …/{mem_banks,io_links,p2p_links}/<m>/properties
//   /sys/class/kfd/kfd/proc/<pid>/vram_<gpu_id>
//   /sys/bus/pci/devices/<address>/{class,vendor,device,revision,numa_node,resource,config,current_link_speed,current_link_width,
//     max_link_speed,max_link_width,mem_info_{vram_total,vram_used,vis_vram_total,gtt_total},gpu_busy_percent,
//     power_dpm_force_performance_level,current_compute_partition,current_memory_partition,product_name,ras/*_err_count,
//     hwmon/hwmon<n>/{power1_cap,power1_cap_default,power1_cap_max,temp<i>_{label,input,crit}}}
//     and the links …/<address> (to the real path, which names the bridges above it), …/driver and …/iommu_group
//   /sys/module/amdgpu/{initstate,version}, /sys/module/nvidia, /{etc,run,lib,usr/lib}/modprobe.d/*.conf, /usr/src/amdgpu-<version>,
//     /lib/modules/<kernel>/{updates/dkms,updates,extra,kernel/drivers/gpu/drm/amd/amdgpu}/amdgpu.ko*
//   /dev/kfd, /dev/dri/renderD<n>, /dev/dxg, /etc/group
//   /etc/os-release, /proc/{cmdline,meminfo,cpuinfo}, /proc/sys/kernel/{osrelease,numa_balancing},
//     /proc/sys/vm/{compaction_proactiveness,compact_unevictable_allowed}, /proc/{self,<pid>}/{status,limits}
//   /proc/1/cgroup, /proc/self/mountinfo, /.dockerenv, /run/.containerenv, /run/systemd/container, /.singularity.d,
//     /run/secrets/kubernetes.io, /sys/hypervisor/type
//   /sys/devices/system/cpu/{online,smt/active,cpu<n>/cpufreq/scaling_governor}, /sys/devices/system/node/online,
//     /sys/kernel/mm/transparent_hugepage/enabled, /sys/class/iommu/*, /sys/block (names), /sys/kernel/iommu_groups/<n>/type, /sys/class/infiniband/*
//   /opt/rocm, /opt/rocm-*, ROCM_PATH and the like: .info/version, lib/lib*.so*, lib/{rocblas,hipblaslt}/library/*,
//     share/miopen/db/*; the same of a distribution's packages below /usr
//   site-packages (names of folders and *.dist-info, torch/version.py, torch/lib) of PYTHONPATH, VIRTUAL_ENV, CONDA_PREFIX, ~/.local and
//     the python on PATH
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace pyflame::tools::system {

constexpr size_t kReadLimit = 256 << 10;

// The contents of a file, or why there are none.
struct Reading {
  enum State { ok, missing, denied, failed } state = missing;
  std::string text;  // ok: at most the limit asked for
  std::string why;   // denied, failed: the system's words
  explicit operator bool() const { return state == ok; }
};

// What the permissions of a path allow this user.
struct Status {
  bool exists = false, readable = false, writable = false;
  bool device = false;
  uint32_t mode = 0;  // permission bits
  int64_t uid = -1, gid = -1;
  std::string owner, group;  // names; the number as text if the id has no name here
};

struct Space {
  std::string type;             // "ext4", "nfs", "tmpfs", …; "0x…" when the type has no name here
  int64_t bytes = 0, free = 0;  // 0 where unknown
};

struct User {
  int64_t uid = -1;
  std::string name;
  std::vector<std::pair<int64_t, std::string>> groups;  // id, name
  bool in_group(int64_t gid) const;
};

using Environment = std::map<std::string, std::string>;

class Host {
 public:
  virtual ~Host() = default;

  virtual Reading read(const std::string& path, size_t limit = kReadLimit) const = 0;
  // The names in a folder for which `keep` returns true (all, if there is no `keep`), in natural order (card2 before card10), without . and
  // .. (at most 65,536; none if there is no folder). A record keeps the names that were asked for, so ask only for those that are needed.
  using Keep = std::function<bool(std::string_view)>;
  virtual std::vector<std::string> list_if(const std::string& path, const Keep& keep) const = 0;
  std::vector<std::string> list(const std::string& path) const { return list_if(path, nullptr); }
  virtual Status status(const std::string& path) const = 0;
  virtual std::optional<std::string> real_path(const std::string& path) const = 0;
  virtual std::optional<Space> space(const std::string& path) const = 0;
  // The environment of this process or of another one; nullopt if it cannot be read. It has only variables that keeps_variable() knows, and
  // the values of secrets are replaced.
  virtual std::optional<Environment> environment(std::optional<int64_t> pid = {}) const = 0;
  virtual User user() const = 0;
  virtual std::string name() const = 0;  // "this machine", or the folder

  // The first line without the blanks around it, or nothing.
  std::optional<std::string> line(const std::string& path) const;
  // A whole number (decimal, or 0x…), or nothing.
  std::optional<int64_t> number(const std::string& path) const;
  bool exists(const std::string& path) const { return status(path).exists; }
};

std::unique_ptr<Host> this_machine();
// Raises an Error (Value) if the folder has no pyflame-record.json that can be read.
std::unique_ptr<Host> recorded(const std::string& folder);

// Writes a tree from which recorded() gives the same facts: collect() runs on a Host that notes each answer, so that the record has
// exactly what the probes read. The folder must be absent or empty. Returns the number of files written.
int64_t record(const Host& host, const std::string& folder, std::optional<int64_t> pid = {});

// Whether a variable belongs to ROCm, HIP, the libraries and frameworks on top, or PyFlame: the audited environment. No other
// variable is read into a report.
bool audited_variable(const std::string& name);
// The audited ones, and those that say where software is (PATH, HOME, VIRTUAL_ENV, …).
bool keeps_variable(const std::string& name);
// The variables of an environment that may be kept; the values of secrets are replaced.
Environment kept(const Environment& all);

}  // namespace pyflame::tools::system
