// A synthetic machine: a recorded tree in a folder of its own, built piece by piece.
#pragma once
#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "support/temp_folder.h"
#include "tools/system/absence.h"
#include "tools/system/facts.h"
#include "tools/system/host.h"

namespace pyflame::test {

using nlohmann::json;

struct Gpu {
  int node = 1;
  int target = 110000;  // gfx_target_version
  int simds = 168, simd_per_cu = 2;
  int device = 0x744c;
  int bus = 3;
  int render = 128;
  uint64_t unique_id = 0;
  int cpu_cores = 0;
  uint64_t flags = 1;  // of its link to the CPU
};

class Machine {
 public:
  Machine() { record_["schema"] = "pyflame.record/1"; }

  Machine& file(const std::string& path, const std::string& text) {
    const std::filesystem::path p = folder_ / path.substr(1);
    std::filesystem::create_directories(p.parent_path());
    write_all(p.string(), text);
    return *this;
  }
  Machine& node(const std::string& path, const std::string& mode, int gid, const std::string& group) {
    record_["nodes"][path] = {{"mode", mode}, {"uid", 0}, {"gid", gid}, {"owner", "root"}, {"group", group}};
    return *this;
  }
  Machine& link(const std::string& path, const std::string& target) {
    record_["links"][path] = target;
    return *this;
  }
  Machine& env(const std::string& name, const std::string& value) {
    record_["env"][name] = value;
    return *this;
  }
  Machine& user(const std::string& name, int uid, const std::vector<std::pair<int, std::string>>& groups) {
    record_["user"] = {{"uid", uid}, {"name", name}, {"groups", json::array()}};
    for (const auto& [id, group] : groups) record_["user"]["groups"].push_back({{"id", id}, {"name", group}});
    return *this;
  }
  json& record() { return record_; }

  // A kernel with the driver and its devices.
  Machine& driver() {
    file("/proc/sys/kernel/osrelease", "6.8.0-45-generic\n").file("/sys/module/amdgpu/initstate", "live\n");
    file("/sys/class/kfd/kfd/topology/nodes/0/gpu_id", "0\n");
    file("/sys/class/kfd/kfd/topology/nodes/0/properties", "cpu_cores_count 16\nsimd_count 0\nlocation_id 0\n");
    return node("/dev/kfd", "0660", 109, "render");
  }
  Machine& pci(int bus, int device, const std::string& driver) {
    const std::string address = fmt::format("0000:{:02x}:00.0", bus), folder = "/sys/bus/pci/devices/" + address;
    file(folder + "/vendor", "0x1002\n")
        .file(folder + "/class", "0x030000\n")
        .file(folder + "/device", fmt::format("0x{:04x}\n", device));
    return driver.empty() ? *this : link(folder + "/driver", "/sys/bus/pci/drivers/" + driver);
  }
  Machine& gpu(const Gpu& g) {
    const std::string folder = fmt::format("/sys/class/kfd/kfd/topology/nodes/{}", g.node);
    file(folder + "/gpu_id", fmt::format("{}\n", 40000 + g.node));
    file(folder + "/properties",
         fmt::format(
             "cpu_cores_count {}\nsimd_count {}\nmem_banks_count 1\nwave_front_size 32\nsimd_per_cu "
             "{}\ngfx_target_version {}\n"
             "vendor_id 4098\ndevice_id {}\nlocation_id {}\ndomain 0\ndrm_render_minor {}\nunique_id {}\nnum_xcc 1\n",
             g.cpu_cores, g.simds, g.simd_per_cu, g.target, g.device, g.bus << 8, g.render, g.unique_id));
    file(folder + "/io_links/0/properties",
         fmt::format("type 2\nnode_from {}\nnode_to 0\nweight 20\nmin_bandwidth 0\nmax_bandwidth 31504\nflags {}\n",
                     g.node, g.flags));
    node(fmt::format("/dev/dri/renderD{}", g.render), "0660", 109, "render");
    return pci(g.bus, g.device, "amdgpu");
  }
  Machine& rocm(const std::string& version) {
    link("/opt/rocm", "/opt/rocm-" + version);
    record_["listed"]["/opt/rocm-" + version + "/lib"] = {"libamdhip64.so", "libamdhip64.so." + version.substr(0, 1),
                                                          "libamdhip64.so." + version};
    return file("/opt/rocm-" + version + "/.info/version", version + "-39\n");
  }

  std::unique_ptr<tools::system::Host> host() {
    write_all(folder_ / "pyflame-record.json", record_.dump());
    return tools::system::recorded(folder_.str());
  }
  json facts(const tools::system::CollectOptions& options = {}) { return tools::system::collect(*host(), options); }
  // The code of why there is no GPU; empty where there is one.
  std::string absence() {
    const json facts = this->facts();
    return facts["absence"].is_null() ? "" : facts["absence"]["code"].get<std::string>();
  }
  std::string folder() const { return folder_.str(); }

 private:
  TempFolder folder_;
  json record_;
};

}  // namespace pyflame::test
