// `pyflame chat`, `embed` and the --model of `pyflame generate`: language models from GGUF files and Hugging Face folders. Python computes them
// (python/pyflame/llm); this file checks the command line. Without --model, `generate` is the command of the GPT program.
#include <CLI/Error.hpp>
#include <CLI/Validators.hpp>
#include <array>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

#include "apps/gpt/commands.h"
#include "commands.h"
#include "python_command.h"

namespace pyflame::apps::cli {

namespace {

void add_python_option(CLI::App* cmd, std::string& python) {
  cmd->add_option(
      "--python", python,
      "The Python interpreter that has the package; default: PYFLAME_PYTHON, or the one beside this program");
}

// Options that were given, in the spelling of the Python program.
void forward(const CLI::App* cmd, PythonCommand& to) {
  constexpr std::array kForwarded = {"prompt",
                                     "device",
                                     "max_tokens",
                                     "temperature",
                                     "top_k",
                                     "top_p",
                                     "min_p",
                                     "seed",
                                     "stop",
                                     "system",
                                     "grammar",
                                     "json_schema",
                                     "repetition_penalty",
                                     "lora",
                                     "speculative_config",
                                     "tensor_parallel_size",
                                     "kv_cache_dtype",
                                     "kv_cache_gate",
                                     "attention_backend",
                                     "cpu_offload_gb"};
  for (const char* name : kForwarded) {
    const CLI::Option* option = cmd->get_option_no_throw(std::string("--") + name);
    if (option == nullptr) continue;
    for (const std::string& value : option->results()) to.add((std::string("--") + name).c_str(), value);
  }
  if (cmd->count("--json") > 0) to.add("--json");
}

// Targets of the options, which give them their types. What was given is forwarded as it was written.
struct LanguageModelSettings {
  std::string model, python, system, device, json_schema, grammar, speculative_config, lora;
  EngineCacheSettings cache;
  double temperature = 0, top_p = 0, min_p = 0, repetition_penalty = 0, cpu_offload_gb = 0;
  int64_t max_tokens = 0, top_k = 0, seed = 0, tensor_parallel_size = 0;
  std::vector<std::string> stop;
  bool json = false;
};

void add_sampling(CLI::App* cmd, LanguageModelSettings& s) {
  cmd->add_option(names("min_p"), s.min_p,
                  "Choose only tokens with at least this share of the likeliest token's probability");
  cmd->add_option(names("repetition_penalty"), s.repetition_penalty,
                  "Makes tokens less likely that are there already; 1: off");
  cmd->add_option("--stop", s.stop, "Ends the text before this text; may be given several times")
      ->expected(1)
      ->take_all();
  CLI::Option* schema =
      cmd->add_option(names("json_schema"), s.json_schema, "A file with a JSON schema: the text is JSON that fits it");
  cmd->add_option("--grammar", s.grammar, "A file with a grammar, GBNF or Lark: the text is of it")->excludes(schema);
  cmd->add_option(names("speculative_config"), s.speculative_config,
                  "Drafts of tokens, a JSON object such as {\"method\": \"ngram\", \"num_speculative_tokens\": 4}");
  cmd->add_option("--lora", s.lora, "A folder with an adapter (LoRA) of PEFT, which changes the model");
  cmd->add_option(names("tensor_parallel_size"), s.tensor_parallel_size,
                  "Processes that compute the text together, each with its part of the weights; default: 1")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 50));
  add_cache_options(cmd, s.cache);
  add_offload_option(cmd, s.cpu_offload_gb);
}

}  // namespace

void add_cache_options(CLI::App* cmd, EngineCacheSettings& s) {
  cmd->add_option(names("kv_cache_dtype"), s.kv_cache_dtype,
                  "What the engine's cache stores keys and values as; default: auto, the model's type")
      ->check(CLI::IsMember({"auto", "fp8", "fp8_e4m3", "fp8_e5m2", "int8"}));
  cmd->add_option(names("kv_cache_gate"), s.kv_cache_gate,
                  "By which part such a cache may raise the perplexity of a text, or off; default: 0.05");
  cmd->add_option(names("attention_backend"), s.attention_backend,
                  "The implementation of attention over the cache, as PYFLAME_FORCE names it; default: auto");
}

void add_offload_option(CLI::App* cmd, double& gb) {
  cmd->add_option(names("cpu_offload_gb"), gb,
                  "GiB of weights that stay in host memory, where a GPU has no room for all; each step copies them; "
                  "default: 0")
      ->check(CLI::Range(0.0, 1e6));
}

