// Reads the topology from /sys/class/kfd.
#include "tools/system/kfd.h"

#include <fmt/format.h>

#include "tools/system/text.h"

namespace pyflame::tools::system {

namespace {

constexpr const char* kNodes = "/sys/class/kfd/kfd/topology/nodes";
constexpr size_t kMostNodes = 512;

using Properties = std::map<std::string, uint64_t, std::less<>>;

// Lines "key value".
Properties parse_properties(std::string_view text) {
  Properties out;
  for (std::string_view line : split(text, '\n')) {
    line = trim(line);
    const size_t space = line.find(' ');
    if (space == line.npos) continue;
    if (const auto value = to_unsigned(line.substr(space + 1))) out.emplace(line.substr(0, space), *value);
  }
  return out;
}

uint64_t value_of(const Properties& p, std::string_view key) {
  const auto it = p.find(key);
  return it == p.end() ? 0 : it->second;
}

void read_links(const Host& host, const std::string& folder, bool peer, KfdNode& node) {
  std::vector<std::string> names = host.list(folder);
  if (names.size() > kMostNodes) names.resize(kMostNodes);
  for (const std::string& name : names) {
    const Reading r = host.read(folder + "/" + name + "/properties");
    if (!r) continue;
    const Properties p = parse_properties(r.text);
    KfdLink link;
    link.from = static_cast<int>(value_of(p, "node_from"));
    link.to = static_cast<int>(value_of(p, "node_to"));
    link.type = static_cast<int>(value_of(p, "type"));
    link.weight = static_cast<int64_t>(value_of(p, "weight"));
    link.min_mb_s = static_cast<int64_t>(value_of(p, "min_bandwidth"));
    link.max_mb_s = static_cast<int64_t>(value_of(p, "max_bandwidth"));
    link.flags = value_of(p, "flags");
    link.peer = peer;
    node.links.push_back(link);
  }
}

void read_memory(const Host& host, const std::string& folder, KfdNode& node) {
  for (const std::string& name : host.list(folder)) {
    const Reading r = host.read(folder + "/" + name + "/properties");
    if (!r) continue;
    const Properties p = parse_properties(r.text);
    const uint64_t heap = value_of(p, "heap_type");  // 1: GPU memory that the host sees; 2: that it does not
    if (heap == 1 || heap == 2) node.memory_bytes += value_of(p, "size_in_bytes");
  }
}

}  // namespace

std::string gfx_name(uint64_t v) {
  return v == 0 || v > 999999 ? "" : fmt::format("gfx{}{:x}{:x}", v / 10000, v / 100 % 100, v % 100);
}

std::string KfdNode::gfx() const { return gfx_name(get("gfx_target_version")); }

std::string KfdNode::pci() const {
  const uint64_t location = get("location_id");
  if (!properties.count("location_id")) return "";
  return fmt::format("{:04x}:{:02x}:{:02x}.{:x}", get("domain") & 0xFFFFFFFF, location >> 8 & 0xFF,
                     location >> 3 & 0x1F, location & 7);
}

std::string KfdNode::uuid() const {
  const uint64_t unique = get("unique_id");
  return unique == 0 ? "" : fmt::format("GPU-{:016x}", unique);
}

std::vector<const KfdNode*> Kfd::gpus() const {
  std::vector<const KfdNode*> out;
  for (const KfdNode& node : nodes)
    if (node.is_gpu()) out.push_back(&node);
  return out;
}

const KfdNode* Kfd::node(int id) const {
  for (const KfdNode& n : nodes)
    if (n.id == id) return &n;
  return nullptr;
}

Kfd read_kfd(const Host& host, bool deep) {
  Kfd kfd;
  for (const std::string& name : host.list(kNodes)) {
    kfd.present = true;
    const auto id = to_number(name);
    if (!id || *id < 0 || kfd.nodes.size() >= kMostNodes) continue;
    const std::string folder = std::string(kNodes) + "/" + name;
    const Reading properties = host.read(folder + "/properties");
    if (properties.state == Reading::denied) ++kfd.denied;
    if (!properties) continue;
    KfdNode node;
    node.id = static_cast<int>(*id);
    node.properties = parse_properties(properties.text);
    if (const auto gpu = host.number(folder + "/gpu_id")) node.gpu_id = static_cast<uint64_t>(*gpu);
    if (deep) {
      if (node.is_gpu()) read_memory(host, folder + "/mem_banks", node);
      read_links(host, folder + "/io_links", false, node);
      read_links(host, folder + "/p2p_links", true, node);
    }
    kfd.nodes.push_back(std::move(node));
  }
  return kfd;
}

}  // namespace pyflame::tools::system
