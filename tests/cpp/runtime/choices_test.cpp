// The record of measured entries: what was measured in one environment says nothing in another, unsound entries never win, two users of
// one file see each other's entries, and a file that cannot be used is as if it were empty.
#include "pyflame/compile/choices.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>
#include <tuple>

#include "support/temp_folder.h"

namespace pyflame {
namespace {

const Environment kHere{"H", "sm_90", "13000", "", "1"};

TEST(Choices, TheFastestSoundEntryOfThisEnvironment) {
  test::TempFolder folder;
  Choices& c = Choices::in(folder.str() + "/choices.sqlite");
  if (!c.trouble().empty()) GTEST_SKIP() << c.trouble();
  EXPECT_FALSE(c.best(kHere, "matmul", "p"));
  c.store(kHere, "matmul", "p", {{"slow", 9, 0, true}, {"wrong", 1, 1e9, false}, {"fast", 3, 0.5, true}});
  EXPECT_EQ(c.best(kHere, "matmul", "p"), "fast");
  EXPECT_FALSE(c.best(kHere, "matmul", "another problem"));
  EXPECT_FALSE(c.best(kHere, "conv2d", "p"));
  for (Environment other :
       {Environment{"H", "sm_90", "13010", "", "1"}, Environment{"H", "sm_90", "13000", "", "2"},
        Environment{"A", "sm_90", "13000", "", "1"}, Environment{"H", "sm_90", "13000", "cublaslt 130002", "1"}})
    EXPECT_FALSE(c.best(other, "matmul", "p"));
  c.store(kHere, "matmul", "p", {{"slow", 2, 0, true}});  // measured again
  EXPECT_EQ(c.best(kHere, "matmul", "p"), "slow");
}

TEST(Choices, TheOwnEntryStaysUnlessAnotherIsClearlyFaster) {
  test::TempFolder folder;
  Choices& c = Choices::in(folder.str() + "/choices.sqlite");
  if (!c.trouble().empty()) GTEST_SKIP() << c.trouble();
  const auto best = [&](Measurement other) {
    Measurement own{"own", 100, 0, true};
    own.own = true, own.warm_us = 80;
    other.entry = "other";
    c.store(kHere, "matmul", "p", {own, other});
    return *c.best(kHere, "matmul", "p");
  };
  Measurement fast{"", 90, 0, true};
  fast.warm_us = 75;
  EXPECT_EQ(best(fast), "other");
  Measurement little = fast;
  little.us = 98;
  EXPECT_EQ(best(little), "own");
  Measurement noisy = fast;
  noisy.spread = 0.3;
  EXPECT_EQ(best(noisy), "own");
  Measurement slow_if_warm = fast;
  slow_if_warm.warm_us = 85;
  EXPECT_EQ(best(slow_if_warm), "own");
  Measurement only_cold = fast;
  only_cold.warm_us = 0;
  EXPECT_EQ(best(only_cold), "own");
}

TEST(Tiers, ProblemsOfABucketHaveOneKey) {
  const auto bucket = [](const std::string& problem) { return tier_key(Tier::bucket, problem); };
  const std::string p = "matmul(float32(24, 4096) strides (1, 24), float32(4096, 1)) precision=0 -> float32(24, 1)";
  EXPECT_EQ(
      bucket(p),
      "bucket matmul(float32(~32/8, ~4096/8) strides (1, *), float32(~4096/8, 1)) precision=0 -> float32(~32/8, 1)");
  EXPECT_EQ(tier_key(Tier::any_size, p),
            "any size matmul(float32(*, *) strides (1, *), float32(*, 1)) precision=0 -> float32(*, 1)");
  const auto square = [](int n) { return fmt::format("relu(float32({},)) -> float32({},)", n, n); };
  EXPECT_EQ(bucket(square(40)), bucket(square(56)));
  EXPECT_NE(bucket(square(40)), bucket(square(41)));  // no multiple of 8
  EXPECT_NE(bucket(square(40)), bucket(square(72)));
  EXPECT_EQ(bucket(square(1)), "bucket relu(float32(1,)) -> float32(1,)");
  EXPECT_NE(tier_key(Tier::any_size, "sum(float32(8, 8)) axes=0"),
            tier_key(Tier::any_size, "sum(float32(8, 8)) axes=1"));
  EXPECT_NE(tier_key(Tier::any_size, "sum(float32(8, 8))"), tier_key(Tier::any_size, "sum(float16(8, 8))"));
  EXPECT_EQ(bucket("sum(float32()) -> float32()"), "bucket sum(float32()) -> float32()");
}

TEST(Choices, WhatWonForAllProblemsOfATier) {
  test::TempFolder folder;
  Choices& c = Choices::in(folder.str() + "/choices.sqlite");
  if (!c.trouble().empty()) GTEST_SKIP() << c.trouble();
  const auto product = [](int m) {
    return fmt::format("matmul(float32({0}, 64), float32(64, 64)) -> float32({0}, 64)", m);
  };
  const std::string tier = tier_key(Tier::bucket, product(24));
  const auto store = [&](int m, double first, double second) {
    Measurement own{"own", 100, 0, true};
    own.own = true;
    c.store(kHere, "matmul", product(m),
            {own, {"first", first, 0, true}, {"second", second, 0, true}, {"wrong", 1, 9, false}});
  };
  using Names = std::vector<std::string>;
  store(24, 80, 90);
  EXPECT_EQ(c.faster_in_tier(kHere, "matmul", tier), Names{});  // one problem may be an exception
  store(32, 80, 50);
  EXPECT_EQ(c.faster_in_tier(kHere, "matmul", tier), (Names{"second", "first"}));
  store(48, 10, 10);  // another bucket
  EXPECT_EQ(c.faster_in_tier(kHere, "matmul", tier), (Names{"second", "first"}));
  EXPECT_EQ(c.faster_in_tier(kHere, "matmul", tier_key(Tier::any_size, product(24))), (Names{"second", "first"}));
  store(32, 80, 99);  // measured again
  EXPECT_EQ(c.faster_in_tier(kHere, "matmul", tier), Names{"first"});
  EXPECT_EQ(c.faster_in_tier({"A", "sm_90", "13000", "", "1"}, "matmul", tier), Names{});
  EXPECT_EQ(c.faster_in_tier(kHere, "conv2d", tier), Names{});
}

TEST(Choices, WhatComesNextIfTheBestIsMissing) {
  test::TempFolder folder;
  Choices& c = Choices::in(folder.str() + "/choices.sqlite");
  if (!c.trouble().empty()) GTEST_SKIP() << c.trouble();
  Measurement own{"own", 100, 0, true};
  own.own = true;
  c.store(kHere, "matmul", "p",
          {own, {"fast", 60, 0, true}, {"plugin", 50, 0, true}, {"little", 99, 0, true}, {"slow", 200, 0, true}});
  const Choices::Known k = c.known(kHere, "matmul", "p");
  EXPECT_EQ(k.best, "plugin");
  EXPECT_EQ(k.next, (std::vector<std::string>{"fast", "own"}));
}

TEST(Choices, FilesWithoutTiersGetThem) {
  test::TempFolder folder;
  const std::string path = folder.str() + "/choices.sqlite", copy = folder.str() + "/copy.sqlite";
  Choices& c = Choices::in(path);
  if (!c.trouble().empty()) GTEST_SKIP() << c.trouble();
  for (const int m : {24, 32}) {
    Measurement own{"own", 100, 0, true};
    own.own = true;
    c.store(kHere, "matmul", fmt::format("matmul(float32({}, 64))", m), {own, {"other", 50, 0, true}});
  }
  std::filesystem::copy_file(path, copy);
  { EXPECT_TRUE(sqlite::Database(copy).run("DROP TABLE tiers")); }
  EXPECT_EQ(Choices::in(copy).faster_in_tier(kHere, "matmul", tier_key(Tier::bucket, "matmul(float32(24, 64))")),
            std::vector<std::string>{"other"});
}

TEST(Choices, WhatWonWithOtherVersionsIsAHint) {
  test::TempFolder folder;
  Choices& c = Choices::in(folder.str() + "/choices.sqlite");
  if (!c.trouble().empty()) GTEST_SKIP() << c.trouble();
  c.store({"H", "sm_90", "12000", "cublaslt 1", "1"}, "matmul", "p", {{"old", 3, 0, true}, {"older", 5, 0, true}});
  c.store({"A", "gfx942", "", "", "1"}, "matmul", "p", {{"other device", 1, 0, true}});
  const Choices::Known known = c.known(kHere, "matmul", "p");
  EXPECT_FALSE(known.best);
  EXPECT_TRUE(known.tried.empty());
  EXPECT_EQ(known.elsewhere, "old");
}

TEST(Choices, AnEntryThatEndedTheProcessTwiceIsNotTriedAgain) {
  test::TempFolder folder;
  Choices& c = Choices::in(folder.str() + "/choices.sqlite");
  if (!c.trouble().empty()) GTEST_SKIP() << c.trouble();
  const auto known = [&] {
    c.store(kHere, "matmul", "another problem", {});  // forgets what was read
    return c.known(kHere, "matmul", "p");
  };
  const auto dies_in = [&](const std::string& entry) {  // another process; the child does not use this one's connection
    const pid_t child = fork();
    if (child == 0) {
      Choices::in(folder.str() + "/choices.sqlite").begin(kHere, "matmul", "p", entry);
      _exit(0);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_EQ(status, 0);
  };
  dies_in("hangs");
  EXPECT_TRUE(known().tried.empty()) << "once may be somebody's Ctrl-C";
  dies_in("hangs");
  EXPECT_EQ(known().tried, std::vector<std::string>{"hangs"});
  EXPECT_FALSE(known().best);
  c.begin(kHere, "matmul", "p", "ends well");
  c.begin(kHere, "matmul", "p", "good");
  c.passed();
  EXPECT_EQ(known().tried, std::vector<std::string>{"hangs"});
  c.store(kHere, "matmul", "p", {{"good", 4, 0, true}});
  EXPECT_EQ(known().best, "good");
}

TEST(Choices, HowFarSearchesHaveComeAmongAllAlgorithms) {
  test::TempFolder folder;
  Choices& c = Choices::in(folder.str() + "/choices.sqlite");
  if (!c.trouble().empty()) GTEST_SKIP() << c.trouble();
  EXPECT_TRUE(c.enumerated(kHere, "matmul", "p").empty());
  c.store_enumerated(kHere, "matmul", "p", {"library", 3, 4, 400});
  c.store_enumerated(kHere, "matmul", "p", {"another library", 0, 0, 0});
  c.store_enumerated(kHere, "matmul", "p", {"library", 256, 300, 400});  // a later search
  const std::vector<Enumerated> found = c.enumerated(kHere, "matmul", "p");
  ASSERT_EQ(found.size(), 2U);
  const Enumerated& e = found[0].impl == "library" ? found[0] : found[1];
  EXPECT_EQ(std::tuple(e.impl, e.tried, e.looked, e.size), std::tuple("library", 256U, 300U, 400U));
  EXPECT_TRUE(c.enumerated(kHere, "matmul", "another problem").empty());
  EXPECT_TRUE(c.enumerated({"H", "sm_90", "13000", "cublaslt 2", "1"}, "matmul", "p").empty());
}

TEST(Choices, ManyProblemsAreReadAtOnce) {
  test::TempFolder folder;
  const std::string path = folder.str() + "/choices.sqlite";
  Choices& c = Choices::in(path);
  if (!c.trouble().empty()) GTEST_SKIP() << c.trouble();
  const auto name = [](int i) { return "p" + std::to_string(i); };
  const Environment old{"H", "sm_90", "12000", "", "1"};
  for (int i = 0; i < 40; ++i) {
    c.store(kHere, "matmul", name(i), {{"slow", 9, 0, true}, {"fast" + name(i), 3, 0.5, true}});
    c.store(old, "matmul", name(i), {{"old" + name(i), 1, 0, true}});
  }
  const int64_t before = c.queries();
  for (int turn = 0; turn < 2; ++turn)
    for (int i = 0; i < 40; ++i) {
      const Choices::Known known = c.known(kHere, "matmul", name(i));
      EXPECT_EQ(known.best, "fast" + name(i));
      EXPECT_EQ(known.elsewhere, "old" + name(i));
      EXPECT_EQ(known.tried.size(), 2U);
      EXPECT_FALSE(c.known(kHere, "conv2d", name(i)).best);
    }
  EXPECT_EQ(c.queries() - before, 1);  // all 120 rows
  const pid_t child = fork();
  if (child == 0) {
    Choices::in(path).store(kHere, "matmul", "p7", {{"of another process", 1, 0, true}});
    _exit(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  // The clock of files may not have moved on since the last look-up.
  std::filesystem::last_write_time(path, std::filesystem::last_write_time(path) + std::chrono::seconds(1));
  std::this_thread::sleep_for(std::chrono::milliseconds(2));  // the system is asked about the file from time to time
  EXPECT_EQ(c.best(kHere, "matmul", "p7"), "of another process");
  EXPECT_EQ(c.queries() - before, 2);  // after a change, one problem alone
  for (int i = 8; i < 40; ++i) EXPECT_EQ(c.best(kHere, "matmul", name(i)), "fast" + name(i));
  EXPECT_EQ(c.queries() - before, 4);  // and then, as 121 rows cost two queries, all of them
}

TEST(Choices, WhatAnotherConnectionHasChanged) {
  test::TempFolder folder;
  const std::string path = folder.str() + "/choices.sqlite";
  Choices& c = Choices::in(path);
  if (!c.trouble().empty()) GTEST_SKIP() << c.trouble();
  c.store(kHere, "matmul", "p", {{"before", 1, 0, true}});
  EXPECT_EQ(c.best(kHere, "matmul", "p"), "before");
  EXPECT_FALSE(c.best(kHere, "matmul", "q"));
  {
    sqlite::Database other(path);
    EXPECT_TRUE(other.run("UPDATE measurements SET entry = 'after'"));
    EXPECT_TRUE(
        other.run("INSERT INTO measurements (environment, op, problem, entry, us, error, sound) SELECT "
                  "environment, op, 'q', 'new', 1, 0, 1 FROM measurements"));
  }
  std::filesystem::last_write_time(path, std::filesystem::last_write_time(path) + std::chrono::seconds(1));
  std::this_thread::sleep_for(std::chrono::milliseconds(2));
  EXPECT_EQ(c.best(kHere, "matmul", "p"), "after");
  EXPECT_EQ(c.best(kHere, "matmul", "q"), "new");
}

// A path to the same file that this process has not opened yet.
class AnotherUser {
 public:
  explicit AnotherUser(const std::string& folder) : folder_(folder) {}
  Choices& operator()() { return Choices::in((folder_ += "/.") + "/choices.sqlite"); }

 private:
  std::string folder_;
};

void let_it_settle(const std::string& path) {  // a file that was written a moment ago has no copy
  std::filesystem::last_write_time(path, std::filesystem::last_write_time(path) - std::chrono::hours(1));
}

TEST(Choices, TheCopyOfTheRowsSaysWhatTheFileSays) {
  test::TempFolder folder;
  const std::string path = folder.str() + "/choices.sqlite", copy = path + ".rows";
  AnotherUser another_user(folder.str());
  Choices& c = Choices::in(path);
  if (!c.trouble().empty()) GTEST_SKIP() << c.trouble();
  Measurement own{"own", 100, 0, true};
  own.own = true;
  c.store(
      kHere, "matmul", "p",
      {own, {"fast", 60, 0, true}, {"plugin", 50, 0, true, 0.01}, {"wrong", 1, 9, false}, {"noisy", 90, 0, true, 0.5}});
  c.store({"H", "sm_90", "12000", "cublaslt 1", "1"}, "matmul", "p", {{"old", 3, 0, true}});
  c.store({"A", "gfx942", "", "", "1"}, "matmul", "p", {{"other device", 1, 0, true}});
  c.store(kHere, "matmul", "q", {{"only", 5, 0, true}});
  const auto expect_all = [&](Choices& user, int64_t queries) {
    const Choices::Known k = user.known(kHere, "matmul", "p");
    EXPECT_EQ(k.best, "plugin");
    EXPECT_EQ(k.next, (std::vector<std::string>{"fast", "own"}));
    EXPECT_EQ(k.tried, (std::vector<std::string>{"wrong", "plugin", "fast", "noisy", "own"}));
    EXPECT_EQ(k.elsewhere, "old");
    EXPECT_TRUE(user.known(kHere, "matmul", "p", false).tried.empty());
    EXPECT_EQ(user.best(kHere, "matmul", "q"), "only");
    EXPECT_FALSE(user.best(kHere, "matmul", "r"));
    EXPECT_EQ(user.queries(), queries);
  };
  expect_all(another_user(), 1);
  EXPECT_FALSE(std::filesystem::exists(copy)) << "the file was written a moment ago";
  let_it_settle(path);
  expect_all(another_user(), 1);
  ASSERT_TRUE(std::filesystem::exists(copy));
  expect_all(another_user(), 0);
  EXPECT_EQ(another_user().faster_in_tier(kHere, "matmul", tier_key(Tier::bucket, "p")), std::vector<std::string>{});
}

TEST(Choices, ACopyOfTheRowsThatIsNotTheFilesIsNotRead) {
  test::TempFolder folder;
  const std::string path = folder.str() + "/choices.sqlite", copy = path + ".rows";
  AnotherUser another_user(folder.str());
  Choices& c = Choices::in(path);
  if (!c.trouble().empty()) GTEST_SKIP() << c.trouble();
  const auto expect = [&](const std::string& entry, int64_t queries) {
    Choices& user = another_user();
    EXPECT_EQ(user.best(kHere, "matmul", "p"), entry);
    EXPECT_EQ(user.queries(), queries);
  };
  c.store(kHere, "matmul", "p", {{"before", 5, 0, true}});
  let_it_settle(path);
  expect("before", 1);
  expect("before", 0);
  c.store(kHere, "matmul", "p", {{"after", 3, 0, true}});
  expect("after", 1);
  let_it_settle(path);
  expect("after", 1);
  expect("after", 0);
  const auto size = std::filesystem::file_size(copy);
  for (uintmax_t at = 0; at < size; at += 7) {  // each number and each text of it
    {
      std::fstream file(copy, std::ios::in | std::ios::out | std::ios::binary);
      file.seekg(static_cast<std::streamoff>(at));
      const char damaged = static_cast<char>(file.get() ^ 0x20);
      file.seekp(static_cast<std::streamoff>(at));
      file.put(damaged);
    }
    expect("after", 1);  // which makes a good copy
  }
  for (const uintmax_t bytes : {uintmax_t{0}, uintmax_t{40}, size / 2, size - 1}) {
    std::filesystem::resize_file(copy, bytes);
    expect("after", 1);
  }
  expect("after", 0);
  std::ofstream(path + "-journal") << "a process is writing, or has ended while it wrote";
  expect("after", 1);
}

TEST(Choices, ADamagedFileIsAskedForEachProblem) {
  test::TempFolder folder;
  const std::string path = folder.str() + "/choices.sqlite", copy = folder.str() + "/copy.sqlite";
  Choices& c = Choices::in(path);
  if (!c.trouble().empty()) GTEST_SKIP() << c.trouble();
  c.store(kHere, "matmul", "p0", {{"fast", 3, 0, true}});
  EXPECT_TRUE(sqlite::Database(path).run(
      "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1999) INSERT INTO measurements "
      "(environment, op, problem, entry, us, error, sound) SELECT 1, 'matmul', 'p' || i, 'fast', 3, 0, 1 FROM n"));
  EXPECT_EQ(c.best(kHere, "matmul", "p0"), "fast");
  std::filesystem::copy_file(path, copy);
  {
    std::fstream file(copy, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<std::streamoff>(std::filesystem::file_size(copy) / 2));
    file << std::string(8 * 4096, '\xff');
  }
  Choices& damaged = Choices::in(copy);
  EXPECT_EQ(damaged.trouble(), "");
  int found = 0;
  for (int i = 0; i < 2000; ++i) {
    const auto best = damaged.best(kHere, "matmul", "p" + std::to_string(i));
    EXPECT_TRUE(!best || *best == "fast");
    found += best.has_value();
  }
  EXPECT_GT(found, 100);
  EXPECT_LT(found, 2000);
}

TEST(Choices, AFileWithManyRowsIsAskedForEachProblem) {
  test::TempFolder folder;
  Choices& c = Choices::in(folder.str() + "/choices.sqlite");
  if (!c.trouble().empty()) GTEST_SKIP() << c.trouble();
  std::vector<Measurement> many;
  for (int i = 0; i < 22000; ++i) many.push_back({"entry" + std::to_string(i), 10.0 + i, 0, true});
  c.store(kHere, "matmul", "many", many);
  for (int i = 0; i < 20; ++i) c.store(kHere, "matmul", std::to_string(i), {{"fast", 3, 0, true}});
  const int64_t before = c.queries();
  for (int turn = 0; turn < 2; ++turn)
    for (int i = 0; i < 20; ++i) EXPECT_EQ(c.best(kHere, "matmul", std::to_string(i)), "fast");
  EXPECT_EQ(c.best(kHere, "matmul", "many"), "entry0");
  EXPECT_EQ(c.queries() - before, 21);
}

TEST(Choices, AFileOfTheFirstVersionKeepsItsRows) {
  test::TempFolder folder;
  const std::string path = folder.str() + "/choices.sqlite";
  {
    sqlite::Database db(path);
    if (!db.trouble().empty()) GTEST_SKIP() << db.trouble();
    ASSERT_TRUE(
        db.run("CREATE TABLE environments (id INTEGER PRIMARY KEY, device TEXT NOT NULL, architecture TEXT NOT NULL, "
               "driver TEXT NOT NULL, libraries "
               "TEXT NOT NULL, pyflame TEXT NOT NULL, UNIQUE (device, architecture, driver, libraries, pyflame));"
               "CREATE TABLE measurements (environment INTEGER NOT NULL REFERENCES environments, op TEXT NOT NULL, "
               "problem TEXT NOT NULL, entry TEXT NOT "
               "NULL, us REAL NOT NULL, error REAL NOT NULL, sound INTEGER NOT NULL, measured_at TEXT NOT NULL DEFAULT "
               "CURRENT_TIMESTAMP, PRIMARY KEY "
               "(environment, op, problem, entry));"
               "INSERT INTO environments VALUES (1, 'H', 'sm_90', '13000', '', '1');"
               "INSERT INTO measurements (environment, op, problem, entry, us, error, sound) VALUES (1, 'matmul', 'p', "
               "'kept', 2, 0, 1);"
               "PRAGMA user_version = 1;"));
  }
  Choices& c = Choices::in(path);
  EXPECT_EQ(c.trouble(), "");
  EXPECT_EQ(c.best(kHere, "matmul", "p"), "kept");
  c.store(kHere, "matmul", "p", {{"new", 1, 0, true}});
  EXPECT_EQ(c.best(kHere, "matmul", "p"), "new");
}

TEST(Choices, AFileThatIsNoDatabaseIsLeftAlone) {
  test::TempFolder folder;
  const std::string path = folder.str() + "/choices.sqlite";
  std::ofstream(path) << std::string(5000, 'x');
  Choices& c = Choices::in(folder.str() + "/choices.sqlite");
  EXPECT_FALSE(c.trouble().empty());
  EXPECT_FALSE(c.best(kHere, "matmul", "p"));
  c.store(kHere, "matmul", "p", {{"a", 1, 0, true}});
  EXPECT_EQ(std::filesystem::file_size(path), 5000u);
}

TEST(Choices, AFolderThatCannotBeWritten) {
  Choices& c = Choices::in("/proc/no/such/folder/choices.sqlite");
  EXPECT_FALSE(c.trouble().empty());
  EXPECT_FALSE(c.best(kHere, "matmul", "p"));
}

}  // namespace
}  // namespace pyflame
