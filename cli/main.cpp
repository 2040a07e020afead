// The `pyflame` program. Exit codes: 0 done, 1 it failed, 2 the command line is wrong, 130 interrupted. Whatever goes wrong is one
// line on stderr.
#include <fmt/core.h>

#include <csignal>
#include <cstdio>
#include <exception>
#include <filesystem>

#include "commands.h"
#include "pyflame/base/error.h"
#include "pyflame/version.h"

namespace pyflame::cli {

namespace {
volatile std::sig_atomic_t g_interrupted = 0;
}

void catch_interrupts() {
  struct sigaction action {};
  action.sa_handler = [](int) { g_interrupted = 1; };
  sigemptyset(&action.sa_mask);
  action.sa_flags = static_cast<int>(SA_RESTART | SA_RESETHAND);
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

bool interrupted() { return g_interrupted != 0; }

std::string checkpoint_path(const std::string& file_or_folder) {
  std::error_code ec;
  const std::filesystem::path p(file_or_folder);
  if (!std::filesystem::is_directory(p, ec)) {
    PF_CHECK(std::filesystem::exists(p, ec), OS, "'{}' does not exist; expected a checkpoint or the folder of a run",
             file_or_folder);
    return file_or_folder;
  }
  std::string file = (p / kCheckpointName).string();
  PF_CHECK(std::filesystem::exists(file, ec), OS, "the folder '{}' has no {}; expected the folder of a run",
           file_or_folder, kCheckpointName);
  return file;
}

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
  add_train(app, run);
  add_generate(app, run);
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

}  // namespace pyflame::cli

int main(int argc, char** argv) {
  try {
    return pyflame::cli::run_program(argc, argv);
  } catch (const pyflame::Error& e) {
    return pyflame::cli::report(e.what());
  } catch (const std::bad_alloc&) {
    return pyflame::cli::report("out of memory");
  } catch (const std::exception& e) {
    return pyflame::cli::report(e.what());
  }
}
