// Live and recorded machines behave alike. Hostile trees of files do no harm.
#include "tools/system/host.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>

#include "pyflame/base/error.h"
#include "tools/system/machine.h"
#include "tools/system/text.h"

namespace pyflame {
namespace {

namespace fs = std::filesystem;
using test::json;
using test::Machine;
using test::TempFolder;
using tools::system::Reading;

TEST(Text, Numbers) {
  EXPECT_EQ(tools::system::to_number(" 12\n"), 12);
  EXPECT_EQ(tools::system::to_number("-1"), -1);
  EXPECT_EQ(tools::system::to_number("0x1002"), 0x1002);
  EXPECT_EQ(tools::system::to_unsigned("18446744073709551615"), ~uint64_t{0});
  for (const char* bad : {"", "x", "1x", "0x", "99999999999999999999"})
    EXPECT_FALSE(tools::system::to_number(bad)) << bad;
  EXPECT_EQ(tools::system::count_in_ranges("0-3,8\n"), 5);
  EXPECT_EQ(tools::system::count_in_ranges("3-1,x"), 0);
  EXPECT_TRUE(tools::system::natural_less("card2", "card10"));
  EXPECT_FALSE(tools::system::natural_less("card10", "card2"));
  EXPECT_TRUE(tools::system::natural_less("card", "card0"));
  EXPECT_EQ(tools::system::parse_version("6.3.0-39"), (tools::system::Version{6, 3, 0}));
  EXPECT_EQ(tools::system::parse_version("6.2"), (tools::system::Version{6, 2, 0}));
  EXPECT_FALSE(tools::system::parse_version("rocm"));
}

// What must not depend on the moment or on who asks: everything but free space.
json steady(json facts) {
  for (const char* key : {"home_free_bytes", "shm_free_bytes"}) facts["host"].erase(key);
  for (json& gpu : facts["gpus"])
    for (const char* key : {"busy_percent", "vram_used_bytes", "temperatures", "users", "pcie"}) gpu.erase(key);
  return facts;
}

TEST(Record, OfThisMachineGivesTheSameFacts) {
  TempFolder folder;
  const auto here = tools::system::this_machine();
  EXPECT_GT(tools::system::record(*here, folder / "machine"), 1);
  const auto there = tools::system::recorded(folder / "machine");
  EXPECT_EQ(steady(tools::system::collect(*here)), steady(tools::system::collect(*there)));
}

TEST(Record, OfASyntheticMachineGivesTheSameFacts) {
  Machine m;
  m.driver()
      .rocm("6.3.0")
      .gpu({.node = 1})
      .gpu({.node = 2, .bus = 4, .render = 129})
      .env("HIP_VISIBLE_DEVICES", "1")
      .env("HOME", "/home/user");
  m.link("/sys/bus/pci/devices/0000:03:00.0", "/sys/devices/pci0000:00/0000:00:01.1/0000:03:00.0");
  m.link("/sys/bus/pci/devices/0000:03:00.0/iommu_group", "/sys/kernel/iommu_groups/14")
      .file("/sys/kernel/iommu_groups/14/type", "identity\n");
  m.user("ada", 1000, {{1000, "ada"}, {109, "render"}}).file("/sys/class/iommu/ivhd0/uevent", "");
  m.record()["unreadable"]["/sys/bus/pci/devices/0000:04:00.0/mem_info_vram_total"] = "denied";
  m.record()["filesystems"]["/home/user"] = {{"type", "nfs"}, {"bytes", 5}, {"free", 2}};
  m.record()["process_env"]["9"] = {{"NCCL_DEBUG", "INFO"}};
  m.link("/proc/9/exe", "/c/bin/python3.11").file("/c/lib/python3.11/site-packages/vllm-1.0.dist-info/METADATA", "");
  TempFolder folder;
  tools::system::CollectOptions process;
  process.pid = 9;
  const auto first = m.host();
  tools::system::record(*first, folder / "own");
  EXPECT_EQ(tools::system::collect(*first), tools::system::collect(*tools::system::recorded(folder / "own")));
  tools::system::record(*first, folder / "other", 9);
  EXPECT_EQ(tools::system::collect(*first, process),
            tools::system::collect(*tools::system::recorded(folder / "other"), process));
  EXPECT_EQ(tools::system::collect(*first)["host"]["iommu"]["mode"], "identity");
  EXPECT_EQ(tools::system::collect(*first, process)["frameworks"].size(), 1u);
}

TEST(Record, KeepsNoSecretsAndNoStrangers) {
  ::setenv("AWS_SECRET_ACCESS_KEY", "aws-value", 1);
  ::setenv("VLLM_API_KEY", "vllm-value", 1);
  ::setenv("NCCL_DEBUG", "WARN", 1);
  TempFolder folder;
  tools::system::record(*tools::system::this_machine(), folder / "machine");
  for (const auto& entry : fs::recursive_directory_iterator(folder / "machine"))
    if (entry.is_regular_file()) {
      const std::string text = test::read_all(entry.path().string());
      EXPECT_EQ(text.find("aws-value"), std::string::npos) << entry.path();
      EXPECT_EQ(text.find("vllm-value"), std::string::npos) << entry.path();
    }
  const json env = json::parse(test::read_all(folder / "machine/pyflame-record.json"))["env"];
  EXPECT_FALSE(env.contains("AWS_SECRET_ACCESS_KEY"));
  EXPECT_EQ(env["VLLM_API_KEY"], "(not shown)");
  EXPECT_EQ(env["NCCL_DEBUG"], "WARN");
  for (const char* name : {"AWS_SECRET_ACCESS_KEY", "VLLM_API_KEY", "NCCL_DEBUG"}) ::unsetenv(name);
}

TEST(Record, RefusesAFolderThatIsTaken) {
  TempFolder folder;
  test::write_all(folder / "file", "x");
  EXPECT_THROW(tools::system::record(*tools::system::this_machine(), folder.str()), Error);
  EXPECT_EQ(test::read_all(folder / "file"), "x");
}

TEST(LiveHost, ReadsWithinBounds) {
  TempFolder folder;
  const auto host = tools::system::this_machine();
  test::write_all(folder / "big", std::string(1 << 20, 'x'));
  EXPECT_EQ(host->read(folder / "big").text.size(), tools::system::kReadLimit);
  EXPECT_EQ(host->read(folder / "big", 10).text, "xxxxxxxxxx");
  EXPECT_EQ(host->read(folder / "none").state, Reading::missing);
  EXPECT_EQ(host->read(folder.str()).state, Reading::failed);
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  EXPECT_EQ(host->read(folder / "pipe").state, Reading::failed);  // and does not wait for a writer
  EXPECT_EQ(host->read("/dev/zero").state, Reading::failed);
  EXPECT_EQ(host->list(folder.str()), (std::vector<std::string>{"big", "pipe"}));
  EXPECT_TRUE(host->list(folder / "none").empty());
  EXPECT_FALSE(host->real_path(folder / "none"));
  EXPECT_FALSE(host->environment(int64_t{1} << 40));
}

TEST(RecordedHost, LinksAndNodes) {
  Machine m;
  m.file("/sys/devices/pci0000:00/0000:05:00.0/vendor", "0x1002\n")
      .link("/sys/class/drm/card0", "/sys/devices/pci0000:00/0000:05:00.0/drm/card0");
  m.link("/sys/devices/pci0000:00/0000:05:00.0/drm/card0/device", "/sys/devices/pci0000:00/0000:05:00.0");
  m.link("/opt/rocm", "/opt/rocm-6.3.0").file("/opt/rocm/only-here", "x").node("/dev/kfd", "0660", 109, "render");
  m.user("ada", 1000, {{44, "video"}});
  const auto host = m.host();
  EXPECT_EQ(host->line("/sys/class/drm/card0/device/vendor"), "0x1002");
  EXPECT_EQ(host->real_path("/sys/class/drm/card0/device"), "/sys/devices/pci0000:00/0000:05:00.0");
  EXPECT_EQ(host->real_path("/opt/rocm"), "/opt/rocm-6.3.0");
  EXPECT_EQ(host->line("/opt/rocm/only-here"), "x");
  EXPECT_TRUE(host->exists("/dev/kfd"));
  EXPECT_TRUE(host->exists("/dev"));
  EXPECT_EQ(host->list("/dev"), (std::vector<std::string>{"kfd"}));
  EXPECT_FALSE(host->status("/dev/kfd").writable);
  EXPECT_EQ(m.user("ada", 1000, {{109, "render"}}).host()->status("/dev/kfd").writable, true);
  EXPECT_EQ(m.user("root", 0, {}).host()->status("/dev/kfd").writable, true);
  m.record()["nodes"]["/dev/kfd"]["writable"] = false;
  EXPECT_EQ(m.host()->status("/dev/kfd").writable, false);
}

TEST(RecordedHost, NeverLeavesItsFolder) {
  TempFolder outside;
  test::write_all(outside / "secret", "outside");
  Machine m;
  m.file("/etc/os-release", "ID=x\n");
  fs::create_symlink(outside / "secret", m.folder() + "/etc/link");
  fs::create_directory_symlink(outside.str(), m.folder() + "/etc/folder");
  fs::create_symlink("os-release", m.folder() + "/etc/inside");
  ASSERT_EQ(::mkfifo((m.folder() + "/etc/pipe").c_str(), 0600), 0);
  m.link("/etc/up", "/../../../../.." + outside.str());
  m.record()["links"]["/etc/relative"] = "../../" + outside.str();
  const auto host = m.host();
  for (const std::string path :
       {"/etc/link", "/etc/folder/secret", "/etc/inside", "/etc/pipe", "/etc/up/secret", "/etc/relative/secret"}) {
    EXPECT_EQ(host->read(path).state, Reading::missing) << path;
    EXPECT_EQ(host->read("/../.." + path).state, Reading::missing) << path;
  }
  EXPECT_FALSE(host->exists("/etc/link"));
  EXPECT_EQ(host->list("/etc"), (std::vector<std::string>{"os-release", "up"}));
  EXPECT_EQ(host->read("/etc/../etc/./os-release").text, "ID=x\n");
  EXPECT_EQ(host->read(outside / "secret").state, Reading::missing);
  EXPECT_EQ(host->read("/.." + (outside / "secret")).state, Reading::missing);
}

TEST(RecordedHost, LoopsAndNonsense) {
  Machine m;
  m.link("/a", "/b").link("/b", "/a").link("/c", "/c/c").link("/d", "/d/e/f/g");
  m.record()["links"]["/x"] = 7;
  m.record()["nodes"]["/dev/kfd"] = "no object";
  m.record()["nodes"]["relative"] = {{"mode", 432}, {"uid", "x"}};
  m.record()["listed"]["/y"] = {1, nullptr, "name", {{"a", 1}}};
  m.record()["unreadable"]["/z"] = json::array();
  m.record()["filesystems"] = "none";
  m.record()["env"] = {{"HIP_VISIBLE_DEVICES", 3}};
  m.record()["user"] = {{"uid", -5}, {"groups", {1, 2, {{"id", "x"}}}}};
  m.record()["process_env"] = {{"x", 1}, {"3", {{"NCCL_DEBUG", "INFO"}}}};
  const auto host = m.host();
  for (const char* path : {"/a/file", "/c/file", "/d/file", "", "x", "//", "/./.."})
    EXPECT_EQ(host->read(path).state, Reading::missing) << path;
  EXPECT_EQ(host->list("/y"), (std::vector<std::string>{"name"}));
  EXPECT_FALSE(host->real_path("/nothing"));
  const json facts = tools::system::collect(*host);
  EXPECT_TRUE(facts["failed_probes"].empty()) << facts["failed_probes"];
  EXPECT_TRUE(facts["env"].empty());
}

TEST(RecordedHost, HostileContents) {
  Machine m;
  m.driver().gpu({});
  const std::string node = "/sys/class/kfd/kfd/topology/nodes/1/properties";
  m.file(node,
         "simd_count 18446744073709551615\nsimd_per_cu 0\ngfx_target_version 4294967295\nlocation_id "
         "18446744073709551615\ndomain 18446744073709551615\n"
         "drm_render_minor 18446744073709551615\nunique_id -1\ndevice_id 99999999999\n\xff\xfe junk\n" +
             std::string(1 << 20, 'A'));
  m.file("/sys/class/kfd/kfd/topology/nodes/1/io_links/0/properties",
         "node_to 18446744073709551615\nweight 9223372036854775808\ntype 11\n");
  m.file("/sys/class/kfd/kfd/topology/nodes/99999999999999999999/properties", "simd_count 4\n");
  m.file("/sys/class/kfd/kfd/topology/nodes/7/properties", std::string("simd_count 4\0gfx_target_version 90402", 36));
  m.file("/etc/os-release", "ID=\"\nPRETTY_NAME=\"\xff\x1b[31m\"\n")
      .file("/proc/self/limits", "Max locked memory\nMax open files   \n");
  m.file("/proc/meminfo", "MemTotal:\n")
      .file("/proc/cpuinfo", "\nflags")
      .file("/sys/kernel/mm/transparent_hugepage/enabled", "]always[\n");
  m.file("/sys/bus/pci/devices/0000:03:00.0/resource", "0x 0x\n")
      .file("/sys/bus/pci/devices/0000:03:00.0/current_link_speed", "Unknown\n");
  const json facts = m.facts();
  EXPECT_TRUE(facts["failed_probes"].empty()) << facts["failed_probes"];
  EXPECT_NO_THROW(facts.dump());
  EXPECT_EQ(facts["gpus"].size(), 1u);  // the second node's line is no number
}

TEST(RecordedHost, WhatIsNoRecord) {
  TempFolder folder;
  const auto message = [&]() -> std::string {
    try {
      tools::system::recorded(folder.str());
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), ErrorKind::Value);
      return e.what();
    }
    return "";
  };
  EXPECT_NE(message().find("expected a pyflame-record.json in it (there is none)"), std::string::npos) << message();
  for (const std::string& bad : std::vector<std::string>{"", "{", "[]", "null", std::string("\0\xff", 2)}) {
    test::write_all(folder / "pyflame-record.json", bad);
    EXPECT_NE(message().find("damaged"), std::string::npos) << bad;
  }
  test::write_all(folder / "pyflame-record.json", std::string(200000, '['));
  EXPECT_NE(message().find("damaged"), std::string::npos);
  test::write_all(folder / "pyflame-record.json", R"({"schema": "pyflame.record/9"})");
  EXPECT_NE(message().find("expected 'pyflame.record/1'"), std::string::npos);
}

}  // namespace
}  // namespace pyflame
