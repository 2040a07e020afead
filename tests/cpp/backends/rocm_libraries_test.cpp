// What PyFlame calls of ROCm's libraries, looked up in the real ones. They need no GPU for that. tests/kernels/test_libraries.py starts these tests where
// ROCm is.
#include <gtest/gtest.h>

#include <cstdlib>

#include "pyflame/backends/gpu/driver/rt.h"
#include "pyflame/backends/gpu/libs/blas.h"
#include "pyflame/backends/rocm/hipblaslt_algorithms.h"
#include "pyflame/backends/rocm/libraries.h"
#include "pyflame/backends/rocm/rocblas.h"
#include "pyflame/backends/rocm/rocm_backend.h"
#include "pyflame/base/error.h"

namespace pyflame {
namespace {

class RocmLibraries : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!std::getenv("PYFLAME_TEST_ROCM_LIBRARIES")) GTEST_SKIP() << "PYFLAME_TEST_ROCM_LIBRARIES is not set";
  }
  std::string why;
};

TEST_F(RocmLibraries, TheRunTimeHasAllFunctions) {
  EXPECT_EQ(gpu::runtime(DeviceType::rocm, &why), nullptr);
  EXPECT_TRUE(why.starts_with("the HIP runtime sees no device")) << why;
}

TEST_F(RocmLibraries, HipblasltHasAllFunctions) {
  rocm_backend();  // says which library of products is AMD's
  EXPECT_NE(gpu::blas(DeviceType::rocm, &why), nullptr) << why;
  EXPECT_EQ(gpu::hipblaslt_algorithms()->lacks(), "");
}

TEST_F(RocmLibraries, RocblasHasAllFunctions) {
  const gpu::RocBlas* library = gpu::rocblas(&why);
  ASSERT_NE(library, nullptr) << why;
  EXPECT_NE(library->solutions, nullptr);
}

TEST_F(RocmLibraries, MiopenHasAllFunctions) {
  EXPECT_NE(gpu::miopen(&why), nullptr) << why;
  EXPECT_TRUE(gpu::miopen_version().starts_with("miopen 3.")) << gpu::miopen_version();
}

// Without a GPU the library has a version and makes no group.
TEST_F(RocmLibraries, RcclHasAllFunctions) {
  const CommunicatorLibrary* library = rocm_communicators(&why);
  ASSERT_NE(library, nullptr) << why;
  EXPECT_TRUE(library->version().starts_with("rccl 2.")) << library->version();
  try {
    library->new_id();
    ADD_FAILURE() << "there is a GPU";
  } catch (const Error& e) {
    EXPECT_TRUE(std::string(e.what()).starts_with("distributed: rccl makes no id for a group; got error 1, unhandled "))
        << e.what();
  }
}

}  // namespace
}  // namespace pyflame
