#include "apps/program.h"

#include <fmt/core.h>

#include <cstdio>
#include <exception>
#include <memory>
#include <new>

#include "apps/help.h"
#include "pyflame/base/error.h"
#include "pyflame/version.h"

namespace pyflame::apps {

namespace {

int report(const std::string& message) {
  std::fflush(stdout);
  fmt::print(stderr, "pyflame: {}\n", message);
  return kFailure;
}

int parse_and_run(int argc, char** argv, void (*add)(CLI::App& app, Run& run)) {
  CLI::App app{"PyFlame: a deep-learning framework"};
  app.name("pyflame");
  app.formatter(std::make_shared<HelpFormatter>());
  app.set_version_flag("--version", std::string("pyflame ") + PYFLAME_VERSION);
  app.require_subcommand(1);
  Run run;
  add(app, run);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& e) {  // --help and --version
    return app.exit(e);
  } catch (const CLI::ParseError& e) {
    // If there are unknown arguments, name them: a misspelt option is often why a required one seems to be missing.
    std::string unknown;
    for (const std::string& arg : app.remaining(true)) unknown += (unknown.empty() ? "'" : ", '") + arg + "'";
    const std::string message = unknown.empty() ? e.what() : "not understood: " + unknown;
    fmt::print(stderr, "pyflame: {}; --help shows what there is\n", message);
    return kUsage;
  }
  const int code = run();
  // If the output is redirected to a file, a full disk shows only here.
  PF_CHECK(std::fflush(stdout) == 0 && std::ferror(stdout) == 0, OS, "the output cannot be written completely");
  return code;
}

}  // namespace

int run_program(int argc, char** argv, void (*add)(CLI::App& app, Run& run)) {
  try {
    return parse_and_run(argc, argv, add);
  } catch (const Error& e) {
    return report(e.what());
  } catch (const std::bad_alloc&) {
    return report("out of memory");
  } catch (const std::exception& e) {
    return report(e.what());
  }
}

}  // namespace pyflame::apps
