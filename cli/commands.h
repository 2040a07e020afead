// The subcommands of the tools; those of the GPT program are in apps/gpt/commands.h.
#pragma once
#include "apps/command.h"

namespace pyflame::apps::cli {

void add_info(CLI::App& app, Run& run);
void add_bench(CLI::App& app, Run& run);
void add_chat(CLI::App& app, Run& run);
void add_completion(CLI::App& app, Run& run);  // and man
void add_convert(CLI::App& app, Run& run);
void add_debug(CLI::App& app, Run& run);
void add_diagnose(CLI::App& app, Run& run);
void add_doctor(CLI::App& app, Run& run);
void add_embed(CLI::App& app, Run& run);
void add_env(CLI::App& app, Run& run);
void add_fit(CLI::App& app, Run& run);
void add_explain(CLI::App& app, Run& run);
void add_generate(CLI::App& app, Run& run);
void add_inspect(CLI::App& app, Run& run);
void add_inspect_model(CLI::App& app, Run& run);
void add_memory(CLI::App& app, Run& run);
void add_occupancy(CLI::App& app, Run& run);
void add_optimize(CLI::App& app, Run& run);
void add_profile(CLI::App& app, Run& run);
void add_tune(CLI::App& app, Run& run);
void add_report(CLI::App& app, Run& run);
void add_run(CLI::App& app, Run& run);
void add_serve(CLI::App& app, Run& run);
void add_train(CLI::App& app, Run& run);
// Groups and examples of all commands, once they are there.
void add_help(CLI::App& app);
// Without a command: what is worth trying here. Returns the exit code.
int welcome();
// Whether the command line is that of `run` with a Python program, whose processes launch() starts in place of this one.
bool launches(int argc, const char* const* argv);
[[noreturn]] void launch(int argc, const char* const* argv);
// Whether the command line is that of `train` with a model or script that Python trains, which takes the place of this process.
bool trains_in_python(int argc, const char* const* argv);
[[noreturn]] void train_in_python(int argc, const char* const* argv);

// --kv_cache_dtype, an option of several commands.
void add_kv_cache_dtype(CLI::App* cmd, std::string& target);

}  // namespace pyflame::apps::cli
