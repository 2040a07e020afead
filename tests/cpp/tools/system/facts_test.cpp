// Facts read from synthetic machines: topology, memory, links, settings, software.
#include "tools/system/facts.h"

#include <gtest/gtest.h>

#include "tools/system/kfd.h"
#include "tools/system/machine.h"

namespace pyflame {
namespace {

using test::Gpu;
using test::json;
using test::Machine;
using tools::system::gfx_name;

TEST(Kfd, NamesOfArchitectures) {
  EXPECT_EQ(gfx_name(90402), "gfx942");
  EXPECT_EQ(gfx_name(90010), "gfx90a");
  EXPECT_EQ(gfx_name(90500), "gfx950");
  EXPECT_EQ(gfx_name(100306), "gfx1036");
  EXPECT_EQ(gfx_name(110501), "gfx1151");
  EXPECT_EQ(gfx_name(120001), "gfx1201");
  EXPECT_EQ(gfx_name(0), "");
  EXPECT_EQ(gfx_name(~uint64_t{0}), "");
}

TEST(Facts, OneGpu) {
  Machine m;
  m.driver().gpu({.node = 1, .bus = 0x2d, .render = 129, .unique_id = 0x63f81237ab45cd01});
  const std::string pci = "/sys/bus/pci/devices/0000:2d:00.0";
  m.file(pci + "/mem_info_vram_total", "25753026560\n").file(pci + "/mem_info_vis_vram_total", "268435456\n");
  m.file(pci + "/resource", "0x0000007800000000 0x000000780fffffff 0x000000000014220c\n0x0 0x0 0x0\n");
  m.file(pci + "/hwmon/hwmon4/power1_cap", "327000000\n").file(pci + "/hwmon/hwmon4/power1_cap_default", "339000000\n");
  m.file(pci + "/hwmon/hwmon4/temp2_label", "junction\n").file(pci + "/hwmon/hwmon4/temp2_input", "61000\n");
  m.file(pci + "/hwmon/hwmon4/temp2_crit", "110000\n");
  m.file(pci + "/ras/umc_err_count", "ue: 2\nce: 5\n").file(pci + "/ras/gfx_err_count", "ue: 1\nce: 0\n");
  m.file("/sys/class/kfd/kfd/proc/4242/vram_40001", "1048576\n").file("/sys/class/kfd/kfd/proc/4242/pasid", "32770\n");
  const json facts = m.facts();
  EXPECT_TRUE(facts["failed_probes"].empty()) << facts["failed_probes"];
  ASSERT_EQ(facts["gpus"].size(), 1u);
  const json& gpu = facts["gpus"][0];
  EXPECT_EQ(gpu["gfx"], "gfx1100");
  EXPECT_EQ(gpu["cus"], 84);
  EXPECT_EQ(gpu["pci"], "0000:2d:00.0");
  EXPECT_EQ(gpu["uuid"], "GPU-63f81237ab45cd01");
  EXPECT_EQ(gpu["device_id"], "0x744c");
  EXPECT_EQ(gpu["render"], "/dev/dri/renderD129");
  EXPECT_EQ(gpu["render_accessible"], true);
  EXPECT_EQ(gpu["integrated"], false);
  EXPECT_EQ(gpu["atomics"], true);
  EXPECT_EQ(gpu["vram_bytes"], 25753026560);
  EXPECT_EQ(gpu["visible_vram_bytes"], 268435456);
  EXPECT_EQ(gpu["bar_bytes"], 268435456);
  EXPECT_EQ(gpu["power"]["cap_w"], 327.0);
  EXPECT_EQ(gpu["power"]["max_w"], nullptr);
  EXPECT_EQ(gpu["temperatures"], json::parse(R"([{"label":"junction","c":61,"limit_c":110}])"));
  EXPECT_EQ(gpu["ras_uncorrectable"], 3);
  EXPECT_EQ(gpu["users"], json::parse(R"([{"pid":4242,"vram_bytes":1048576}])"));
  EXPECT_EQ(gpu["override"], nullptr);
  EXPECT_EQ(gpu["support"], "official");
  EXPECT_EQ(facts["visible"]["gpus"], json::parse("[0]"));
  EXPECT_EQ(facts["cpu_links"], json::parse(R"([{"gpu":0,"numa":0,"kind":"pcie","weight":20}])"));
  EXPECT_EQ(facts["driver"]["loaded"], true);
  EXPECT_EQ(facts["kfd"]["mode"], "0660");
}

TEST(Facts, ALinkWithoutAtomics) {
  Machine m;
  EXPECT_EQ(m.driver().gpu({.flags = 0xd}).facts()["gpus"][0]["atomics"], false);
}

// The switch on the card has the same vendor as the GPU; the slot is what the outermost one is plugged into.
TEST(Facts, PcieLinkOfTheSlot) {
  Machine m;
  m.driver().gpu({.bus = 3});
  const std::string devices = "/sys/bus/pci/devices/";
  m.link(devices + "0000:03:00.0", "/sys/devices/pci0000:00/0000:00:01.1/0000:01:00.0/0000:02:00.0/0000:03:00.0");
  for (const char* bridge : {"0000:01:00.0", "0000:02:00.0"}) m.file(devices + bridge + "/vendor", "0x1002\n");
  m.file(devices + "0000:00:01.1/vendor", "0x1022\n").file(devices + "0000:00:01.1/max_link_speed", "16.0 GT/s PCIe\n");
  m.file(devices + "0000:01:00.0/current_link_speed", "8.0 GT/s PCIe\n")
      .file(devices + "0000:01:00.0/max_link_speed", "16.0 GT/s PCIe\n");
  m.file(devices + "0000:01:00.0/current_link_width", "4\n").file(devices + "0000:01:00.0/max_link_width", "16\n");
  m.file(devices + "0000:03:00.0/current_link_speed", "16.0 GT/s PCIe\n")
      .file(devices + "0000:03:00.0/current_link_width", "16\n");
  const json link = m.facts()["gpus"][0]["pcie"];
  EXPECT_EQ(link["gts"], 8.0);
  EXPECT_EQ(link["width"], 4);
  EXPECT_EQ(link["max_width"], 16);
  EXPECT_EQ(link["where"], "0000:01:00.0 (bridge)");
  EXPECT_EQ(link["slot"]["where"], "0000:00:01.1");
  EXPECT_EQ(link["slot"]["max_gts"], 16.0);
}

TEST(Facts, LinksBetweenGpus) {
  Machine m;
  m.driver();
  for (int node : {2, 3}) {
    m.gpu({.node = node,
           .target = 90402,
           .simds = 1216,
           .simd_per_cu = 4,
           .device = 0x74a1,
           .bus = node,
           .render = 126 + node});
    m.file(
        "/sys/class/kfd/kfd/topology/nodes/" + std::to_string(node) + "/io_links/1/properties",
        fmt::format("type 11\nnode_from {}\nnode_to {}\nweight 15\nmin_bandwidth 64000\nmax_bandwidth 64000\nflags 1\n",
                    node, 5 - node));
  }
  const json facts = m.facts();
  EXPECT_EQ(facts["gpus"][0]["node"], 2);
  EXPECT_EQ(facts["gpus"][0]["cus"], 304);
  ASSERT_EQ(facts["links"].size(), 2u);
  EXPECT_EQ(
      facts["links"][0],
      json::parse(
          R"({"from":0,"to":1,"kind":"xgmi","weight":15,"min_mb_s":64000,"max_mb_s":64000,"hops":1,"peer_to_peer":true})"));
}

TEST(Facts, IntegratedGpus) {
  Machine m;
  m.driver()
      .gpu({.node = 1, .bus = 3})
      .gpu({.node = 2, .target = 100306, .simds = 4, .device = 0x164e, .bus = 0x10, .render = 129});
  const json facts = m.facts();
  EXPECT_EQ(facts["gpus"][0]["integrated"], false);
  EXPECT_EQ(facts["gpus"][1]["integrated"], true);
  EXPECT_EQ(facts["gpus"][1]["support"], "unlisted");
}

TEST(Facts, EffectOfTheOverride) {
  const auto effect = [](const std::string& name, const std::string& value, int target) {
    Machine m;
    return m.driver().gpu({.target = target}).env(name, value).facts()["gpus"][0]["override"];
  };
  const std::string all = "HSA_OVERRIDE_GFX_VERSION";
  EXPECT_EQ(effect(all, "10.3.0", 100301)["effect"], "same instructions");
  EXPECT_EQ(effect(all, "10.3.0", 100300)["effect"], "none");
  EXPECT_EQ(effect(all, "11.0.0", 110002)["effect"], "same family");
  EXPECT_EQ(effect(all, "11.0.0", 100301)["effect"], "other family");
  EXPECT_EQ(effect(all, "9.0.10", 90008)["effect"], "other family")
      << "MI100 keeps its accumulators in registers of their own";
  EXPECT_EQ(effect(all, "9.0.8", 90006)["effect"], "other family") << "gfx906 has no matrix instructions";
  EXPECT_EQ(effect(all, "9.0.0", 90006)["effect"], "same family");
  EXPECT_EQ(effect(all, "9.4.2", 110000)["gfx"], "gfx942");
  EXPECT_EQ(effect(all, "gfx1030", 100301)["effect"], "invalid");
  EXPECT_EQ(effect(all, "10.3", 100301)["effect"], "invalid");
  EXPECT_EQ(effect(all, "10.3.0x", 100301)["effect"], "invalid");
  EXPECT_EQ(effect(all + "_1", "10.3.0", 100301)["variable"], all + "_1");
  EXPECT_EQ(effect(all + "_7", "10.3.0", 100301), nullptr);
}

TEST(Facts, SettingsOfTheMachine) {
  Machine m;
  m.file("/etc/os-release", "PRETTY_NAME=\"Ubuntu 22.04.4 LTS\"\nID=ubuntu\nVERSION_ID=\"22.04\"\nID_LIKE=debian\n");
  m.file("/proc/cmdline", "BOOT_IMAGE=/vmlinuz ro iommu=pt quiet\n")
      .file("/proc/meminfo", "MemTotal:       65536000 kB\nMemFree: 1 kB\n");
  m.file("/sys/devices/system/cpu/online", "0-127\n").file("/sys/devices/system/node/online", "0-1\n");
  m.file("/sys/devices/system/cpu/smt/active", "1\n").file("/proc/sys/kernel/numa_balancing", "1\n");
  m.file("/sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n");
  for (int cpu : {0, 1, 2})
    m.file(fmt::format("/sys/devices/system/cpu/cpu{}/cpufreq/scaling_governor", cpu),
           cpu == 2 ? "performance\n" : "powersave\n");
  m.file("/sys/class/iommu/ivhd0/uevent", "")
      .file("/sys/kernel/iommu_groups/0/type", "identity\n")
      .file("/sys/kernel/iommu_groups/1/type", "DMA-FQ\n");
  m.file("/sys/class/infiniband/mlx5_0/node_guid", "x")
      .file("/proc/self/limits",
            "Limit                     Soft Limit           Hard Limit           Units     \nMax locked memory         "
            "65536                unlimited            bytes     \nMax open files            1024                 "
            "1048576              files     \n");
  m.file("/proc/self/status", "Name:\tpython\nSeccomp:\t2\nSeccomp_filters:\t1\n").file("/.dockerenv", "");
  m.env("HOME", "/home/user");
  m.record()["filesystems"] = {{"/dev/shm", {{"type", "tmpfs"}, {"bytes", 67108864}, {"free", 67100000}}},
                               {"/home/user", {{"type", "nfs"}}}};
  const json facts = m.facts();
  const json& host = facts["host"];
  EXPECT_EQ(host["os"]["name"], "Ubuntu 22.04.4 LTS");
  EXPECT_EQ(host["os"]["version_id"], "22.04");
  EXPECT_EQ(host["cpus"], 128);
  EXPECT_EQ(host["numa_nodes"], 2);
  EXPECT_EQ(host["smt"], true);
  EXPECT_EQ(host["memory_bytes"], 65536000LL * 1024);
  EXPECT_EQ(host["thp"], "madvise");
  EXPECT_EQ(host["numa_balancing"], 1);
  EXPECT_EQ(host["governors"], json::parse(R"({"powersave":2,"performance":1})"));
  EXPECT_EQ(host["iommu"],
            json::parse(R"({"active":true,"mode":"mixed","passthrough":false,"asked_for_passthrough":true})"));
  EXPECT_EQ(host["infiniband"], json::parse(R"(["mlx5_0"])"));
  EXPECT_EQ(host["shm_bytes"], 67108864);
  EXPECT_EQ(host["home_fs"], "nfs");
  EXPECT_EQ(host["container"], "docker");
  EXPECT_EQ(host["seccomp"], 2);
  EXPECT_EQ(facts["process"]["memlock_bytes"], 65536);
  EXPECT_EQ(facts["process"]["nofile"], 1024);
}

TEST(Facts, NothingIsKnownOfAnEmptyTree) {
  Machine m;
  const json facts = m.facts();
  EXPECT_TRUE(facts["failed_probes"].empty()) << facts["failed_probes"];
  EXPECT_EQ(facts["host"]["cpus"], nullptr);
  EXPECT_EQ(facts["host"]["seccomp"], nullptr);
  EXPECT_EQ(facts["rocm"]["version"], nullptr);
  EXPECT_EQ(facts["absence"]["code"], "no_gpu");
}

TEST(Facts, SoftwareByItsFiles) {
  Machine m;
  m.rocm("6.3.0").env("VIRTUAL_ENV", "/home/user/env");
  m.file("/opt/rocm-6.3.0/lib/rocblas/library/TensileLibrary_Type_HH_gfx942.co", "")
      .file("/opt/rocm-6.3.0/lib/rocblas/library/Kernels.so-000-gfx90a-xnack-.hsaco", "");
  m.file("/opt/rocm-6.3.0/share/miopen/db/gfx942130.HIP.fdb.txt", "")
      .file("/opt/rocm-6.1.2/.info/version", "6.1.2-1\n");
  m.file("/opt/rocm-6.1.2/lib/libamdhip64.so.6", "");
  const std::string site = "/home/user/env/lib/python3.10/site-packages/";
  m.file(site + "torch/version.py",
         "from typing import Optional\n__version__ = '2.5.1+rocm6.2'\ndebug = False\ncuda: Optional[str] = None\nhip: "
         "Optional[str] = '6.2.41133-dd7f95766'\n");
  m.file(site + "torch/lib/libamdhip64.so", "").file(site + "torch-2.5.1+rocm6.2.dist-info/METADATA", "");
  m.file(site + "pytorch_triton_rocm-3.1.0.dist-info/METADATA", "")
      .file(site + "vllm-0.6.3.post1.dist-info/METADATA", "");
  const json facts = m.facts();
  EXPECT_EQ(facts["rocm"]["version"], "6.3.0");
  EXPECT_EQ(facts["rocm"]["installs"],
            json::parse(
                R"([{"path":"/opt/rocm-6.3.0","version":"6.3.0-39"},{"path":"/opt/rocm-6.1.2","version":"6.1.2-1"}])"));
  EXPECT_EQ(facts["rocm"]["libraries"]["hip"],
            json::parse(R"({"path":"/opt/rocm-6.3.0/lib/libamdhip64.so.6.3.0","version":"6.3.0"})"));
  EXPECT_EQ(facts["rocm"]["libraries"]["rccl"], nullptr);
  EXPECT_EQ(facts["rocm"]["rocblas_archs"], json::parse(R"(["gfx90a","gfx942"])"));
  EXPECT_EQ(facts["rocm"]["miopen_db"], json::parse(R"(["gfx942130"])"));
  ASSERT_EQ(facts["frameworks"].size(), 3u) << facts["frameworks"];
  const json& torch = facts["frameworks"][0];
  EXPECT_EQ(torch["name"], "torch");
  EXPECT_EQ(torch["version"], "2.5.1+rocm6.2");
  EXPECT_EQ(torch["hip"], "6.2.41133-dd7f95766");
  EXPECT_EQ(torch["cuda"], nullptr);
  EXPECT_EQ(torch["bundled_rocm"], true);
  EXPECT_EQ(facts["frameworks"][1]["name"], "triton");
  EXPECT_EQ(facts["frameworks"][2]["version"], "0.6.3.post1");
}

TEST(Facts, PackagesOfADistribution) {
  Machine m;
  m.record()["listed"]["/usr/lib/x86_64-linux-gnu"] = {"libamdhip64.so.5", "libamdhip64.so.5.7.31921",
                                                       "libhsa-runtime64.so.1"};
  const json rocm = m.facts()["rocm"];
  EXPECT_EQ(rocm["version"], "5.7");
  EXPECT_EQ(rocm["installs"][0]["path"], "/usr");
  EXPECT_EQ(rocm["libraries"]["hsa"]["version"], "1");
}

TEST(Facts, EnvironmentOfAScriptAndOfAProcess) {
  Machine m;
  m.driver()
      .gpu({.node = 1})
      .gpu({.node = 2, .bus = 4, .render = 129})
      .env("HIP_VISIBLE_DEVICES", "1")
      .env("EDITOR", "vi");
  m.record()["process_env"]["77"] = {{"NCCL_DEBUG", "INFO"}};
  EXPECT_EQ(m.facts()["env"], json::parse(R"({"HIP_VISIBLE_DEVICES":"1"})"));
  EXPECT_EQ(m.facts()["env_source"], "this process");

  tools::system::CollectOptions script;
  script.environment = tools::system::Environment{
      {"ROCR_VISIBLE_DEVICES", "0"}, {"PS1", "$"}, {"VLLM_API_KEY", "sk-1"}, {"TOKENIZERS_PARALLELISM", "false"}};
  script.environment_source = "train.sh";
  script.environment_lines = {{"ROCR_VISIBLE_DEVICES", "train.sh:3"}};
  const json of_script = m.facts(script);
  EXPECT_EQ(
      of_script["env"],
      (json{{"ROCR_VISIBLE_DEVICES", "0"}, {"VLLM_API_KEY", "(not shown)"}, {"TOKENIZERS_PARALLELISM", "false"}}));
  EXPECT_EQ(of_script["env_source"], "train.sh");
  EXPECT_EQ(of_script["env_lines"]["ROCR_VISIBLE_DEVICES"], "train.sh:3");
  EXPECT_EQ(of_script["visible"]["gpus"], json::parse("[0]"));

  tools::system::CollectOptions process;
  process.pid = 77;
  EXPECT_EQ(m.facts(process)["env"], json::parse(R"({"NCCL_DEBUG":"INFO"})"));
  EXPECT_EQ(m.facts(process)["env_source"], "process 77");
  m.link("/proc/77/exe", "/opt/conda/envs/x/bin/python3.11");
  m.file("/opt/conda/envs/x/lib/python3.11/site-packages/vllm-0.9.1.dist-info/METADATA", "");
  EXPECT_EQ(m.facts(process)["frameworks"][0]["path"], "/opt/conda/envs/x/lib/python3.11/site-packages/vllm");
  process.pid = 78;
  const json gone = m.facts(process);
  ASSERT_EQ(gone["failed_probes"].size(), 1u);
  EXPECT_EQ(gone["failed_probes"][0]["probe"], "environment");
  EXPECT_EQ(gone["gpus"].size(), 2u);
}

TEST(Facts, WhatMayNotBeReadIsTold) {
  Machine m;
  m.driver().gpu({});
  m.record()["unreadable"]["/sys/bus/pci/devices/0000:03:00.0/mem_info_vram_total"] = "denied";
  const json facts = m.facts();
  ASSERT_EQ(facts["failed_probes"].size(), 1u);
  EXPECT_EQ(facts["failed_probes"][0]["probe"], "gpus");
  EXPECT_EQ(facts["failed_probes"][0]["why"],
            "no permission to read /sys/bus/pci/devices/0000:03:00.0/mem_info_vram_total");
  EXPECT_EQ(facts["gpus"][0]["vram_bytes"], nullptr);
}

TEST(Facts, AccessControlServices) {
  Machine m;
  m.driver().gpu({.bus = 3});
  const std::string devices = "/sys/bus/pci/devices/";
  m.link(devices + "0000:03:00.0", "/sys/devices/pci0000:00/0000:00:01.1/0000:03:00.0");
  EXPECT_EQ(m.facts()["acs"]["state"], "unknown");
  std::string space(4096, '\0');
  space[0x100] = 0x01;  // another capability, whose next is at 0x148
  space[0x103] = 0x14;
  space[0x102] = static_cast<char>(0x81);
  space[0x148] = 0x0d;
  space[0x14a] = 1;
  m.file(devices + "0000:00:01.1/config", space);
  EXPECT_EQ(m.facts()["acs"]["state"], "off");
  space[0x14e] = 0x1d;
  m.file(devices + "0000:00:01.1/config", space);
  EXPECT_EQ(m.facts()["acs"]["state"], "on");
  EXPECT_EQ(m.facts()["acs"]["bridges"][0]["control"], "0x1d");
  m.file(devices + "0000:00:01.1/config", space.substr(0, 64));
  EXPECT_EQ(m.facts()["acs"]["state"], "unknown");
}

}  // namespace
}  // namespace pyflame
