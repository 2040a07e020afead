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

  std::unique_ptr<Enumeration> all(const BlasProduct& p, const std::vector<BlasResult>& recommended) const override {
    std::vector<HipblasLtResult> results;
    if (all_(p.handle, kHipblasLtPlainGemm, p.op_a, p.op_b, p.type_a, p.type_b, p.type_c, p.type_c, p.compute,
             results) != 0)
      results.clear();
    std::set<int> known;
    for (BlasResult r : recommended) known.insert(number_(r.data()));
    std::erase_if(results, [&](HipblasLtResult& r) {
      const int number = number_(r.bytes.data());
      return number < 0 || !known.insert(number).second;
    });
    return std::make_unique<Kernels>(*this, p, std::move(results));
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
  class Kernels final : public Enumeration {
   public:
    Kernels(const HipblasLtAlgorithms& library, const BlasProduct& p, std::vector<HipblasLtResult> all)
        : library_(library), product_(p), all_(std::move(all)), order_(all_.size()) {}
    size_t size() const override { return all_.size(); }
    std::optional<std::string> at(size_t place) const override {
      HipblasLtResult r = all_[order_[place]];
      const int number = library_.number_(r.bytes.data());
      if (!library_.made(product_, r)) return std::nullopt;
      return fmt::format("{}{}", kHipblasLtName, number);
    }

   private:
    const HipblasLtAlgorithms& library_;  // lives as long as the process
    BlasProduct product_;
    std::vector<HipblasLtResult> all_;
    Spread order_;
  };

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
