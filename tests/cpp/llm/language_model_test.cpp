// The language models of C++ programs, with a small model of random weights that the Python package writes.
#include "pyflame/llm/language_model.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "pyflame/base/error.h"
#include "support/source_dir.h"
#include "support/temp_folder.h"

namespace pyflame::llm {
namespace {

using nlohmann::json;
using test::TempFolder;

// The interpreter that has the package: PYFLAME_PYTHON, or that of the environment which `make` fills.
std::string python() {
  const char* named = std::getenv("PYFLAME_PYTHON");
  return named != nullptr && *named != '\0' ? named : test::file_of_project(".venv/bin/python");
}

// What a Python program prints. Its arguments are in sys.argv.
std::string said(const std::string& program, const std::vector<std::string>& arguments = {}) {
  const TempFolder folder;
  test::write_all(folder / "program.py", program);
  std::string command = "'" + python() + "' '" + (folder / "program.py") + "'";
  for (const std::string& a : arguments) command += " '" + a + "'";
  FILE* pipe = popen((command + " 2>&1").c_str(), "r");
  std::string out;
  char buffer[4096];
  while (pipe != nullptr) {
    const size_t n = fread(buffer, 1, sizeof buffer, pipe);
    if (n == 0) break;
    out.append(buffer, n);
  }
  const bool ok = pipe != nullptr && pclose(pipe) == 0;
  if (!ok) throw std::runtime_error("Python failed: " + out);
  return out;
}

constexpr const char* kWriteModels = R"(
import json, os, sys
import pyflame as pf
from pyflame.testing import language_models as small
model, encoder, adapter = sys.argv[1:]
small.write_random_model(model, "llama", seed=3, max_position_embeddings=2048)
small.write_random_encoder(encoder, seed=3)
os.mkdir(adapter)
name = "base_model.model.model.layers.0.self_attn.q_proj.lora_"
pf.manual_seed(1)
pf.save({f"{name}A.weight": pf.randn(4, 64), f"{name}B.weight": pf.randn(64, 4)}, f"{adapter}/adapter_model.safetensors")
with open(f"{adapter}/adapter_config.json", "w", encoding="utf-8") as file:
    json.dump({"peft_type": "LORA", "r": 4, "lora_alpha": 8, "target_modules": ["q_proj"], "bias": "none"}, file)
)";

class LanguageModel : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    try {
      said("import pyflame.llm");
    } catch (const std::exception& e) {
      why_not_ = python() + " has no pyflame.llm; hint: make install-venv, or PYFLAME_PYTHON. " + e.what();
      return;
    }
    folder_ = std::make_unique<TempFolder>();
    said(kWriteModels, {model(), encoder(), adapter()});
    llm_ = std::make_unique<LLM>(model(), options());
  }
  static void TearDownTestSuite() {
    llm_.reset();
    folder_.reset();
  }
  void SetUp() override {
    if (!why_not_.empty()) {
      std::fprintf(stderr, "!!! language models of C++ are not tested: %s\n", why_not_.c_str());
      GTEST_SKIP() << why_not_;
    }
  }
  static std::string model() { return *folder_ / "model"; }
  static std::string encoder() { return *folder_ / "encoder"; }
  static std::string adapter() { return *folder_ / "adapter"; }
  static LLMOptions options() {
    return {.device = "cpu", .max_model_len = 1024, .lora_modules = {{"other", adapter()}}, .python = python()};
  }

  static std::string why_not_;
  static std::unique_ptr<TempFolder> folder_;
  static std::unique_ptr<LLM> llm_;
};
std::string LanguageModel::why_not_;
std::unique_ptr<TempFolder> LanguageModel::folder_;
std::unique_ptr<LLM> LanguageModel::llm_;

// Runs `call`, whose error has this kind and a text that contains `words`.
template <class Call>
void expect_error(ErrorKind kind, const std::string& words, Call call) {
  try {
    call();
    ADD_FAILURE() << "no error; expected: " << words;
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), kind) << e.what();
    EXPECT_NE(std::string(e.what()).find(words), std::string::npos) << e.what();
  }
}

