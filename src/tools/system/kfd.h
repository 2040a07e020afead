// The topology that the kernel's compute driver (KFD) publishes in /sys: which nodes are GPUs, their architectures, and
// their links. ROCm's runtime enumerates the same list, so the order of the GPUs is that which programs see.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tools/system/host.h"

namespace pyflame::tools::system {

struct KfdLink {
  int from = -1, to = -1;
  int type = 0;  // 2 PCIe, 11 xGMI
  int64_t weight = 0, min_mb_s = 0, max_mb_s = 0;
  uint64_t flags = 0;
  bool peer = false;  // from p2p_links: through the host, if large BARs and the IOMMU allow it

  bool xgmi() const { return type == 11; }
  bool atomics() const { return (flags & 0xC) == 0; }
};

struct KfdNode {
  int id = 0;
  uint64_t gpu_id = 0;
  std::map<std::string, uint64_t, std::less<>> properties;
  uint64_t memory_bytes = 0;  // of the memory banks
  std::vector<KfdLink> links;

  uint64_t get(std::string_view key, uint64_t otherwise = 0) const {
    const auto it = properties.find(key);
    return it == properties.end() ? otherwise : it->second;
  }
  bool is_gpu() const { return get("simd_count") > 0; }
  std::string gfx() const;   // "gfx942"
  std::string pci() const;   // "0000:05:00.0"
  std::string uuid() const;  // "GPU-…", empty where the GPU has none
};

struct Kfd {
  bool present = false;  // the driver publishes a topology
  int denied = 0;        // nodes that this process may not see (a container with some of the devices)
  std::vector<KfdNode> nodes;
  std::vector<const KfdNode*> gpus() const;
  const KfdNode* node(int id) const;
};

// `deep`: also memory banks and links.
Kfd read_kfd(const Host& host, bool deep);

// 90402 → "gfx942"; empty for 0.
std::string gfx_name(uint64_t gfx_target_version);

}  // namespace pyflame::tools::system
