// Ids of different sequences are different types, and an Indexed vector accepts its own Ids only.
#include "pyflame/base/indexed.h"

#include <gtest/gtest.h>

#include <string>
#include <type_traits>

namespace pyflame {
namespace {

using AppleId = Id<struct AppleTag>;
using PearId = Id<struct PearTag>;
using Apples = Indexed<AppleId, std::string>;

template <class V, class I>
concept Subscript = requires(V v, I i) {
  v[i];
};

static_assert(Subscript<Apples, AppleId>);
static_assert(!Subscript<Apples, PearId>);
static_assert(!Subscript<Apples, size_t>);
static_assert(!std::is_convertible_v<int, AppleId>);
static_assert(!std::is_convertible_v<AppleId, PearId>);

TEST(Indexed, PushBackNamesTheElement) {
  Apples apples;
  const AppleId first = apples.push_back("red"), second = apples.push_back("green");
  EXPECT_EQ(apples[first], "red");
  EXPECT_EQ(apples[second], "green");
  EXPECT_LT(first, second);
  EXPECT_EQ(apples.end_id(), AppleId(2));
}

TEST(Indexed, ADefaultIdNamesNothing) {
  const Apples apples{"red"};
  EXPECT_FALSE(AppleId().valid());
  EXPECT_FALSE(apples.contains(AppleId()));
  EXPECT_TRUE(apples.contains(AppleId(0)));
  EXPECT_FALSE(apples.contains(AppleId(1)));
}

TEST(Indexed, IdsAreInOrder) {
  const Apples apples{"a", "b", "c"};
  std::string all;
  for (const AppleId id : apples.ids()) all += apples[id];
  EXPECT_EQ(all, "abc");
  int none = 0;
  for ([[maybe_unused]] const AppleId id : Apples().ids()) ++none;
  EXPECT_EQ(none, 0);
}

TEST(Indexed, HoldsFlags) {
  Indexed<PearId, bool> ripe(3, false);
  ripe[PearId(1)] = true;
  const auto& seen = ripe;
  EXPECT_TRUE(seen[PearId(1)]);
  EXPECT_FALSE(seen[PearId(2)]);
}

}  // namespace
}  // namespace pyflame
