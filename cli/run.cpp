// `pyflame run`: runs a model file, or starts the processes of a Python program. Python does both (python/pyflame/onnx/run.py,
// python/pyflame/distributed/run.py); this file checks the command line.
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "commands.h"
#include "python_command.h"

namespace pyflame::apps::cli {

namespace {

struct RunSettings {
  std::string model, device = "cpu", output, report, python;
  std::vector<std::string> inputs, shapes;
  int repeat = 5, seed = 0;
  bool json = false;
};

int run_model(const RunSettings& s) {
  PythonCommand c("run", "pyflame.onnx.run", s.python);
  c.add(s.model);
  for (const std::string& input : s.inputs) c.add("--input", input);
  for (const std::string& shape : s.shapes) c.add("--shape", shape);
  c.add("--device", s.device);
  c.add("--repeat", std::to_string(s.repeat));
  c.add("--seed", std::to_string(s.seed));
  if (!s.output.empty()) c.add("--output", s.output);
  if (!s.report.empty()) c.add("--report", s.report);
  if (s.json) c.add("--json");
  c.start();
}

}  // namespace

bool launches(int argc, const char* const* argv) {
  if (argc < 3 || std::string_view(argv[1]) != "run") return false;
  for (int i = 2; i < argc; ++i) {
    const std::string_view word = argv[i];
    if (word == "--module" || word == "-m") return true;
    // Options that only the launcher has; some of them are spelled with "-" or "_".
    for (const std::string_view option :
         {"--nproc", "--nnodes", "--node", "--rdzv", "--master", "--max", "--bind", "--threads", "--no-prefix"})
      if (word.starts_with(option)) return true;
    if (word == "--python") ++i;
    else if (!word.starts_with('-')) return word.ends_with(".py");
  }
  return false;
}

void launch(int argc, const char* const* argv) {
  std::string python;
  std::vector<std::string> words(argv + 2, argv + argc);
  if (words.size() >= 2 && words[0] == "--python") {  // anywhere else, the launcher reads it
    python = words[1];
    words.erase(words.begin(), words.begin() + 2);
  }
  PythonCommand c("run", "pyflame.distributed.run", python);
  for (const std::string& word : words) c.add(word);
  c.start();
}

void add_run(CLI::App& app, Run& run) {
  CLI::App* cmd = app.add_subcommand(
      "run", "Run an ONNX model, or with --nproc N script.py the processes of a Python program (--nproc 1 --help)");
  auto s = std::make_shared<RunSettings>();
  cmd->add_option("model", s->model, "The file of the model")->required()->check(CLI::ExistingFile);
  cmd->add_option("--input", s->inputs, "NAME=FILE.npy: the values of an input; without it they are random. Repeatable")
      ->allow_extra_args(false);
  cmd->add_option("--shape", s->shapes, "NAME=1,3,224,224: the shape of a random input. Repeatable")
      ->allow_extra_args(false);
  cmd->add_option("--device", s->device, "Device to run on: cpu, rocm, rocm:1, cuda, ...")->capture_default_str();
  cmd->add_option("--repeat", s->repeat, "Calls that are timed, after one that is not")
      ->capture_default_str()
      ->check(CLI::Range(1, 1000000));
  cmd->add_option("--seed", s->seed, "Seed of the random inputs")->capture_default_str();
  cmd->add_option("--output", s->output, "FILE.npz: the outputs by name");
  cmd->add_option("--report", s->report, "FILE.json: where each node ran");
  cmd->add_flag("--json", s->json, "Print one JSON object");
  cmd->add_option(
      "--python", s->python,
      "The Python interpreter that has the package; default: PYFLAME_PYTHON, or the one beside this program");
  cmd->final_callback([&run, s] { run = [s] { return run_model(*s); }; });
}

}  // namespace pyflame::apps::cli
