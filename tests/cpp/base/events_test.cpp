// The log under threads that come and go, and at its limits.
#include "pyflame/base/events.h"

#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <thread>
#include <vector>

#include "pyflame/base/error.h"

namespace pyflame::events {
namespace {

TEST(Events, OffNothingIsKept) {
  { const Scope s(Kind::Range, "before"); }
  EXPECT_FALSE(on());
  EXPECT_EQ(label("x").recording, 0U);
  start({});
  const Recording r = stop();
  EXPECT_TRUE(r.events.empty());
  EXPECT_FALSE(on());
}

TEST(Events, ScopesNestAndKeepTheirValues) {
  start({});
  {
    const Scope outer(Kind::Range, "outer");
    const Scope inner(Kind::Allocate, "inner", 42);
  }
  const Recording r = stop();
  ASSERT_EQ(r.events.size(), 2U);
  EXPECT_EQ(r.labels[r.events[0].label].name, "inner");
  EXPECT_EQ(r.events[0].value, 42);
  EXPECT_EQ(r.labels[r.events[1].label].name, "outer");
  EXPECT_LE(r.events[1].start, r.events[0].start);
  EXPECT_LE(r.events[0].end, r.events[1].end);
}

TEST(Events, AScopeFromAnotherRecordingIsLeftOut) {
  start({});
  {
    const Scope across(Kind::Range, "across");
    (void)stop();
    start({});
  }
  EXPECT_TRUE(stop().events.empty());
}

TEST(Events, ThreadsThatComeAndGoLoseNothing) {
  constexpr int kThreads = 8, kEach = 5000;
  start({});
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t)
    threads.emplace_back([] {
      for (int i = 0; i < kEach; ++i) const Scope s(Kind::Range, "work", i);
    });
  for (std::thread& t : threads) t.join();
  const Recording r = stop();
  std::map<uint32_t, std::vector<int64_t>> by_thread;
  for (const Event& e : r.events) by_thread[e.thread].push_back(e.value);
  EXPECT_EQ(by_thread.size(), static_cast<size_t>(kThreads));
  EXPECT_EQ(by_thread.count(0), 0U);  // the one that records did nothing
  for (const auto& [thread, values] : by_thread) {
    ASSERT_EQ(values.size(), static_cast<size_t>(kEach));
    for (int i = 0; i < kEach; ++i) ASSERT_EQ(values[static_cast<size_t>(i)], i);
  }
  EXPECT_EQ(r.dropped, 0U);
}

TEST(Events, RecordingsMayEndWhileOthersLog) {
  std::atomic<bool> done{false};
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t)
    threads.emplace_back([&] {
      while (!done) const Scope s(Kind::Range, "busy", 7);
    });
  for (int i = 0; i < 50; ++i) {
    start({.max_events = 4096});
    std::this_thread::yield();
    const Recording r = stop();
    for (const Event& e : r.events) {
      ASSERT_LT(e.label, r.labels.size());
      ASSERT_LT(e.thread, r.threads.size());
      ASSERT_EQ(e.value, 7);
    }
  }
  done = true;
  for (std::thread& t : threads) t.join();
}

TEST(Events, MemoryIsBounded) {
  start({.max_events = 3000});
  for (int i = 0; i < 10000; ++i) const Scope s(Kind::Range, "r");
  const Recording r = stop();
  EXPECT_GE(r.events.size(), 3000U);
  EXPECT_LE(r.events.size(), 4096U);
  EXPECT_EQ(r.events.size() + r.dropped, 10000U);
}

TEST(Events, NamesBeyondTheLimitShareOne) {
  start({});
  for (int i = 0; i < 70000; ++i) (void)label(std::to_string(i));
  const Label late = label("late");
  add(Kind::Range, late, now(), now());
  const Recording r = stop();
  EXPECT_EQ(r.labels.size(), size_t{1} << 16);
  EXPECT_EQ(r.labels[r.events.at(0).label].name, "(more names than are kept)");
}

TEST(Events, OneAtATime) {
  EXPECT_THROW((void)stop(), Error);
  start({});
  EXPECT_THROW(start({}), Error);
  (void)stop();
  EXPECT_THROW(start({.max_events = 0}), Error);
  EXPECT_FALSE(on());
}

}  // namespace
}  // namespace pyflame::events