TEST_F(LanguageModel, WritesWhatPythonWrites) {
  const SamplingParams params{.n = 2, .temperature = 0.8, .top_k = 20, .max_tokens = 12, .seed = 7, .logprobs = 2};
  const json want = json::parse(said(R"(
import json, sys
from pyflame.llm import LLM, SamplingParams
with LLM(sys.argv[1], device="cpu", max_model_len=1024) as llm:
    found = llm.generate(["Hello", [5, 6, 7], "Grüße, 世界"], SamplingParams(n=2, temperature=0.8, top_k=20, max_tokens=12, seed=7, logprobs=2), use_tqdm=False)
    answer = llm.chat([{"role": "user", "content": "Hi"}], SamplingParams(temperature=0, max_tokens=8), use_tqdm=False)
print(json.dumps([{"prompt": r.prompt, "ids": r.prompt_token_ids, "count": r.num_generation_tokens,
    "outputs": [[o.index, o.text, o.token_ids, o.finish_reason, o.cumulative_logprob, [[[i, p.logprob, p.rank, p.decoded_token] for i, p in sorted(d.items())] for d in o.logprobs]] for o in r.outputs]} for r in found]
    + [[answer[0].prompt_token_ids, answer[0].outputs[0].text, answer[0].outputs[0].token_ids]]))
)",
                                     {model()}));
  const std::vector<RequestOutput> found = llm_->generate({"Hello", {5, 6, 7}, "Grüße, 世界"}, params);
  ASSERT_EQ(found.size(), 3U);
  for (size_t i = 0; i < found.size(); ++i) {
    const RequestOutput& r = found[i];
    EXPECT_EQ(r.prompt ? json(*r.prompt) : json(nullptr), want[i]["prompt"]);
    EXPECT_EQ(json(r.prompt_token_ids), want[i]["ids"]);
    EXPECT_EQ(json(r.num_generation_tokens), want[i]["count"]);
    json outputs = json::array();
    for (const CompletionOutput& o : r.outputs) {
      json logprobs = json::array();
      for (const auto& position : o.logprobs.value()) {
        json tokens = json::array();
        for (const auto& [id, p] : position)
          tokens.push_back(
              json::array({id, p.logprob, p.rank ? json(*p.rank) : json(nullptr), p.decoded_token.value()}));
        logprobs.push_back(tokens);
      }
      outputs.push_back(
          json::array({o.index, o.text, o.token_ids, o.finish_reason, o.cumulative_logprob.value(), logprobs}));
    }
    EXPECT_EQ(outputs, want[i]["outputs"]);
  }
  const RequestOutput answer = llm_->chat({{"user", "Hi"}}, {.temperature = 0, .max_tokens = 8});
  EXPECT_EQ(json::array({answer.prompt_token_ids, answer.outputs[0].text, answer.outputs[0].token_ids}), want[3]);
}

TEST_F(LanguageModel, LogprobsOfPromptsAreThoseOfPython) {
  const json want = json::parse(said(R"(
import json, sys
from pyflame.llm import LLM, SamplingParams
with LLM(sys.argv[1], device="cpu", max_model_len=1024) as llm:
    found = llm.generate([5, 6, 7, 8], SamplingParams(max_tokens=1, prompt_logprobs=2), use_tqdm=False)[0].prompt_logprobs
print(json.dumps([[[i, p.logprob, p.rank] for i, p in sorted((d or {}).items())] for d in found]))
)",
                                     {model()}));
  const Prompts prompts(std::vector<std::vector<int64_t>>{{5, 6, 7, 8}});
  json found = json::array();
  const RequestOutput output = llm_->generate(prompts, {.max_tokens = 1, .prompt_logprobs = 2}).at(0);
  for (const auto& position : output.prompt_logprobs.value()) {
    json tokens = json::array();
    for (const auto& [id, p] : position)
      tokens.push_back(json::array({id, p.logprob, p.rank ? json(*p.rank) : json(nullptr)}));
    found.push_back(tokens);
  }
  EXPECT_EQ(found, want);
  EXPECT_EQ(found.size(), 4U);
  EXPECT_TRUE(found[0].empty());
  EXPECT_FALSE(llm_->generate(prompts, {.max_tokens = 1}).at(0).prompt_logprobs.has_value());
}

