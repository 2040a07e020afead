// Language models for C++ programs: LLM, SamplingParams and their results, by the names of Python's pf.llm. The models are computed by the
// Python package, in a process that an LLM starts and ends; the program exchanges messages with it. So a program needs an interpreter that has
// the package: LLMOptions::python or the environment variable PYFLAME_PYTHON names it, otherwise it is the python3 beside the program, or the
// first one on PATH. Texts are UTF-8.
#pragma once
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <map>
#include <memory>
#include <optional>
#include <ranges>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace pyflame::llm {

// Python's None, where it is a value of a setting: `params.max_tokens = none` writes up to the end of the context.
struct None {};
inline constexpr None none;

// A value, or None.
template <class T>
class OrNone {
 public:
  OrNone(None) {}
  OrNone(T value) : value_(std::move(value)) {}
  const std::optional<T>& value() const { return value_; }

 private:
  std::optional<T> value_;
};

// The text of a JSON value, for settings that are dicts in Python: R"({"regex": "[ab]+"})".
struct Json {
  Json(std::string json) : text(std::move(json)) {}
  Json(const char* json) : text(json) {}
  std::string text;
};

// Names with texts, such as adapters with their folders; tokens with what is added to their logits.
using Texts = std::map<std::string, std::string>;
using Biases = std::map<int64_t, double>;

// The settings have the names, meanings and defaults of Python's LLM. Those that are not set have Python's defaults.
struct LLMOptions {
#define LLM_OPTION(type, name) type name = {};
#include "pyflame/llm/fields.def"
  std::string python = {};  // the interpreter that has the package; empty: PYFLAME_PYTHON, and then as said above
};

// How a text is written: the fields of Python's SamplingParams, with its defaults.
struct SamplingParams {
#define SAMPLING_PARAM(type, name) type name = {};
#include "pyflame/llm/fields.def"
};

// How embeddings are made: the fields of Python's PoolingParams, with its defaults.
struct PoolingParams {
#define POOLING_PARAM(type, name) type name = {};
#include "pyflame/llm/fields.def"
};

// How beams are searched: the fields of Python's BeamSearchParams, with its defaults. beam_width and max_tokens must be
// set.
struct BeamSearchParams {
#define BEAM_SEARCH_PARAM(type, name) type name = {};
#include "pyflame/llm/fields.def"
};

// A text, or token ids.
class Prompt {
 public:
  Prompt(const char* text) : value_(std::string(text)) {}
  Prompt(std::string text) : value_(std::move(text)) {}
  Prompt(std::vector<int64_t> token_ids) : value_(std::move(token_ids)) {}
  Prompt(std::initializer_list<int64_t> token_ids) : value_(std::vector<int64_t>(token_ids)) {}
  Prompt(std::nullptr_t) = delete;
  const std::variant<std::string, std::vector<int64_t>>& value() const { return value_; }

 private:
  std::variant<std::string, std::vector<int64_t>> value_;
};

// One prompt or several: {"a", "b"}, "a", a std::vector<std::string>, or any range of what a Prompt is made of.
class Prompts {
 public:
  Prompts(std::initializer_list<Prompt> prompts) : list_(prompts) {}
  Prompts(const char* text) : list_{Prompt(text)} {}
  Prompts(std::string text) : list_{Prompt(std::move(text))} {}
  Prompts(Prompt prompt) : list_{std::move(prompt)} {}
  template <std::ranges::input_range Range>
  requires std::convertible_to<std::ranges::range_reference_t<const Range>, Prompt> Prompts(const Range& prompts)
      : list_(std::ranges::begin(prompts), std::ranges::end(prompts)) {}
  const std::vector<Prompt>& list() const { return list_; }

 private:
  std::vector<Prompt> list_;
};

// A message of a conversation. role: "system", "user" or "assistant", or what else the model's chat template knows.
struct Message {
  std::string role, content;
};

// log p of a token by the model's own logits. rank: 1 is the likeliest; none where the token is not among those that
// were asked for.
struct Logprob {
  double logprob = 0;
  std::optional<int64_t> rank = {};
  std::optional<std::string> decoded_token = {};
};

// One text. token_ids: without the token that ended it. finish_reason: "stop", "length", or "cancelled" where the
// program said so. logprobs: for each token those that SamplingParams::logprobs asked for, and its own. stop_reason:
// the stop text, or the id of SamplingParams::stop_token_ids, that ended it; none where it is another end.
struct CompletionOutput {
  int64_t index = 0;
  std::string text = {};
  std::vector<int64_t> token_ids = {};
  std::string finish_reason = {};
  std::optional<double> cumulative_logprob = {};
  std::optional<std::vector<std::map<int64_t, Logprob>>> logprobs = {};
  std::optional<std::variant<int64_t, std::string>> stop_reason = {};
};

// What a prompt became. prompt: its text, if it was one. num_generation_tokens: how many tokens were written for it,
// those of texts that best_of left out included. request_id: the number of the prompt among all of its LLM, as text.
// finished: false where the program cancelled the call. num_cached_tokens: how many tokens of the prompt had been
// computed before, for other texts; none where the prompt was never read. prompt_logprobs: for each token of the prompt
// those that SamplingParams::prompt_logprobs asked for, and its own; an empty map for the first token, which follows
// nothing.
struct RequestOutput {
  std::optional<std::string> prompt = {};
  std::vector<int64_t> prompt_token_ids = {};
  std::vector<CompletionOutput> outputs = {};
  int64_t num_generation_tokens = 0;
  std::string request_id = {};
  bool finished = false;
  std::optional<int64_t> num_cached_tokens = {};
  std::optional<std::vector<std::map<int64_t, Logprob>>> prompt_logprobs = {};
};

