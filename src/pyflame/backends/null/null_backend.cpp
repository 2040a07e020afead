// The smallest backend: it accepts every group that the patterns allow. A new backend can start as a copy of this file.
#include "pyflame/backends/null/null_backend.h"

namespace pyflame {

namespace {

class NullBackend final : public Backend {
 public:
  const char* name() const override { return "null"; }
  bool executes() const override { return false; }
  bool computes_with_blocks() const override { return true; }
  bool multiplies_float8(int, DType, DType) const override { return true; }
  std::span<const Impl> impls(const Problem&) const override { return {&kAnything, 1}; }

 private:
  static constexpr Impl kAnything{"null", [](const Problem&) -> Refusal { return std::nullopt; },
                                  [](const Problem&) -> std::unique_ptr<Executable> { return nullptr; }};
};

}  // namespace

const Backend& null_backend() {
  static const auto* backend = new NullBackend;  // leaked: programs compute in exit handlers
  return *backend;
}

}  // namespace pyflame
