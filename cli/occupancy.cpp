// `pyflame occupancy`
#include "commands.h"

namespace pyflame::cli {

void add_occupancy(CLI::App& app, Run& run) {
  CLI::App* cmd = app.add_subcommand("occupancy", "How many waves fit on a SIMD, and what limits them");
  cmd->final_callback([&run] { run = [] { return kFailure; }; });
}

}  // namespace pyflame::cli
