// `pyflame report`
#include "commands.h"

namespace pyflame::cli {

void add_report(CLI::App& app, Run& run) {
  CLI::App* cmd =
      app.add_subcommand("report", "Where the GPU time went, from the traces and tuning files of other tools");
  cmd->final_callback([&run] { run = [] { return kFailure; }; });
}

}  // namespace pyflame::cli
