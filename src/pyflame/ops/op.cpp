#include "pyflame/ops/op.h"

#include "pyflame/base/error.h"

namespace pyflame {

const char* work_name(Work w) {
  constexpr const char* kNames[] = {"elementwise", "reduction",     "GEMM",   "convolution",
                                    "attention",   "normalisation", "memory", "other"};
  return kNames[static_cast<int>(w)];
}

OpId op_from_name(std::string_view name) {
  for (int i = 0; i < kNumOps; ++i)
    if (name == kOps[i].name) return static_cast<OpId>(i);
  PF_FAIL(Key, "op_from_name: no such op; got '{}'", name);
}

}  // namespace pyflame