TEST_F(LanguageModel, SettingsAreThoseOfPython) {
  const json want = json::parse(said(R"(
import dataclasses, inspect, json
from pyflame.llm import LLM, BeamSearchParams, PoolingParams, SamplingParams
options = [n for n in inspect.signature(LLM.__init__).parameters if n not in ("self", "model", "use_tqdm_on_load")]
print(json.dumps([options, *([f.name for f in dataclasses.fields(c)] for c in (SamplingParams, PoolingParams, BeamSearchParams))]))
)"));
  json found = {json::array(), json::array(), json::array(), json::array()};
#define LLM_OPTION(type, name) found[0].push_back(#name);
#define SAMPLING_PARAM(type, name) found[1].push_back(#name);
#define POOLING_PARAM(type, name) found[2].push_back(#name);
#define BEAM_SEARCH_PARAM(type, name) found[3].push_back(#name);
#include "pyflame/llm/fields.def"
  EXPECT_EQ(found, want);
}

TEST_F(LanguageModel, SettingsOfEachTypeArrive) {
  const auto text = [](const SamplingParams& params, const CallOptions& call = {}) {
    return llm_->generate("the window", params, nullptr, call).at(0).outputs.at(0);
  };
  const CompletionOutput plain = text({.temperature = 0, .max_tokens = 24});
  ASSERT_EQ(plain.token_ids.size(), 24U);
  const CompletionOutput stopped = text({.temperature = 0, .max_tokens = 24, .stop_token_ids = {plain.token_ids[5]}});
  EXPECT_EQ(stopped.finish_reason, "stop");
  EXPECT_EQ(std::get<int64_t>(stopped.stop_reason.value()), plain.token_ids[5]);
  EXPECT_FALSE(plain.stop_reason);
  std::vector<std::string> pieces;
  llm_->generate("the window", {.temperature = 0, .max_tokens = 24}, [&](const Piece& piece) {
    if (!piece.text.empty()) pieces.push_back(piece.text);
    return true;
  });
  const std::string stop = pieces.at(pieces.size() / 2);
  const CompletionOutput cut = text({.temperature = 0, .max_tokens = 24, .stop = {stop, "never"}});
  EXPECT_EQ(cut.text, plain.text.substr(0, plain.text.find(stop)));
  EXPECT_EQ(std::get<std::string>(cut.stop_reason.value()), stop);
  EXPECT_EQ(text({.temperature = 0, .max_tokens = 3, .logit_bias = {{40, 100.0}}}).token_ids,
            (std::vector<int64_t>{40, 40, 40}));
  EXPECT_NE(text({.temperature = 0, .max_tokens = 24}, {.lora_request = "other"}).token_ids, plain.token_ids);
  EXPECT_EQ(text({.max_tokens = 9, .structured_outputs = R"({"choice": ["yes"]})"}).text, "yes");
  // None is up to the end of the context of 1024 tokens.
  const Prompt long_one = std::vector<int64_t>(1000, 40);
  EXPECT_EQ(llm_->generate(long_one, {.max_tokens = none, .ignore_eos = true}).at(0).outputs.at(0).token_ids.size(),
            24U);
  // Without params, those of the model's files; with params that say nothing, Python's defaults.
  EXPECT_LE(llm_->generate({"a", "b"}).at(1).outputs.at(0).token_ids.size(), 16U);
  EXPECT_EQ(text({.ignore_eos = true}).token_ids.size(), 16U);
}

TEST_F(LanguageModel, PromptsOfEachKind) {
  const SamplingParams params{.temperature = 0, .max_tokens = 4};
  const auto texts = [&](const Prompts& prompts) {
    std::vector<std::string> found;
    for (const RequestOutput& r : llm_->generate(prompts, params)) found.push_back(r.outputs.at(0).text);
    return found;
  };
  const std::vector<std::string> two{"Hello", "the window"};
  const std::vector<std::string> want = texts(two);
  ASSERT_EQ(want.size(), 2U);
  EXPECT_EQ(texts({"Hello", "the window"}), want);
  EXPECT_EQ(texts("Hello"), (std::vector{want[0]}));
  EXPECT_EQ(texts(two[1]), (std::vector{want[1]}));
  EXPECT_TRUE(texts(std::vector<std::string>{}).empty());
  const std::vector<std::vector<int64_t>> ids{llm_->generate(two, params)[0].prompt_token_ids};
  EXPECT_EQ(texts(ids), (std::vector{want[0]}));
  const std::vector<std::vector<Message>> conversations{{{"user", "Hi"}}, {{"system", "Be short."}, {"user", "Hi"}}};
  const std::vector<RequestOutput> answers = llm_->chat(conversations, params);
  ASSERT_EQ(answers.size(), 2U);
  EXPECT_EQ(answers[0].outputs[0].token_ids, llm_->chat({{"user", "Hi"}}, params).outputs[0].token_ids);
  EXPECT_GT(answers[1].prompt_token_ids.size(), answers[0].prompt_token_ids.size());
  EXPECT_EQ(llm_->chat({{"user", "Hi"}}).prompt_token_ids, answers[0].prompt_token_ids);
}

TEST_F(LanguageModel, SettingsOfEachPrompt) {
  const std::vector<SamplingParams> each{{.temperature = 0, .max_tokens = 3}, {.temperature = 0, .max_tokens = 5}};
  const std::vector<RequestOutput> found = llm_->generate({"Hello", "Hello"}, each, nullptr, {.priority = {1, 0}});
  ASSERT_EQ(found.size(), 2U);
  const std::vector<int64_t> ids = found[1].outputs.at(0).token_ids;
  ASSERT_EQ(ids.size(), 5U);
  EXPECT_EQ(found[0].outputs.at(0).token_ids, (std::vector<int64_t>{ids[0], ids[1], ids[2]}));
  EXPECT_TRUE(found[0].finished && found[1].finished);
  EXPECT_NE(found[0].request_id, found[1].request_id);
  EXPECT_TRUE(found[0].num_cached_tokens);
  const std::vector<std::vector<Message>> conversations{{{"user", "Hi"}}, {{"user", "Hi"}}};
  const std::vector<RequestOutput> answers = llm_->chat(conversations, each);
  EXPECT_EQ(answers.at(0).outputs.at(0).token_ids.size(), 3U);
  EXPECT_EQ(answers.at(1).outputs.at(0).token_ids.size(), 5U);
  expect_error(ErrorKind::Value, "got 2 sampling_params for 1 prompts", [&] { llm_->generate("a", each); });
  expect_error(ErrorKind::Value, "got 2 priority for 1 prompts", [] {
    llm_->generate("a", {}, nullptr, {.priority = {1, 2}});
  });
}

TEST_F(LanguageModel, ChatTemplatesTakeOptions) {
  const SamplingParams params{.temperature = 0, .max_tokens = 2};
  const std::vector<Message> messages{{"user", "Hi"}, {"assistant", "Good"}};
  const auto prompt = [&](const CallOptions& options) {
    return llm_->chat(messages, params, nullptr, options).prompt_token_ids;
  };
  const std::vector<int64_t> whole = prompt({});
  const std::vector<int64_t> without = prompt({.add_generation_prompt = false});
  EXPECT_LT(without.size(), whole.size());
  const std::vector<int64_t> goes_on = prompt({.add_generation_prompt = false, .continue_final_message = true});
  EXPECT_LT(goes_on.size(), without.size());
  EXPECT_EQ(prompt({.chat_template_kwargs = R"({"unused": 1})"}), whole);
  expect_error(ErrorKind::Value,
               "generate: an option is for chat() alone; got tools; expected none of the chat template",
               [] { llm_->generate("a", {}, nullptr, {.tools = "[]"}); });
}

TEST_F(LanguageModel, SearchesBeams) {
  const json want = json::parse(said(R"(
import json, sys
from pyflame.llm import LLM, BeamSearchParams
with LLM(sys.argv[1], device="cpu", max_model_len=1024) as llm:
    found = llm.beam_search(["Hello", [5, 6, 7]], BeamSearchParams(beam_width=3, max_tokens=4, length_penalty=0.5))
print(json.dumps([[[s.tokens, s.cum_logprob, s.text, s.finish_reason] for s in r.sequences] for r in found]))
)",
                                     {model()}));
  json found = json::array();
  const BeamSearchParams params{.beam_width = 3, .max_tokens = 4, .length_penalty = 0.5};
  for (const BeamSearchOutput& r : llm_->beam_search({"Hello", {5, 6, 7}}, params)) {
    json sequences = json::array();
    for (const BeamSearchSequence& s : r.sequences)
      sequences.push_back(json::array({s.tokens, s.cum_logprob, s.text.value(), s.finish_reason}));
    found.push_back(sequences);
  }
  EXPECT_EQ(found, want);
  ASSERT_EQ(found.at(0).size(), 3U);
  EXPECT_NE(llm_->beam_search("Hello", params, {.lora_request = "other"})[0].sequences[0].cum_logprob,
            found[0][0][1].get<double>());
  expect_error(ErrorKind::Type, "beam_width", [] { llm_->beam_search("a", {.max_tokens = 3}); });
  expect_error(ErrorKind::Value, "beam_search: it has no priorities; got 1 of them; expected none",
               [&] { llm_->beam_search("a", params, {.priority = {1}}); });
}

