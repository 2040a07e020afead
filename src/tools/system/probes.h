// The parts of the facts, one function each; facts.cpp runs them and catches their failures. A probe returns null, or
// omits a key, if something is unknown; it never guesses.
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tools/system/host.h"
#include "tools/system/kfd.h"
#include "tools/system/text.h"

namespace pyflame::tools::system {

// settings.cpp
// `deep`: also the settings, not only the kind of machine.
nlohmann::json host_facts(const Host& host, bool deep);
nlohmann::json iommu_facts(const Host& host, const std::vector<std::string>& gpu_addresses);
nlohmann::json process_facts(const Host& host, std::optional<int64_t> pid);

// driver.cpp
nlohmann::json driver_facts(const Host& host);
nlohmann::json kfd_facts(const Host& host, const Kfd& kfd);

// gpus.cpp. `deep`: also what only a report needs (temperatures, links, memory in use, …).
nlohmann::json override_facts(const std::string& gfx, int node, const Environment& environment);
nlohmann::json gpu_facts(const Host& host, const Kfd& kfd, const Environment& environment, bool deep);
nlohmann::json link_facts(const Kfd& kfd);
nlohmann::json cpu_link_facts(const Kfd& kfd);

// pci.cpp
// AMD's GPUs on the PCI bus, whether or not the driver uses them.
nlohmann::json pci_gpu_facts(const Host& host, const Kfd& kfd);
nlohmann::json pcie_link(const Host& host, const std::string& address);
nlohmann::json acs_facts(const Host& host, const std::vector<std::string>& gpu_addresses);
// /sys/devices/…/0000:00:01.1/0000:05:00.0 → the addresses on the path, starting at the root.
std::vector<std::string> pci_path(const Host& host, const std::string& address);
inline std::string pci_folder(const std::string& address) { return "/sys/bus/pci/devices/" + address; }

// software.cpp
nlohmann::json rocm_facts(const Host& host, const Environment& environment);
// frameworks.cpp
nlohmann::json framework_facts(const Host& host, const Environment& environment, std::optional<int64_t> pid);

// support.cpp
// "official" for this release of ROCm (for the newest known one if the release is unknown), "unlisted" or
// "unsupported".
std::string support_of(std::string_view gfx, Version rocm);
// The HSA_OVERRIDE_GFX_VERSION with which a GPU runs code objects of an identical instruction set; empty if there is
// none.
std::string override_for(std::string_view gfx);
// The release of ROCm that includes a version of the amdgpu module, as "6.3"; empty if unknown.
std::string rocm_of_driver(std::string_view module_version);

// JSON from optional values.
template <class T>
nlohmann::json or_null(const std::optional<T>& value) {
  return value ? nlohmann::json(*value) : nlohmann::json();
}
inline nlohmann::json or_null(const std::string& text) {
  return text.empty() ? nlohmann::json() : nlohmann::json(text);
}

}  // namespace pyflame::tools::system