void add_generate(CLI::App& app, Run& run) {
  auto of_checkpoint = std::make_shared<Run>();
  gpt::add_generate(app, *of_checkpoint);
  CLI::App* cmd = app.get_subcommand("generate");
  CLI::Option* checkpoint = cmd->get_option("--checkpoint")->required(false);
  auto s = std::make_shared<LanguageModelSettings>();
  cmd->add_option("MODEL,--model", s->model,
                  "A language model instead: a GGUF file, a Hugging Face folder, or an installed package with one of "
                  "these")
      ->excludes(checkpoint);
  add_sampling(cmd, *s);
  add_python_option(cmd, s->python);
  cmd->parse_complete_callback([&run, cmd, checkpoint, of_checkpoint, s] {
    const bool of_model = !s->model.empty();
    if (!of_model && checkpoint->empty()) throw CLI::RequiredError("--checkpoint or MODEL");
    for (const char* name :
         {"--min_p", "--repetition_penalty", "--stop", "--json_schema", "--grammar", "--speculative_config", "--lora",
          "--tensor_parallel_size", "--kv_cache_dtype", "--kv_cache_gate", "--attention_backend", "--cpu_offload_gb"})
      if (!of_model && !cmd->get_option(name)->empty()) throw CLI::RequiresError(name, "--model");
    if (of_model && !cmd->get_option("--max_repeat")->empty()) throw CLI::RequiresError("--max_repeat", "--checkpoint");
    run = [=]() -> int {
      if (!of_model) return (*of_checkpoint)();
      PythonCommand c("generate", "pyflame.llm", s->python);
      c.add("generate");
      c.add("--model", s->model);
      forward(cmd, c);
      c.start();
    };
  });
}

void add_chat(CLI::App& app, Run& run) {
  CLI::App* cmd = app.add_subcommand("chat", "Talk with a language model in the terminal");
  auto s = std::make_shared<LanguageModelSettings>();
  cmd->add_option("MODEL", s->model, "A GGUF file, a Hugging Face folder, or an installed package with one of these")
      ->required();
  cmd->add_option("--system", s->system, "What the model is told before the first message");
  cmd->add_option("--device", s->device, "Device to run on: cpu, rocm, rocm:1, cuda, ...");
  cmd->add_option(names("max_tokens"), s->max_tokens, "Most tokens of an answer");
  cmd->add_option("--temperature", s->temperature, "0 always takes the most likely token; higher is more varied");
  cmd->add_option(names("top_k"), s->top_k, "Choose only from the k most likely tokens; 0: from all");
  cmd->add_option(names("top_p"), s->top_p,
                  "Choose only from the most likely tokens whose probabilities add up to this");
  cmd->add_option("--seed", s->seed, "Seed of the sampling; the same seed gives the same text");
  add_sampling(cmd, *s);
  cmd->add_flag("--json", s->json, "Print one JSON object for each answer: message, finish_reason, usage, times");
  add_python_option(cmd, s->python);
  cmd->final_callback([&run, cmd, s] {
    run = [=]() -> int {
      PythonCommand c("chat", "pyflame.llm", s->python);
      c.add("chat");
      c.add("--model", s->model);
      forward(cmd, c);
      c.start();
    };
  });
}

namespace {

struct EmbedSettings {
  std::string model, python, device, dtype, pooling, file;
  std::vector<std::string> texts;
  bool raw = false, similarity = false, json = false;
};

// Options that were given, as they were written.
void forward_given(const CLI::App* cmd, std::initializer_list<const char*> names_of, PythonCommand& to) {
  for (const char* name : names_of)
    for (const std::string& value : cmd->get_option(name)->results()) to.add(name, value);
}

}  // namespace

void add_embed(CLI::App& app, Run& run) {
  CLI::App* cmd = app.add_subcommand("embed", "Embeddings of texts: a vector of numbers for each");
  auto s = std::make_shared<EmbedSettings>();
  cmd->add_option("MODEL", s->model, "A Hugging Face folder, a GGUF file, or an installed package with one of these")
      ->required();
  cmd->add_option("TEXT", s->texts, "Texts");
  cmd->add_option("--file", s->file, "A file with a text in each line")->check(CLI::ExistingFile);
  cmd->add_option("--pooling", s->pooling, "How tokens become a vector; default: what the model's files say")
      ->check(CLI::IsMember({"MEAN", "CLS", "LAST"}));
  cmd->add_flag("--raw", s->raw,
                "Vectors as the model computes them; otherwise they have the length 1 if the model's files say so");
  cmd->add_flag("--similarity", s->similarity, "Print the cosine of the angle between each two texts");
  cmd->add_flag("--json", s->json, "With --similarity: print one JSON document; vectors are JSON in any case");
  cmd->add_option("--device", s->device, "Device to run on: cpu, rocm, rocm:1, cuda, ...");
  cmd->add_option("--dtype", s->dtype, "Type of the weights; default: float32")
      ->check(CLI::IsMember({"float32", "float16", "bfloat16"}));
  add_python_option(cmd, s->python);
  cmd->final_callback([&run, cmd, s] {
    run = [=]() -> int {
      PythonCommand c("embed", "pyflame.llm.embed", s->python);
      forward_given(cmd, {"--file", "--pooling", "--device", "--dtype"}, c);
      for (const char* flag : {"--raw", "--similarity", "--json"})
        if (cmd->count(flag) > 0) c.add(flag);
      c.add("--");
      c.add(s->model);
      for (const std::string& text : s->texts) c.add(text);
      c.start();
    };
  });
}

}  // namespace pyflame::apps::cli
