// `pyflame train`: `gpt` is the program of src/apps/gpt; other models and scripts are trained by Python (python/pyflame/train), which reads its words itself.
#include <algorithm>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "apps/gpt/commands.h"
#include "commands.h"
#include "python_command.h"

namespace pyflame::apps::cli {

void add_train(CLI::App& app, Run& run) {
  gpt::add_train(app, run);
  CLI::App* train = app.get_subcommand("train");
  train->footer(
      "pyflame train mlp|cnn|resnet|SCRIPT.py: models in Python; `pyflame train mlp --help` has their options");
}

bool trains_in_python(int argc, const char* const* argv) {
  if (argc < 3 || std::string_view(argv[1]) != "train") return false;
  const std::string_view word = argv[2];
  if (word == "gpt") {  // Python lets the processes of a data-parallel run meet, and starts this program again
    const std::vector<std::string_view> words(argv + 3, argv + argc);
    const auto has = [&](std::string_view name) { return std::find(words.begin(), words.end(), name) != words.end(); };
    return has("--distributed") && !has("--connected");
  }
  return word == "--python" || word == "--" || (!word.starts_with('-') && word != "gpt");
}

void train_in_python(int argc, const char* const* argv) {
  std::string python;
  std::vector<std::string> words(argv + 2, argv + argc);
  if (words.size() >= 2 && words[0] == "--python") {
    python = words[1];
    words.erase(words.begin(), words.begin() + 2);
  }
  PythonCommand c("train", "pyflame.train", python);
  if (words[0] == "gpt") {
    std::error_code ignored;
    words.insert(words.begin() + 1, {"--program", std::filesystem::read_symlink("/proc/self/exe", ignored).string()});
  }
  for (const std::string& word : words) c.add(word);
  c.start();
}

}  // namespace pyflame::apps::cli