TEST_F(LanguageModel, PiecesAreTheText) {
  const SamplingParams params{.n = 2, .max_tokens = 12, .seed = 3, .logprobs = 0};
  std::vector<CompletionOutput> pieced(4);
  std::vector<int> ends(4);
  const auto caller = std::this_thread::get_id();
  const std::vector<RequestOutput> found = llm_->generate({"Hello", "the window"}, params, [&](const Piece& piece) {
    EXPECT_EQ(std::this_thread::get_id(), caller);
    const size_t i = 2 * piece.prompt + static_cast<size_t>(piece.index);
    pieced.at(i).text += piece.text;
    pieced[i].token_ids.insert(pieced[i].token_ids.end(), piece.token_ids.begin(), piece.token_ids.end());
    pieced[i].finish_reason = piece.finish_reason;
    ends[i] += piece.finish_reason.empty() ? 0 : 1;
    return true;
  });
  for (size_t i = 0; i < pieced.size(); ++i) {
    const CompletionOutput& whole = found.at(i / 2).outputs.at(i % 2);
    EXPECT_EQ(pieced[i].text, whole.text);
    EXPECT_EQ(pieced[i].token_ids, whole.token_ids);
    EXPECT_EQ(pieced[i].finish_reason, whole.finish_reason);
    EXPECT_EQ(ends[i], 1);
  }
  std::string answer;
  const RequestOutput chat = llm_->chat({{"user", "Hi"}}, params, [&](const auto& piece) {
    if (piece.index == 1) answer += piece.text;
    return true;
  });
  EXPECT_EQ(answer, chat.outputs.at(1).text);
}

