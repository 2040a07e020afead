// The subcommands of the tools; those of the GPT program are in apps/gpt/commands.h.
#pragma once
#include <string>
#include <vector>

#include "apps/command.h"

// What main() does. In a wheel it is in the Python module, where the wheel's program looks for it by its name.
extern "C" [[gnu::visibility("default")]] int pyflame_program(int argc, char** argv);

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
struct Example {
  const char *command, *meaning;
};
// The examples of a command, such as "train gpt".
std::vector<Example> examples_of(const std::string& path);
// Without a command: what is worth trying here. Returns the exit code.
int welcome();
// Whether the command line is that of `run` with a Python program, whose processes launch() starts in place of this one.
bool launches(int argc, const char* const* argv);
[[noreturn]] void launch(int argc, const char* const* argv);
// Whether the command line is that of `train` with a model or script that Python trains, which takes the place of this process.
bool trains_in_python(int argc, const char* const* argv);
[[noreturn]] void train_in_python(int argc, const char* const* argv);

// Options of the engine's cache, which several commands have.
struct EngineCacheSettings {
  std::string kv_cache_dtype, kv_cache_gate, attention_backend;
};
void add_cache_options(CLI::App* cmd, EngineCacheSettings& s);
void add_offload_option(CLI::App* cmd, double& gb);

}  // namespace pyflame::apps::cli
