// `pyflame doctor`
#include "commands.h"

namespace pyflame::cli {

void add_doctor(CLI::App& app, Run& run) {
  CLI::App* cmd =
      app.add_subcommand("doctor", "What is wrong with this machine's GPUs, drivers and settings, and what mends it");
  cmd->final_callback([&run] { run = [] { return kFailure; }; });
}

}  // namespace pyflame::cli
