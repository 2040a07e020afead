// How a loop is divided among threads: at most so many of them, in chunks of this length, until the end of a block.
#include "pyflame/base/threads.h"

#include <gtest/gtest.h>

#include <mutex>
#include <set>
#include <thread>
#include <vector>

namespace pyflame {

namespace {

struct Found {
  size_t chunks = 0;
  int64_t elements = 0;
  std::set<std::thread::id> threads;
};

Found divide(int64_t n, int64_t grain) {
  Found found;
  std::mutex mutex;
  parallel_for(n, grain, [&](int64_t begin, int64_t end) {
    const std::lock_guard lock(mutex);
    ++found.chunks;
    found.elements += end - begin;
    found.threads.insert(std::this_thread::get_id());
  });
  EXPECT_EQ(found.elements, n);
  return found;
}

class Threads : public ::testing::Test {
 protected:
  Threads() : before_(num_threads()) { set_num_threads(4); }
  ~Threads() override { set_num_threads(before_); }

 private:
  int before_;
};

TEST_F(Threads, ALongLoopHasAFewChunksForEachThread) { EXPECT_EQ(divide(1 << 20, 1).chunks, 16U); }

TEST_F(Threads, OneThreadComputesInline) {
  const DividedBy division({.threads = 1});
  const Found found = divide(1 << 20, 1);
  EXPECT_EQ(found.chunks, 1U);
  EXPECT_EQ(found.threads, std::set{std::this_thread::get_id()});
}

TEST_F(Threads, FewerThreadsTakePart) {
  const DividedBy division({.threads = 2});
  for (int run = 0; run < 20; ++run) {
    const Found found = divide(1 << 12, 1);
    EXPECT_EQ(found.chunks, 8U);
    EXPECT_LE(found.threads.size(), 2U);
  }
}

TEST_F(Threads, MoreThanThereAreChangeNothing) {
  const DividedBy division({.threads = 100});
  EXPECT_EQ(divide(1 << 20, 1).chunks, 16U);
}

TEST_F(Threads, ChunksAreLongerOrShorter) {
  {
    const DividedBy division({.chunk = 2});
    EXPECT_EQ(divide(1 << 20, 1).chunks, 8U);
    EXPECT_EQ(divide(300, 100).chunks, 1U) << "two chunks of 200 do not fit";
  }
  {
    const DividedBy division({.chunk = 1000});
    EXPECT_EQ(divide(1 << 20, 1).chunks, 4U) << "each thread has one";
  }
  {
    const DividedBy division({.chunk = 0.25});
    EXPECT_EQ(divide(1 << 20, 1).chunks, 64U);
    EXPECT_EQ(divide(100, 100).chunks, 4U) << "a loop that is not divided otherwise";
  }
}

TEST_F(Threads, ADivisionEndsWithItsBlock) {
  {
    const DividedBy outer({.threads = 2});
    {
      const DividedBy inner({.threads = 1});
      EXPECT_EQ(divide(1 << 20, 1).chunks, 1U);
    }
    EXPECT_EQ(divide(1 << 20, 1).chunks, 8U);
    std::thread([] { EXPECT_EQ(divide(1 << 20, 1).chunks, 16U) << "it is the calling thread's alone"; }).join();
  }
  EXPECT_EQ(divide(1 << 20, 1).chunks, 16U);
}

}  // namespace

}  // namespace pyflame
