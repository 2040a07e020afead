// libFuzzer's entry: PYFLAME_FUZZ_TARGET names the reader.
#include <cstdio>
#include <cstdlib>

#include "fuzz/targets.h"

namespace {
const pyflame::fuzz::Target* target = nullptr;
}

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  const char* name = std::getenv("PYFLAME_FUZZ_TARGET");
  target = pyflame::fuzz::find_target(name != nullptr ? name : "");
  if (target == nullptr) {
    for (const auto& t : pyflame::fuzz::targets()) std::printf("%s\n", t.name);
    std::fflush(stdout);
    std::_Exit(name == nullptr ? 0 : 2);  // before libFuzzer takes it for a finding
  }
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  pyflame::fuzz::run(*target, {data, size});
  return 0;
}
