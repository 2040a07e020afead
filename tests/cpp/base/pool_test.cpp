// The pool of small blocks: a returned block is used again, from whichever thread it came, and no block is in use twice.
#include "pyflame/base/pool.h"

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <set>
#include <thread>
#include <vector>

#include "pyflame/base/ref.h"

namespace pyflame {

namespace {

TEST(Pool, GivesTheLastBlockOfASizeAgain) {
  if (!pool::kKeeps) GTEST_SKIP() << "nothing is kept under a sanitizer";
  void* a = pool::take(40);
  void* b = pool::take(64);
  pool::give(a, 40);
  EXPECT_EQ(pool::take(33), a) << "of the same unit";
  pool::give(b, 64);
  EXPECT_NE(pool::take(65), b) << "of the next one";
  EXPECT_EQ(pool::take(64), b);
}

TEST(Pool, BlocksAreWholeAndApart) {
  std::vector<std::pair<unsigned char*, size_t>> blocks;
  for (int round = 0; round < 3; ++round) {
    for (size_t bytes : {size_t{1}, size_t{8}, size_t{31}, size_t{32}, size_t{200}, pool::kLargest, pool::kLargest + 1})
      for (unsigned i = 0; i < pool::kMost + 10; ++i) {
        auto* p = static_cast<unsigned char*>(pool::take(bytes));
        std::memset(p, static_cast<int>(blocks.size() % 251), bytes);
        blocks.emplace_back(p, bytes);
      }
    for (size_t i = 0; i < blocks.size(); ++i)
      for (size_t k : {size_t{0}, blocks[i].second - 1}) ASSERT_EQ(blocks[i].first[k], i % 251);
    for (auto [p, bytes] : blocks) pool::give(p, bytes);
    blocks.clear();
  }
  pool::give(nullptr, 8);
}

TEST(Pool, OtherThreadsGiveBack) {
  std::vector<void*> blocks(100);
  std::thread([&] {
    for (void*& p : blocks) p = pool::take(96);
  }).join();
  std::thread([&] {
    for (void* p : blocks) pool::give(p, 96);
    std::set<void*> again;
    for (size_t i = 0; i < blocks.size(); ++i) again.insert(pool::take(96));
    EXPECT_EQ(again.size(), blocks.size());
    for (void* p : again) pool::give(p, 96);
  }).join();
}

struct Counted : RefCounted {
  explicit Counted(int* alive) : alive_(alive) { ++*alive_; }
  ~Counted() override { --*alive_; }
  int* alive_;
};
struct Large : Counted {
  using Counted::Counted;
  char more[300] = {};
};

TEST(Pool, HoldsWhatIsCounted) {
  int alive = 0;
  std::map<int, Ref<Counted>, std::less<>, Pooled<std::pair<const int, Ref<Counted>>>> all;
  for (int i = 0; i < 50; ++i) {
    all[2 * i] = make_ref<Counted>(&alive);
    all[2 * i + 1] = make_ref<Large>(&alive);  // released as what it is
  }
  EXPECT_EQ(alive, 100);
  all.clear();
  EXPECT_EQ(alive, 0);
}

}  // namespace

}  // namespace pyflame
