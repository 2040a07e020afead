// A program made of subcommands. Exit codes: 0 done, 1 it failed, 2 the command line is wrong, 130 interrupted. Whatever goes wrong is
// one line on stderr.
#pragma once
#include "apps/command.h"

namespace pyflame::apps {

// What main() does: `add` registers the subcommands.
int run_program(int argc, char** argv, void (*add)(CLI::App& app, Run& run));

}  // namespace pyflame::apps
