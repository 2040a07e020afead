// What a training run says of its memory.
#include <gtest/gtest.h>

#include "apps/gpt/memory.h"

namespace pyflame::apps::gpt {
namespace {

constexpr uint64_t kMib = uint64_t{1} << 20;

MemoryUse use(uint64_t allocated, uint64_t left) {
  MemoryUse u;
  u.allocated = u.peak = u.host = allocated * kMib;
  u.total = u.host_total = 1000 * kMib;
  u.left = u.host_left = left * kMib;
  return u;
}

TEST(Memory, NearlyFullIsSaidOnce) {
  MemoryWatch watch(Device{}, 100);
  EXPECT_TRUE(watch.warnings(use(100, 900), 1).empty());
  MemoryUse full = use(100, 60);
  full.peak = 120 * kMib;  // the next step takes 20 MiB of the 60
  const std::vector<std::string> said = watch.warnings(full, 2);
  ASSERT_EQ(said.size(), 1U);
  EXPECT_TRUE(
      said[0].starts_with("memory of cpu is nearly full; got 40.0 MiB left at the peak of a step, of 1000.0 MiB"));
  EXPECT_NE(said[0].find("hint: a smaller --batch_size"), std::string::npos);
}

TEST(Memory, GrowthThatDoesNotLastIsSaidOnce) {
  MemoryWatch watch(Device{}, 100);
  std::vector<std::string> said;
  for (int64_t step = 1; step <= 7; ++step)
    for (const std::string& text : watch.warnings(use(100 + 20 * static_cast<uint64_t>(step), 700), step))
      said.push_back(text);
  ASSERT_FALSE(said.empty());
  EXPECT_TRUE(
      said[0].starts_with("memory of cpu grows by 20.0 MiB a step; got 220.0 MiB at step 6, which will be all at "
                          "about step 41; hint: "));
  MemoryWatch steady(Device{}, 100);
  for (int64_t step = 1; step <= 9; ++step) EXPECT_TRUE(steady.warnings(use(100, 700), step).empty());
}

TEST(Memory, RecordsAreReadBack) {
  const MemoryUse a = use(3, 5), b = MemoryUse::from_json(nlohmann::json::parse(a.json().dump()));
  EXPECT_EQ(a.json(), b.json());
  EXPECT_EQ(MemoryUse::from_json({{"peak", "much"}}).peak, 0U);
}

}  // namespace
}  // namespace pyflame::apps::gpt
