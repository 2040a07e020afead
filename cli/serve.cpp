// `pyflame serve`: a language model behind OpenAI's HTTP API. Python serves it (python/pyflame/llm/serving); this file checks the command line.
#include <CLI/Error.hpp>
#include <CLI/Validators.hpp>
#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "commands.h"
#include "python_command.h"

namespace pyflame::apps::cli {

namespace {

CLI::Range from_one() { return {int64_t{1}, int64_t{1} << 50}; }
CLI::Range seconds() { return {0.0, 1e9}; }

// Targets of the options, which give them their types. What was given is forwarded as it was written.
struct ServeSettings {
  std::string model, python, host, device, dtype, model_name, ssl_certfile, ssl_keyfile;
  std::string speculative_config, runner, pooler_config;
  EngineCacheSettings cache;
  int64_t port = 0, max_model_len = 0, max_num_seqs = 0, max_num_batched_tokens = 0, kv_cache_bytes = 0;
  int64_t tensor_parallel_size = 0, replicas = 0;
  int64_t max_clients = 0, max_choices = 0, max_body_bytes = 0;
  double request_seconds = 0, drain_seconds = 0, swap_space = 0, cpu_offload_gb = 0, gpu_memory_utilization = 0;
  std::vector<std::string> api_key, cors, lora_modules;
  bool json = false, prefix_caching = false, no_prefix_caching = false;
};

void forward_serve(const CLI::App* cmd, PythonCommand& to) {
  constexpr std::array kForwarded = {"host",
                                     "port",
                                     "device",
                                     "dtype",
                                     "model_name",
                                     "api_key",
                                     "cors",
                                     "max_model_len",
                                     "max_num_seqs",
                                     "max_num_batched_tokens",
                                     "kv_cache_bytes",
                                     "gpu_memory_utilization",
                                     "max_clients",
                                     "max_choices",
                                     "max_body_bytes",
                                     "request_seconds",
                                     "drain_seconds",
                                     "ssl_certfile",
                                     "ssl_keyfile",
                                     "lora_modules",
                                     "speculative_config",
                                     "runner",
                                     "pooler_config",
                                     "swap_space",
                                     "replicas",
                                     "tensor_parallel_size",
                                     "kv_cache_dtype",
                                     "kv_cache_gate",
                                     "attention_backend",
                                     "cpu_offload_gb"};
  for (const char* name : kForwarded)
    for (const std::string& value : cmd->get_option(std::string("--") + name)->results())
      to.add((std::string("--") + name).c_str(), value);
  for (const char* name : {"--enable_prefix_caching", "--no_enable_prefix_caching"})
    if (cmd->count(name) > 0) to.add(name);
}

void add_several(CLI::App* cmd, const std::string& name, std::vector<std::string>& target, const std::string& text) {
  cmd->add_option(name, target, text + "; may be given several times")->expected(1)->take_all();
}

void add_engine_options(CLI::App* cmd, ServeSettings& s) {
  cmd->add_option("--device", s.device, "Device to run on: cpu, rocm, rocm:1, cuda, ...");
  cmd->add_option("--dtype", s.dtype, "Type of the weights; default: float32")
      ->check(CLI::IsMember({"float32", "float16", "bfloat16"}));
  cmd->add_option(names("max_model_len"), s.max_model_len,
                  "Most tokens of a text with its prompt; default: the model's context")
      ->check(from_one());
  cmd->add_option(names("max_num_seqs"), s.max_num_seqs,
                  "Most texts that are written at the same time; default: 8, on a GPU 64")
      ->check(from_one());
  cmd->add_option(names("max_num_batched_tokens"), s.max_num_batched_tokens, "Most tokens of a step; default: 512")
      ->check(from_one());
  cmd->add_option(names("kv_cache_bytes"), s.kv_cache_bytes,
                  "Memory for keys and values; default: what the texts need, at most 1 GiB, on a GPU three quarters of "
                  "its free memory")
      ->check(from_one());
  cmd->add_option(names("gpu_memory_utilization"), s.gpu_memory_utilization,
                  "On a GPU, in the place of --kv_cache_bytes: keys and values take this share of its whole memory, "
                  "less all that is in use there")
      ->check(CLI::Range(0.0, 1.0));
  CLI::Option* caching = cmd->add_flag(
      names("enable_prefix_caching"), s.prefix_caching,
      "What was computed for the beginning of one text is used for others that begin alike (the default)");
  cmd->add_flag(names("no_enable_prefix_caching"), s.no_prefix_caching,
                "Nothing that was computed for one text is used for another")
      ->excludes(caching);
  add_cache_options(cmd, s.cache);
  cmd->add_option(names("swap_space"), s.swap_space,
                  "GiB of host memory for keys and values of texts that make room for others; default: 0, they are "
                  "computed again")
      ->check(CLI::Range(0.0, 1e6));
  add_offload_option(cmd, s.cpu_offload_gb);
  cmd->add_option(names("tensor_parallel_size"), s.tensor_parallel_size,
                  "Processes that compute each step together, each with its part of the weights; default: 1")
      ->check(from_one());
  cmd->add_option("--replicas", s.replicas,
                  "Engines, each in a process of its own with all weights, over which requests are divided; default: 1")
      ->check(from_one());
}

void add_model_options(CLI::App* cmd, ServeSettings& s) {
  cmd->add_option("--runner", s.runner, "What the model is for: texts, or embeddings; default: auto, by its files")
      ->check(CLI::IsMember({"auto", "generate", "pooling"}));
  cmd->add_option(names("pooler_config"), s.pooler_config,
                  "How tokens become an embedding, a JSON object such as {\"pooling_type\": \"MEAN\"}");
  cmd->add_option(names("speculative_config"), s.speculative_config,
                  "Drafts of tokens, a JSON object such as {\"method\": \"ngram\", \"num_speculative_tokens\": 4}");
  add_several(cmd, names("lora_modules"), s.lora_modules,
              "NAME=FOLDER: an adapter (LoRA) of PEFT, which requests choose by this name of a model");
}

void add_limits(CLI::App* cmd, ServeSettings& s) {
  cmd->add_option(names("max_clients"), s.max_clients, "Most open connections; default: 1024")->check(from_one());
  cmd->add_option(names("max_choices"), s.max_choices, "Most texts that are written or wait; default: 1024")
      ->check(from_one());
  cmd->add_option(names("max_body_bytes"), s.max_body_bytes, "Most bytes of a request's body; default: 4194304")
      ->check(from_one());
  cmd->add_option(names("request_seconds"), s.request_seconds, "Most seconds of a request; 0: no limit; default: 600")
      ->check(seconds());
  cmd->add_option(names("drain_seconds"), s.drain_seconds,
                  "At SIGINT or SIGTERM, answers have so many seconds to end; default: 30")
      ->check(seconds());
}

}  // namespace

void add_serve(CLI::App& app, Run& run) {
  CLI::App* cmd = app.add_subcommand("serve", "Serve a language model with OpenAI's HTTP API");
  auto s = std::make_shared<ServeSettings>();
  cmd->add_option("MODEL", s->model, "A GGUF file or a Hugging Face folder")->required();
  cmd->add_option("--host", s->host, "Address to listen at; default: 127.0.0.1, which only this machine reaches");
  cmd->add_option("--port", s->port, "Port; 0: any free one; default: 8000")->check(CLI::Range(0, 65535));
  cmd->add_option(names("model_name"), s->model_name,
                  "Name in requests and answers; default: that of the file or folder");
  add_several(cmd, names("api_key"), s->api_key, "A key that requests need; PYFLAME_API_KEY hides it from `ps`");
  add_several(cmd, "--cors", s->cors, "Origin of web pages that may use the server, or *");
  cmd->add_option(names("ssl_certfile"), s->ssl_certfile, "File with the certificate (PEM): the server speaks HTTPS")
      ->check(CLI::ExistingFile);
  cmd->add_option(names("ssl_keyfile"), s->ssl_keyfile,
                  "File with the certificate's key, if it is not in the same file")
      ->check(CLI::ExistingFile);
  add_engine_options(cmd, *s);
  add_model_options(cmd, *s);
  add_limits(cmd, *s);
  cmd->add_flag("--json", s->json, "Write the log to standard output, one JSON object for each line");
  cmd->add_option(
      "--python", s->python,
      "The Python interpreter that has the package; default: PYFLAME_PYTHON, or the one beside this program");
  cmd->final_callback([&run, cmd, s] {
    run = [=]() -> int {
      PythonCommand c("serve", "pyflame.llm.serving", s->python);
      c.add("--model", s->model);
      forward_serve(cmd, c);
      if (s->json) c.add("--json");
      c.start();
    };
  });
}

}  // namespace pyflame::apps::cli
