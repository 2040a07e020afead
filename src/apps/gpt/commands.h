// The subcommands of the GPT program: `pyflame train gpt` and `pyflame generate`.
#pragma once
#include "apps/command.h"

namespace pyflame::apps::gpt {

void add_train(CLI::App& app, Run& run);
void add_generate(CLI::App& app, Run& run);

constexpr const char* kCheckpointName = "checkpoint.safetensors";
// A checkpoint's path from what the user named: the file itself, or the run's folder.
std::string checkpoint_path(const std::string& file_or_folder);

}  // namespace pyflame::apps::gpt
