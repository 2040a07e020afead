// Requests to the process of the model as JSON, and its answers as results. python/pyflame/llm/_cpp_host.py describes the messages.
#include "pyflame/llm/language_model.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cmath>
#include <condition_variable>
#include <cstdlib>
#include <deque>
#include <exception>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string_view>
#include <type_traits>
#include <unordered_map>

#include "pyflame/base/error.h"
#include "pyflame/base/python.h"
#include "pyflame/data/tokenizer.h"
#include "pyflame/llm/process.h"
#include "pyflame/version.h"

namespace pyflame::llm {

namespace {

using json = nlohmann::json;

// --- settings and prompts as JSON. `op`: who takes them.

const std::string& checked_text(const char* op, const char* name, const std::string& text) {
  const size_t valid = data::count_utf8(text);
  PF_CHECK(valid == text.size(), Value, "{}: {} is not UTF-8; got 0x{:02x} at byte {}; expected UTF-8", op, name,
           static_cast<unsigned>(static_cast<unsigned char>(text[valid])), valid);
  return text;
}

json to_json(const char*, const char*, bool value) { return value; }
json to_json(const char*, const char*, int64_t value) { return value; }
json to_json(const char* op, const char* name, double value) {
  PF_CHECK(std::isfinite(value), Value, "{}: {} is not finite; got {}; expected a number", op, name, value);
  return value;
}
json to_json(const char* op, const char* name, const std::string& value) { return checked_text(op, name, value); }
json to_json(const char* op, const char* name, const Json& value) {
  json found = json::parse(value.text, nullptr, /*allow_exceptions=*/false);
  PF_CHECK(!found.is_discarded(), Value, "{}: {} is not JSON; got '{}'; expected a JSON value, such as {{\"a\": 1}}",
           op, name, value.text);
  return found;
}
template <class T>
json to_json(const char* op, const char* name, const OrNone<T>& value) {
  return value.value() ? to_json(op, name, *value.value()) : json(nullptr);
}
template <class T>
json to_json(const char* op, const char* name, const std::vector<T>& values) {
  json found = json::array();
  for (const T& value : values) found.push_back(to_json(op, name, value));
  return found;
}
template <class Key, class T>
json to_json(const char* op, const char* name, const std::map<Key, T>& values) {
  json found = json::object();
  for (const auto& [key, value] : values) {
    if constexpr (std::is_same_v<Key, std::string>) found[checked_text(op, name, key)] = to_json(op, name, value);
    else found[std::to_string(key)] = to_json(op, name, value);
  }
  return found;
}

// Sets a field that the program has set.
template <class T>
void put(json& to, const char* op, const char* name, const std::optional<T>& value) {
  if (value) to[name] = to_json(op, name, *value);
}
template <class T>
void put(json& to, const char* op, const char* name, const T& value) {
  if (!value.empty()) to[name] = to_json(op, name, value);
}

json fields_of(const LLMOptions& o) {
  json found = json::object();
#define LLM_OPTION(type, name) put(found, "LLM", #name, o.name);
#include "pyflame/llm/fields.def"
  return found;
}
json fields_of(const SamplingParams& p) {
  json found = json::object();
#define SAMPLING_PARAM(type, name) put(found, "SamplingParams", #name, p.name);
#include "pyflame/llm/fields.def"
  return found;
}
json fields_of(const PoolingParams& p) {
  json found = json::object();
#define POOLING_PARAM(type, name) put(found, "PoolingParams", #name, p.name);
#include "pyflame/llm/fields.def"
  return found;
}
json fields_of(const BeamSearchParams& p) {
  json found = json::object();
#define BEAM_SEARCH_PARAM(type, name) put(found, "BeamSearchParams", #name, p.name);
#include "pyflame/llm/fields.def"
  return found;
}
json fields_of(std::span<const SamplingParams> each) {
  json found = json::array();
  for (const SamplingParams& p : each) found.push_back(fields_of(p));
  return found;
}

json prompts_of(const char* op, const Prompts& prompts) {
  json found = json::array();
  for (const Prompt& p : prompts.list())
    found.push_back(std::visit([op](const auto& value) { return to_json(op, "a prompt", value); }, p.value()));
  return found;
}

json conversations_of(std::span<const std::vector<Message>> conversations) {
  json found = json::array();
  for (const std::vector<Message>& messages : conversations) {
    json conversation = json::array();
    for (const Message& m : messages)
      conversation.push_back(json{{"role", checked_text("chat", "a role", m.role)},
                                  {"content", checked_text("chat", "a message", m.content)}});
    found.push_back(std::move(conversation));
  }
  return found;
}

// The options of a call that chat() alone takes.
json chat_options_of(const CallOptions& options) {
  json found = json::object();
  put(found, "chat", "tools", options.tools);
  put(found, "chat", "add_generation_prompt", options.add_generation_prompt);
  put(found, "chat", "continue_final_message", options.continue_final_message);
  put(found, "chat", "chat_template_kwargs", options.chat_template_kwargs);
  return found;
}

// params: null, or settings for all texts or for each.
json request_of(const char* op, json params, const OnPiece& on_piece, const CallOptions& options) {
  json request{{"op", op}, {"stream", on_piece != nullptr}};
  if (!params.is_null()) request["params"] = std::move(params);
  put(request, op, "lora_request", options.lora_request);
  put(request, op, "priority", options.priority);
  return request;
}

json texts_request(const char* op, const Prompts& prompts, json params, const OnPiece& on_piece,
                   const CallOptions& options) {
  const json others = chat_options_of(options);
  PF_CHECK(others.empty(), Value, "{}: an option is for chat() alone; got {}; expected none of the chat template", op,
           others.empty() ? "" : others.begin().key());
  json request = request_of(op, std::move(params), on_piece, options);
  request["prompts"] = prompts_of(op, prompts);
  return request;
}

json chat_request(std::span<const std::vector<Message>> conversations, json params, const OnPiece& on_piece,
                  const CallOptions& options) {
  json request = request_of("chat", std::move(params), on_piece, options);
  request.update(chat_options_of(options));
  request["conversations"] = conversations_of(conversations);
  return request;
}

// --- answers

double number(const json& value) {
  return value.is_string() ? std::strtod(value.get_ref<const std::string&>().c_str(), nullptr) : value.get<double>();
}

template <class T>
std::optional<T> or_none(const json& value) {
  return value.is_null() ? std::nullopt : std::optional<T>(value.get<T>());
}

std::map<int64_t, Logprob> logprobs_of(const json& position) {
  std::map<int64_t, Logprob> found;
  for (const json& p : position)
    found[p[0].get<int64_t>()] = {number(p[1]), or_none<int64_t>(p[2]), or_none<std::string>(p[3])};
  return found;
}

std::optional<std::vector<std::map<int64_t, Logprob>>> all_logprobs_of(const json& positions) {
  if (positions.is_null()) return std::nullopt;
  std::vector<std::map<int64_t, Logprob>> found;
  for (const json& position : positions) found.push_back(logprobs_of(position));
  return found;
}

CompletionOutput text_of(const json& o) {
  CompletionOutput found{.index = o.at("index").get<int64_t>(),
                         .text = o.at("text").get<std::string>(),
                         .token_ids = o.at("token_ids").get<std::vector<int64_t>>(),
                         .finish_reason = o.at("finish_reason").get<std::string>()};
  if (const json& sum = o.at("cumulative_logprob"); !sum.is_null()) found.cumulative_logprob = number(sum);
  found.logprobs = all_logprobs_of(o.at("logprobs"));
  if (const json& reason = o.at("stop_reason"); reason.is_string()) found.stop_reason = reason.get<std::string>();
  else if (!reason.is_null()) found.stop_reason = reason.get<int64_t>();
  return found;
}

RequestOutput output_of(const json& r) {
  RequestOutput found{.prompt = or_none<std::string>(r.at("prompt")),
                      .prompt_token_ids = r.at("prompt_token_ids").get<std::vector<int64_t>>(),
                      .num_generation_tokens = r.at("num_generation_tokens").get<int64_t>(),
                      .request_id = r.at("request_id").get<std::string>(),
                      .finished = r.at("finished").get<bool>(),
                      .num_cached_tokens = or_none<int64_t>(r.at("num_cached_tokens")),
                      .prompt_logprobs = all_logprobs_of(r.at("prompt_logprobs"))};
  for (const json& o : r.at("outputs")) found.outputs.push_back(text_of(o));
  return found;
}

BeamSearchOutput beams_of(const json& r) {
  BeamSearchOutput found;
  for (const json& s : r)
    found.sequences.push_back({s.at("tokens").get<std::vector<int64_t>>(), number(s.at("cum_logprob")),
                               or_none<std::string>(s.at("text")), s.at("finish_reason").get<std::string>()});
  return found;
}

EmbeddingRequestOutput embedding_of(const json& r) {
  return {r.at("prompt_token_ids").get<std::vector<int64_t>>(), {r.at("embedding").get<std::vector<float>>()}};
}

Piece piece_of(const json& p) {
  return {p.at("prompt").get<size_t>(), p.at("index").get<int64_t>(), p.at("text").get<std::string>(),
          p.at("token_ids").get<std::vector<int64_t>>(), or_none<std::string>(p.at("finish_reason")).value_or("")};
}

ErrorKind kind_of(const std::string& name) {
  constexpr std::array kKinds{std::pair{"Value", ErrorKind::Value},
                              std::pair{"Type", ErrorKind::Type},
                              std::pair{"Index", ErrorKind::Index},
                              std::pair{"Key", ErrorKind::Key},
                              std::pair{"Runtime", ErrorKind::Runtime},
                              std::pair{"NotImplemented", ErrorKind::NotImplemented},
                              std::pair{"OutOfMemory", ErrorKind::OutOfMemory},
                              std::pair{"OS", ErrorKind::OS},
                              std::pair{"Device", ErrorKind::Device}};
  for (const auto& [known, kind] : kKinds)
    if (name == known) return kind;
  return ErrorKind::Runtime;
}

// The answers to one request, which the thread that reads them puts here.
class Answers {
 public:
  void put(json answer) {
    const std::lock_guard lock(mutex_);
    answers_.push_back(std::move(answer));
    changed_.notify_one();
  }
  json take() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return !answers_.empty(); });
    json first = std::move(answers_.front());
    answers_.pop_front();
    return first;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<json> answers_;
};

}  // namespace

