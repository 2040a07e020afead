// `pyflame inspect-model`: shows what a file or folder of model weights contains, as text, JSON or a page.
#include <unistd.h>

#include <CLI/Option.hpp>
#include <memory>
#include <nlohmann/json.hpp>

#include "commands.h"
#include "output.h"
#include "tools/model_files/document.h"
#include "tools/model_files/page.h"
#include "tools/model_files/text.h"

namespace pyflame::apps::cli {

namespace {

struct ModelSettings {
  std::string path, html;
  bool all = false, as_json = false;
};

int run_inspect_model(const ModelSettings& s) {
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
  sub->add_option("path", s->path,
                  "A file of safetensors, GGUF, torch.save, TorchScript or NumPy, or a folder with weights")
      ->required();
  sub->add_flag("--all", s->all, "A row for each tensor, and all metadata");
  sub->add_flag("--json", s->as_json, "Print one JSON document");
  sub->add_option("--html", s->html, "Write a page to this file");
  sub->callback([&run, s] { run = [s] { return run_inspect_model(*s); }; });
}

}  // namespace pyflame::apps::cli
