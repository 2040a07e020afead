// Groups whose ranks are threads of this process, connected by pairs of sockets, with and without shared memory and direct reads and writes.
#include "pyflame/distributed/group.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cmath>
#include <functional>
#include <numeric>
#include <thread>

#include "pyflame/base/error.h"
#include "pyflame/base/half.h"
#include "pyflame/distributed/direct.h"

namespace pyflame::distributed {
namespace {

using Groups = std::vector<std::unique_ptr<Group>>;

enum class Way { sockets, rings, direct };

Groups connected(int n, Way way) {
  std::vector<std::vector<std::vector<int>>> fds(
      3, std::vector(static_cast<size_t>(n), std::vector<int>(static_cast<size_t>(n), -1)));
  for (auto& channel : fds)
    for (size_t i = 0; i < channel.size(); ++i)
      for (size_t j = 0; j < i; ++j) {
        int pair[2];
        EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
        channel[i][j] = pair[0];
        channel[j][i] = pair[1];
      }
  std::vector<int> memory(static_cast<size_t>(n), -1), names(static_cast<size_t>(n));
  std::iota(names.begin(), names.end(), 0);
  for (int& fd : memory) {
    if (way == Way::sockets) break;
    fd = memfd_create("test", MFD_CLOEXEC);
    EXPECT_EQ(ftruncate(fd, static_cast<off_t>(Group::memory_bytes(n))), 0);
  }
  Groups groups;
  for (size_t r = 0; r < memory.size(); ++r)
    groups.push_back(
        std::make_unique<Group>(static_cast<int>(r), names, fds[0][r], fds[1][r], fds[2][r], memory,
                                std::vector<int>(way == Way::direct ? static_cast<size_t>(n) : 0, getpid())));
  for (const int fd : memory)
    if (fd >= 0) close(fd);
  return groups;
}

// Runs fn(rank, group) on a thread for each rank; returns what each of them raised.
template <class F>
std::vector<std::string> on_all(const Groups& groups, const F& fn) {
  std::vector<std::string> raised(groups.size());
  std::vector<std::thread> threads;
  for (size_t r = 0; r < groups.size(); ++r)
    threads.emplace_back([&, r] {
      try {
        fn(static_cast<int>(r), *groups[r]);
      } catch (const Error& e) {
        raised[r] = e.what();
      }
    });
  for (std::thread& t : threads) t.join();
  return raised;
}

const std::vector<std::string> kNone(3);
Call call_of(const std::string& text, double timeout = 600) { return {text, text + " at a.py:1", timeout, {}}; }

struct Ways : testing::TestWithParam<Way> {};
INSTANTIATE_TEST_SUITE_P(Group, Ways, testing::Values(Way::sockets, Way::rings, Way::direct), [](const auto& way) {
  return way.param == Way::sockets ? "Sockets" : way.param == Way::rings ? "SharedMemory" : "Direct";
});

TEST_P(Ways, PathsAreChecked) {
  const Groups groups = connected(3, GetParam());
  EXPECT_EQ(on_all(groups,
                   [](int, Group& g) {
                     EXPECT_EQ(g.check_paths(call_of("check", 60)), std::vector(3, std::vector<uint32_t>(3, 0)));
                     g.barrier(call_of("barrier",
                                       60));  // which is call number 1 of the group, and no more data is on the way
                   }),
            kNone);
}

TEST_P(Ways, AllReduceOfManySizes) {
  const Groups groups = connected(3, GetParam());
  EXPECT_EQ(groups[0]->transport(1), GetParam() == Way::sockets ? "TCP"
                                     : GetParam() == Way::rings ? "shared memory"
                                                                : "direct");
  for (const size_t count : {size_t{0}, size_t{1}, size_t{2}, size_t{4}, size_t{1000}, size_t{500001}}) {
    std::vector<std::vector<float>> values(3, std::vector<float>(count));
    std::vector<float> want(count);
    for (size_t i = 0; i < count; ++i) {
      for (size_t r = 0; r < 3; ++r) values[r][i] = 1.0F / static_cast<float>(i + r + 1);
      want[i] = (values[0][i] + values[1][i]) + values[2][i];  // in the order of the ranks
    }
    EXPECT_EQ(on_all(groups,
                     [&](int r, Group& g) {
                       g.all_reduce(call_of("all_reduce"), values[static_cast<size_t>(r)].data(), count, DType::float32,
                                    Reduction::sum);
                     }),
              kNone);
    for (const auto& v : values) EXPECT_EQ(v, want);
  }
}

// A rank gives up while another one is about to write into its memory: from then on, the memory is the caller's alone.
TEST(Direct, NobodyWritesAfterARankGaveUp) {
  const Groups groups = connected(2, Way::direct);
  constexpr size_t kCount = 1 << 20;
  std::vector<float> values[] = {std::vector<float>(kCount, 1), std::vector<float>(kCount, 2)};
  std::atomic<bool> waits{false}, held{false}, raised{false};
  std::vector<float> left;
  const auto reduce = [&](int r, Group& g, std::function<bool()> interrupted) {
    Call call = call_of("all_reduce");
    call.interrupted = std::move(interrupted);
    g.all_reduce(call, values[r].data(), kCount, DType::float32, Reduction::sum);
  };
  const std::vector<std::string> found = on_all(groups, [&](int r, Group& g) {
    if (r == 0) {
      try {
        reduce(0, g, [&] {
          waits = true;
          return held.load();
        });
      } catch (const Error&) {
        left = values[0];
        raised = true;
        throw;
      }
      raised = true;
    } else {
      while (!waits) std::this_thread::yield();
      reduce(1, g, [&] {  // rank 0 has said its call, so this is asked when the data move
        held = true;
        while (!raised) std::this_thread::yield();
        return false;
      });
    }
  });
  EXPECT_EQ(found[0], "all_reduce at a.py:1: interrupted");
  EXPECT_EQ(found[1], "all_reduce at a.py:1: rank 0 gave up; it said: all_reduce at a.py:1: interrupted");
  EXPECT_EQ(values[0], left);
}

TEST(Direct, MemoryThatCannotBeReached) {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  char byte = 1;
  EXPECT_TRUE(reaches_memory(getpid(), reinterpret_cast<uintptr_t>(&byte), {"\1", 1}));
  EXPECT_FALSE(reaches_memory(getpid(), reinterpret_cast<uintptr_t>(&byte), {"\2", 1}));  // something else is there
  void* none = mmap(nullptr, page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  EXPECT_FALSE(reaches_memory(getpid(), reinterpret_cast<uintptr_t>(none), {"\0", 1}));
  void* fixed = mmap(nullptr, page, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  EXPECT_FALSE(reaches_memory(getpid(), reinterpret_cast<uintptr_t>(fixed), {"\0", 1}));
  munmap(none, page);
  munmap(fixed, page);
}

TEST(Direct, DataOfWhichAPageCannotBeReached) {
  constexpr size_t kCount = 1 << 20, kBytes = kCount * sizeof(float);
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  void* at = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(at, MAP_FAILED);
  ASSERT_EQ(mprotect(static_cast<char*>(at) + kBytes / 4, page, PROT_NONE), 0);  // in the part that rank 0 reduces
  std::vector<float> values(kCount, 2);
  const Groups groups = connected(2, Way::direct);
  const std::vector<std::string> raised = on_all(groups, [&](int r, Group& g) {
    g.all_reduce(call_of("all_reduce"), r ? static_cast<float*>(at) : values.data(), kCount, DType::float32,
                 Reduction::sum);
  });
  const std::string why =
      "all_reduce at a.py:1: the memory of rank 1 cannot be read; got Bad address; expected what was possible when "
      "the ranks connected; hint: PYFLAME_DIRECT_MEMORY=0";
  EXPECT_EQ(raised[0], why);
  EXPECT_EQ(raised[1], "all_reduce at a.py:1: rank 0 gave up; it said: " + why);
  munmap(at, kBytes);
}

#ifdef SYS_memfd_secret
// Data of one rank that no other process can read, as memory of some devices: all ranks use the rings.
TEST(Direct, DataThatCannotBeReached) {
  constexpr size_t kCount = 1 << 20;
  const int fd = static_cast<int>(syscall(SYS_memfd_secret, 0));
  if (fd < 0) GTEST_SKIP() << "this system has no secret memory";
  ASSERT_EQ(ftruncate(fd, kCount * sizeof(float)), 0);
  void* at = mmap(nullptr, kCount * sizeof(float), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  if (at == MAP_FAILED) GTEST_SKIP() << "this process may not have so much secret memory";
  auto* secret = static_cast<float*>(at);
  std::fill_n(secret, kCount, 1.0F);
  std::vector<float> values(kCount, 2);
  const Groups groups = connected(2, Way::direct);
  EXPECT_EQ(on_all(groups,
                   [&](int r, Group& g) {
                     g.all_reduce(call_of("all_reduce"), r ? values.data() : secret, kCount, DType::float32,
                                  Reduction::sum);
                   }),
            std::vector<std::string>(2));
  EXPECT_EQ(values, std::vector<float>(kCount, 3));
  EXPECT_TRUE(std::equal(values.begin(), values.end(), secret));
  munmap(at, kCount * sizeof(float));
}
#endif

TEST_P(Ways, OtherCollectives) {
  const Groups groups = connected(3, GetParam());
  const size_t n = 200003;
  EXPECT_EQ(on_all(groups,
                   [&](int r, Group& g) {
                     const auto me = static_cast<int64_t>(r);
                     std::vector<int64_t> in(n, me), all(3 * n), out(n);
                     g.all_gather(call_of("all_gather"), in.data(), all.data(), n * 8);
                     EXPECT_TRUE(all[0] == 0 && all[n] == 1 && all[3 * n - 1] == 2);
                     for (size_t p = 0; p < 3; ++p)
                       std::fill_n(all.begin() + static_cast<ptrdiff_t>(p * n), n, me + 10 * static_cast<int64_t>(p));
                     g.reduce_scatter(call_of("reduce_scatter"), all.data(), out.data(), n, DType::int64,
                                      Reduction::sum);
                     EXPECT_TRUE(out[0] == 3 + 30 * me && out[n - 1] == 3 + 30 * me);
                     g.reduce(call_of("reduce"), in.data(), n, DType::int64, Reduction::max, 1);
                     EXPECT_EQ(in[n - 1], r == 1 ? 2 : me);
                     for (int root = 0; root < 3; ++root) {
                       std::vector<int64_t> x(n, r == root ? 7 + root : 0);
                       g.broadcast(call_of("broadcast"), x.data(), n * 8, root);
                       EXPECT_EQ(x, std::vector<int64_t>(n, 7 + root));
                     }
                     std::vector<char> to(6, static_cast<char>('a' + r)), from(9);
                     g.exchange(call_of("exchange"), to.data(), {1, 2, 3}, from.data(),
                                std::vector<size_t>(3, static_cast<size_t>(r) + 1));
                     EXPECT_EQ(from[0], 'a');
                     EXPECT_EQ(from[static_cast<size_t>(3 * r + 2)], 'c');
                   }),
            kNone);
}

TEST_P(Ways, CallsThatDifferLeaveTheGroupAsItIs) {
  const Groups groups = connected(3, GetParam());
  for (const std::string& text :
       on_all(groups, [](int r, Group&g) { g.barrier(call_of(r == 2 ? "other" : "barrier")); })) {
    EXPECT_NE(text.find("the ranks make different calls; got rank 0: barrier at a.py:1; rank 1: barrier at a.py:1; "
                        "rank 2: other at a.py:1; expected"),
              std::string::npos)
        << text;
  }
  EXPECT_EQ(on_all(groups, [](int, Group& g) { g.barrier(call_of("barrier")); }), kNone);
}

// A rank refuses a call and goes on to the next one, which looks the same. Nobody's values of the refused call may be taken for it.
TEST_P(Ways, ARefusedCallCounts) {
  const Groups groups = connected(3, GetParam());
  std::vector<int64_t> sums(3);
  const std::vector<std::string> raised = on_all(groups, [&](int r, Group& g) {
    std::string text;
    int64_t x = 100;
    for (int repeat = 0; repeat < 3; ++repeat) {
      if (r == 0) {
        g.refuse({{}, "all_reduce at a.py:1: no tensor", 0, {}});
        continue;
      }
      try {
        g.all_reduce(call_of("all_reduce"), &x, 1, DType::int64, Reduction::sum);
        ADD_FAILURE() << "rank 0 did not take part";
      } catch (const Error& e) {
        text = e.what();
      }
      EXPECT_NE(text.find("another rank raised an error for this call, which is number " + std::to_string(repeat + 1) +
                          " of the group; got rank 0: all_reduce at a.py:1: no tensor; expected"),
                std::string::npos)
          << text;
    }
    EXPECT_EQ(x, 100);
    int64_t y = r + 1;
    g.all_reduce(call_of("all_reduce"), &y, 1, DType::int64, Reduction::sum);
    sums[static_cast<size_t>(r)] = y;
  });
  EXPECT_EQ(raised, kNone);
  EXPECT_EQ(sums, std::vector<int64_t>(3, 6));
}

// All ranks refuse a call: nobody waits for it.
TEST_P(Ways, ACallThatAllRefuse) {
  const Groups groups = connected(3, GetParam());
  EXPECT_EQ(on_all(groups,
                   [](int, Group& g) {
                     for (int i = 0; i < 5; ++i) g.refuse({{}, "all_reduce: no tensor", 0, {}});
                     g.barrier(call_of("barrier"));
                   }),
            kNone);
}

TEST_P(Ways, WhoIsMissingIsNamed) {
  const Groups groups = connected(3, GetParam());
  const std::vector<std::string> raised = on_all(groups, [](int r, Group& g) {
    if (r != 2) g.barrier(call_of("barrier", 0.2));
  });
  EXPECT_NE(raised[0].find(" 2 did not come; expected all 3 ranks to make this call"), std::string::npos) << raised[0];
  EXPECT_NE(raised[1].find(" 2 did not come"), std::string::npos) << raised[1];
  try {
    groups[2]->barrier(call_of("late"));
    ADD_FAILURE() << "the others gave up";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("gave up; it said: barrier at a.py:1: "), std::string::npos) << e.what();
  }
  try {
    groups[2]->barrier(call_of("later"));
    ADD_FAILURE() << "the group is broken";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("later at a.py:1: an earlier call broke the group; it said: late at a.py:1: "),
              std::string::npos)
        << e.what();
  }
}

TEST_P(Ways, WhoIsGoneIsNamed) {
  Groups groups = connected(3, GetParam());
  groups[1].reset();
  std::vector<std::string> raised(3);
  std::vector<std::thread> threads;
  for (const size_t r : {size_t{0}, size_t{2}})
    threads.emplace_back([&, r] {
      try {
        groups[r]->barrier(call_of("barrier"));
      } catch (const Error& e) {
        raised[r] = e.what();
      }
    });
  for (std::thread& t : threads) t.join();
  for (const size_t r : {size_t{0}, size_t{2}})
    EXPECT_NE(raised[r].find("rank 1 is gone"), std::string::npos) << raised[r];
}

TEST_P(Ways, AnInterruptEndsACall) {
  const Groups groups = connected(3, GetParam());
  const std::vector<std::string> raised = on_all(groups, [](int r, Group& g) {
    if (r == 2) return;
    Call call = call_of("barrier");
    if (r == 0) call.interrupted = [] { return true; };
    g.barrier(call);
  });
  EXPECT_EQ(raised[0], "barrier at a.py:1: interrupted");
  EXPECT_EQ(raised[1], "barrier at a.py:1: rank 0 gave up; it said: barrier at a.py:1: interrupted");
}

TEST_P(Ways, Messages) {
  const Groups groups = connected(3, GetParam());
  std::vector<int> large(1000000, 5), got(1000000);
  const std::vector<std::string> raised = on_all(groups, [&](int r, Group& g) {
    if (r == 0) {
      g.send(call_of("four"), 1, "four", 4);
      g.send(call_of("large"), 1, large.data(), large.size() * sizeof(int));
    } else if (r == 1) {
      EXPECT_THROW(g.recv(call_of("three"), 0, got.data(), 3), Error);  // dropped
      g.recv(call_of("large"), 0, got.data(), got.size() * sizeof(int));
    }
  });
  EXPECT_EQ(raised, kNone);
  EXPECT_EQ(got, large);
  groups[1]->close();
  EXPECT_THROW(groups[1]->recv(call_of("none"), 0, got.data(), 1), Error);
}

template <class T>
T reduced(Reduction op, DType dtype, std::initializer_list<T> values) {
  std::vector<const void*> sources;
  for (const T& v : values) sources.push_back(&v);
  T out{};
  reduce(op, dtype, &out, sources, 1);
  return out;
}

TEST(Reduce, Values) {
  EXPECT_EQ(reduced<int8_t>(Reduction::sum, DType::int8, {100, 100}), -56);  // integers wrap around
  EXPECT_EQ(reduced<int64_t>(Reduction::product, DType::int64, {INT64_MAX, 2}), -2);
  EXPECT_EQ(reduced<int16_t>(Reduction::product, DType::int16, {-32768, -32768}), 0);
  EXPECT_EQ(reduced<float>(Reduction::avg, DType::float32, {1, 2, 6}), 3);
  EXPECT_TRUE(std::isnan(reduced<double>(Reduction::max, DType::float64, {1, NAN, 3})));
  EXPECT_TRUE(std::isnan(reduced<double>(Reduction::min, DType::float64, {NAN, 1, 3})));
  EXPECT_EQ(reduced<bool>(Reduction::sum, DType::bool_, {true, true}), true);
  EXPECT_EQ(reduced<bool>(Reduction::min, DType::bool_, {true, false}), false);
  // Rounded once: 256 + 1 + 1 in bfloat16 would stay 256 if each sum were rounded.
  EXPECT_EQ(
      static_cast<float>(reduced<bfloat16>(Reduction::sum, DType::bfloat16, {bfloat16(256), bfloat16(1), bfloat16(1)})),
      258);
  EXPECT_THROW(check_reduction("x", Reduction::avg, DType::int32), Error);
  EXPECT_THROW(check_reduction("x", Reduction::max, DType::complex64), Error);
}

}  // namespace
}  // namespace pyflame::distributed