TEST_F(LanguageModel, FalseEndsTheTexts) {
  const SamplingParams params{.temperature = 0, .max_tokens = none, .ignore_eos = true};
  int calls = 0;
  const std::vector<RequestOutput> found =
      llm_->generate({"Hello", "the window"}, params, [&](const Piece&) { return ++calls < 4; });
  EXPECT_EQ(calls, 4);
  const std::vector<RequestOutput> whole =
      llm_->generate({"Hello", "the window"}, {.temperature = 0, .max_tokens = 8, .ignore_eos = true});
  ASSERT_EQ(found.size(), 2U);
  for (size_t i = 0; i < found.size(); ++i) {
    EXPECT_EQ(found[i].outputs.at(0).finish_reason, "cancelled");
    const std::vector<int64_t>&part = found[i].outputs[0].token_ids, &begin = whole[i].outputs.at(0).token_ids;
    ASSERT_LT(part.size(), 1000U);  // of what the context has room for
    EXPECT_TRUE(std::equal(part.begin(), part.begin() + std::min<ptrdiff_t>(std::ssize(part), 8), begin.begin()));
  }
}

TEST_F(LanguageModel, AnExceptionEndsTheTexts) {
  const SamplingParams params{.max_tokens = none, .ignore_eos = true};
  EXPECT_THROW(llm_->generate("Hello", params, [](const Piece&) -> bool { throw std::out_of_range("mine"); }),
               std::out_of_range);
  EXPECT_EQ(llm_->generate("Hello", {.max_tokens = 2, .ignore_eos = true}).at(0).outputs.at(0).token_ids.size(), 2U);
}

