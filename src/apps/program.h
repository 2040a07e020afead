// A program made of subcommands. Exit codes: 0 success, 1 failure, 2 wrong command line, 130 interrupted. Every error is
// one line on stderr.
#pragma once
#include "apps/command.h"

namespace pyflame::apps {

// What main() does: `add` registers the subcommands.
int run_program(int argc, char** argv, void (*add)(CLI::App& app, Run& run));

}  // namespace pyflame::apps
