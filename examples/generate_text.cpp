// Writes text with a language model in C++: a GGUF file, a folder in Hugging Face's layout, or an installed package with one of these.
//
//   generate_text MODEL [PROMPT [MAX_TOKENS]]
//
// The text is printed as it is written, and Ctrl-C ends it. The model is computed by the Python package: PYFLAME_PYTHON names an interpreter
// that has it, unless python3 on PATH does. To build: find_package(pyflame) and pyflame::pyflame, as tests/consumer/CMakeLists.txt does.
// ci: build/ci/random-model 'Once upon a time' 12
#include <csignal>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <string>

#include "pyflame/llm/language_model.h"

namespace {

volatile std::sig_atomic_t interrupted = 0;

void write_text(const std::string& model, const std::string& prompt, int64_t max_tokens) {
  namespace llm = pyflame::llm;
  llm::LLM lm(model);
  const llm::SamplingParams params{.temperature = 0.8, .top_p = 0.95, .max_tokens = max_tokens, .seed = 1};
  std::cout << prompt;
  const auto outputs = lm.generate(prompt, params, [](const llm::Piece& piece) {
    std::cout << piece.text << std::flush;
    return interrupted == 0;
  });
  const llm::CompletionOutput& text = outputs.at(0).outputs.at(0);
  std::cout << "\n";
  std::cerr << text.token_ids.size() << " tokens, " << text.finish_reason << "\n";
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::cerr << "usage: " << argv[0] << " MODEL [PROMPT [MAX_TOKENS]]\n";
    return 2;
  }
  std::signal(SIGINT, [](int) { interrupted = 1; });
  try {
    write_text(argv[1], argc > 2 ? argv[2] : "Once upon a time", argc > 3 ? std::atoll(argv[3]) : 100);
  } catch (const std::exception& e) {
    std::cerr << e.what() << "\n";
    return 1;
  }
  return 0;
}