TEST_F(LanguageModel, ThreadsCallAtTheSameTime) {
  constexpr size_t kThreads = 4, kCalls = 3;
  const auto text = [](size_t i) {
    const Prompt prompt = std::string(i + 1, 'a');
    return llm_->generate({prompt, prompt}, {.max_tokens = 8, .seed = static_cast<int64_t>(i)}).at(1).outputs[0].text;
  };
  std::vector<std::string> found(kThreads * kCalls);
  std::vector<std::thread> threads;
  for (size_t t = 0; t < kThreads; ++t)
    threads.emplace_back([&, t] {
      for (size_t c = 0; c < kCalls; ++c) found[t * kCalls + c] = text(t * kCalls + c);
    });
  for (std::thread& t : threads) t.join();
  for (size_t i = 0; i < found.size(); ++i) EXPECT_EQ(found[i], text(i));
}

TEST_F(LanguageModel, Embeds) {
  LLM embedder(encoder(), {.device = "cpu", .python = python()});
  const json want = json::parse(said(R"(
import json, sys
from pyflame.llm import LLM, PoolingParams
llm = LLM(sys.argv[1], device="cpu")
print(json.dumps([[[r.prompt_token_ids, r.outputs.embedding] for r in llm.embed(["a window", "the door"], p)] for p in (None, PoolingParams(normalize=False))]))
)",
                                     {encoder()}));
  for (const bool raw : {false, true}) {
    const auto found =
        raw ? embedder.embed({"a window", "the door"}, {.normalize = false}) : embedder.embed({"a window", "the door"});
    ASSERT_EQ(found.size(), 2U);
    for (size_t i = 0; i < found.size(); ++i) {
      EXPECT_EQ(json(found[i].prompt_token_ids), want[raw ? 1 : 0][i][0]);
      EXPECT_EQ(found[i].outputs.embedding, want[raw ? 1 : 0][i][1].get<std::vector<float>>());
    }
  }
  expect_error(ErrorKind::Value, "generate: the model makes embeddings", [&] { embedder.generate("a"); });
  expect_error(ErrorKind::Value, "chat: the model makes embeddings", [&] { embedder.chat({{"user", "a"}}); });
  expect_error(ErrorKind::Value, "embed: dimensions is not available with this model; got 3",
               [&] { embedder.embed("a", {.dimensions = 3}); });
  expect_error(ErrorKind::Value, "embed: the model was loaded to write texts", [] { llm_->embed("a"); });
}

// --- errors

TEST_F(LanguageModel, ErrorsOfPythonKeepTheirKindAndText) {
  expect_error(ErrorKind::OS, "no/such/model", [] { LLM("no/such/model", {.python = python()}); });
  expect_error(ErrorKind::Value, "LLM: there is no such runner; got 'both'",
               [] { LLM(model(), {.runner = "both", .python = python()}); });
  expect_error(ErrorKind::Value, "SamplingParams: n is out of range; got 0", [] { llm_->generate("a", {.n = 0}); });
  expect_error(ErrorKind::Type, "SamplingParams: stop is of the wrong type",
               [] { llm_->generate("a", {.stop = {""}}); });
  expect_error(ErrorKind::Value, "generate: there are no tokens", [] {
    llm_->generate({"a", Prompt(std::vector<int64_t>{})});
  });
  expect_error(ErrorKind::Value, "there is no such adapter; got 'none'",
               [] { llm_->generate("a", {}, nullptr, {.lora_request = "none"}); });
  EXPECT_EQ(llm_->generate("a", {.max_tokens = 0}).size(), 1U);
}

TEST_F(LanguageModel, BestOfHasNoPieces) {
  const SamplingParams params{.n = 1, .max_tokens = 4, .seed = 1, .best_of = 2};
  expect_error(ErrorKind::Value,
               "generate: pieces of texts that best_of leaves out cannot be taken back; got best_of 2",
               [&] { llm_->generate("a", params, [](const Piece&) { return true; }); });
  EXPECT_EQ(llm_->generate("a", params).at(0).outputs.size(), 1U);
}

TEST_F(LanguageModel, NumbersThatAreNotFinite) {
  expect_error(ErrorKind::Value, "SamplingParams: temperature is not finite; got nan; expected a number",
               [] { llm_->generate("a", {.temperature = std::nan("")}); });
}

