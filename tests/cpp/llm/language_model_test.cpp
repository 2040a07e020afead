// The language models of C++ programs, with a small model of random weights that the Python package writes.
#include "pyflame/llm/language_model.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
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
    said(
        "import sys\nfrom pyflame.testing import language_models as small\n"
        "small.write_random_model(sys.argv[1], 'llama', seed=3)\n",
        {model()});
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
  static std::string adapter() { return *folder_ / "adapter"; }
  static LLMOptions options() { return {.device = "cpu", .max_model_len = 128, .python = python()}; }

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
with LLM(sys.argv[1], device="cpu", max_model_len=128) as llm:
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

}  // namespace
}  // namespace pyflame::llm
