// Enumerates cuBLASLt's algorithms for a product. Each kernel can be combined with tiles, stages, splits of the sum and more, and the library
// refuses most combinations. What differs in one part from a recommended algorithm, and kernels with their tiles and
// stages alone, come first in turns, and then all other combinations. Both are spread over the kernels.
#include "pyflame/backends/cuda/cublaslt_algorithms.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <set>
#include <string_view>

#include "pyflame/backends/cuda/libraries.h"
#include "pyflame/base/error.h"

namespace pyflame::gpu {

namespace {

enum CublasLtPartAt : size_t { kId, kTile, kStages, kSplits, kReduction, kSwizzle, kCustom, kInner, kCluster };
constexpr CublasLtCapabilities kCapabilities;
constexpr uint32_t kSplitOptions[] = {2, 3, 4, 6, 8, 12, 16};
// Around recommended algorithms, options and clusters up to these numbers are tried.
constexpr uint32_t kMostCustom = 15, kMostClusters = 16;
constexpr uint32_t kLastCluster = 54;  // as of cuBLASLt 12.9; the library refuses those that it does not know
constexpr size_t kVaried = 4;          // so many recommended algorithms are varied
// Operands may begin at any multiple of this. The library cannot check it.
constexpr uint32_t kOperandAlignment = 16;

}  // namespace

std::string CublasLtAlgorithms::name_of(const Parts& parts) {
  std::string name;
  for (size_t i = 0; i < parts.size(); ++i)
    name += fmt::format("{}{}={}", i > 0 ? "," : "", kCublasLtParts[i].name, parts[i]);
  return name;
}

std::optional<CublasLtAlgorithms::Parts> CublasLtAlgorithms::parts_of(std::string_view name) {
  Parts parts{};
  for (size_t i = 0; i < parts.size(); ++i) {
    const std::string before = (i > 0 ? "," : "") + std::string(kCublasLtParts[i].name) + "=";
    if (!name.starts_with(before)) return std::nullopt;
    name.remove_prefix(before.size());
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), parts[i]);
    if (error != std::errc()) return std::nullopt;
    name.remove_prefix(static_cast<size_t>(end - name.data()));
  }
  if (!name.empty()) return std::nullopt;
  return parts;
}

CublasLtAlgorithms::Parts CublasLtAlgorithms::parts_of(const BlasResult& algorithm) const {
  Parts parts{};
  for (size_t i = 0; i < parts.size(); ++i) {
    const CublasLtPart& part = kCublasLtParts[i];
    size_t written = 0;
    uint32_t value = 0;  // little-endian, so two bytes are its low half
    const int status = library_.get(algorithm.data(), part.attribute, &value, part.bytes, &written);
    parts[i] = status == 0 ? value : part.otherwise;
  }
  return parts;
}

uint32_t CublasLtAlgorithms::capability(const BlasResult& algorithm, int which) const {
  uint32_t value = 0;
  size_t written = 0;
  return library_.capability(algorithm.data(), which, &value, sizeof value, &written) == 0 ? value : 0;
}

// {0}, "undefined", where the kernel leaves no choice.
std::vector<uint32_t> CublasLtAlgorithms::capabilities(const BlasResult& algorithm, int which) const {
  size_t bytes = 0;
  if (library_.capability(algorithm.data(), which, nullptr, 0, &bytes) != 0 || bytes < sizeof(uint32_t)) return {0};
  std::vector<uint32_t> values(bytes / sizeof(uint32_t));
  if (library_.capability(algorithm.data(), which, values.data(), values.size() * sizeof(uint32_t), &bytes) != 0)
    return {0};
  return values;
}

// The kernel with nothing configured.
std::optional<BlasResult> CublasLtAlgorithms::start(const BlasProduct& p, uint32_t id) const {
  BlasResult algorithm{};
  const int status = library_.init(p.handle, p.compute, p.scale, p.type_a, p.type_b, p.type_c, p.type_c,
                                   static_cast<int>(id), algorithm.data());
  if (status != 0) return std::nullopt;
  return algorithm;
}

