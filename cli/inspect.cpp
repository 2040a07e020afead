// `pyflame inspect`
#include "commands.h"

namespace pyflame::cli {

void add_inspect(CLI::App& app, Run& run) {
  CLI::App* cmd = app.add_subcommand("inspect", "What is in AMD GPU code objects: registers, occupancy, machine code");
  cmd->final_callback([&run] { run = [] { return kFailure; }; });
}

}  // namespace pyflame::cli
