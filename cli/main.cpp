// The `pyflame` program. Exit codes: 0 done, 1 it failed, 2 the command line is wrong, 130 interrupted. Whatever goes wrong is one
// line on stderr.
#include <fmt/core.h>

#include <cstdio>
#include <exception>

#include "apps/gpt/commands.h"
#include "commands.h"
#include "pyflame/base/error.h"
#include "pyflame/version.h"

namespace pyflame::apps::cli {

namespace {

int report(const std::string& message) {
  std::fflush(stdout);
  fmt::print(stderr, "pyflame: {}\n", message);
  return kFailure;
}

int run_program(int argc, char** argv) {
  CLI::App app{"PyFlame: a deep-learning framework"};
  app.name("pyflame");
  app.set_version_flag("--version", std::string("pyflame ") + PYFLAME_VERSION);
  app.require_subcommand(1);
  Run run;
  add_info(app, run);
  gpt::add_train(app, run);
  gpt::add_generate(app, run);
  add_doctor(app, run);
  add_env(app, run);
  add_inspect(app, run);
  add_occupancy(app, run);
  add_report(app, run);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& e) {  // --help and --version
    return app.exit(e);
  } catch (const CLI::ParseError& e) {
    // What was not understood is the better explanation of what then seems to be missing.
    std::string unknown;
    for (const std::string& arg : app.remaining(true)) unknown += (unknown.empty() ? "'" : ", '") + arg + "'";
    const std::string message = unknown.empty() ? e.what() : "not understood: " + unknown;
    fmt::print(stderr, "pyflame: {}; --help shows what there is\n", message);
    return kUsage;
  }
  const int code = run();
  // A full disk behind a redirection shows only here.
  PF_CHECK(std::fflush(stdout) == 0 && std::ferror(stdout) == 0, OS, "the output cannot be written completely");
  return code;
}

}  // namespace

}  // namespace pyflame::apps::cli

int main(int argc, char** argv) {
  try {
    return pyflame::apps::cli::run_program(argc, argv);
  } catch (const pyflame::Error& e) {
    return pyflame::apps::cli::report(e.what());
  } catch (const std::bad_alloc&) {
    return pyflame::apps::cli::report("out of memory");
  } catch (const std::exception& e) {
    return pyflame::apps::cli::report(e.what());
  }
}