// The process with the requests that wait for it.
class LLM::Connection {
 public:
  explicit Connection(const std::string& python)
      : process_(
            python_interpreter(python), "pyflame.llm._cpp_host", [this](std::string_view m) { receive(m); },
            [this](const std::string& how) { fail_all(how); }) {}

  // The items of the answer to a request.
  std::vector<json> ask(json request, const OnPiece& on_piece = nullptr);

  // Ends the process and waits for its end.
  void close() {
    std::unique_lock lock(mutex_);
    closed_ = true;
    process_.finish();
    ended_.wait(lock, [this] { return end_.has_value(); });
  }

  bool is_of_this_process() const { return owner_ == getpid(); }

 private:
  std::shared_ptr<Answers> add(int64_t id);
  void remove(int64_t id);
  void receive(std::string_view message);
  void fail_all(const std::string& how);
  json failure() const;

  const pid_t owner_ = getpid();
  std::atomic<int64_t> ids_ = 0;
  std::mutex mutex_;
  bool closed_ = false;
  std::optional<std::string> end_;  // how the process has ended
  std::condition_variable ended_;
  std::unordered_map<int64_t, std::shared_ptr<Answers>> waiting_;
  Process process_;  // last: its thread uses the others
};

json LLM::Connection::failure() const {
  const std::string said =
      closed_ ? "LLM: it is closed; got a call that close() has ended, or a later one; expected its end before close()"
              : fmt::format(
                    "LLM: the process of the model {}; expected it to run until close(); hint: PYFLAME_PYTHON, or "
                    "the option python, names an interpreter that has the package pyflame",
                    *end_);
  return {{"kind", "Runtime"}, {"error", said}};
}

