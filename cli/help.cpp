// What --help says beyond options: commands in groups by what one wants to do, and examples of each command.
#include <fmt/core.h>

#include <string>
#include <vector>

#include "commands.h"

namespace pyflame::apps::cli {

namespace {

struct Help {
  const char* path;   // "train gpt"
  const char* group;  // of a command of the program itself
  std::vector<Example> examples;
};

constexpr const char* kMachine = "Look at this machine";
constexpr const char* kModels = "Train and run models";
constexpr const char* kFaster = "Make a program faster";
constexpr const char* kWrong = "Find what is wrong with a program";
constexpr const char* kFiles = "Look into files";
constexpr const char* kShell = "Set up the shell";

// tests/python/test_cli_help.py makes sure that each command is here, and that the options of its examples exist.
std::vector<Help> table() {
  return {
      {"info",
       kMachine,
       {{"pyflame info", "what a bug report needs"}, {"pyflame info --json", "the same for programs"}}},
      {"doctor",
       kMachine,
       {{"pyflame doctor", "this machine: GPUs, drivers, settings"},
        {"pyflame doctor --fix > fix.sh", "a script that mends what was found; read it first"},
        {"pyflame doctor --env settings.sh", "the settings of a file"},
        {"pyflame doctor --record machine", "a folder to attach to a bug report"}}},
      {"doctor lint", nullptr, {{"pyflame doctor lint train.py", "a program of PyTorch; it is not run"}}},
      {"env",
       kMachine,
       {{"pyflame env", "variables for this machine"},
        {"pyflame env --arch gfx942 --workload training", "variables for another one"}}},
      {"memory", kMachine, {{"pyflame memory monitor --count 1", "who holds the memory now"}}},
      {"memory monitor", nullptr, {{"pyflame memory monitor --interval 5", "a line every five seconds"}}},
      {"memory snapshot", nullptr, {{"pyflame memory snapshot s.json --html s.html", "a page of a snapshot"}}},
      {"train",
       kModels,
       {{"pyflame train gpt --data texts --out run", "a GPT on a folder of texts"},
        {"pyflame train script.py", "a Trainer of your own"}}},
      {"train gpt",
       nullptr,
       {{"pyflame train gpt --data texts --out run", "a GPT on a folder of texts"},
        {"pyflame train gpt --out run --resume", "go on with that run"}}},
      {"generate",
       kModels,
       {{"pyflame generate --checkpoint run --prompt 'def '", "with a model of `train gpt`"},
        {"pyflame generate --model model.gguf --prompt Hello", "with a language model"},
        {"pyflame generate --model model.gguf --prompt Hello --json", "text, finish_reason, usage and times"}}},
      {"chat",
       kModels,
       {{"pyflame chat model.gguf", "talk with it; Ctrl-D ends"},
        {"pyflame chat model --system 'Answer in one line.'", "with an instruction"}}},
      {"serve",
       kModels,
       {{"pyflame serve model.gguf", "http://127.0.0.1:8000, for this machine only"},
        {"pyflame serve model --host 0.0.0.0 --api_key KEY", "for others, who need the key"}}},
      {"embed", kModels, {{"pyflame embed model --similarity one two", "how alike two texts are"}}},
      {"run",
       kModels,
       {{"pyflame run model.onnx", "an ONNX model on random inputs, with times"},
        {"pyflame run --nproc 2 train.py", "two processes of a program"}}},
      {"profile", kFaster, {{"pyflame profile --steps 50 train.py --epochs 1", "where the time of fifty steps goes"}}},
      {"explain",
       kFaster,
       {{"pyflame explain train.py", "how it was computed, and what that costs"},
        {"pyflame explain --html plan.html train.py", "the same as a page"}}},
      {"tune", kFaster, {{"pyflame tune --budget 5m train.py --epochs 1", "measure the ops of a program"}}},
      {"optimize",
       kFaster,
       {{"pyflame optimize --budget 10m train.py --epochs 1", "try settings for ten minutes"},
        {"pyflame optimize --list", "which changes there are"}}},
      {"bench",
       kFaster,
       {{"pyflame bench gemm --device rocm", "products of matrices"},
        {"pyflame bench train.py:step", "a function of yours"}}},
      {"bench llm", nullptr, {}},  // Python has its --help
      {"debug", kWrong, {{"pyflame debug run train.py", "stop at the first wrong access"}}},
      {"debug run",
       nullptr,
       {{"pyflame debug run --guards train.py --epochs 1", "look for accesses outside of buffers"}}},
      {"diagnose", kWrong, {{"pyflame diagnose --seconds 10 4711", "what limits the process 4711"}}},
      {"report",
       kFiles,
       {{"pyflame report trace.json --html report.html", "a trace of PyTorch as text and as a page"},
        {"pyflame report rank0.json rank1.json", "traces of several ranks"}}},
      {"report diff", nullptr, {{"pyflame report diff before.json after.json", "what takes more or less time"}}},
      {"inspect",
       kFiles,
       {{"pyflame inspect ~/.triton/cache", "kernels, the worst ones first"},
        {"pyflame inspect --gate budget.json kernels.co", "fail where a kernel got worse"}}},
      {"inspect diff", nullptr, {{"pyflame inspect diff old.co new.co", "what changed in each kernel"}}},
      {"inspect-model", kFiles, {{"pyflame inspect-model model.safetensors", "its tensors and metadata"}}},
      {"occupancy",
       kFiles,
       {{"pyflame occupancy --arch gfx942 --vgpr 96 --lds 16384", "waves of such a kernel, and what limits them"},
        {"pyflame occupancy --list", "the architectures"}}},
      {"fit",
       kFiles,
       {{"pyflame fit model", "what it takes, and which GPUs have that"},
        {"pyflame fit model --device MI300X --for training", "whether that one can train it"}}},
      {"convert",
       kFiles,
       {{"pyflame convert model model.gguf --type Q4_K", "quantize a Hugging Face folder"},
        {"pyflame convert model.gguf folder", "and the other way"}}},
      {"completion",
       kShell,
       {{"source <(pyflame completion bash)", "for this bash; ~/.bashrc keeps it"},
        {"pyflame completion fish | source", "for this fish"}}},
      {"man",
       kShell,
       {{"pyflame man | man -l -", "read it at once"},
        {"pyflame man --json", "all commands and options, for programs"}}},
  };
}

CLI::App* find(CLI::App& app, const std::string& path) {
  const size_t blank = path.find(' ');
  CLI::App* first = app.get_subcommand(path.substr(0, blank));
  return blank == std::string::npos ? first : first->get_subcommand(path.substr(blank + 1));
}

}  // namespace

std::vector<Example> examples_of(const std::string& path) {
  for (const Help& help : table())
    if (help.path == path) return help.examples;
  return {};
}

void add_help(CLI::App& app) {
  for (const Help& help : table()) {
    CLI::App* command = find(app, help.path);
    if (help.group) command->group(help.group);
    std::string text = command->get_footer();
    if (!help.examples.empty()) text += text.empty() ? "Examples:" : "\n\nExamples:";
    for (const Example& example : help.examples)
      text += fmt::format("\n  {}\n      {}", example.command, example.meaning);
    command->footer(text);
  }
  app.footer(
      "pyflame COMMAND --help has the options and examples of a command. pyflame alone names three commands that are "
      "worth trying on this machine.");
}

}  // namespace pyflame::apps::cli
