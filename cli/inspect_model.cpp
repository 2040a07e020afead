// `pyflame inspect-model`: shows what a file or folder of model weights contains, as text, JSON or a page.
#include <unistd.h>

#include <CLI/Option.hpp>
#include <algorithm>
#include <array>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "commands.h"
#include "output.h"
#include "python_command.h"
#include "tools/model_files/document.h"
#include "tools/model_files/page.h"
#include "tools/model_files/text.h"

namespace pyflame::apps::cli {

namespace {

struct ModelSettings {
  std::string path, html, python;
  bool all = false, as_json = false;
};

// Whether it can be the name of an installed package: letters, digits, and between them dots, hyphens and underscores.
// A name that ends as files of weights do is that of a file which is missing. Python knows where the model in a package
// is (python/pyflame/_model_packages.py).
bool may_name_package(const std::string& path) {
  static constexpr std::array<std::string_view, 14> kOfFiles{".safetensors", ".gguf", ".pt",   ".pth",  ".bin",
                                                             ".ckpt",        ".npy",  ".npz",  ".json", ".ts",
                                                             ".onnx",        ".zip",  ".ggml", ".h5"};
  const auto is_word = [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
  };
  std::error_code ignored;
  return !path.empty() && is_word(path.front()) && is_word(path.back()) &&
         std::ranges::all_of(path, [&](char c) { return is_word(c) || c == '.' || c == '-' || c == '_'; }) &&
         std::ranges::find(kOfFiles, std::filesystem::path(path).extension().string()) == kOfFiles.end() &&
         !std::filesystem::exists(path, ignored);
}

// Starts this command again, with the path of the model in place of the package's name.
[[noreturn]] void inspect_package(const ModelSettings& s) {
  std::error_code ignored;
  PythonCommand c("inspect-model", "pyflame._model_packages", s.python);
  c.add(std::filesystem::read_symlink("/proc/self/exe", ignored).string());
  c.add("inspect-model");
  c.add(s.path);
  if (s.all) c.add("--all");
  if (s.as_json) c.add("--json");
  if (!s.html.empty()) c.add("--html", s.html);
  c.start();
}

int run_inspect_model(const ModelSettings& s) {
  if (may_name_package(s.path)) inspect_package(s);
  const nlohmann::json doc = tools::model_files::document(s.path);
  if (!s.html.empty()) write_page("inspect-model", s.html, tools::model_files::html_page(doc));
  if (s.as_json) print_json(doc);
  else if (s.html.empty()) print(tools::model_files::document_text(doc, tools::view::Style::of(STDOUT_FILENO), s.all));
  return kOk;
}

}  // namespace

void add_inspect_model(CLI::App& app, Run& run) {
  CLI::App* sub = app.add_subcommand("inspect-model", "Show the tensors and the metadata of a model's file or folder");
  auto s = std::make_shared<ModelSettings>();
  sub->add_option(
         "path", s->path,
         "A file of safetensors, GGUF, torch.save, TorchScript or NumPy, a folder with weights, or the name of an "
         "installed package with a model")
      ->required();
  sub->add_flag("--all", s->all, "A row for each tensor, and all metadata");
  sub->add_flag("--json", s->as_json, "Print one JSON document");
  sub->add_option("--html", s->html, "Write a page to this file");
  sub->add_option(
      "--python", s->python,
      "The Python interpreter that has the package; default: PYFLAME_PYTHON, or the one beside this program");
  sub->callback([&run, s] { run = [s] { return run_inspect_model(*s); }; });
}

}  // namespace pyflame::apps::cli
