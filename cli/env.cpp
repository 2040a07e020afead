// `pyflame env`
#include "commands.h"

namespace pyflame::cli {

void add_env(CLI::App& app, Run& run) {
  CLI::App* cmd = app.add_subcommand("env", "The environment variables worth setting for a GPU, each with its reason");
  cmd->final_callback([&run] { run = [] { return kFailure; }; });
}

}  // namespace pyflame::cli
