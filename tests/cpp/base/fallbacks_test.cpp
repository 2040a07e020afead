// The ledger of fallbacks: a line for each text, a message for the first one, counts and times.
#include "pyflame/base/fallbacks.h"

#include <gtest/gtest.h>

namespace pyflame {
namespace {

TEST(Fallbacks, CountsRunsAndTimes) {
  testing::internal::CaptureStderr();
  FallbackEntry& slow = note_fallback("sort", "rocm:0", "the host", "there is no kernel", "sort runs on the host");
  FallbackEntry& same = note_fallback("sort", "rocm:0", "the host", "there is no kernel", "sort runs on the host");
  FallbackEntry& other = note_fallback("fft", "rocm:0", "the host", "too long", "fft runs on the host");
  (void)note_fallback("never", "rocm:0", "the host", "it did not run", "never runs on the host");
  const std::string told = testing::internal::GetCapturedStderr();
  EXPECT_EQ(&slow, &same);
  EXPECT_NE(told.find("pyflame: sort runs on the host; printed once\n"), std::string::npos);
  EXPECT_EQ(told.find("sort runs on the host"), told.rfind("sort runs on the host"));
  slow.count(std::chrono::milliseconds(2));
  same.count(std::chrono::milliseconds(3));
  { const FallbackRun counted(&other); }
  { const FallbackRun nothing(nullptr); }
  const std::vector<Fallback> all = fallbacks();
  ASSERT_EQ(all.size(), 2U) << "a line that did not run is left out";
  EXPECT_EQ(all[0].op, "sort");
  EXPECT_EQ(all[0].times, 2U);
  EXPECT_DOUBLE_EQ(all[0].seconds, 0.005);
  EXPECT_EQ(all[1].times, 1U);
  EXPECT_EQ(describe_fallback(all[0]), "sort on rocm:0 ran on the host 2 times, for 5 ms (there is no kernel)");
  EXPECT_NE(describe_fallbacks().find("the host for sort on rocm:0: there is no kernel"), std::string::npos);
}

}  // namespace
}  // namespace pyflame
