// Facts from the PCI bus: which GPUs are on it, and how fast their links are. A Radeon card has a switch of its own, whose inner link always
// runs at full speed. The link that counts is that of the card's outermost bridge, so the bridges between card and root are read.
#include <fmt/format.h>

#include <algorithm>

#include "pyflame/base/gpu_arch.h"
#include "tools/system/probes.h"

namespace pyflame::tools::system {

using nlohmann::json;

namespace {

constexpr int64_t kAmdGraphics = 0x1002;  // AMD's CPUs and chip sets are 0x1022

bool is_address(std::string_view s) { return s.size() == 12 && s[4] == ':' && s[7] == ':' && s[10] == '.'; }

// "16.0 GT/s PCIe" → 16.
std::optional<double> gts(const std::optional<std::string>& text) {
  if (!text) return std::nullopt;
  const Version v = parse_version(*text);
  if (!v || v.major == 0) return std::nullopt;
  return v.major + v.minor / 10.0;  // 2.5, 5, 8, 16, 32, 64
}

// A link that is down has the width 0 or 255.
std::optional<int64_t> width(const Host& host, const std::string& path) {
  const auto n = host.number(path);
  return n && *n > 0 && *n <= 32 ? n : std::nullopt;
}

struct Link {
  std::optional<double> now, max;
  std::optional<int64_t> width, max_width;
};

Link link_of(const Host& host, const std::string& address) {
  const std::string folder = pci_folder(address);
  return {gts(host.line(folder + "/current_link_speed")), gts(host.line(folder + "/max_link_speed")),
          width(host, folder + "/current_link_width"), width(host, folder + "/max_link_width")};
}

}  // namespace

std::vector<std::string> pci_path(const Host& host, const std::string& address) {
  std::vector<std::string> out;
  if (const auto path = host.real_path(pci_folder(address)))
    for (std::string_view part : split(*path, '/'))
      if (is_address(part)) out.emplace_back(part);
  if (out.empty() || out.back() != address) out.assign(1, address);
  return out;
}

json pcie_link(const Host& host, const std::string& address) {
  const std::vector<std::string> path = pci_path(host, address);
  size_t at = path.size() - 1;
  while (at > 0 && host.number(pci_folder(path[at - 1]) + "/vendor") == kAmdGraphics) --at;
  const Link card = link_of(host, path[at]);
  if (!card.now && !card.max && !card.width) return nullptr;
  json out = {{"gts", or_null(card.now)},
              {"width", or_null(card.width)},
              {"max_gts", or_null(card.max)},
              {"max_width", or_null(card.max_width)},
              {"where", path[at] + (at + 1 < path.size() ? " (bridge)" : "")}};
  if (at > 0) {
    const Link slot = link_of(host, path[at - 1]);
    out["slot"] = {{"where", path[at - 1]}, {"max_gts", or_null(slot.max)}, {"max_width", or_null(slot.max_width)}};
  }
  return out;
}

json pci_gpu_facts(const Host& host, const Kfd& kfd) {
  json out = json::array();
  for (const std::string& address : host.list("/sys/bus/pci/devices")) {
    const std::string folder = pci_folder(address);
    if (host.number(folder + "/vendor") != kAmdGraphics) continue;
    const int64_t kind = host.number(folder + "/class").value_or(0) >> 8;
    if (kind != 0x0300 && kind != 0x0380 && kind != 0x1200) continue;  // VGA, display, processing accelerator
    const int64_t device = host.number(folder + "/device").value_or(0);
    const GpuProduct* product = find_gpu_product(static_cast<uint16_t>(device),
                                                 static_cast<int>(host.number(folder + "/revision").value_or(-1)));
    std::string driver;
    if (const auto path = host.real_path(folder + "/driver")) driver = path->substr(path->rfind('/') + 1);
    bool in_kfd = false;
    for (const KfdNode* gpu : kfd.gpus()) in_kfd |= gpu->pci().substr(0, 11) == address.substr(0, 11);
    out.push_back({{"pci", address},
                   {"device_id", fmt::format("0x{:04x}", device)},
                   {"name", product ? json(std::string(product->name)) : json()},
                   {"driver", or_null(driver)},
                   {"in_kfd", in_kfd}});
  }
  return out;
}

namespace {

// The control word of Access Control Services in a configuration space; -1 if the bridge has none. Only root may read beyond the first
// 64 bytes. For other users `space` is short, and it is unknown whether the bridge has one.
int acs_control(const std::string& space) {
  const auto word = [&](size_t at, int bytes) {
    unsigned v = 0;
    for (int i = bytes - 1; i >= 0; --i) v = v << 8 | static_cast<unsigned char>(space[at + static_cast<size_t>(i)]);
    return v;
  };
  size_t at = 0x100;
  for (int hops = 0; hops < 64 && at >= 0x100 && at + 8 <= space.size(); ++hops) {
    const unsigned header = word(at, 4);
    if ((header & 0xFFFF) == 0x000D) return static_cast<int>(word(at + 6, 2));
    at = header >> 20 & 0xFFC;
  }
  return -1;
}

}  // namespace

json acs_facts(const Host& host, const std::vector<std::string>& gpu_addresses) {
  json bridges = json::array();
  bool known = false, on = false;
  std::vector<std::string> seen;
  for (const std::string& gpu : gpu_addresses)
    for (const std::string& address : pci_path(host, gpu)) {
      if (address == gpu || std::find(seen.begin(), seen.end(), address) != seen.end()) continue;
      seen.push_back(address);
      const Reading config = host.read(pci_folder(address) + "/config", 4096);
      const bool whole = config && config.text.size() > 256;
      const int control = whole ? acs_control(config.text) : -1;
      known |= whole;
      on |= control > 0 &&
            (control & 0x1D) != 0;  // source validation, request and completion redirect, upstream forwarding
      bridges.push_back({{"pci", address}, {"control", control < 0 ? json() : json(fmt::format("0x{:x}", control))}});
    }
  return {{"state", !known ? "unknown" : on ? "on" : "off"}, {"bridges", std::move(bridges)}};
}

}  // namespace pyflame::tools::system
