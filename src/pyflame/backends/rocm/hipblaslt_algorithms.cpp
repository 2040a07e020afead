// Lists hipBLASLt's kernels for a product, and finds one by its number.
#include "pyflame/backends/rocm/hipblaslt_algorithms.h"

#include <charconv>
#include <cstring>
#include <set>
#include <string_view>

#include "pyflame/backends/rocm/libraries.h"
#include "pyflame/base/error.h"

namespace pyflame::gpu {

namespace {

constexpr std::string_view kHipblasLtName = "solution=";

class HipblasLtAlgorithms final : public BlasEnumeration {
 public:
  HipblasLtAlgorithms() {
    void* library = kHipblaslt.open().handle;
#define PYFLAME_HIPBLASLT_LOAD(member, name, symbol, parameters)                                     \
  member##_ = library ? reinterpret_cast<int(*) parameters>(find_symbol(library, symbol)) : nullptr; \
  if (!member##_) lacking_ = "hipblaslt_ext::" name;
    PYFLAME_HIPBLASLT_ALGORITHM_FUNCTIONS(PYFLAME_HIPBLASLT_LOAD)
#undef PYFLAME_HIPBLASLT_LOAD
  }
  std::string lacks() const override { return lacking_; }

  std::vector<BlasAlgorithm> list(const BlasProduct& p, const std::vector<BlasResult>& recommended,
                                  size_t most) const override {
    std::vector<BlasAlgorithm> found;
    std::vector<HipblasLtResult> all;
    if (all_(p.handle, kHipblasLtPlainGemm, p.op_a, p.op_b, p.type_a, p.type_b, p.type_c, p.type_c, p.compute, all) !=
        0)
      return found;
    std::set<int> known;
    for (BlasResult r : recommended) known.insert(number_(r.data()));
    for (HipblasLtResult& r : spread(std::move(all), kMostEnumerating)) {
      if (found.size() == most) break;
      const int number = number_(r.bytes.data());
      if (number < 0 || !known.insert(number).second) continue;
      if (const auto result = made(p, r)) found.push_back({fmt::format("{}{}", kHipblasLtName, number), *result});
    }
    return found;
  }

  std::optional<BlasResult> find(const BlasProduct& p, const std::string& name) const override {
    if (!name.starts_with(kHipblasLtName)) return std::nullopt;
    std::vector<int> numbers(1);
    const char* const end = name.data() + name.size();
    const auto [rest, error] = std::from_chars(name.data() + kHipblasLtName.size(), end, numbers[0]);
    std::vector<HipblasLtResult> results;
    if (error != std::errc() || rest != end || by_number_(p.handle, numbers, results) != 0 || results.empty() ||
        number_(results[0].bytes.data()) != numbers[0])
      return std::nullopt;
    return made(p, results[0]);
  }

 private:
  // Empty if the library cannot compute the product by this kernel. The library notes the product in the algorithm.
  std::optional<BlasResult> made(const BlasProduct& p, HipblasLtResult& r) const {
    size_t workspace = 0;
    if (check_(p.handle, p.desc, p.alpha, p.layouts[0], p.layouts[1], p.beta, p.layouts[2], p.layouts[2],
               r.bytes.data(), workspace) != 0 ||
        workspace > p.most_workspace)
      return std::nullopt;
    BlasResult result{};
    std::memcpy(result.data(), r.bytes.data(), r.bytes.size());
    std::memcpy(result.data() + kRocmBlas.result_workspace_at, &workspace, sizeof workspace);
    return result;
  }

#define PYFLAME_HIPBLASLT_MEMBER(member, name, symbol, parameters) int(*member##_) parameters = nullptr;
  PYFLAME_HIPBLASLT_ALGORITHM_FUNCTIONS(PYFLAME_HIPBLASLT_MEMBER)
#undef PYFLAME_HIPBLASLT_MEMBER
  std::string lacking_;
};

}  // namespace

const BlasEnumeration* hipblaslt_algorithms() {
  static const auto* algorithms = new HipblasLtAlgorithms;
  return algorithms;
}

}  // namespace pyflame::gpu