std::shared_ptr<Answers> LLM::Connection::add(int64_t id) {
  auto answers = std::make_shared<Answers>();
  const std::lock_guard lock(mutex_);
  if (closed_ || end_) answers->put(failure());
  else waiting_[id] = answers;
  return answers;
}

void LLM::Connection::remove(int64_t id) {
  const std::lock_guard lock(mutex_);
  waiting_.erase(id);
}

void LLM::Connection::receive(std::string_view message) {
  json answer = json::parse(message);
  const std::lock_guard lock(mutex_);
  if (closed_) return;  // the calls end with the process
  const auto found = waiting_.find(answer.at("id").get<int64_t>());
  if (found != waiting_.end()) found->second->put(std::move(answer));
}

void LLM::Connection::fail_all(const std::string& how) {
  const std::lock_guard lock(mutex_);
  end_ = how;
  for (const auto& [id, answers] : waiting_) answers->put(failure());
  waiting_.clear();
  ended_.notify_all();
}

std::vector<json> LLM::Connection::ask(json request, const OnPiece& on_piece) {
  const int64_t id = ++ids_;
  request["id"] = id;
  const std::string message = request.dump();
  const std::shared_ptr<Answers> answers = add(id);
  std::vector<json> items;
  std::exception_ptr raised;
  bool goes_on = true;
  const auto hand_over = [&](const json& piece) {
    try {
      goes_on = on_piece(piece_of(piece));
    } catch (...) {
      goes_on = false;
      raised = std::current_exception();
    }
    if (!goes_on) process_.send(json{{"id", id}, {"op", "cancel"}}.dump());
  };
  process_.send(message);
  while (true) {
    json answer = answers->take();
    if (answer.contains("piece")) {
      if (goes_on) hand_over(answer["piece"]);
    } else if (answer.contains("item")) {
      items.push_back(std::move(answer["item"]));
    } else {
      remove(id);
      if (raised) std::rethrow_exception(raised);
      if (answer.contains("error"))
        fail(kind_of(answer["kind"].get<std::string>()), answer["error"].get<std::string>());
      return items;
    }
  }
}

