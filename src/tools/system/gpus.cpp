// Facts about each GPU (from KFD and from its PCI device) and about the links between them.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <tuple>

#include "pyflame/base/gpu_arch.h"
#include "tools/system/probes.h"

namespace pyflame::tools::system {

using nlohmann::json;

namespace {

// Whether the GPU is integrated: it shares the memory of a desktop or laptop processor. (MI300A shares memory too, but nobody uses it by
// accident.)
bool is_integrated(const KfdNode& node, const GpuArch* arch) {
  if (arch && arch->family.rfind("CDNA", 0) == 0) return false;
  return node.get("cpu_cores_count") > 0 || (arch && arch->apu);
}

std::string gpu_name(const Host& host, const KfdNode& node, const std::string& folder) {
  // Products with the same device id may have different numbers of compute units; the revision distinguishes them.
  const uint64_t simd_per_cu = node.get("simd_per_cu");
  if (const GpuProduct* product =
          find_gpu_product(static_cast<uint16_t>(node.get("device_id")),
                           static_cast<int>(host.number(folder + "/revision").value_or(-1)),
                           simd_per_cu ? static_cast<int>(node.get("simd_count") / simd_per_cu) : 0))
    return std::string(product->name);
  if (const auto name = host.line(folder + "/product_name"); name && !name->empty()) return *name;
  const std::string gfx = node.gfx();
  return gfx.empty() ? "AMD GPU" : "AMD GPU (" + gfx + ")";
}

void add_memory(const Host& host, const std::string& folder, const KfdNode& node, json& gpu) {
  const auto number = [&](const char* file) { return host.number(folder + "/" + file); };
  std::optional<int64_t> total = number("mem_info_vram_total");
  for (const char* key : {"", "local_mem_size"})
    if (const uint64_t bytes = *key ? node.get(key) : node.memory_bytes; !total && bytes > 0)
      total = static_cast<int64_t>(bytes);
  // If the GPU is partitioned, the device's files give the memory of the whole card.
  if (total && node.memory_bytes > 0 && node.memory_bytes < static_cast<uint64_t>(std::max<int64_t>(*total, 0)))
    total = static_cast<int64_t>(node.memory_bytes);
  gpu["vram_bytes"] = or_null(total);
  gpu["vram_used_bytes"] = or_null(number("mem_info_vram_used"));
  gpu["gtt_bytes"] = or_null(number("mem_info_gtt_total"));
  gpu["visible_vram_bytes"] = or_null(number("mem_info_vis_vram_total"));
  gpu["busy_percent"] = or_null(number("gpu_busy_percent"));
  // "0x… 0x… 0x…": begin, end and flags of the first window
  if (const auto window = host.line(folder + "/resource")) {
    const std::vector<std::string_view> parts = split(*window, ' ');
    if (parts.size() >= 2) {
      const auto begin = to_unsigned(parts[0]), end = to_unsigned(parts[1]);
      if (begin && end && *end > *begin) gpu["bar_bytes"] = *end - *begin + 1;
    }
  }
}

void add_sensors(const Host& host, const std::string& folder, json& gpu) {
  json temperatures = json::array(), power;
  for (const std::string& name : host.list(folder + "/hwmon")) {
    const std::string hwmon = folder + "/hwmon/" + name;
    const auto watts = [&](const char* file) -> json {
      const auto n = host.number(hwmon + "/" + file);
      return n ? json(static_cast<double>(*n) / 1e6) : json();
    };
    if (power.is_null() && host.number(hwmon + "/power1_cap"))
      power = {{"cap_w", watts("power1_cap")},
               {"default_w", watts("power1_cap_default")},
               {"max_w", watts("power1_cap_max")}};
    for (int i = 1; i <= 8; ++i) {
      const std::string sensor = fmt::format("{}/temp{}", hwmon, i);
      const auto now = host.number(sensor + "_input");
      if (!now) continue;
      const auto limit = host.number(sensor + "_crit");
      temperatures.push_back({{"label", host.line(sensor + "_label").value_or(fmt::format("sensor {}", i))},
                              {"c", *now / 1000},
                              {"limit_c", limit ? json(*limit / 1000) : json()}});
    }
  }
  gpu["power"] = std::move(power);
  gpu["temperatures"] = std::move(temperatures);
}

// ras/*_err_count: lines "ue: 0", "ce: 12".
json uncorrectable_errors(const Host& host, const std::string& folder) {
  json sum;
  for (const std::string& name : host.list(folder + "/ras")) {
    if (name.size() < 10 || name.compare(name.size() - 10, 10, "_err_count") != 0) continue;
    const Reading r = host.read(folder + "/ras/" + name, 4096);
    if (!r) continue;
    for (std::string_view line : split(r.text, '\n')) {
      line = trim(line);
      if (line.rfind("ue:", 0) != 0) continue;
      if (const auto n = to_number(line.substr(3))) sum = (sum.is_null() ? int64_t{0} : sum.get<int64_t>()) + *n;
    }
  }
  return sum;
}

json users_of(const Host& host, const KfdNode& node) {
  json users = json::array();
  const std::string folder = "/sys/class/kfd/kfd/proc";
  for (const std::string& pid : host.list(folder)) {
    const auto bytes = host.number(fmt::format("{}/{}/vram_{}", folder, pid, node.gpu_id));
    const auto number = to_number(pid);
    if (bytes && number) users.push_back({{"pid", *number}, {"vram_bytes", *bytes}});
  }
  return users;
}

// Whether PCIe atomics work on the link to the CPU. They do unless KFD marks the link as one without them.
json atomics_of(const Kfd& kfd, const KfdNode& node) {
  for (const KfdLink& link : node.links) {
    const KfdNode* to = kfd.node(link.to);
    if (!link.peer && to && !to->is_gpu()) return link.atomics();
  }
  return nullptr;
}

// NUMA nodes have the order of KFD's CPU nodes.
int numa_of(const Kfd& kfd, int node) {
  int numa = 0;
  for (const KfdNode& n : kfd.nodes) {
    if (n.id == node) return numa;
    if (!n.is_gpu()) ++numa;
  }
  return -1;
}

json numa_facts(const Host& host, const Kfd& kfd, const KfdNode& node, const std::string& folder) {
  if (const auto n = host.number(folder + "/numa_node"); n && *n >= 0) return *n;
  for (const KfdLink& link : node.links)
    if (const KfdNode* to = kfd.node(link.to); to && !to->is_gpu() && !link.peer) return numa_of(kfd, link.to);
  return nullptr;
}

json one_gpu(const Host& host, const Kfd& kfd, const KfdNode& node, int index, const Environment& environment,
             bool deep) {
  const std::string address = node.pci(), folder = pci_folder(address), gfx = node.gfx();
  const GpuArch* arch = find_gpu_arch(gfx);
  const uint64_t simd_per_cu = node.get("simd_per_cu");
  const std::string render = node.properties.count("drm_render_minor") && node.get("drm_render_minor") >= 128
                                 ? fmt::format("/dev/dri/renderD{}", node.get("drm_render_minor"))
                                 : "";
  const Status access = render.empty() ? Status() : host.status(render);
  json gpu = {{"index", index},
              {"node", node.id},
              {"name", gpu_name(host, node, folder)},
              {"gfx", gfx},
              {"family", arch ? json(std::string(arch->family)) : json()},
              {"pci", or_null(address)},
              {"device_id", fmt::format("0x{:04x}", node.get("device_id") & 0xFFFF)},
              {"uuid", or_null(node.uuid())},
              {"render", or_null(render)},
              {"render_exists", access.exists},
              {"render_accessible", access.readable && access.writable},
              {"render_group", or_null(access.group)},
              {"render_gid", access.exists ? json(access.gid) : json()},
              {"integrated", is_integrated(node, arch)},
              {"override", override_facts(gfx, node.id, environment)}};
  if (!deep) return gpu;
  gpu["cus"] = simd_per_cu ? json(node.get("simd_count") / simd_per_cu) : json();
  gpu["simd_per_cu"] = simd_per_cu;
  gpu["xccs"] = node.get("num_xcc", 1);
  gpu["wave"] = node.get("wave_front_size");
  gpu["lds_kib"] = node.get("lds_size_in_kb");
  gpu["max_clock_mhz"] = node.get("max_engine_clk_fcompute");
  gpu["hive"] = node.get("hive_id") ? json(fmt::format("0x{:x}", node.get("hive_id"))) : json();
  gpu["numa"] = numa_facts(host, kfd, node, folder);
  gpu["atomics"] = atomics_of(kfd, node);
  gpu["pcie"] = pcie_link(host, address);
  gpu["performance_level"] = or_null(host.line(folder + "/power_dpm_force_performance_level"));
  gpu["compute_partition"] = or_null(host.line(folder + "/current_compute_partition"));
  gpu["memory_partition"] = or_null(host.line(folder + "/current_memory_partition"));
  gpu["ras_uncorrectable"] = uncorrectable_errors(host, folder);
  gpu["users"] = users_of(host, node);
  add_memory(host, folder, node, gpu);
  add_sensors(host, folder, gpu);
  return gpu;
}

}  // namespace

// The effect of HSA_OVERRIDE_GFX_VERSION on a GPU; …_<node> takes precedence over it. A malformed value makes the whole runtime fail.
json override_facts(const std::string& gfx, int node, const Environment& environment) {
  std::string name = fmt::format("HSA_OVERRIDE_GFX_VERSION_{}", node);
  auto it = environment.find(name);
  if (it == environment.end()) it = environment.find(name = "HSA_OVERRIDE_GFX_VERSION");
  if (it == environment.end()) return nullptr;
  json out = {{"variable", name}, {"value", it->second}, {"real", gfx}};
  unsigned major = 0, minor = 0, step = 0;
  char rest = 0;
  if (std::sscanf(it->second.c_str(), "%3u.%3u.%3u%c", &major, &minor, &step, &rest) != 3 || major > 63 ||
      minor > 255 || step > 255) {
    out["effect"] = "invalid";
    return out;
  }
  const std::string seen = gfx_name(major * 10000 + minor * 100 + step);
  out["gfx"] = seen;
  // The last digit of a name is the stepping. gfx906, gfx908 and gfx90a differ in more: in matrix instructions, and in
  // the registers that these use.
  const auto family = [](const std::string& arch) {
    const std::string prefix = arch.substr(0, std::max<size_t>(arch.size(), 1) - 1);
    const GpuArch* known = find_gpu_arch(arch);
    return std::tuple(prefix, known && known->matrix != MatrixKind::none, known && known->unified_agprs);
  };
  out["effect"] = family(gfx) != family(seen)       ? "other family"
                  : gfx == seen                     ? "none"
                  : override_for(gfx) == it->second ? "same instructions"
                                                    : "same family";
  return out;
}

json gpu_facts(const Host& host, const Kfd& kfd, const Environment& environment, bool deep) {
  json out = json::array();
  for (const KfdNode* node : kfd.gpus())
    out.push_back(one_gpu(host, kfd, *node, static_cast<int>(out.size()), environment, deep));
  return out;
}

json link_facts(const Kfd& kfd) {
  const std::vector<const KfdNode*> gpus = kfd.gpus();
  const auto index_of = [&](int node) {
    const auto it = std::find_if(gpus.begin(), gpus.end(), [&](const KfdNode* g) { return g->id == node; });
    return it == gpus.end() ? -1 : static_cast<int>(it - gpus.begin());
  };
  json out = json::array();
  for (const KfdNode* gpu : gpus)
    for (const KfdLink& link : gpu->links) {
      const int from = index_of(gpu->id), to = index_of(link.to);
      if (to < 0 || to == from) continue;
      // The driver gives xGMI links a weight of 15 per hop.
      out.push_back({{"from", from},
                     {"to", to},
                     {"kind", link.xgmi() ? "xgmi" : "pcie"},
                     {"weight", link.weight},
                     {"min_mb_s", link.min_mb_s},
                     {"max_mb_s", link.max_mb_s},
                     {"hops", link.xgmi() && link.weight > 0 ? json(std::max<int64_t>(1, link.weight / 15)) : json()},
                     {"peer_to_peer", (link.flags & 0x10) == 0}});
    }
  return out;
}

json cpu_link_facts(const Kfd& kfd) {
  json out = json::array();
  int index = 0;
  for (const KfdNode* gpu : kfd.gpus()) {
    for (const KfdLink& link : gpu->links) {
      const KfdNode* to = kfd.node(link.to);
      if (link.peer || !to || to->is_gpu()) continue;
      out.push_back({{"gpu", index},
                     {"numa", numa_of(kfd, link.to)},
                     {"kind", link.xgmi() ? "xgmi" : "pcie"},
                     {"weight", link.weight}});
    }
    ++index;
  }
  return out;
}

}  // namespace pyflame::tools::system
