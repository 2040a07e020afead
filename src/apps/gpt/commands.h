// The subcommands of the GPT program: `pyflame train gpt` and `pyflame generate`.
#pragma once
#include "apps/command.h"

namespace pyflame::apps::gpt {

void add_train(CLI::App& app, Run& run);
void add_generate(CLI::App& app, Run& run);

constexpr const char* kCheckpointName = "checkpoint.safetensors";
// The path of the checkpoint that the user named, by its file or by the folder of its run.
std::string checkpoint_path(const std::string& file_or_folder);

}  // namespace pyflame::apps::gpt