namespace {

template <class Result>
std::vector<Result> results(const std::vector<json>& items, Result (*of)(const json&)) {
  std::vector<Result> found;
  for (const json& item : items) found.push_back(of(item));
  return found;
}

}  // namespace

LLM::LLM(const std::string& model, const LLMOptions& options) {
  const json request{{"op", "open"},
                     {"version", PYFLAME_VERSION},
                     {"model", checked_text("LLM", "the path of the model", model)},
                     {"options", fields_of(options)}};
  connection_ = std::make_unique<Connection>(options.python);
  connection_->ask(request);
}

LLM::~LLM() {
  if (connection_ && !connection_->is_of_this_process())
    static_cast<void>(connection_.release());  // fork() made a copy, which has no thread
}

LLM::LLM(LLM&&) noexcept = default;
LLM& LLM::operator=(LLM&& other) noexcept {
  std::swap(connection_, other.connection_);
  return *this;
}

LLM::Connection& LLM::open() const {
  PF_CHECK(connection_, Runtime, "LLM: there is no model; got an object that was moved from; expected the other one");
  PF_CHECK(
      connection_->is_of_this_process(), Runtime,
      "LLM: the model belongs to another process; got a call in a process that fork() made; expected one where the "
      "LLM was made; hint: make an LLM after the fork");
  return *connection_;
}

std::vector<RequestOutput> LLM::generate(const Prompts& prompts) {
  return results(open().ask(texts_request("generate", prompts, nullptr, nullptr, {})), output_of);
}

std::vector<RequestOutput> LLM::generate(const Prompts& prompts, const SamplingParams& params, const OnPiece& on_piece,
                                         const CallOptions& options) {
  return results(open().ask(texts_request("generate", prompts, fields_of(params), on_piece, options), on_piece),
                 output_of);
}

std::vector<RequestOutput> LLM::generate_each(const Prompts& prompts, std::span<const SamplingParams> params,
                                              const OnPiece& on_piece, const CallOptions& options) {
  return results(open().ask(texts_request("generate", prompts, fields_of(params), on_piece, options), on_piece),
                 output_of);
}

RequestOutput LLM::chat(const std::vector<Message>& messages) {
  return output_of(open().ask(chat_request(std::span(&messages, 1), nullptr, nullptr, {})).at(0));
}

RequestOutput LLM::chat(const std::vector<Message>& messages, const SamplingParams& params, const OnPiece& on_piece,
                        const CallOptions& options) {
  return chat(std::span(&messages, 1), params, on_piece, options).at(0);
}

std::vector<RequestOutput> LLM::chat(std::span<const std::vector<Message>> conversations, const SamplingParams& params,
                                     const OnPiece& on_piece, const CallOptions& options) {
  return results(open().ask(chat_request(conversations, fields_of(params), on_piece, options), on_piece), output_of);
}

std::vector<RequestOutput> LLM::chat_each(std::span<const std::vector<Message>> conversations,
                                          std::span<const SamplingParams> params, const OnPiece& on_piece,
                                          const CallOptions& options) {
  return results(open().ask(chat_request(conversations, fields_of(params), on_piece, options), on_piece), output_of);
}

std::vector<BeamSearchOutput> LLM::beam_search(const Prompts& prompts, const BeamSearchParams& params,
                                               const CallOptions& options) {
  PF_CHECK(options.priority.empty(), Value,
           "beam_search: it has no priorities; got {} of them; expected none; hint: generate()",
           options.priority.size());
  return results(open().ask(texts_request("beam_search", prompts, fields_of(params), nullptr, options)), beams_of);
}

std::vector<EmbeddingRequestOutput> LLM::embed(const Prompts& prompts, const PoolingParams& params) {
  const json request{{"op", "embed"}, {"prompts", prompts_of("embed", prompts)}, {"params", fields_of(params)}};
  return results(open().ask(request), embedding_of);
}

void LLM::close() { open().close(); }

}  // namespace pyflame::llm