TEST_F(LanguageModel, SettingsThatAreNotJson) {
  expect_error(ErrorKind::Value, "SamplingParams: structured_outputs is not JSON; got '{regex}'; expected a JSON value",
               [] { llm_->generate("a", {.structured_outputs = "{regex}"}); });
}

TEST_F(LanguageModel, TextsThatAreNotUtf8) {
  expect_error(ErrorKind::Value, "generate: a prompt is not UTF-8; got 0xff at byte 1; expected UTF-8",
               [] { llm_->generate("a\xff"); });
  expect_error(ErrorKind::Value, "SamplingParams: stop is not UTF-8", [] { llm_->generate("a", {.stop = {"\xff"}}); });
  expect_error(ErrorKind::Value, "chat: a role is not UTF-8", [] { llm_->chat({{"\xff", "a"}}); });
  expect_error(ErrorKind::Value, "chat: a message is not UTF-8", [] { llm_->chat({{"user", "\xff"}}); });
  expect_error(ErrorKind::Value, "LLM: the path of the model is not UTF-8", [] { LLM("\xff"); });
  expect_error(ErrorKind::Value, "LLM: lora_modules is not UTF-8", [] { LLM("a", {.lora_modules = {{"\xff", "a"}}}); });
}

TEST_F(LanguageModel, NoInterpreter) {
  expect_error(ErrorKind::OS,
               "LLM: Python cannot be started; got '/no/python': No such file or directory; expected an interpreter",
               [] { LLM(model(), {.python = "/no/python"}); });
}

TEST_F(LanguageModel, NoDescriptors) {
  rlimit before{};
  getrlimit(RLIMIT_NOFILE, &before);
  const rlimit few{3, before.rlim_max};
  setrlimit(RLIMIT_NOFILE, &few);
  expect_error(ErrorKind::OS, "LLM: no pipe to the process of the model; got Too many open files",
               [] { LLM(model(), {.python = python()}); });
  setrlimit(RLIMIT_NOFILE, &before);
}

// A program in the folder that stands for the interpreter: a script of the shell.
std::string script(const TempFolder& folder, const std::string& commands) {
  const std::string path = folder / "python";
  test::write_all(path, "#!/bin/sh\n" + commands + "\n");
  std::filesystem::permissions(path, std::filesystem::perms::owner_all);
  return path;
}

TEST_F(LanguageModel, AnInterpreterWithoutThePackage) {
  const TempFolder folder;
  const std::string bare = script(folder, "exec '" + python() + "' -I -S \"$@\"");
  expect_error(ErrorKind::Runtime, "LLM: the process of the model ended with exit code 1; its last lines:\n  ",
               [&] { LLM(model(), {.python = bare}); });
  expect_error(ErrorKind::Runtime, "No module named", [&] { LLM(model(), {.python = bare}); });
  expect_error(ErrorKind::Runtime, "hint: PYFLAME_PYTHON, or the option python",
               [&] { LLM(model(), {.python = bare}); });
}

TEST_F(LanguageModel, AProgramThatIsNoInterpreter) {
  const TempFolder folder;
  expect_error(ErrorKind::Runtime, "the process of the model ended with exit code 0; it has printed nothing",
               [&] { LLM(model(), {.python = script(folder, "true")}); });
  expect_error(ErrorKind::Runtime, "the process of the model sent what is no message",
               [&] { LLM(model(), {.python = script(folder, "printf '\\0\\0\\0\\001?' >&3; read line")}); });
}

// An interpreter that first runs some Python.
std::string python_with(const TempFolder& folder, const std::string& code) {
  test::write_all(folder / "sitecustomize.py", code);
  return script(folder, "PYTHONPATH='" + folder.str() + "' exec '" + python() + "' \"$@\"");
}

TEST_F(LanguageModel, APackageOfAnotherVersion) {
  const TempFolder folder;
  const std::string other = python_with(folder, "import pyflame\npyflame.__version__ = '9.9.9'\n");
  expect_error(ErrorKind::Runtime, "LLM: the Python package is of another version; got 9.9.9 in ",
               [&] { LLM(model(), {.python = other}); });
}

pid_t number_in(const std::string& file) { return static_cast<pid_t>(std::stol(test::read_all(file))); }

