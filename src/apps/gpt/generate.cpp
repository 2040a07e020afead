// `pyflame generate`: prints text from a trained model, token by token.
#include <fmt/core.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "apps/gpt/commands.h"
#include "apps/gpt/trainer.h"
#include "pyflame/base/philox.h"
#include "pyflame/runtime/device.h"

namespace pyflame::apps::gpt {

namespace {

struct GenerateSettings {
  std::string checkpoint, prompt = "\n", device = "cpu";
  int64_t max_tokens = 500;
  int64_t max_repeat = 40;
  Sampling sampling{.temperature = 0.8, .top_k = 0, .top_p = 1.0, .seed = 1337};
  bool json = false;
};

// Offset of the random numbers for sampling: far from those of the global generator and of the batches.
constexpr uint64_t kStream = uint64_t{3} << 62;

void put(const std::string& text) {
  PF_CHECK(std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0, OS,
           "generate: cannot write the text to the output");
}

// Small models fall into runs of one character (indentation above all) that temperatures below 1 never leave: once the context is
// nothing but blanks, a blank is the most likely next one. A limit on the length of a run ends it.
class RunLimit {
 public:
  explicit RunLimit(int64_t limit) : limit_(limit) {}
  void see(int64_t token) {
    length_ = token == last_ ? length_ + 1 : 1;
    last_ = token;
  }
  void apply(std::vector<float>& logits) const {
    if (limit_ > 0 && length_ >= limit_ && logits.size() > 1) logits[static_cast<size_t>(last_)] = -INFINITY;
  }

 private:
  int64_t limit_, last_ = -1, length_ = 0;
};

using Clock = std::chrono::steady_clock;

// What is known of a text: the fields are those of python/pyflame/llm. It never ends before max_tokens, because a GPT of `train gpt` has no end token.
class Written {
 public:
  explicit Written(bool shown) : shown_(shown) {}
  void add(data::Token token, const std::string& text) {
    last_ = Clock::now();
    if (tokens_.empty()) first_ = last_;
    tokens_.push_back(token);
    add(text);
  }
  void add(const std::string& text) {
    if (shown_) put(text);
    else text_ += text;
  }
  size_t size() const { return tokens_.size(); }
  double seconds() const { return between(start_, Clock::now()); }
  std::string object(const GenerateSettings& s, const std::vector<data::Token>& prompt) const {
    const double writing = between(first_, last_);
    nlohmann::ordered_json j = {
        {"object", "text_completion"}, {"model", s.checkpoint},      {"prompt", s.prompt},  {"text", text_},
        {"finish_reason", "length"},   {"prompt_token_ids", prompt}, {"token_ids", tokens_}};
    j["usage"] = {
        {"prompt_tokens", prompt.size()}, {"completion_tokens", size()}, {"total_tokens", prompt.size() + size()}};
    j["seconds"] = seconds();
    j["seconds_to_first_token"] = nullptr;
    j["tokens_per_second"] = nullptr;
    if (size() > 0) j["seconds_to_first_token"] = between(start_, first_);
    if (writing > 0) j["tokens_per_second"] = static_cast<double>(size() - 1) / writing;
    return j.dump(-1, ' ', true, nlohmann::ordered_json::error_handler_t::replace) + "\n";
  }

