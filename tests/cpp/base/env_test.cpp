// The registry of environment variables: what is accepted, what is refused and how the refusal reads.
#include "pyflame/base/env.h"

#include <gtest/gtest.h>
#include <pwd.h>
#include <unistd.h>

#include <cstdlib>
#include <set>
#include <string>

#include "pyflame/base/error.h"

namespace pyflame {
namespace {

template <class Fn>
std::string value_error(Fn&& fn) {
  try {
    fn();
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::Value);
    return e.what();
  }
  ADD_FAILURE() << "nothing was raised";
  return "";
}

TEST(Env, IntWithinItsRange) {
  EXPECT_EQ(env::parse_int("PYFLAME_X", "0", 0, 6), 0);
  EXPECT_EQ(env::parse_int("PYFLAME_X", "6", 0, 6), 6);
  for (const char* bad : {"7", "-1", "", " 3", "3 ", "0x3", "3.0", "three", "99999999999999999999"})
    EXPECT_EQ(value_error([&] { env::parse_int("PYFLAME_X", bad, 0, 6); }),
              "PYFLAME_X: not a valid value; got '" + std::string(bad) + "'; expected a whole number from 0 to 6");
}

TEST(Env, BoolInAnyCase) {
  for (const char* yes : {"1", "true", "True", "ON", "yes"}) EXPECT_TRUE(env::parse_bool("PYFLAME_X", yes)) << yes;
  for (const char* no : {"0", "false", "FALSE", "off", "No"}) EXPECT_FALSE(env::parse_bool("PYFLAME_X", no)) << no;
  EXPECT_EQ(value_error([] { env::parse_bool("PYFLAME_X", "2"); }),
            "PYFLAME_X: not a valid value; got '2'; expected 0 or 1");
}

TEST(Env, BytesWithSuffix) {
  EXPECT_EQ(env::parse_bytes("PYFLAME_X", "0"), 0);
  EXPECT_EQ(env::parse_bytes("PYFLAME_X", "123"), 123);
  EXPECT_EQ(env::parse_bytes("PYFLAME_X", "3K"), 3 << 10);
  EXPECT_EQ(env::parse_bytes("PYFLAME_X", "3m"), 3 << 20);
  EXPECT_EQ(env::parse_bytes("PYFLAME_X", "3G"), int64_t{3} << 30);
  EXPECT_EQ(env::parse_bytes("PYFLAME_X", "2T"), int64_t{2} << 40);
  for (const char* bad : {"", "K", "-1", "-1G", "1.5G", "3GB", "9999999999T"})
    EXPECT_NE(value_error([&] {
                env::parse_bytes("PYFLAME_X", bad);
              }).find("got '" + std::string(bad) + "'; expected a number"),
              std::string::npos)
        << bad;
}

TEST(Env, PathExpandsHome) {
  setenv("HOME", "/home/somebody", 1);
  EXPECT_EQ(env::parse_path("PYFLAME_X", "~/a"), "/home/somebody/a");
  EXPECT_EQ(env::parse_path("PYFLAME_X", "~"), "/home/somebody");
  EXPECT_EQ(env::parse_path("PYFLAME_X", "/a/~/b"), "/a/~/b");
  unsetenv("HOME");
  const passwd* user = getpwuid(getuid());  // services start programs without HOME
  if (user) EXPECT_EQ(env::parse_path("PYFLAME_X", "~/a"), std::string(user->pw_dir) + "/a");
  else EXPECT_NE(value_error([] { env::parse_path("PYFLAME_X", "~/a"); }).find("HOME is not set"), std::string::npos);
  EXPECT_EQ(env::parse_path("PYFLAME_X", "/a"), "/a");
}

TEST(Env, MalformedValueRaisesEveryTimeAndIsThenReadOnce) {
  setenv("PYFLAME_CACHE_SIZE", "many", 1);
  EXPECT_NE(value_error([] { env::cache_size(); }).find("PYFLAME_CACHE_SIZE"), std::string::npos);
  EXPECT_NE(value_error([] { env::cache_size(); }).find("'many'"), std::string::npos);
  setenv("PYFLAME_CACHE_SIZE", "7", 1);
  EXPECT_EQ(env::cache_size(), 7);
  setenv("PYFLAME_CACHE_SIZE", "8", 1);
  EXPECT_EQ(env::cache_size(), 7);
}

TEST(Env, EmptyIsTheDefault) {
  setenv("PYFLAME_DEBUG", "", 1);
  EXPECT_EQ(env::debug(), 0);
}

TEST(Env, TableIsComplete) {
  std::set<std::string> names;
  for (const env::Variable& v : env::table()) {
    EXPECT_EQ(std::string(v.name).rfind("PYFLAME_", 0), 0u) << v.name;
    EXPECT_EQ(std::string(v.doc).back(), '.') << v.name;
    EXPECT_TRUE(names.insert(v.name).second) << v.name << " is declared twice";
  }
  EXPECT_TRUE(names.count("PYFLAME_WINDOW"));
}

}  // namespace
}  // namespace pyflame
