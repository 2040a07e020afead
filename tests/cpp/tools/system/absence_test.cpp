// Each reason for having no GPU, on a machine that has just that fault.
#include "tools/system/absence.h"

#include <gtest/gtest.h>

#include "tools/system/machine.h"

namespace pyflame {
namespace {

using test::Gpu;
using test::json;
using test::Machine;

// The reason, from all facts. The cheap way must give the same answer where the software is not the cause.
json why(Machine& m) {
  const json absence = m.facts()["absence"];
  const std::string code = absence.is_null() ? "" : absence["code"].get<std::string>();
  if (code != "no_rocm" && code != "version_mismatch") {
    const auto quick = tools::system::why_no_gpu(*m.host());
    EXPECT_EQ(quick ? quick->code : "", code);
    EXPECT_EQ(quick ? quick->what : "", absence.is_null() ? "" : absence["what"].get<std::string>());
  }
  return absence.is_null() ? json{{"code", ""}, {"what", ""}, {"fix", ""}, {"why", ""}} : absence;
}

#define EXPECT_PART(text, part) \
  EXPECT_NE((text).get<std::string>().find(part), std::string::npos) << (text).get<std::string>()

TEST(Absence, NoneOnAGoodMachine) {
  Machine m;
  m.driver().gpu({}).rocm("6.3.0").user("ada", 1000, {{1000, "ada"}, {109, "render"}});
  EXPECT_EQ(why(m)["code"], "");
}

TEST(Absence, NoGpuOnTheBus) {
  Machine m;
  EXPECT_EQ(why(m)["code"], "no_gpu");
  m.file("/proc/cpuinfo", "processor : 0\nflags\t\t: fpu vme hypervisor lahf_lm\n\n");
  EXPECT_PART(why(m)["what"], "virtual machine");
}

TEST(Absence, NoDriver) {
  Machine m;
  m.pci(3, 0x744c, "").file("/etc/os-release", "ID=ubuntu\n").file("/proc/sys/kernel/osrelease", "6.8.0-45-generic\n");
  const json a = why(m);
  EXPECT_EQ(a["code"], "no_driver");
  EXPECT_PART(a["fix"], "linux-modules-extra-$(uname -r)");
  EXPECT_PART(a["what"], "0000:03:00.0");
}

TEST(Absence, DriverNotBuiltForThisKernel) {
  Machine m;
  m.pci(3, 0x744c, "").file("/etc/os-release", "ID=ubuntu\n").file("/proc/sys/kernel/osrelease", "6.8.0-45-generic\n");
  m.file("/usr/src/amdgpu-6.10.5-2084815.22.04/dkms.conf", "");
  const json a = why(m);
  EXPECT_EQ(a["code"], "driver_not_built");
  EXPECT_PART(a["what"], "amdgpu 6.10.5-2084815.22.04 is not built for the running kernel 6.8.0-45-generic");
  EXPECT_PART(a["fix"], "linux-headers-$(uname -r)");
}

TEST(Absence, ModuleNotLoaded) {
  Machine m;
  m.pci(3, 0x744c, "").file("/proc/sys/kernel/osrelease", "6.8.0-45-generic\n");
  m.file("/lib/modules/6.8.0-45-generic/kernel/drivers/gpu/drm/amd/amdgpu/amdgpu.ko.zst", "");
  EXPECT_EQ(why(m)["fix"], "sudo modprobe amdgpu");
  m.file("/etc/modprobe.d/gpu.conf", "# blacklist amdgpu\nblacklist nouveau\n");
  EXPECT_EQ(why(m)["fix"], "sudo modprobe amdgpu");
  m.file("/etc/modprobe.d/gpu.conf", "blacklist amdgpu\n");
  const json a = why(m);
  EXPECT_EQ(a["code"], "module_not_loaded");
  EXPECT_PART(a["what"], "/etc/modprobe.d/gpu.conf");
  EXPECT_PART(a["fix"], "/etc/modprobe.d/gpu.conf");
}

TEST(Absence, ModuleForbiddenOnTheCommandLine) {
  Machine m;
  m.pci(3, 0x744c, "").file("/proc/cmdline", "ro modprobe.blacklist=nouveau,amdgpu quiet\n");
  EXPECT_PART(why(m)["what"], "/proc/cmdline");
  m.file("/proc/cmdline", "ro nomodeset quiet\n");
  EXPECT_PART(why(m)["what"], "nomodeset");
}

TEST(Absence, GivenToAVirtualMachine) {
  Machine m;
  m.driver().pci(3, 0x744c, "vfio-pci");
  EXPECT_EQ(why(m)["code"], "wrong_driver");
}

TEST(Absence, NoDeviceNode) {
  Machine m;
  m.driver().gpu({});
  m.record()["nodes"].erase("/dev/kfd");
  EXPECT_EQ(why(m)["code"], "no_kfd");
  m.file("/.dockerenv", "");
  const json a = why(m);
  EXPECT_EQ(a["code"], "container");
  EXPECT_EQ(a["fix"], "docker run --device=/dev/kfd --device=/dev/dri IMAGE");
}

TEST(Absence, ContainerWithOnlyKfd) {
  Machine m;
  m.driver().gpu({}).file("/run/.containerenv", "");
  m.record()["nodes"].erase("/dev/dri/renderD128");
  const json a = why(m);
  EXPECT_EQ(a["code"], "container");
  EXPECT_PART(a["what"], "/dev/dri/renderD128");
  EXPECT_PART(a["fix"], "podman run");
}

TEST(Absence, GpusThatAControlGroupHides) {
  Machine m;
  m.driver().file("/.dockerenv", "");
  m.file("/sys/class/kfd/kfd/topology/nodes/1/gpu_id", "1\n");
  m.record()["unreadable"]["/sys/class/kfd/kfd/topology/nodes/1/properties"] = "denied";
  const json a = why(m);
  EXPECT_EQ(a["code"], "container");
  EXPECT_PART(a["what"], "1 GPU is there");
}

TEST(Absence, NoPermission) {
  Machine m;
  m.driver().gpu({}).user("ada", 1000, {{1000, "ada"}});
  json a = why(m);
  EXPECT_EQ(a["code"], "no_permission");
  EXPECT_PART(a["what"], "group 'render'");
  EXPECT_PART(a["what"], "user 'ada'");
  EXPECT_PART(a["fix"], "sudo usermod -a -G render,video $USER");
  m.file("/etc/group", "root:x:0:\nrender:x:109:bob,ada\n");
  EXPECT_EQ(why(m)["fix"], "newgrp render");
  m.file("/.dockerenv", "");
  EXPECT_PART(why(m)["fix"], "--group-add 109");
  std::filesystem::remove(m.folder() + "/.dockerenv");
  m.file("/run/.containerenv", "");
  EXPECT_PART(why(m)["fix"], "--group-add keep-groups");
}

TEST(Absence, NodeOfRootAlone) {
  Machine m;
  m.driver().gpu({}).node("/dev/kfd", "0600", 0, "root").user("ada", 1000, {{1000, "ada"}});
  EXPECT_PART(why(m)["fix"], "/etc/udev/rules.d/70-kfd.rules");
}

TEST(Absence, OnlyTheRenderNodeIsClosed) {
  Machine m;
  m.driver().gpu({}).node("/dev/kfd", "0666", 109, "render").user("ada", 1000, {{1000, "ada"}});
  const json a = why(m);
  EXPECT_EQ(a["code"], "no_permission");
  EXPECT_PART(a["what"], "/dev/dri/renderD128");
}

TEST(Absence, KfdListsNoGpu) {
  Machine m;
  m.driver().pci(3, 0x67df, "amdgpu");
  EXPECT_EQ(why(m)["code"], "no_atomics");
}

TEST(Absence, KernelWithoutKfd) {
  Machine m;
  m.file("/sys/module/amdgpu/initstate", "live\n").pci(3, 0x744c, "amdgpu");
  EXPECT_EQ(why(m)["code"], "no_kfd");
}

TEST(Absence, Hidden) {
  Machine m;
  m.driver().rocm("6.3.0").gpu({.node = 1}).gpu({.node = 2, .bus = 4, .render = 129});
  m.env("ROCR_VISIBLE_DEVICES", "1").env("HIP_VISIBLE_DEVICES", "1");
  const json a = why(m);
  EXPECT_EQ(a["code"], "hidden");
  EXPECT_EQ(a["fix"], "unset HIP_VISIBLE_DEVICES");
  EXPECT_PART(a["what"], "ROCR_VISIBLE_DEVICES=1 leaves 1 of 2, then HIP_VISIBLE_DEVICES=1 leaves 0 of 1");
  m.env("HIP_VISIBLE_DEVICES", "0");
  EXPECT_EQ(why(m)["code"], "");
}

TEST(Absence, OnlyTheIntegratedGpuIsLeft) {
  Machine m;
  m.driver()
      .rocm("6.3.0")
      .gpu({.node = 1})
      .gpu({.node = 2, .target = 100306, .simds = 4, .device = 0x164e, .bus = 16, .render = 129});
  EXPECT_EQ(why(m)["code"], "");
  m.env("HIP_VISIBLE_DEVICES", "1");
  const json a = why(m);
  EXPECT_EQ(a["code"], "integrated_only");
  EXPECT_EQ(a["fix"], "unset HIP_VISIBLE_DEVICES");
}

TEST(Absence, OverrideThatNobodyCanRead) {
  Machine m;
  m.driver().gpu({}).env("HSA_OVERRIDE_GFX_VERSION", "gfx1030");
  EXPECT_EQ(why(m)["code"], "bad_override");
}

TEST(Absence, UnsupportedArchitecture) {
  Machine m;
  m.driver().gpu({.target = 80003});
  EXPECT_EQ(why(m)["code"], "unsupported");
}

// Too old for any ROCm: the processor is what is left.
TEST(Absence, ArchitectureThatIsGone) {
  Machine m;
  m.driver().gpu({.target = 80003});
  EXPECT_PART(why(m)["fix"], "whl/cpu");
}

TEST(Absence, LibrariesWithoutCodeForTheGpu) {
  Machine m;
  m.driver().gpu({.target = 100301, .device = 0x73df}).rocm("6.3.0");
  EXPECT_EQ(m.absence(), "");  // nothing is known of rocBLAS
  m.file("/opt/rocm-6.3.0/lib/rocblas/library/TensileLibrary_lazy_gfx1030.dat", "");
  const json a = m.facts()["absence"];
  EXPECT_EQ(a["code"], "unsupported");
  EXPECT_PART(a["what"], "no code for gfx1031");
  EXPECT_EQ(a["fix"], "export HSA_OVERRIDE_GFX_VERSION=10.3.0");
  EXPECT_EQ(m.env("HSA_OVERRIDE_GFX_VERSION", "10.3.0").absence(), "");
  EXPECT_EQ(m.env("HSA_OVERRIDE_GFX_VERSION", "10.3.2").absence(), "unsupported");
}

// For an architecture that is newer than this version of PyFlame, the installed ROCm decides.
TEST(Absence, ArchitectureThatTheLibrariesKnow) {
  Machine m;
  m.driver().gpu({.target = 140000}).rocm("9.1.0");
  EXPECT_EQ(m.absence(), "unsupported");
  m.file("/opt/rocm-9.1.0/lib/rocblas/library/TensileLibrary_lazy_gfx1030.dat", "");
  m.file("/opt/rocm-9.1.0/lib/rocblas/library/TensileLibrary_lazy_gfx1400.dat", "");
  const json facts = m.facts();
  EXPECT_EQ(facts["gpus"][0]["gfx"], "gfx1400");
  EXPECT_EQ(facts["gpus"][0]["support"], "unlisted");
  EXPECT_EQ(facts["absence"], nullptr);
}

TEST(Absence, NoRocm) {
  Machine m;
  m.driver().gpu({});
  EXPECT_EQ(why(m)["code"], "no_rocm");
  m.env("VIRTUAL_ENV", "/v");
  m.file("/v/lib/python3.11/site-packages/torch/version.py", "hip = '6.2.41133'\n")
      .file("/v/lib/python3.11/site-packages/torch/lib/libamdhip64.so", "");
  EXPECT_EQ(why(m)["code"], "");
}

TEST(Absence, FrameworkOfAnotherRelease) {
  Machine m;
  m.driver().gpu({}).rocm("6.3.0").env("VIRTUAL_ENV", "/v");
  m.file("/v/lib/python3.11/site-packages/torch/version.py", "hip = '5.7.31921'\n");
  const json a = why(m);
  EXPECT_EQ(a["code"], "version_mismatch");
  EXPECT_PART(a["what"], "torch was built for ROCm 5.7 and finds ROCm 6.3.0");
  EXPECT_PART(a["why"], "libamdhip64.so.5");
}

TEST(Absence, Wsl) {
  Machine m;
  m.file("/proc/sys/kernel/osrelease", "5.15.153.1-microsoft-standard-WSL2\n");
  EXPECT_PART(why(m)["fix"], "wsl.exe --update");
  m.node("/dev/dxg", "0666", 0, "root");
  EXPECT_PART(why(m)["fix"], "usecase=wsl");
  EXPECT_EQ(why(m)["code"], "wsl");
}

}  // namespace
}  // namespace pyflame
