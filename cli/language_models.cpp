// `pyflame chat` and the --model of `pyflame generate`: language models from GGUF files and Hugging Face folders. Python computes them
// (python/pyflame/llm); this file checks the command line. Without --model, `generate` is the command of the GPT program.
#include <CLI/Error.hpp>
#include <array>
#include <memory>
#include <string>

#include "apps/gpt/commands.h"
#include "commands.h"
#include "python_command.h"

namespace pyflame::apps::cli {

namespace {

void add_python_option(CLI::App* cmd, std::string& python) {
  cmd->add_option("--python", python,
                  "The Python interpreter that has the package; default: the one beside this program");
}

// Options that were given, in the spelling of the Python program.
void forward(const CLI::App* cmd, PythonCommand& to) {
  constexpr std::array kForwarded = {"prompt", "device", "max_tokens",         "temperature", "top_k", "top_p",
                                     "min_p",  "seed",   "repetition_penalty", "stop",        "system"};
  for (const char* name : kForwarded) {
    const CLI::Option* option = cmd->get_option_no_throw(std::string("--") + name);
    if (option == nullptr) continue;
    for (const std::string& value : option->results()) to.add((std::string("--") + name).c_str(), value);
  }
}

void add_sampling(CLI::App* cmd) {
  cmd->add_option(names("min_p"), "Choose only tokens with at least this share of the likeliest token's probability");
  cmd->add_option(names("repetition_penalty"), "Makes tokens less likely that are there already; 1: off");
  cmd->add_option("--stop", "Ends the text before this text; may be given several times")->expected(1)->take_all();
}

}  // namespace

void add_generate(CLI::App& app, Run& run) {
  auto of_checkpoint = std::make_shared<Run>();
  gpt::add_generate(app, *of_checkpoint);
  CLI::App* cmd = app.get_subcommand("generate");
  CLI::Option* checkpoint = cmd->get_option("--checkpoint")->required(false);
  auto model = std::make_shared<std::string>(), python = std::make_shared<std::string>();
  cmd->add_option("--model", *model, "A language model instead: a GGUF file or a Hugging Face folder")
      ->excludes(checkpoint);
  add_sampling(cmd);
  add_python_option(cmd, *python);
  cmd->parse_complete_callback([&run, cmd, checkpoint, of_checkpoint, model, python] {
    const bool of_model = !model->empty();
    if (!of_model && checkpoint->empty()) throw CLI::RequiredError("--checkpoint or --model");
    for (const char* name : {"--min_p", "--repetition_penalty", "--stop"})
      if (!of_model && !cmd->get_option(name)->empty()) throw CLI::RequiresError(name, "--model");
    if (of_model && !cmd->get_option("--max_repeat")->empty()) throw CLI::RequiresError("--max_repeat", "--checkpoint");
    run = [=]() -> int {
      if (!of_model) return (*of_checkpoint)();
      PythonCommand c("generate", "pyflame.llm", *python);
      c.add("generate");
      c.add("--model", *model);
      forward(cmd, c);
      c.start();
    };
  });
}

void add_chat(CLI::App& app, Run& run) {
  CLI::App* cmd = app.add_subcommand("chat", "Talk with a language model in the terminal");
  auto model = std::make_shared<std::string>(), python = std::make_shared<std::string>();
  cmd->add_option("MODEL", *model, "A GGUF file or a Hugging Face folder")->required();
  cmd->add_option("--system", "What the model is told before the first message");
  cmd->add_option("--device", "Device to run on: cpu, rocm, rocm:1, cuda, ...");
  cmd->add_option(names("max_tokens"), "Most tokens of an answer");
  cmd->add_option("--temperature", "0 always takes the most likely token; higher is more varied");
  cmd->add_option(names("top_k"), "Choose only from the k most likely tokens; 0: from all");
  cmd->add_option(names("top_p"), "Choose only from the most likely tokens whose probabilities add up to this");
  cmd->add_option("--seed", "Seed of the sampling; the same seed gives the same text");
  add_sampling(cmd);
  add_python_option(cmd, *python);
  cmd->final_callback([&run, cmd, model, python] {
    run = [=]() -> int {
      PythonCommand c("chat", "pyflame.llm", *python);
      c.add("chat");
      c.add("--model", *model);
      forward(cmd, c);
      c.start();
    };
  });
}

}  // namespace pyflame::apps::cli
