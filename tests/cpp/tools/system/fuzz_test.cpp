// Whatever the files of a machine contain, the facts are a valid document: mutated files, listings and records, with fixed seeds.
#include <gtest/gtest.h>

#include <random>

#include "pyflame/base/error.h"
#include "tools/system/host_view.h"
#include "tools/system/machine.h"

namespace pyflame {
namespace {

using test::json;
using test::Machine;

using Random = std::mt19937;
size_t below(Random& random, size_t n) { return std::uniform_int_distribution<size_t>(0, n - 1)(random); }

std::string mutated(std::string s, Random& random) {
  static const std::vector<std::string> bits = {"",
                                                " ",
                                                "\n",
                                                "-1",
                                                "0x",
                                                "18446744073709551616",
                                                ",",
                                                "=",
                                                "\xff",
                                                "[",
                                                "gfx",
                                                "../",
                                                "..",
                                                std::string(1, '\0'),
                                                std::string(5000, '9')};
  for (size_t n = below(random, 4); n > 0; --n) {
    const size_t at = s.empty() ? 0 : below(random, s.size());
    switch (below(random, 4)) {
      case 0: s.insert(at, bits[below(random, bits.size())]); break;
      case 1: s.resize(at); break;
      case 2:
        if (!s.empty()) s[at] = static_cast<char>(below(random, 256));
        break;
      default: s += s.substr(at);
    }
  }
  return s;
}

class Mutating final : public tools::system::HostView {
 public:
  Mutating(const Host& host, unsigned seed) : HostView(host), random_(seed) {}
  tools::system::Reading read(const std::string& path, size_t limit) const override {
    tools::system::Reading r = host().read(path, limit);
    if (r && below(random_, 3) == 0) r.text = mutated(r.text, random_);
    if (below(random_, 40) == 0) r = {tools::system::Reading::denied, "", "Permission denied"};
    return r;
  }
  std::vector<std::string> list_if(const std::string& path, const Keep& keep) const override {
    std::vector<std::string> names = host().list_if(path, keep);
    for (std::string& name : names)
      if (below(random_, 10) == 0) name = mutated(name, random_);
    return names;
  }
  std::optional<std::string> real_path(const std::string& path) const override {
    std::optional<std::string> p = host().real_path(path);
    if (p && below(random_, 10) == 0) p = mutated(*p, random_);
    return p;
  }

 private:
  mutable Random random_;
};

void build(Machine& m) {
  m.driver().rocm("6.3.0").gpu({.node = 1}).gpu({.node = 2, .bus = 4, .render = 129, .unique_id = 5});
  m.env("HIP_VISIBLE_DEVICES", "1,0").env("HSA_OVERRIDE_GFX_VERSION", "11.0.0").env("VIRTUAL_ENV", "/v");
  m.file("/v/lib/python3.11/site-packages/torch/version.py", "__version__ = '2.5.1'\nhip = '6.2.41133'\n");
  m.file("/etc/os-release", "ID=ubuntu\nPRETTY_NAME=\"Ubuntu\"\n")
      .file("/proc/cmdline", "ro modprobe.blacklist=a,b iommu=pt\n");
  m.file("/proc/meminfo", "MemTotal:  65536 kB\n")
      .file("/proc/self/limits", "Max locked memory  65536  unlimited  bytes\n");
  m.file("/sys/devices/system/cpu/online", "0-3\n")
      .file("/sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n");
  m.file("/etc/modprobe.d/x.conf", "blacklist nouveau\n")
      .file("/etc/group", "render:x:109:ada\n")
      .user("ada", 1000, {{1000, "ada"}});
  const std::string pci = "/sys/bus/pci/devices/0000:03:00.0";
  m.link(pci, "/sys/devices/pci0000:00/0000:00:01.1/0000:03:00.0")
      .file("/sys/bus/pci/devices/0000:00:01.1/config", std::string(4096, '\x0d'));
  m.file(pci + "/resource", "0x1000 0x1fff 0x0\n")
      .file(pci + "/current_link_speed", "16.0 GT/s PCIe\n")
      .file(pci + "/current_link_width", "16\n");
  m.file(pci + "/hwmon/hwmon0/temp1_input", "45000\n").file(pci + "/ras/umc_err_count", "ue: 0\nce: 0\n");
}

TEST(Fuzz, FilesOfAMachine) {
  Machine m;
  build(m);
  const auto host = m.host();
  for (unsigned seed = 0; seed < 400; ++seed) {
    const json facts = tools::system::collect(Mutating(*host, seed));
    ASSERT_TRUE(facts["gpus"].is_array()) << seed;
    ASSERT_NO_THROW(facts.dump()) << seed;
    for (const json& failed : facts["failed_probes"])  // what was denied is told; nothing else goes wrong
      ASSERT_EQ(failed["why"].get<std::string>().rfind("no permission to read ", 0), 0u) << seed << failed;
  }
}

TEST(Fuzz, Records) {
  Machine m;
  build(m);
  m.host();
  const std::string path = m.folder() + "/pyflame-record.json", good = test::read_all(path);
  Random random(1);
  int read = 0;
  for (int i = 0; i < 200; ++i) {
    std::string bad = good;
    for (size_t n = 1 + below(random, 3); n > 0; --n) bad = mutated(bad, random);
    test::write_all(path, bad);
    std::unique_ptr<tools::system::Host> host;
    try {
      host = tools::system::recorded(m.folder());
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), ErrorKind::Value);
      continue;
    }
    ASSERT_NO_THROW(tools::system::collect(*host).dump()) << i;
    ++read;
  }
  EXPECT_GT(read, 0);
}

}  // namespace
}  // namespace pyflame
