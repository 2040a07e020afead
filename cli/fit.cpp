// `pyflame fit` and `pyflame memory`: what a model takes and where it fits; who holds the memory of this machine's devices. Python does both
// (python/pyflame/memory), because models are planned there; this file checks the command lines.
#include <fmt/format.h>

#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "commands.h"
#include "output.h"
#include "pyflame/base/error.h"
#include "python_command.h"
#include "tools/memory/page.h"

namespace pyflame::apps::cli {

namespace {

constexpr const char* kModule = "pyflame.memory";

struct FitSettings {
  std::string model, device, dtype = "stored", precision = "mixed", optimizer = "adamw", kind = "both", python;
  int64_t batch = 1, context = 0;
  bool checkpointing = false, json = false;
};

int fit(const FitSettings& s) {
  PythonCommand c("fit", kModule, s.python);
  c.add("fit");
  // This program reads the headers of all formats of weights.
  c.add("--program", std::filesystem::read_symlink("/proc/self/exe").string());
  if (!s.device.empty()) c.add("--device", s.device);
  c.add("--batch", std::to_string(s.batch));
  if (s.context) c.add("--context", std::to_string(s.context));
  c.add("--dtype", s.dtype);
  c.add("--precision", s.precision);
  c.add("--optimizer", s.optimizer);
  c.add("--for", s.kind);
  if (s.checkpointing) c.add("--checkpointing");
  if (s.json) c.add("--json");
  c.add("--");
  c.add(s.model);
  c.start();
}

struct MonitorSettings {
  std::string python;
  double interval = 1;
  int64_t count = 0;
  bool json = false;
};

int monitor(const MonitorSettings& s) {
  PythonCommand c("memory monitor", kModule, s.python);
  c.add("monitor");
  c.add("--interval", fmt::format("{}", s.interval));
  c.add("--count", std::to_string(s.count));
  if (s.json) c.add("--json");
  c.start();
}

struct SnapshotSettings {
  std::string path, html;
  bool json = false;
};

int show_snapshot(const SnapshotSettings& s) {
  constexpr size_t kMost = size_t{256} << 20;
  PF_CHECK(s.json || !s.html.empty(), Value,
           "memory snapshot: there is nothing to write; got neither --html nor --json; hint: --html page.html");
  const nlohmann::json doc = nlohmann::json::parse(read_text_file("memory snapshot", s.path, kMost), nullptr, false);
  PF_CHECK(!doc.is_discarded() && tools::memory::is_snapshot(doc), Value,
           "memory snapshot: '{}' is not a snapshot; expected a file of pf.memory.snapshot().save(path)", s.path);
  if (!s.html.empty()) write_page("memory snapshot", s.html, tools::memory::html_page(doc));
  if (s.json) print_json(doc);
  return kOk;
}

void add_snapshot(CLI::App* memory, Run& run) {
  CLI::App* cmd = memory->add_subcommand("snapshot", "Show what held a device's memory, as a page or as JSON");
  auto s = std::make_shared<SnapshotSettings>();
  cmd->add_option("path", s->path, "A file of pf.memory.snapshot().save(path)")->required()->check(CLI::ExistingFile);
  cmd->add_option("--html", s->html, "Write a page into this file")->type_name("FILE");
  cmd->add_flag("--json", s->json,
                "Print one JSON document: what held the memory, which line took it, and how it went over time");
  cmd->final_callback([&run, s] { run = [s] { return show_snapshot(*s); }; });
}

void add_python(CLI::App* cmd, std::string& python) {
  cmd->add_option(
      "--python", python,
      "The Python interpreter that has the package; default: PYFLAME_PYTHON, or the one beside this program");
}

}  // namespace

void add_fit(CLI::App& app, Run& run) {
  CLI::App* cmd = app.add_subcommand(
      "fit", "Say what a model takes for inference and training, on which GPUs it fits, and what to change");
  auto s = std::make_shared<FitSettings>();
  cmd->add_option("model", s->model,
                  "A folder with config.json, a GGUF file, an installed package with one of these, other files of "
                  "weights, or FILE.py:function, which returns a model, or (model, inputs), or (model, inputs, loss)")
      ->required();
  cmd->add_option("--device", s->device,
                  "The GPU that it shall fit on, such as MI300X, its memory, such as 24GiB, or cpu; default: all GPUs "
                  "of the table");
  cmd->add_option("--batch", s->batch, "Sequences, or samples, that are computed together")
      ->capture_default_str()
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 30));
  cmd->add_option("--context", s->context, "Tokens of each sequence; default: the model's own, at most 4096")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 30));
  cmd->add_option("--dtype", s->dtype, "The weights of inference")
      ->capture_default_str()
      ->check(CLI::IsMember({"stored", "float32", "bfloat16", "float16"}));
  cmd->add_option("--precision", s->precision, "The numbers of training")
      ->capture_default_str()
      ->check(CLI::IsMember({"float32", "mixed", "bfloat16"}));
  cmd->add_option("--optimizer", s->optimizer, "The optimizer of training, such as adamw or sgd")
      ->capture_default_str();
  cmd->add_flag("--checkpointing", s->checkpointing, "Blocks of layers are computed again in the backward pass");
  cmd->add_option("--for", s->kind, "What the model is for")
      ->capture_default_str()
      ->check(CLI::IsMember({"inference", "training", "both"}));
  cmd->add_flag("--json", s->json, "Print one JSON document");
  add_python(cmd, s->python);
  cmd->final_callback([&run, s] { run = [s] { return fit(*s); }; });
}

void add_memory(CLI::App& app, Run& run) {
  CLI::App* memory = app.add_subcommand("memory", "Show who holds the memory of the machine and of its GPUs");
  memory->require_subcommand(1);
  add_snapshot(memory, run);
  CLI::App* cmd = memory->add_subcommand("monitor", "A line for each device, again and again, until Ctrl-C");
  auto s = std::make_shared<MonitorSettings>();
  cmd->add_option("--interval", s->interval, "Seconds between two looks")->capture_default_str()->check(kAboveZero);
  cmd->add_option("--count", s->count, "How many looks; 0: until Ctrl-C")->capture_default_str()->check(kAtLeastZero);
  cmd->add_flag("--json", s->json, "Print one JSON object for each look");
  add_python(cmd, s->python);
  cmd->final_callback([&run, s] { run = [s] { return monitor(*s); }; });
}

}  // namespace pyflame::apps::cli
