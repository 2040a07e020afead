// What tests of configurations share: entries that are forced, and the names of those that can be.
#pragma once
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "pyflame/base/error.h"
#include "pyflame/compile/force.h"

namespace pyflame {

// Forces an entry until the end of a block.
class Forced {
 public:
  Forced(const std::string& op, const std::string& entry) : op_(op), before_(force_entry(op, entry)) {}
  ~Forced() { force_entry(op_, before_); }
  Forced(const Forced&) = delete;
  Forced& operator=(const Forced&) = delete;

 private:
  std::string op_, before_;
};

// The configurations of an entry for what is run. The error about one that does not exist names them.
template <class Run>
std::vector<std::string> named_by_error(const std::string& op, const std::string& entry, Run&& run) {
  std::string text;
  try {
    const Forced forced(op, entry + ":none");
    run();
  } catch (const Error& e) {
    text = e.what();
  }
  std::vector<std::string> all;
  if (text.find("expected none, ") != std::string::npos) return all;
  const size_t begin = text.find("expected one of ");
  EXPECT_NE(begin, std::string::npos) << text;
  if (begin == std::string::npos) return all;
  text = text.substr(begin + std::strlen("expected one of "));
  text = text.substr(0, text.find_first_of(";\n"));
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find(' ', at), text.size());
    if (end > at) all.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return all;
}

}  // namespace pyflame
