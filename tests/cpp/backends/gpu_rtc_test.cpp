// The run-time compiler without a device. hipRTC needs none, so the build that has ROCm lets it compile every kernel for GPUs that are not
// there: PYFLAME_COMPILE_KERNELS names a folder of sources (SourcesForOtherCompilers wrote them), PYFLAME_COMPILE_ARCHS the
// architectures. The code objects are left beside the sources, for `pyflame inspect`.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>

#include "pyflame/backends/gpu/jit/kernel.h"
#include "pyflame/backends/gpu/jit/rtc.h"
#include "pyflame/base/error.h"

namespace pyflame {
namespace {

TEST(GpuRtc, CompilesForGpusThatAreNotThere) {
  const char *folder = std::getenv("PYFLAME_COMPILE_KERNELS"), *archs = std::getenv("PYFLAME_COMPILE_ARCHS");
  if (!folder || !archs) GTEST_SKIP() << "PYFLAME_COMPILE_KERNELS and PYFLAME_COMPILE_ARCHS are not set";
  int compiled = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".hip") continue;
    std::ifstream in(entry.path());
    const std::string source((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
    std::istringstream list(archs);
    for (std::string arch; std::getline(list, arch, ',');) {
      SCOPED_TRACE(arch + " " + entry.path().stem().string());
      std::string code;
      ASSERT_NO_THROW(code = gpu::compile_for(DeviceType::rocm, arch, source));
      EXPECT_EQ(code.substr(1, 3), "ELF");
      std::ofstream(std::filesystem::path(entry.path()).replace_extension(arch + ".co"), std::ios::binary) << code;
      ++compiled;
    }
  }
  EXPECT_GT(compiled, 0);
}

TEST(GpuRtc, ASourceIsShortUntilItIsCompiled) {
  const std::string body = "(float* a) {\n  pf::walk(a);\n}",
                    source = gpu::kernel_source({"rows/softmax.h"}, 64, body, "", "", gpu::Start::itself);
  EXPECT_LT(source.size(), 1000u) << "each cached program keeps it";
  const std::string whole = gpu::whole_source(source);
  EXPECT_NE(whole.find(gpu::whole_source("#include \"kernels/rows/softmax.h\"\n")), std::string::npos);
  EXPECT_EQ(whole.find(gpu::kSourceLine), std::string::npos);
  EXPECT_TRUE(whole.ends_with(body + "\n"));
  EXPECT_EQ(gpu::whole_source(whole), whole);
  EXPECT_THROW(gpu::whole_source("#include \"kernels/no/such.h\"\n"), Error);
}

TEST(GpuRtc, AKernelOfAReplayBeginsAsItsStartSays) {
  const auto made = [](gpu::Start start) {
    return gpu::kernel_source({}, 64, "(float* a) {\n  pf::walk(a);\n}", "", "", start);
  };
  const std::string waits = "pf_walk(float* a) { pf::await_earlier_kernels();\n  pf::walk(a);\n}\n";
  EXPECT_TRUE(made(gpu::Start::awaits).ends_with(waits)) << made(gpu::Start::awaits);
  EXPECT_TRUE(made(gpu::Start::itself).ends_with("pf_walk(float* a) {\n  pf::walk(a);\n}\n"));
  EXPECT_TRUE(gpu::starts_after(made(gpu::Start::after)));
  EXPECT_TRUE(gpu::starts_after(gpu::whole_source(made(gpu::Start::after))));
  EXPECT_FALSE(gpu::starts_after(made(gpu::Start::awaits)));
  EXPECT_FALSE(gpu::starts_after(made(gpu::Start::itself)));
}

TEST(GpuRtc, ARefusalCarriesTheCompilersWords) {
  const char* archs = std::getenv("PYFLAME_COMPILE_ARCHS");
  if (!archs) GTEST_SKIP() << "PYFLAME_COMPILE_ARCHS is not set";
  try {
    const std::string list(archs);
    gpu::compile_for(DeviceType::rocm, list.substr(0, list.find(',')), "this is no kernel;");
    FAIL() << "compiled";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("error"), std::string::npos) << e.what();
    EXPECT_NE(std::string(e.what()).find("this is no kernel"), std::string::npos) << e.what();
  }
}

}  // namespace
}  // namespace pyflame
