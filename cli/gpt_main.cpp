// The `pyflame-gpt` program of `make demo`: the GPT program on the CPU alone. It is built without the tools and the GPU backends.
#include "apps/gpt/commands.h"
#include "apps/program.h"

namespace {

void add_commands(CLI::App& app, pyflame::apps::Run& run) {
  pyflame::apps::gpt::add_train(app, run);
  pyflame::apps::gpt::add_generate(app, run);
}

}  // namespace

int main(int argc, char** argv) { return pyflame::apps::run_program(argc, argv, add_commands); }
