// `pyflame convert`: language models between GGUF files and Hugging Face folders, and their weights in other types. Python converts them
// (python/pyflame/llm/conversion); this file checks the command line.
#include <CLI/Error.hpp>
#include <CLI/Validators.hpp>
#include <memory>
#include <string>

#include "commands.h"
#include "python_command.h"

namespace pyflame::apps::cli {

namespace {

struct ConvertSettings {
  std::string source, target, type, text, python;
  bool perplexity = false, json = false;
};

}  // namespace

void add_convert(CLI::App& app, Run& run) {
  CLI::App* cmd =
      app.add_subcommand("convert", "Convert a language model between GGUF and Hugging Face's layout, and quantize it");
  auto s = std::make_shared<ConvertSettings>();
  cmd->add_option("SOURCE", s->source, "A GGUF file, a Hugging Face folder, or an installed package with one of these")
      ->required();
  cmd->add_option("TARGET", s->target, "What is written: a GGUF file if it ends in .gguf, otherwise a folder")
      ->required();
  cmd->add_option("--type", s->type,
                  "Type of the matrices; default: the source's. A folder can have F32, F16 and BF16 only")
      ->check(CLI::IsMember({"F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q4_K", "Q5_K", "Q6_K"},
                            CLI::ignore_case));
  cmd->add_option("--text", s->text, "A file with text whose perplexity is computed before and after")
      ->check(CLI::ExistingFile);
  cmd->add_flag("--perplexity", s->perplexity, "Compute the perplexity of a short text that comes with the program");
  cmd->add_flag("--json", s->json, "Print the report as JSON");
  cmd->add_option(
      "--python", s->python,
      "The Python interpreter that has the package; default: PYFLAME_PYTHON, or the one beside this program");
  cmd->final_callback([&run, cmd, s] {
    run = [=]() -> int {
      PythonCommand c("convert", "pyflame.llm.conversion", s->python);
      if (!s->type.empty()) c.add("--type", s->type);
      if (!s->text.empty()) c.add("--text", s->text);
      for (const char* flag : {"--perplexity", "--json"})
        if (cmd->count(flag) > 0) c.add(flag);
      c.add("--");
      c.add(s->source);
      c.add(s->target);
      c.start();
    };
  });
}

}  // namespace pyflame::apps::cli