 private:
  static double between(Clock::time_point a, Clock::time_point b) {
    return std::chrono::duration<double>(b - a).count();
  }
  bool shown_;
  std::string text_;
  std::vector<data::Token> tokens_;
  Clock::time_point start_ = Clock::now(), first_ = start_, last_ = start_;
};

int generate(const GenerateSettings& s) {
  s.sampling.check();
  PF_CHECK(s.max_tokens >= 0, Value, "generate: max_tokens must not be negative; got {}", s.max_tokens);
  PF_CHECK(s.max_repeat >= 0, Value, "generate: max_repeat must not be negative; got {}; 0 switches it off",
           s.max_repeat);
  PF_CHECK(!s.prompt.empty(), Value, "generate: the prompt is empty; expected at least one character");
  set_current_device(parse_device(s.device));
  const TrainedGpt trained = load_trained_gpt(checkpoint_path(s.checkpoint));
  const std::vector<data::Token> prompt = trained.tokenizer.encode(s.prompt);
  Generator generator(*trained.model);
  if (static_cast<int64_t>(prompt.size()) > trained.model->config.block_size) {
    fmt::print(stderr, "pyflame: the prompt has {} tokens; the context holds {}; only the last {} are used\n",
               prompt.size(), trained.model->config.block_size,
               std::max<int64_t>(1, trained.model->config.block_size / 2));
  }
  catch_interrupts();
  if (!s.json) put(s.prompt);
  data::Utf8Stream stream;
  std::vector<int64_t> next(prompt.begin(), prompt.end());
  RunLimit runs(s.max_repeat);
  for (int64_t token : next) runs.see(token);
  Written written(!s.json);
  for (int64_t made = 0; made < s.max_tokens && !interrupted(); ++made) {
    std::vector<float> logits = generator.feed(next);
    runs.apply(logits);
    const double u = philox_uniform_f64(philox_element64(s.sampling.seed, kStream, made));
    const int64_t token = sample_token(logits, s.sampling, u);
    const auto id = static_cast<data::Token>(token);
    written.add(id, stream.push(trained.tokenizer.decode(id)));
    next = {token};
    runs.see(token);
  }
  written.add(stream.finish());
  if (s.json) {
    if (!interrupted()) put(written.object(s, prompt));
    return interrupted() ? kInterrupted : kOk;
  }
  put("\n");
  const double seconds = written.seconds();
  fmt::print(stderr, "{} tokens, {:.0f} tokens/s\n", written.size(),
             seconds > 0 ? static_cast<double>(written.size()) / seconds : 0.0);
  return interrupted() ? kInterrupted : kOk;
}

}  // namespace

std::string checkpoint_path(const std::string& file_or_folder) {
  std::error_code ec;
  const std::filesystem::path p(file_or_folder);
  if (!std::filesystem::is_directory(p, ec)) {
    PF_CHECK(std::filesystem::exists(p, ec), OS,
             "'{}' does not exist; expected a checkpoint or the folder of a run; hint: the name of a language model "
             "stands without --checkpoint",
             file_or_folder);
    return file_or_folder;
  }
  std::string file = (p / kCheckpointName).string();
  PF_CHECK(std::filesystem::exists(file, ec), OS, "the folder '{}' has no {}; expected the folder of a run",
           file_or_folder, kCheckpointName);
  return file;
}

void add_generate(CLI::App& app, Run& run) {
  CLI::App* sub = app.add_subcommand("generate", "Write text with a trained model");
  auto s = std::make_shared<GenerateSettings>();
  const auto option = [&](const char* name, auto& target, const char* text) {
    return sub->add_option(names(name), target, text)
        ->capture_default_str()
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  };
  option("checkpoint", s->checkpoint, "A run's folder, or a checkpoint file")->required();
  option("device", s->device, "Device to run on: cpu, rocm, rocm:1, cuda, ...");
  sub->add_option("--prompt", s->prompt, "Text to continue (default: an empty line)");
  option("max_tokens", s->max_tokens, "Tokens to write");
  option("temperature", s->sampling.temperature, "0 always takes the most likely token; higher is more varied");
  option("top_k", s->sampling.top_k, "Choose only from the k most likely tokens; 0: from all");
  option("top_p", s->sampling.top_p, "Choose only from the most likely tokens whose probabilities add up to this");
  option("max_repeat", s->max_repeat, "With --checkpoint: most times in a row that one token may occur; 0: no limit");
  option("seed", s->sampling.seed, "Seed of the sampling; the same seed gives the same text");
  sub->add_flag("--json", s->json,
                "Print one JSON object when the text is written: prompt, text, finish_reason, usage, times");
  sub->callback([&run, s] { run = [s] { return generate(*s); }; });
}

}  // namespace pyflame::apps::gpt
