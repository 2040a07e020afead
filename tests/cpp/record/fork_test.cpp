// Forking while other threads record and compute: the child finds every lock free and what the locks guard whole.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <functional>
#include <thread>
#include <vector>

#include "pyflame/base/threads.h"
#include "pyflame/ops/ops.h"
#include "pyflame/record/recorder.h"
#include "support/tensor_values.h"

namespace pyflame {
namespace {

using testing::first;

// What the child finds; a child that hangs is ended by its alarm.
bool holds_in_child(const std::function<bool()>& found) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);
    bool good = false;
    try {
      set_num_threads(1);  // ThreadSanitizer knows no threads in the child of a process with threads
      good = found();
    } catch (...) {
    }
    _exit(good ? 0 : 1);
  }
  int status = -1;
  return waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

TEST(Fork, WhileOthersRecordAndCompute) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "a thread that allocates meanwhile leaves AddressSanitizer's allocator locked in the child";
#endif
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t)
    threads.emplace_back([t, &stop] {
      const Tensor x = full({96, 96}, 0.01);
      while (!stop) {
        Tensor y = x;
        for (int i = 0; i < 20; ++i) y = tanh(matmul(y, x));
        if (t == 0) first(y);
        if (t == 1) synchronize();
      }
    });
  const Tensor mine = add(full({64}, 1.0), 1.0);  // pending
  int wrong = 0;
  for (int i = 0; i < 40; ++i)
    wrong += !holds_in_child([&] {
      synchronize();  // what the threads had recorded as well
      return first(add(mine, 1.0)) == 3.0f && rand({4}, {}, {}).numel() == 4;
    });
  stop = true;
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(first(mine), 2.0f);
}

TEST(Fork, TheChildCompletesWhatAnotherThreadHasRecorded) {
  Tensor box = zeros({256}), seen;
  synchronize();
  std::atomic<int> state{0};
  std::thread other([&] {
    fill_(box, 5);
    seen = mul(box, 2.0);
    fill_(box, 7);
    state = 1;
    while (state == 1) std::this_thread::yield();
  });
  while (state == 0) std::this_thread::yield();
  EXPECT_TRUE(holds_in_child([&] { return first(seen) == 10.0f && first(box) == 7.0f; }));
  EXPECT_EQ(first(seen), 10.0f);
  EXPECT_EQ(first(box), 7.0f);
  state = 2;
  other.join();
}

TEST(Fork, ChildrenOfChildren) {
  const Tensor x = full({8}, 1.0);
  EXPECT_TRUE(holds_in_child([&] {
    const Tensor y = add(x, 1.0);
    return holds_in_child([&] { return first(mul(y, 2.0)) == 4.0f; }) && first(y) == 2.0f;
  }));
}

}  // namespace
}  // namespace pyflame
