// The `pyflame` program: the GPT program and the tools. program.cpp starts it; in a wheel, cmake/wheel/program.cpp does.
#include "apps/program.h"
#include "commands.h"
#include "pyflame/base/error.h"

namespace {

// In the order of --help, which shows them in groups (help.cpp).
void add_commands(CLI::App& app, pyflame::apps::Run& run) {
  using namespace pyflame::apps;
  cli::add_info(app, run);
  cli::add_doctor(app, run);
  cli::add_env(app, run);
  cli::add_memory(app, run);
  cli::add_train(app, run);
  cli::add_generate(app, run);
  cli::add_chat(app, run);
  cli::add_serve(app, run);
  cli::add_embed(app, run);
  cli::add_run(app, run);
  cli::add_profile(app, run);
  cli::add_explain(app, run);
  cli::add_tune(app, run);
  cli::add_optimize(app, run);
  cli::add_bench(app, run);
  cli::add_debug(app, run);
  cli::add_diagnose(app, run);
  cli::add_report(app, run);
  cli::add_inspect(app, run);
  cli::add_inspect_model(app, run);
  cli::add_occupancy(app, run);
  cli::add_fit(app, run);
  cli::add_convert(app, run);
  cli::add_completion(app, run);
  cli::add_help(app);
}

}  // namespace

int pyflame_program(int argc, char** argv) {
  // What follows the name of a script belongs to the script, so the options of `run script.py` and `train script.py` are not looked at here.
  using namespace pyflame::apps;
  const bool launches = cli::launches(argc, argv), trains = cli::trains_in_python(argc, argv);
  if (argc > 1 && !launches && !trains) return run_program(argc, argv, add_commands);
  try {
    if (argc <= 1) return cli::welcome();
    if (trains) cli::train_in_python(argc, argv);
    cli::launch(argc, argv);
  } catch (const pyflame::Error& e) {
    fmt::print(stderr, "pyflame: {}\n", e.what());
    return 1;
  }
}