// Empty if the library cannot compute the product by this algorithm.
std::optional<BlasResult> CublasLtAlgorithms::made(const BlasProduct& p, const Parts& parts) const {
  std::optional<BlasResult> algorithm = start(p, parts[kId]);
  if (!algorithm) return std::nullopt;
  for (size_t i = kId + 1; i < parts.size(); ++i) {
    const CublasLtPart& part = kCublasLtParts[i];
    if (parts[i] == part.otherwise) continue;  // an older library may not know it
    if (library_.set(algorithm->data(), part.attribute, &parts[i], part.bytes) != 0) return std::nullopt;
  }
  for (int operand = 0; operand < 4; ++operand)
    if (capability(*algorithm, kCapabilities.alignments + operand) > kOperandAlignment) return std::nullopt;
  BlasResult result{};
  if (library_.check(p.handle, p.desc, p.layouts[0], p.layouts[1], p.layouts[2], p.layouts[2], algorithm->data(),
                     result.data()) != 0)
    return std::nullopt;
  std::memcpy(result.data(), algorithm->data(), kCudaBlas.result_workspace_at);  // the check does not write it
  size_t workspace = 0;
  std::memcpy(&workspace, result.data() + kCudaBlas.result_workspace_at, sizeof workspace);
  if (workspace > p.most_workspace) return std::nullopt;
  return result;
}

// What differs in one part; split sums also name how the parts are added.
std::vector<CublasLtAlgorithms::Parts> CublasLtAlgorithms::variations(const BlasProduct& p, const Parts& of) const {
  std::vector<Parts> all;
  const auto with = [&](size_t part, uint32_t value) {
    Parts parts = of;
    parts[part] = value;
    if (part == kSplits) parts[kReduction] = value > 1 ? kCublasLtReduceInComputeType : 0;
    if (parts != of) all.push_back(parts);
  };
  const std::optional<BlasResult> kernel = start(p, of[kId]);
  if (!kernel) return all;
  for (const uint32_t stages : capabilities(*kernel, kCapabilities.stages)) with(kStages, stages);
  const uint32_t most_custom = std::min(capability(*kernel, kCapabilities.most_custom), kMostCustom);
  for (uint32_t custom = 0; custom <= most_custom; ++custom) with(kCustom, custom);
  for (uint32_t cluster = 0; cluster <= kMostClusters; ++cluster) with(kCluster, cluster);
  if (capability(*kernel, kCapabilities.swizzles) & 1) with(kSwizzle, 1 - std::min(of[kSwizzle], 1U));
  with(kSplits, 1);
  if (capability(*kernel, kCapabilities.splits) != 0)
    for (const uint32_t splits : kSplitOptions) with(kSplits, splits);
  for (const uint32_t tile : capabilities(*kernel, kCapabilities.tiles)) with(kTile, tile);
  return all;
}

std::vector<CublasLtAlgorithms::Options> CublasLtAlgorithms::kernels(const BlasProduct& p) const {
  std::vector<int> ids(256);
  int found = 0;
  const auto ask = [&] {
    return library_.ids(p.handle, p.compute, p.scale, p.type_a, p.type_b, p.type_c, p.type_c,
                        static_cast<int>(ids.size()), ids.data(), &found) == 0;
  };
  std::vector<Options> all;
  if (!ask()) return all;
  for (; found >= static_cast<int>(ids.size()); ids.resize(2 * ids.size()))
    if (ids.size() > 4096 || !ask()) break;
  for (int i = 0; i < std::min(found, static_cast<int>(ids.size())); ++i) {
    Options c;
    c.id = static_cast<uint32_t>(ids[static_cast<size_t>(i)]);
    const std::optional<BlasResult> kernel = start(p, c.id);
    if (!kernel) continue;
    c.tiles = capabilities(*kernel, kCapabilities.tiles), c.stages = capabilities(*kernel, kCapabilities.stages);
    c.splits = {1};
    if (capability(*kernel, kCapabilities.splits) != 0)
      c.splits.insert(c.splits.end(), std::begin(kSplitOptions), std::end(kSplitOptions));
    c.swizzles = 1 + (capability(*kernel, kCapabilities.swizzles) & 1);
    c.customs = 1 + capability(*kernel, kCapabilities.most_custom);
    c.clusters = 1 + kLastCluster;
    all.push_back(std::move(c));
  }
  return all;
}

CublasLtAlgorithms::Parts CublasLtAlgorithms::Options::at(uint64_t place) const {
  Parts parts{};
  for (size_t i = 0; i < parts.size(); ++i) parts[i] = kCublasLtParts[i].otherwise;
  const auto next = [&place](uint64_t numbers) {
    const uint64_t number = place % numbers;
    place /= numbers;
    return number;
  };
  parts[kId] = id;
  parts[kStages] = stages[next(stages.size())];
  parts[kTile] = tiles[next(tiles.size())];
  parts[kSplits] = splits[next(splits.size())];
  parts[kReduction] = parts[kSplits] > 1 ? kCublasLtReduceInComputeType : 0;
  parts[kSwizzle] = static_cast<uint32_t>(next(swizzles));
  parts[kCluster] = static_cast<uint32_t>(next(clusters));
  parts[kCustom] = static_cast<uint32_t>(next(customs));
  return parts;
}