TEST_F(LanguageModel, AProcessThatDies) {
  const TempFolder folder;
  const std::string with_number =
      python_with(folder, "import os, sys\nopen(" + json(folder / "number").dump() +
                              ", 'w').write(str(os.getpid()))\nprint('a line of mine', file=sys.stderr)\n");
  LLM llm(model(), {.device = "cpu", .python = with_number});
  const pid_t host = number_in(folder / "number");
  constexpr const char* kSaid =
      "LLM: the process of the model was ended by signal 9; its last lines:\n  a line of mine; expected it to run";
  expect_error(ErrorKind::Runtime, kSaid, [&] {
    llm.generate("a", {.max_tokens = none, .ignore_eos = true}, [&](const Piece&) { return kill(host, SIGKILL) == 0; });
  });
  expect_error(ErrorKind::Runtime, kSaid, [&] { llm.generate("a"); });
}

TEST_F(LanguageModel, ClosedAndMoved) {
  LLM first(model(), {.device = "cpu", .python = python()});
  LLM llm = std::move(first);
  expect_error(ErrorKind::Runtime, "LLM: there is no model; got an object that was moved from",
               [&] { first.generate("a"); });
  // close() ends a call of another thread.
  std::atomic<bool> writes = false;
  std::thread caller([&] {
    expect_error(ErrorKind::Runtime, "LLM: it is closed; got a call that close() has ended, or a later one", [&] {
      llm.generate("a", {.max_tokens = none, .ignore_eos = true}, [&](const Piece&) {
        writes = true;
        writes.notify_one();
        return true;
      });
    });
  });
  writes.wait(false);
  llm.close();
  caller.join();
  expect_error(ErrorKind::Runtime, "LLM: it is closed", [&] { llm.generate("a"); });
  llm.close();
}

TEST_F(LanguageModel, ACopyByForkIsRefused) {
  const pid_t copy = fork();
  if (copy == 0) {
    int code = 1;
    try {
      llm_->generate("a");
    } catch (const Error& e) {
      code = std::string(e.what()).find("LLM: the model belongs to another process") == 0 ? 0 : 2;
    }
    llm_.reset();
    _exit(code);
  }
  int status = -1;
  ASSERT_EQ(waitpid(copy, &status, 0), copy);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_EQ(llm_->generate("a", {.max_tokens = 1}).size(), 1U);
}

// Not a test by itself: the next one starts it in another process, and kills this.
TEST_F(LanguageModel, DISABLED_HoldsAModel) {
  const LLM llm(model(), {.device = "cpu", .python = std::getenv("PYFLAME_TEST_INTERPRETER")});
  test::write_all(std::string(std::getenv("PYFLAME_TEST_READY")), "ready");
  pause();
}

TEST_F(LanguageModel, NoProcessIsLeftBehind) {
  using namespace std::chrono_literals;
  const TempFolder folder;
  const std::string number = folder / "number", ready = folder / "ready";
  const std::string with_number =
      python_with(folder, "import os\nopen(" + json(number).dump() + ", 'w').write(str(os.getpid()))\n");
  const std::string self = std::filesystem::read_symlink("/proc/self/exe");
  const pid_t holder = fork();
  if (holder == 0) {
    setenv("PYFLAME_TEST_INTERPRETER", with_number.c_str(), 1);
    setenv("PYFLAME_TEST_READY", ready.c_str(), 1);
    setenv("PYFLAME_PYTHON", python().c_str(), 1);
    execl(self.c_str(), self.c_str(), "--gtest_filter=*HoldsAModel", "--gtest_also_run_disabled_tests", nullptr);
    _exit(127);
  }
  const auto wait_until = [](auto&& holds) {
    for (int i = 0; i < 6000 && !holds(); ++i) std::this_thread::sleep_for(20ms);
    return holds();
  };
  ASSERT_TRUE(wait_until([&] { return std::filesystem::exists(ready); }));
  const pid_t host = number_in(number);
  EXPECT_EQ(kill(host, 0), 0);
  kill(holder, SIGKILL);
  waitpid(holder, nullptr, 0);
  EXPECT_TRUE(wait_until([&] {
    return kill(host, 0) != 0 ||
           test::read_all("/proc/" + std::to_string(host) + "/stat").find(") Z") != std::string::npos;
  }));
}

}  // namespace
}  // namespace pyflame::llm
