// The subcommands: each file registers one, and hands main() what to run once the command line is known to be sound.
#pragma once
#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <functional>
#include <string>

namespace pyflame::cli {

constexpr int kOk = 0, kFailure = 1, kUsage = 2, kInterrupted = 130;

using Run = std::function<int()>;

void add_info(CLI::App& app, Run& run);
void add_train(CLI::App& app, Run& run);
void add_generate(CLI::App& app, Run& run);
void add_doctor(CLI::App& app, Run& run);
void add_env(CLI::App& app, Run& run);
void add_inspect(CLI::App& app, Run& run);
void add_occupancy(CLI::App& app, Run& run);
void add_report(CLI::App& app, Run& run);

// "--batch_size,--batch-size": options are spelt with underscores, dashes are understood as well.
inline std::string names(const std::string& name) {
  std::string dashed = name;
  for (char& c : dashed) c = c == '_' ? '-' : c;
  return dashed == name ? "--" + name : "--" + name + ",--" + dashed;
}

// A checkpoint's path from what the user named: the file itself, or the run's folder.
std::string checkpoint_path(const std::string& file_or_folder);
constexpr const char* kCheckpointName = "checkpoint.safetensors";

// SIGINT and SIGTERM ask for an orderly end; a second one ends at once.
void catch_interrupts();
bool interrupted();

}  // namespace pyflame::cli
