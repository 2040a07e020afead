// Checks, in the order in which a program would fail, why no AMD GPU can be used.
#include "tools/system/absence.h"

#include <fmt/format.h>

#include <algorithm>

#include "tools/system/facts.h"
#include "tools/system/probes.h"

namespace pyflame::tools::system {

using nlohmann::json;

namespace {

const json& at(const json& j, std::initializer_list<const char*> path) {
  static const json none;
  const json* p = &j;
  for (const char* key : path) {
    if (!p->is_object()) return none;
    const auto it = p->find(key);
    if (it == p->end()) return none;
    p = &*it;
  }
  return *p;
}
bool yes(const json& j, std::initializer_list<const char*> path) { return at(j, path) == json(true); }
std::string text(const json& j, std::initializer_list<const char*> path) {
  const json& value = at(j, path);
  return value.is_string() ? value.get<std::string>() : "";
}

bool has(const json& list, const json& value) {
  return list.is_array() && std::find(list.begin(), list.end(), value) != list.end();
}

using Found = std::optional<Absence>;

constexpr const char* kContainerDevices = "--device=/dev/kfd --device=/dev/dri";

std::string run_in_container(const json& facts, const std::string& options) {
  const std::string kind = text(facts, {"host", "container"});
  if (kind == "kubernetes")
    return "kubectl apply -f https://raw.githubusercontent.com/ROCm/k8s-device-plugin/master/k8s-ds-amdgpu-dp.yaml";
  if (kind == "lxc") return "lxc config device add CONTAINER gpu gpu";
  if (kind == "apptainer") return "apptainer exec --rocm IMAGE COMMAND";
  return (kind == "podman" ? "podman" : "docker") + (" run " + options) + " IMAGE";
}

// A container knows the host's groups by their numbers only. Podman without root must be told to keep the groups of the user.
std::string add_group(const json& facts, const json& gid) {
  return " --group-add " + (text(facts, {"host", "container"}) == "podman" ? "keep-groups" : gid.dump());
}

bool os_like(const json& facts, std::string_view family) {
  return contains(text(facts, {"host", "os", "id"}) + " " + text(facts, {"host", "os", "like"}), family);
}
bool debian_like(const json& facts) { return os_like(facts, "debian") || os_like(facts, "ubuntu"); }

std::string install(const json& facts) {
  return debian_like(facts) ? "sudo apt install" : os_like(facts, "suse") ? "sudo zypper install" : "sudo dnf install";
}

Found no_module(const json& facts, const json& gpu) {
  const std::string name = gpu["name"].is_string() ? gpu["name"].get<std::string>() : "an AMD GPU";
  const std::string where = name + " at " + gpu["pci"].get<std::string>();
  const std::string driver = text(gpu, {"driver"}),
                    on_host = at(facts, {"host", "container"}).is_null() ? "" : " (on the host, not in this container)";
  if (driver == "vfio-pci")
    return Absence{"wrong_driver", where + " is reserved for a virtual machine (driver vfio-pci)",
                   fmt::format("echo {0} | sudo tee /sys/bus/pci/drivers/vfio-pci/unbind && echo {0} | sudo tee "
                               "/sys/bus/pci/drivers_probe",
                               gpu["pci"].get<std::string>()),
                   "a device has one driver at a time; programs of the host cannot use a GPU that is reserved for a "
                   "virtual machine"};
  const std::string list = text(facts, {"driver", "blacklisted"});
  if (!list.empty())
    return Absence{
        "module_not_loaded",
        fmt::format("{} has no driver: the amdgpu module is forbidden by {}{}", where, list, on_host),
        list == "/proc/cmdline"
            ? "sudo modprobe amdgpu"
            : fmt::format(R"(sudo sed -i -E 's/^ *(blacklist|install) +amdgpu/# &/' {} && sudo modprobe amdgpu)", list),
        "a blacklisted module is not loaded at boot; somebody, or another driver's installer, has added this entry"};
  if (yes(facts, {"driver", "nomodeset"}))
    return Absence{
        "module_not_loaded",
        where + " has no driver: the kernel was started with nomodeset, and then amdgpu refuses to load" + on_host,
        debian_like(facts) ? R"(sudo sed -i 's/\bnomodeset\b *//' /etc/default/grub && sudo update-grub)"
                           : "sudo grubby --update-kernel=ALL --remove-args=nomodeset",
        "nomodeset is for starting a damaged system; amdgpu needs mode setting, and programs that compute need amdgpu; "
        "the change takes effect at the next restart"};
  if (!at(facts, {"driver", "module"}).is_null())
    return Absence{"module_not_loaded",
                   fmt::format("{} has no driver: the amdgpu module is installed but not loaded{}", where, on_host),
                   "sudo modprobe amdgpu",
                   "the kernel's driver creates /dev/kfd and the render nodes; without it no program sees the GPU"};
  if (const std::string source = text(facts, {"driver", "dkms_source"}); !source.empty())
    return Absence{"driver_not_built",
                   fmt::format("{} has no driver: amdgpu {} is not built for the running kernel {}{}", where, source,
                               text(facts, {"host", "kernel"}), on_host),
                   debian_like(facts)
                       ? "sudo apt install linux-headers-$(uname -r) && sudo dkms autoinstall && sudo modprobe amdgpu"
                       : "sudo dnf install kernel-devel-$(uname -r) && sudo dkms autoinstall && sudo modprobe amdgpu",
                   "DKMS builds the module for each kernel and needs its headers; after an update of the kernel they "
                   "are often missing"};
  const bool ubuntu = text(facts, {"host", "os", "id"}) == "ubuntu";
  return Absence{"no_driver",
                 fmt::format("{} has no driver: no amdgpu module is installed for kernel {}{}", where,
                             text(facts, {"host", "kernel"}), on_host),
                 ubuntu ? "sudo apt install linux-modules-extra-$(uname -r) && sudo modprobe amdgpu"
                        : "sudo amdgpu-install --usecase=dkms && sudo modprobe amdgpu",
                 ubuntu ? "for Ubuntu's small kernels, amdgpu is in the package linux-modules-extra"
                        : "most kernels include the driver, and AMD's package amdgpu-dkms has it too"};
}

// The reason that KFD lists no GPU for this process.
Found nothing_in_kfd(const json& facts) {
  const json &pci = at(facts, {"pci_gpus"}), &denied = at(facts, {"kfd", "denied_nodes"});
  const bool container = !at(facts, {"host", "container"}).is_null(), loaded = yes(facts, {"driver", "loaded"});
  if (denied.is_number() && denied.get<int>() > 0)
    return Absence{"container",
                   fmt::format("{} GPU{} there, but this container may not use {}", denied.get<int>(),
                               denied.get<int>() == 1 ? " is" : "s are", denied.get<int>() == 1 ? "it" : "them"),
                   run_in_container(facts, kContainerDevices),
                   "KFD hides a GPU from processes whose control group may not open its render node"};
  if (yes(facts, {"host", "wsl"}))
    return Absence{"wsl",
                   yes(facts, {"host", "dxg"}) ? "this is WSL: the GPU is reached through /dev/dxg, not through the "
                                                 "amdgpu driver, and needs AMD's ROCm for WSL"
                                               : "this is WSL without /dev/dxg: Windows gives it no GPU",
                   yes(facts, {"host", "dxg"}) ? "amdgpu-install -y --usecase=wsl,rocm --no-dkms"
                                               : "wsl.exe --update && wsl.exe --shutdown",
                   "WSL uses the driver of Windows; it must be a recent AMD Software: Adrenalin Edition"};
  if (!pci.is_array() || pci.empty()) {
    const bool vm = yes(facts, {"host", "vm"}), nvidia = yes(facts, {"driver", "nvidia_loaded"});
    return Absence{
        "no_gpu",
        vm ? "this virtual machine has no AMD GPU on its PCI bus"
           : fmt::format("there is no AMD GPU on the PCI bus{}", nvidia ? " (the machine has an NVIDIA GPU)" : ""),
        "lspci -nn -d 1002:",
        vm ? "whoever runs the host of the virtual machine has to pass a GPU through to it"
           : "if the machine has an AMD GPU, it is switched off in the firmware, badly seated, or "
             "without power"};
  }
  const json& gpu = pci.front();
  if (!loaded) return no_module(facts, gpu);
  const std::string where = gpu["pci"].get<std::string>(), driver = text(gpu, {"driver"});
  if (driver == "vfio-pci") return no_module(facts, gpu);
  if (driver != "amdgpu" && !driver.empty())
    return Absence{"unsupported",
                   fmt::format("the GPU at {} is driven by '{}', which offers no compute", where, driver),
                   fmt::format("lspci -nnk -s {}", where), "KFD works with GPUs that the amdgpu driver drives"};
  if (driver.empty())
    return Absence{"module_not_loaded",
                   fmt::format("the amdgpu driver is loaded but did not take the GPU at {}", where),
                   "sudo dmesg | grep -i amdgpu",
                   "the kernel's log says why: missing firmware, a failed reset, a GPU newer than the driver"};
  if (!yes(facts, {"kfd", "topology"}))
    return Absence{"no_kfd", "the amdgpu driver runs without its compute part: the kernel has no KFD",
                   "sudo amdgpu-install --usecase=dkms",
                   "the running kernel is built without CONFIG_HSA_AMD; AMD's own module has it"};
  return Absence{"no_atomics",
                 fmt::format("the amdgpu driver drives the GPU at {}{} but KFD left it out: most often the slot offers "
                             "no PCIe atomics, or the GPU is too old for compute",
                             where, container ? " of the host" : ""),
                 "sudo dmesg | grep -iE 'kfd|atomics'",
                 "KFD refuses a GPU that needs PCIe atomics in a slot without them (old CPUs, slots behind the chip "
                 "set, risers, x1 slots); move it to another slot"};
}

Absence missing_kfd(const json& facts) {
  const size_t gpus = at(facts, {"gpus"}).size();
  if (!at(facts, {"host", "container"}).is_null())
    return {"container",
            fmt::format("/dev/kfd is missing in this container although the machine has {}",
                        gpus == 1 ? "an AMD GPU" : fmt::format("{} AMD GPUs", gpus)),
            run_in_container(facts, kContainerDevices), "a container has only the devices that it is given"};
  return {
      "no_kfd", "the driver runs but /dev/kfd is missing", "sudo udevadm trigger --subsystem-match=kfd --action=add",
      "the device node is made when the driver loads; something has removed it, or this is a sandbox with a /dev of "
      "its own"};
}

Absence closed_kfd(const json& facts) {
  const std::string group = text(facts, {"kfd", "group"}), user = text(facts, {"host", "user", "name"}),
                    mode = text(facts, {"kfd", "mode"});
  const bool member = has(at(facts, {"host", "user", "group_ids"}), at(facts, {"kfd", "gid"}));
  const std::string what = fmt::format("no permission for /dev/kfd: it belongs to group '{}' (mode {}){}", group, mode,
                                       member ? "" : fmt::format(" and user '{}' is not in it", user));
  if (!at(facts, {"host", "container"}).is_null())
    return {"no_permission", what,
            run_in_container(facts, std::string(kContainerDevices) + add_group(facts, at(facts, {"kfd", "gid"}))),
            "a container knows the host's groups by their numbers only; the number here is that of the host's group"};
  if (group == "root" || member)
    return {
        "no_permission", group == "root" ? "no permission for /dev/kfd: it belongs to root alone" : what,
        R"(echo 'KERNEL=="kfd", GROUP="render", MODE="0660"' | sudo tee /etc/udev/rules.d/70-kfd.rules && sudo udevadm control --reload && sudo udevadm trigger)",
        "a udev rule opens the node to the group render; ROCm's packages install it, and it is missing here"};
  if (yes(facts, {"kfd", "group_not_active"}))
    return {"no_permission",
            fmt::format("no permission for /dev/kfd yet: '{}' was added to group '{}' after this session began", user,
                        group),
            "newgrp " + group, "groups are read at login: log in again so that every program has them"};
  return {
      "no_permission", what,
      fmt::format("sudo usermod -a -G {}{} $USER && newgrp {}", group, group == "video" ? "" : ",video", group),
      "a program that uses the GPU opens /dev/kfd for reading and writing; the group takes effect at the next login"};
}

// If no render node can be opened, no GPU can be used, as if /dev/kfd could not be opened.
Found closed_render_nodes(const json& facts) {
  constexpr const char* kWhy = "the runtime opens the GPU's render node as well as /dev/kfd";
  const bool container = !at(facts, {"host", "container"}).is_null();
  const json& gpus = at(facts, {"gpus"});
  if (std::any_of(gpus.begin(), gpus.end(), [](const json& gpu) { return yes(gpu, {"render_accessible"}); }))
    return std::nullopt;
  const json& gpu = gpus.front();
  const std::string render = text(gpu, {"render"}), group = text(gpu, {"render_group"});
  if (render.empty()) return std::nullopt;  // an old kernel does not name the node
  if (!yes(gpu, {"render_exists"}))
    return container ? Absence{"container", render + " is missing in this container",
                               run_in_container(facts, kContainerDevices), kWhy}
                     : Absence{"no_kfd", render + " is missing",
                               "sudo udevadm trigger --subsystem-match=drm --action=add", kWhy};
  return Absence{
      "no_permission", fmt::format("no permission for {}, which belongs to group '{}'", render, group),
      container ? run_in_container(facts, std::string(kContainerDevices) + add_group(facts, at(gpu, {"render_gid"})))
                : fmt::format("sudo usermod -a -G {} $USER && newgrp {}", group, group),
      kWhy};
}

Found no_access(const json& facts) {
  if (!yes(facts, {"kfd", "exists"})) return missing_kfd(facts);
  if (!yes(facts, {"kfd", "readable"}) || !yes(facts, {"kfd", "writable"})) return closed_kfd(facts);
  return closed_render_nodes(facts);
}

Found hidden(const json& facts) {
  const json &visible = at(facts, {"visible", "gpus"}), &steps = at(facts, {"visible", "steps"}),
             &gpus = at(facts, {"gpus"});
  if (!visible.is_array() || !steps.is_array() || steps.empty()) return std::nullopt;
  if (!visible.empty()) {
    // The filters may have left only the integrated GPU.
    const auto integrated = [&](const json& i) { return yes(gpus.at(i.get<size_t>()), {"integrated"}); };
    const bool discrete = std::any_of(gpus.begin(), gpus.end(), [](const json& g) { return !yes(g, {"integrated"}); });
    if (!discrete || !std::all_of(visible.begin(), visible.end(), integrated)) return std::nullopt;
    const std::string variable = text(steps.back(), {"variable"});
    return Absence{"integrated_only",
                   fmt::format("{}={} leaves only the integrated GPU", variable, text(steps.back(), {"value"})),
                   "unset " + variable,
                   "the integrated GPU has a number like any other GPU, often the first or the last; to use the "
                   "discrete GPU, unset the variable or name that GPU in it"};
  }
  std::string chain, guilty;
  size_t left = gpus.size();
  for (const json& step : steps) {
    const json &before = at(step, {"before"}), &after = at(step, {"after"});
    if (before == after) continue;
    const std::string setting = text(step, {"variable"}) + "=" + text(step, {"value"});
    chain += (chain.empty() ? "" : ", then ") + fmt::format("{} leaves {} of {}", setting, after.size(), left);
    left = after.size();
    guilty = text(step, {"variable"});
    if (const std::string note = text(step, {"note"}); !note.empty()) chain += " (" + note + ")";
  }
  return Absence{
      "hidden",
      fmt::format("{} hidden: {}",
                  gpus.size() == 1 ? "the AMD GPU is" : fmt::format("all {} AMD GPUs are", gpus.size()), chain),
      "unset " + guilty,
      "ROCR_VISIBLE_DEVICES acts first; HIP_VISIBLE_DEVICES and CUDA_VISIBLE_DEVICES then number "
      "the GPUs that it left, from 0"};
}

// The instruction set that the libraries are asked for.
std::string effective_gfx(const json& gpu) {
  const std::string overridden = text(gpu, {"override", "gfx"});
  return overridden.empty() ? text(gpu, {"gfx"}) : overridden;
}

Found unsupported(const json& facts, const std::string& gfx, const std::string& what) {
  if (const std::string advice = override_for(gfx); !advice.empty())
    return Absence{"unsupported", what, "export HSA_OVERRIDE_GFX_VERSION=" + advice,
                   "it executes the same instructions as the architecture that the override names"};
  // Later architectures have greater numbers. The libraries will not get code again for one that is older than gfx906.
  const bool old = gfx.size() < 7 && gfx < "gfx906";
  if (old)
    return Absence{"unsupported", what, "pip install torch --index-url https://download.pytorch.org/whl/cpu",
                   "AMD's libraries have no code for it any more; this PyTorch computes on the CPU"};
  return Absence{"unsupported", what,
                 debian_like(facts)       ? "sudo apt install --only-upgrade rocm"
                 : os_like(facts, "suse") ? "sudo zypper update rocm"
                                          : "sudo dnf upgrade rocm",
                 "a newer ROCm may have code for it; an override would run code that was made for other hardware"};
}

Found wrong_arch(const json& facts) {
  const json &visible = at(facts, {"visible", "gpus"}), &gpus = at(facts, {"gpus"});
  for (const json& gpu : gpus)
    if (text(gpu, {"override", "effect"}) == "invalid")
      return Absence{"bad_override",
                     fmt::format("{}={} is not of the form 10.3.0: the whole runtime fails",
                                 text(gpu, {"override", "variable"}), text(gpu, {"override", "value"})),
                     "unset " + text(gpu, {"override", "variable"}),
                     "ROCm's runtime refuses the topology when it cannot read the version"};
  if (visible.empty()) return std::nullopt;
  const auto each = [&](auto&& test) {
    return std::all_of(visible.begin(), visible.end(), [&](const json& i) { return test(gpus.at(i.get<size_t>())); });
  };
  const json& first = gpus.at(visible.front().get<size_t>());
  if (each([](const json& gpu) {
        return text(gpu, {"support"}) == "unsupported" && effective_gfx(gpu) == text(gpu, {"gfx"});
      }))
    return unsupported(
        facts, text(first, {"gfx"}),
        fmt::format("PyFlame knows no release of ROCm that supports the architecture {}", text(first, {"gfx"})));
  // rocBLAS has a file for each architecture, and ends the program if there is none. Frameworks that bring their own ROCm bring their own files.
  const json &archs = at(facts, {"rocm", "rocblas_archs"}), &frameworks = at(facts, {"frameworks"});
  if (!archs.is_array() || archs.empty()) return std::nullopt;
  for (const json& f : frameworks)
    if (yes(f, {"bundled_rocm"})) return std::nullopt;
  if (each([&](const json& gpu) { return text(gpu, {"support"}) != "official" && !has(archs, effective_gfx(gpu)); }))
    return unsupported(facts, text(first, {"gfx"}),
                       fmt::format("ROCm {} here has no code for {}: rocBLAS has no file for it",
                                   text(facts, {"rocm", "version"}), effective_gfx(first)));
  return std::nullopt;
}

Found wrong_software(const json& facts) {
  const json& rocm = at(facts, {"rocm"});
  if (!rocm.is_object()) return std::nullopt;
  const json& frameworks = at(facts, {"frameworks"});
  const auto bundled = [](const json& f) { return yes(f, {"bundled_rocm"}); };
  const bool any_bundled = frameworks.is_array() && std::any_of(frameworks.begin(), frameworks.end(), bundled);
  if (at(rocm, {"installs"}).empty() && !any_bundled)
    return Absence{"no_rocm", "the GPU is there, but no ROCm is installed", install(facts) + " rocm",
                   "programs need ROCm's libraries: those in /opt/rocm, whose packages are in AMD's repository "
                   "(repo.radeon.com), or those that PyTorch's wheels for ROCm bring along"};
  if (!frameworks.is_array()) return std::nullopt;
  const std::string hip = text(rocm, {"libraries", "hip", "version"}), version = text(rocm, {"version"});
  for (const json& f : frameworks) {
    const std::string built = text(f, {"hip"});
    // A framework without its own ROCm needs a system HIP of the major version that it was linked to.
    if (built.empty() || yes(f, {"bundled_rocm"})) continue;
    const Version want = parse_version(built), have = parse_version(hip.empty() ? version : hip);
    if (!want || !have || want.major == have.major) continue;
    return Absence{
        "version_mismatch",
        fmt::format("{} was built for ROCm {}.{} and finds ROCm {} here", text(f, {"name"}), want.major, want.minor,
                    version.empty() ? hip : version),
        fmt::format("pip install --force-reinstall {} --index-url https://download.pytorch.org/whl/rocm{}.{}",
                    text(f, {"name"}), have.major, have.minor),
        fmt::format("it is linked to libamdhip64.so.{}, which another major release does not have", want.major)};
  }
  return std::nullopt;
}

}  // namespace

std::optional<Absence> absence_of(const json& facts) {
  const json& gpus = at(facts, {"gpus"});
  if (!gpus.is_array() || gpus.empty()) return nothing_in_kfd(facts);
  for (const auto look : {no_access, hidden, wrong_arch, wrong_software})
    if (Found found = look(facts)) return found;
  return std::nullopt;
}

std::optional<Absence> why_no_gpu(const Host& host) { return absence_of(device_facts(host)); }

}  // namespace pyflame::tools::system
