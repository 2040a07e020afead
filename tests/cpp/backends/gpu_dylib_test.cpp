// Where the vendors' libraries are looked for. The libraries are made here, in a folder that is laid out as pip's.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "pyflame/backends/gpu/driver/dylib.h"
#include "pyflame/base/packages.h"

namespace pyflame {
namespace {

namespace fs = std::filesystem;

class GpuDylib : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "pyflame-dylib-XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    root_ = name;
  }
  void TearDown() override {
    set_package_folders({});
    fs::remove_all(root_);
  }
  // A library with one function that returns a number; `flags`: what it is linked to.
  void make(const fs::path& file, const std::string& function, int number, const std::string& flags = "") {
    fs::create_directories(file.parent_path());
    const fs::path source = root_ / (function + ".c");
    std::ofstream(source) << "int " << function << "(void) { return " << number << "; }\n";
    const std::string command = "cc -shared -fPIC -Wl,--no-as-needed -Wl,-soname," + file.filename().string() + " -o " +
                                file.string() + " " + source.string() + " " + flags;
    ASSERT_EQ(std::system(command.c_str()), 0) << command;
  }
  static int call(const gpu::Dylib& library, const char* function) {
    const auto f = reinterpret_cast<int (*)()>(gpu::find_symbol(library.open().handle, function));
    return f ? f() : -1;
  }
  fs::path root_;
};

// As cuDNN's and cuBLASLt's wheels: one library is linked to another that lies in a sibling's folder, and has no run path to it.
TEST_F(GpuDylib, FindsWheelsThatNeedEachOther) {
  const fs::path products = root_ / "nvidia/cu13/lib", convolutions = root_ / "nvidia/cudnn/lib";
  make(products / "libpf_products.so.13", "pf_products", 13);
  make(convolutions / "libpf_convolutions.so.9", "pf_convolutions", 9, (products / "libpf_products.so.13").string());
  set_package_folders({"/nonexistent", root_.string()});
  static constexpr const char* kProducts[] = {"libpf_products.so.13", nullptr};
  static constexpr const char* kConvolutions[] = {"libpf_convolutions.so.9", nullptr};
  static const gpu::Dylib p{.name = "products", .type = DeviceType::cuda, .files = kProducts, .absent = "none"};
  static const gpu::Dylib* const needs[] = {&p, nullptr};
  static const gpu::Dylib c{
      .name = "convolutions", .type = DeviceType::cuda, .files = kConvolutions, .absent = "none", .needs = needs};
  EXPECT_EQ(call(c, "pf_convolutions"), 9) << c.open().why;
  EXPECT_EQ(c.open().path, (convolutions / "libpf_convolutions.so.9").string());
  EXPECT_EQ(p.open().path, (products / "libpf_products.so.13").string());
}

TEST_F(GpuDylib, PrefersTheFirstName) {
  make(root_ / "nvidia/both/lib/libpf_two.so.12", "pf_old", 12);
  make(root_ / "nvidia/both/lib/libpf_two.so.13", "pf_new", 13);
  set_package_folders({root_.string()});
  static constexpr const char* kFiles[] = {"libpf_two.so.13", "libpf_two.so.12", nullptr};
  static const gpu::Dylib two{.name = "two", .type = DeviceType::cuda, .files = kFiles, .absent = "none"};
  EXPECT_EQ(call(two, "pf_new"), 13);
}

TEST_F(GpuDylib, SaysWhatIsMissing) {
  fs::create_directories(root_ / "nvidia/broken/lib");
  std::ofstream(root_ / "nvidia/broken/lib/libpf_broken.so") << "not a library";
  set_package_folders({root_.string()});
  static constexpr const char* kNone[] = {"libpf_none.so", nullptr};
  static constexpr const char* kBroken[] = {"libpf_broken.so", nullptr};
  static const gpu::Dylib none{.name = "none", .type = DeviceType::cuda, .files = kNone, .absent = "it is not there"};
  static const gpu::Dylib broken{.name = "it", .type = DeviceType::cuda, .files = kBroken, .absent = "it is not there"};
  EXPECT_EQ(none.open().handle, nullptr);
  EXPECT_EQ(none.open().why, "it is not there");
  EXPECT_EQ(broken.open().handle, nullptr);
  EXPECT_TRUE(broken.open().why.starts_with("it cannot be loaded: ")) << broken.open().why;
}

// A program without Python takes the packages of the active environment.
TEST_F(GpuDylib, PackagesOfTheActiveEnvironment) {
  const fs::path site = root_ / "lib/python3.11/site-packages";
  fs::create_directories(site);
  const char* before = std::getenv("VIRTUAL_ENV");
  const std::string kept = before ? before : "";
  setenv("VIRTUAL_ENV", root_.c_str(), 1);
  const std::vector<std::string> found = package_folders();
  if (before) setenv("VIRTUAL_ENV", kept.c_str(), 1);
  else unsetenv("VIRTUAL_ENV");
  EXPECT_NE(std::find(found.begin(), found.end(), site.string()), found.end());
}

}  // namespace
}  // namespace pyflame
