// What a library of products can do besides what its heuristic recommends: its own enumeration of algorithms. Each vendor's
// folder has one. Only tuning asks for it.
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "pyflame/backends/gpu/libs/blas.h"

namespace pyflame::gpu {

// How many algorithms of a library tuning gets for one product. A search times each of them, and all but the first few are
// slow. Libraries have up to some thousands, so these bounds keep a search of one product within some tens of seconds.
constexpr int kMostRecommended = 128;      // by the heuristic, the best first
constexpr size_t kMostEnumerated = 256;    // of all that can compute the product
constexpr size_t kMostEnumerating = 4096;  // that the library is asked about to find these

// Up to `most` of the list's elements, in such an order that the first few are already spread evenly over it. Enumerations are
// not sorted, but neighbours in them resemble each other.
template <class T>
std::vector<T> spread(std::vector<T> all, size_t most) {
  size_t bits = 0;
  while ((size_t{1} << bits) < all.size()) ++bits;
  std::vector<T> some;
  for (size_t i = 0; i < (size_t{1} << bits) && some.size() < most; ++i) {
    size_t at = 0;  // i with its bits in reverse
    for (size_t bit = 0; bit < bits; ++bit) at |= (i >> bit & 1) << (bits - 1 - bit);
    if (at < all.size()) some.push_back(std::move(all[at]));
  }
  return some;
}

// What the heuristic says of one algorithm, which is its first member.
using BlasResult = std::array<unsigned char, kMostResultBytes>;
struct BlasAlgorithm {
  std::string name;
  BlasResult result{};
};

// A product as it is described to a library.
struct BlasProduct {
  BlasHandle handle = nullptr;
  BlasDesc desc = nullptr;
  std::array<BlasDesc, 3> layouts{};  // of the operands and of the result
  int compute = 0, scale = 0;
  int op_a = 0, op_b = 0;
  int type_a = 0, type_b = 0, type_c = 0;
  const void *alpha = nullptr, *beta = nullptr;
  size_t most_workspace = 0;
};

class BlasEnumeration {
 public:
  // The name of a function that the installed library lacks: then it has no enumeration. Empty: it has all of them.
  virtual std::string lacks() const = 0;
  // Up to `most` algorithms that can compute the product, as the library says, without those that are recommended. What is
  // most promising comes first, the rest is spread over the enumeration.
  virtual std::vector<BlasAlgorithm> list(const BlasProduct& p, const std::vector<BlasResult>& recommended,
                                          size_t most) const = 0;
  // The one with this name, which says all about it, so that it means the same in another process with this version of the
  // library. Empty if it cannot compute the product.
  virtual std::optional<BlasResult> find(const BlasProduct& p, const std::string& name) const = 0;

 protected:
  ~BlasEnumeration() = default;  // they live as long as the process
};

}  // namespace pyflame::gpu