// The places: what is near a recommended algorithm and what is plain, in turns until one of the two ends, the rest of the other one, and all
// other combinations.
class CublasLtAlgorithms::Combinations final : public Enumeration {
 public:
  Combinations(const CublasLtAlgorithms& library, const BlasProduct& p, const std::vector<BlasResult>& recommended)
      : library_(library), product_(p), kernels_(library.kernels(p)) {
    for (const BlasResult& r : recommended) known_.insert(library.parts_of(r));
    for (size_t i = 0; i < std::min(kVaried, recommended.size()); ++i)
      for (const Parts& parts : library.variations(p, library.parts_of(recommended[i])))
        if (!known_.contains(parts) && near_.insert(parts).second) near_in_order_.push_back(parts);
    uint64_t plain = 0, combined = 0;
    for (const Options& c : kernels_) plain += c.plain(), combined += c.combined();
    near_order_ = Spread(near_in_order_.size()), plain_ = Spread(plain), combined_ = Spread(combined);
  }
  size_t size() const override { return near_order_.size() + plain_.size() + combined_.size(); }
  std::optional<std::string> at(size_t place) const override {
    const std::optional<Parts> parts = parts_at(place);
    if (!parts || known_.contains(*parts) || !library_.made(product_, *parts)) return std::nullopt;
    return name_of(*parts);
  }

 private:
  std::optional<Parts> parts_at(uint64_t place) const {
    const uint64_t near = near_order_.size(), plain = plain_.size(), turns = std::min(near, plain);
    if (place < 2 * turns) return place % 2 == 0 ? near_at(place / 2) : plain_at(place / 2);
    if (place < near + plain) return near > plain ? near_at(place - plain) : plain_at(place - near);
    return unless_near(kernel_at(combined_[place - near - plain], true));
  }
  Parts near_at(uint64_t i) const { return near_in_order_[near_order_[i]]; }
  std::optional<Parts> plain_at(uint64_t i) const { return unless_near(kernel_at(plain_[i], false)); }
  std::optional<Parts> unless_near(const Parts& parts) const {
    return near_.contains(parts) ? std::nullopt : std::optional(parts);
  }
  // The plain or the combined ones of one kernel after the other.
  Parts kernel_at(uint64_t place, bool combined) const {
    size_t i = 0;
    const auto count = [&] { return combined ? kernels_[i].combined() : kernels_[i].plain(); };
    for (; place >= count(); ++i) place -= count();
    return kernels_[i].at(combined ? kernels_[i].plain() + place : place);
  }

  const CublasLtAlgorithms& library_;  // lives as long as the process
  BlasProduct product_;
  std::vector<Options> kernels_;
  std::set<Parts> known_, near_;
  std::vector<Parts> near_in_order_;
  Spread near_order_, plain_, combined_;
};

std::unique_ptr<Enumeration> CublasLtAlgorithms::all(const BlasProduct& p,
                                                     const std::vector<BlasResult>& recommended) const {
  return std::make_unique<Combinations>(*this, p, recommended);
}

std::optional<BlasResult> CublasLtAlgorithms::find(const BlasProduct& p, const std::string& name) const {
  const std::optional<Parts> parts = parts_of(name);
  if (!parts) return std::nullopt;
  return made(p, *parts);
}

const BlasEnumeration* cublaslt_algorithms() {
  static const auto* algorithms = [] {
    CublasLtAlgorithmFunctions functions;
    std::string lacking;
    void* library = kCublaslt.open().handle;
    if (!library) return new CublasLtAlgorithms(functions, "a library");
#define PYFLAME_CUBLASLT_LOAD(member, suffix, parameters)                                       \
  {                                                                                             \
    const std::string name = std::string("cublasLtMatmulAlgo") + (suffix);                      \
    functions.member = reinterpret_cast<int(*) parameters>(find_symbol(library, name.c_str())); \
    if (!functions.member) lacking = name;                                                      \
  }
    PYFLAME_CUBLASLT_ALGORITHM_FUNCTIONS(PYFLAME_CUBLASLT_LOAD)
#undef PYFLAME_CUBLASLT_LOAD
    return new CublasLtAlgorithms(functions, lacking);
  }();
  return algorithms;
}

}  // namespace pyflame::gpu
