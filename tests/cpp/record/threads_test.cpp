// Recording from several threads: what one writes another reads, work of ended threads, readers against writers.
#include <gtest/gtest.h>

#include <atomic>
#include <mutex>
#include <thread>
#include <vector>

#include "pyflame/ops/ops.h"
#include "pyflame/record/recorder.h"
#include "support/tensor_values.h"

namespace pyflame {
namespace {

using testing::first;

float last(const Tensor& t) { return static_cast<const float*>(t.data())[t.numel() - 1]; }

TEST(Threads, EachItsOwnTensors) {
  std::vector<std::thread> threads;
  std::atomic<int> right{0};
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([t, &right] {
      Tensor x = full({64}, t);
      for (int i = 0; i < 1500; ++i) x = add(x, 1.0);
      right += first(x) == static_cast<float>(t + 1500);
    });
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(right, 4);
}

TEST(Threads, WorkOfAnEndedThreadIsDone) {
  Tensor y;
  std::thread([&y] { y = add(full({16}, 1.0), 2.0); }).join();
  EXPECT_EQ(first(y), 3.0f);
  EXPECT_EQ(first(mul(y, 2.0)), 6.0f);
}

TEST(Threads, OneReadsWhatTheOtherIsStillRecording) {
  const Tensor box = zeros({256});
  synchronize();
  std::atomic<int> turn{0};
  std::thread writer([&] {
    for (int i = 1; i <= 200; ++i) {
      while (turn.load() != 2 * (i - 1)) std::this_thread::yield();
      fill_(box, i);  // stays pending here
      turn = 2 * i - 1;
    }
    while (turn.load() != 400) std::this_thread::yield();
  });
  int wrong = 0;
  for (int i = 1; i <= 200; ++i) {
    while (turn.load() != 2 * i - 1) std::this_thread::yield();
    const Tensor y = mul(box, 2.0);  // recorded here, stays pending while the other overwrites box
    turn = 2 * i;
    if (i % 2 == 0) std::this_thread::yield();
    wrong += first(y) != 2.0f * static_cast<float>(i) || last(y) != first(y);
  }
  writer.join();
  EXPECT_EQ(wrong, 0);
}

TEST(Threads, ManyReadersOneWriter) {
  constexpr int kReaders = 3, kRounds = 60;
  const Tensor x = zeros({512});
  synchronize();
  std::atomic<int> ready{0}, round{0};
  std::atomic<int> wrong{0};
  std::vector<std::thread> readers;
  for (int t = 0; t < kReaders; ++t)
    readers.emplace_back([&] {
      for (int r = 0; r < kRounds; ++r) {
        while (round.load() < r) std::this_thread::yield();
        const Tensor y = add(x, 1.0);  // several pending reads of one storage
        ++ready;
        while (round.load() < r + 1) std::this_thread::yield();
        wrong += first(y) != static_cast<float>(r + 1) || last(y) != first(y);
      }
    });
  for (int r = 0; r < kRounds; ++r) {
    while (ready.load() < kReaders * (r + 1)) std::this_thread::yield();
    fill_(x, r + 1);  // must not be seen by what was recorded before
    ++round;
  }
  for (std::thread& t : readers) t.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(first(x), static_cast<float>(kRounds));
}

TEST(Threads, SynchronizeCompletesAllOfThem) {
  std::atomic<bool> recorded{false}, go{false};
  Tensor y;
  std::thread other([&] {
    y = add(full({16}, 1.0), 2.0);
    recorded = true;
    while (!go.load()) std::this_thread::yield();
  });
  while (!recorded.load()) std::this_thread::yield();
  synchronize();
  EXPECT_NE(y.storage()->data, nullptr);
  go = true;
  other.join();
}

TEST(Threads, WindowsCutAtTheirLimitKeepWhatIsCarriedOver) {
  // One thread records across many limits. The other reads the newest tensor, which is pending or was carried into the next window.
  std::mutex mutex;
  Tensor shared = zeros({32});
  std::atomic<bool> done{false};
  std::thread writer([&] {
    Tensor x = zeros({32});
    for (int i = 1; i <= 6000; ++i) {
      x = add(x, 1.0);
      std::lock_guard lock(mutex);
      shared = x;
    }
    done = true;
  });
  float before = 0;
  int wrong = 0;
  while (!done.load()) {
    Tensor x;
    {
      std::lock_guard lock(mutex);
      x = shared;
    }
    const Tensor y = mul(x, 1.0);
    wrong += first(y) < before || first(y) != last(y);
    before = first(y);
  }
  writer.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(first(shared), 6000.0f);
}

TEST(Threads, CrossedDependenciesDoNotDeadlock) {
  const Tensor a = zeros({64}), b = zeros({64});
  synchronize();
  auto work = [](const Tensor& mine, const Tensor& other) {
    for (int i = 0; i < 400; ++i) {
      binary_(add, "add_", mine, Value(1.0));
      const Tensor seen = add(other, 0.0);
      if (i % 16 == 0) seen.data();
    }
  };
  std::thread one([&] { work(a, b); }), two([&] { work(b, a); });
  one.join();
  two.join();
  EXPECT_EQ(first(a), 400.0f);
  EXPECT_EQ(first(b), 400.0f);
}

}  // namespace
}  // namespace pyflame
