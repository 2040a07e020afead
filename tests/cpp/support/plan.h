// The windows, steps and bytes of a piece of code, read from the text of pf.explain().
#pragma once
#include <cstdio>
#include <functional>
#include <string>

#include "pyflame/base/env.h"
#include "pyflame/compile/program.h"
#include "pyflame/runtime/explain.h"

namespace pyflame::testing {

struct Plan {
  int windows = 0, ops = 0, steps = 0;
  size_t arena = 0, new_bytes = 0;  // largest arena; sum of new memory
  std::string text;
};

// fn's results stay alive until the plan is made, if it returns them.
template <class F>
Plan plan_of(F&& fn) {
  explain_start();
  [[maybe_unused]] const auto kept = fn();
  Plan p;
  p.text = explain_stop();
  size_t at = 0;
  while ((at = p.text.find("): ", at)) != std::string::npos) {
    int ops = 0, steps = 0;
    size_t arena = 0, bytes = 0;
    at += 3;
    if (std::sscanf(p.text.c_str() + at, "%d %*[ops] in %d %*[steps] on %*[^;]; arena %zu bytes, new memory %zu bytes",
                    &ops, &steps, &arena, &bytes) != 4)
      continue;
    ++p.windows;
    p.ops += ops;
    p.steps += steps;
    p.arena = std::max(p.arena, arena);
    p.new_bytes += bytes;
  }
  return p;
}

// Plans are those of the default settings.
inline bool default_settings() { return env::window() == 0 && env::fuse() && env::plan_memory(); }
#define SKIP_UNLESS_DEFAULT_SETTINGS()         \
  if (!::pyflame::testing::default_settings()) \
  GTEST_SKIP() << "PYFLAME_WINDOW, PYFLAME_FUSE or PYFLAME_PLAN_MEMORY is set"

}  // namespace pyflame::testing
