// `pyflame train`: `gpt` is the program of src/apps/gpt; other models and scripts are trained by Python (python/pyflame/train), which reads its words itself.
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
  for (const std::string& word : words) c.add(word);
  c.start();
}

}  // namespace pyflame::apps::cli
