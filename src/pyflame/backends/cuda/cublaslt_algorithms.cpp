// Lists cuBLASLt's algorithms for a product. There are far more than can be measured: each kernel can be combined with tiles, stages, splits
// of the sum and more. So what differs in one part from a recommended algorithm comes first, and then kernels with
// their tiles and stages, spread over all of them.
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
constexpr uint32_t kMostCustom = 15, kMostClusters = 16;  // numbers that are tried, of those that the library may have
constexpr size_t kVaried = 4;                             // so many recommended algorithms are varied
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

// Each kernel with each of its tiles and stages.
std::vector<CublasLtAlgorithms::Parts> CublasLtAlgorithms::plain(const BlasProduct& p) const {
  std::array<int, 256> ids{};
  int found = 0;
  std::vector<Parts> all;
  if (library_.ids(p.handle, p.compute, p.scale, p.type_a, p.type_b, p.type_c, p.type_c, static_cast<int>(ids.size()),
                   ids.data(), &found) != 0)
    return all;
  Parts parts{};
  for (size_t i = 0; i < parts.size(); ++i) parts[i] = kCublasLtParts[i].otherwise;
  for (int i = 0; i < std::min(found, static_cast<int>(ids.size())); ++i) {
    parts[kId] = static_cast<uint32_t>(ids[static_cast<size_t>(i)]);
    const std::optional<BlasResult> kernel = start(p, parts[kId]);
    if (!kernel) continue;
    const std::vector<uint32_t> all_stages = capabilities(*kernel, kCapabilities.stages);
    for (const uint32_t tile : capabilities(*kernel, kCapabilities.tiles))
      for (const uint32_t stages : all_stages) {
        parts[kTile] = tile, parts[kStages] = stages;
        all.push_back(parts);
      }
  }
  return all;
}

std::vector<BlasAlgorithm> CublasLtAlgorithms::list(const BlasProduct& p, const std::vector<BlasResult>& recommended,
                                                    size_t most) const {
  std::vector<BlasAlgorithm> found;
  std::set<std::string> known;
  for (const BlasResult& r : recommended) known.insert(name_of(parts_of(r)));
  size_t asked = 0;
  const auto add = [&](const std::vector<Parts>& all, size_t until) {
    for (const Parts& parts : all) {
      if (found.size() >= until || asked == kMostEnumerating) return;
      std::string name = name_of(parts);
      if (!known.insert(name).second) continue;
      ++asked;
      if (const auto result = made(p, parts)) found.push_back({std::move(name), *result});
    }
  };
  std::vector<Parts> near;
  for (size_t i = 0; i < std::min(kVaried, recommended.size()); ++i)
    for (const Parts& parts : variations(p, parts_of(recommended[i]))) near.push_back(parts);
  const size_t candidates = near.size();
  add(spread(std::move(near), candidates), most / 2);
  add(spread(plain(p), kMostEnumerating), most);
  return found;
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