// A text that a beam search found. tokens: the prompt, what was written, and the token that ended it, if one did.
// cum_logprob: the sum of log p of what was written. text: of the tokens; none without a tokenizer. finish_reason:
// "stop" or "length".
struct BeamSearchSequence {
  std::vector<int64_t> tokens = {};
  double cum_logprob = 0;
  std::optional<std::string> text = {};
  std::string finish_reason = {};
};

// What a beam search found for a prompt: at most beam_width texts, that with the highest score first.
struct BeamSearchOutput {
  std::vector<BeamSearchSequence> sequences = {};
};

// A vector of a text.
struct EmbeddingOutput {
  std::vector<float> embedding = {};
};

// What a prompt became by embed().
struct EmbeddingRequestOutput {
  std::vector<int64_t> prompt_token_ids = {};
  EmbeddingOutput outputs = {};
};

// What is new of a text. prompt: the place of its prompt among those of the call; index: that of the text among the
// texts of its prompt. The last piece of a text has its finish_reason. A piece never ends inside of a character, and
// never contains a part of a stop text.
struct Piece {
  size_t prompt = 0;
  int64_t index = 0;
  std::string text = {};
  std::vector<int64_t> token_ids = {};
  std::string finish_reason = {};
};

// Gets the pieces of a call's texts as they are written, on the thread of the call. False ends these texts: the call
// returns what was written until then, with the finish_reason "cancelled". So does an exception, which the call then
// raises.
using OnPiece = std::function<bool(const Piece&)>;

// What a call may say besides. lora_request: the name of an adapter of LLMOptions::lora_modules; priority: a number for
// each prompt: of texts that wait, those with the lowest number are begun first. The others are for chat() alone. tools:
// a list of functions in OpenAI's form, for chat templates that take them; add_generation_prompt: whether the template
// begins an answer; continue_final_message: whether the text goes on with the last message; chat_template_kwargs: a dict
// of further names of the template.
struct CallOptions {
  std::optional<std::string> lora_request = {};
  std::vector<int64_t> priority = {};
  std::optional<Json> tools = {};
  std::optional<bool> add_generation_prompt = {};
  std::optional<bool> continue_final_message = {};
  std::optional<Json> chat_template_kwargs = {};
};

// A vector, an array or a span of settings, one for each prompt of a call.
template <class Range>
concept SamplingParamsOfEach = std::ranges::contiguous_range<Range> && std::ranges::sized_range<Range> &&
    std::same_as<std::ranges::range_value_t<Range>, SamplingParams>;

// A language model. Several threads may call its methods at the same time; the engine writes all their texts together.
// A pyflame::Error has the kind and the message of the Python error. If the process of the model has ended, each call
// raises a RuntimeError with the last lines that it printed. The object belongs to the process that made it, not to one
// that fork() made of it.
class LLM {
 public:
  // model: a GGUF file, a folder in Hugging Face's layout, or the name of an installed package with one of these.
  // Returns when the model is loaded.
  explicit LLM(const std::string& model, const LLMOptions& options = {});
  // Ends the process and waits for its end; no call may be running in another thread.
  ~LLM();
  LLM(LLM&&) noexcept;
  LLM& operator=(LLM&&) noexcept;

  // The texts that follow prompts, in their order. Without params they are written with the settings of the model's
  // files.
  std::vector<RequestOutput> generate(const Prompts& prompts);
  std::vector<RequestOutput> generate(const Prompts& prompts, const SamplingParams& params,
                                      const OnPiece& on_piece = nullptr, const CallOptions& options = {});
  template <SamplingParamsOfEach Each>
  std::vector<RequestOutput> generate(const Prompts& prompts, const Each& params, const OnPiece& on_piece = nullptr,
                                      const CallOptions& options = {}) {
    return generate_each(prompts, std::span<const SamplingParams>(params), on_piece, options);
  }
  // The answer to a conversation, by the model's chat template.
  RequestOutput chat(const std::vector<Message>& messages);
  RequestOutput chat(const std::vector<Message>& messages, const SamplingParams& params,
                     const OnPiece& on_piece = nullptr, const CallOptions& options = {});
  // The answers to several conversations, in their order.
  std::vector<RequestOutput> chat(std::span<const std::vector<Message>> conversations, const SamplingParams& params,
                                  const OnPiece& on_piece = nullptr, const CallOptions& options = {});
  template <SamplingParamsOfEach Each>
  std::vector<RequestOutput> chat(std::span<const std::vector<Message>> conversations, const Each& params,
                                  const OnPiece& on_piece = nullptr, const CallOptions& options = {}) {
    return chat_each(conversations, std::span<const SamplingParams>(params), on_piece, options);
  }
  // The likeliest texts that follow prompts, as far as a search finds them, in the prompts' order.
  std::vector<BeamSearchOutput> beam_search(const Prompts& prompts, const BeamSearchParams& params,
                                            const CallOptions& options = {});
  // The embeddings of texts, of a model for embeddings (LLMOptions::runner "pooling", or "auto" and an encoder).
  std::vector<EmbeddingRequestOutput> embed(const Prompts& prompts, const PoolingParams& params = {});
  // Ends the process and waits for its end. Calls that run in other threads, and later ones, raise a RuntimeError. A
  // second call does nothing.
  void close();

 private:
  class Connection;
  Connection& open() const;
  std::vector<RequestOutput> generate_each(const Prompts& prompts, std::span<const SamplingParams> params,
                                           const OnPiece& on_piece, const CallOptions& options);
  std::vector<RequestOutput> chat_each(std::span<const std::vector<Message>> conversations,
                                       std::span<const SamplingParams> params, const OnPiece& on_piece,
                                       const CallOptions& options);
  std::unique_ptr<Connection> connection_;
};

}  // namespace pyflame::llm
