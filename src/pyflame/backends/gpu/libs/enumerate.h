// What a library of products can do besides what its heuristic recommends: its own enumeration of algorithms. Each vendor's
// folder has one. Only tuning asks for it.
#pragma once
#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "pyflame/backends/backend.h"
#include "pyflame/backends/gpu/libs/blas.h"

namespace pyflame::gpu {

// How many of the algorithms that a library's heuristic recommends are in the list, the best first. What it recommends behind them, and what
// the library enumerates besides, is an Enumeration, of which a search tries as many as its budget allows (runtime/choose.cpp).
constexpr int kMostRecommended = 128;

// An order of some places whose first few are already spread evenly over all of them. Enumerations are not sorted, but
// neighbours in them resemble each other. The order goes in steps of about the golden section, which leave no large gap, however many are
// taken. There are fewer than 2^32 places.
class Spread {
 public:
  explicit Spread(uint64_t size = 0) : size_(size) {
    constexpr uint64_t kTried = 64;
    const auto golden = std::max<uint64_t>(1, static_cast<uint64_t>(0.6180339887498949 * static_cast<double>(size)));
    uint64_t least = UINT64_MAX;
    for (uint64_t step = golden; step < std::min(size, golden + kTried); ++step)
      if (const uint64_t gap = largest_quotient(size, step); gap < least) least = gap, step_ = step;
  }
  uint64_t size() const { return size_; }
  uint64_t operator[](uint64_t i) const { return i * step_ % size_; }

 private:
  // Of the continued fraction of size / step: the larger it is, the larger are the gaps. A common divisor would leave out places.
  static uint64_t largest_quotient(uint64_t size, uint64_t step) {
    uint64_t largest = 0;
    while (step != 0) {
      largest = std::max(largest, size / step);
      size = std::exchange(step, size % step);
    }
    return size == 1 ? largest : UINT64_MAX;
  }
  uint64_t size_, step_ = 1;
};

// What the heuristic says of one algorithm, which is its first member.
using BlasResult = std::array<unsigned char, kMostResultBytes>;

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
  // All algorithms without those that are recommended. A place has none if the library says that it cannot compute the product. What is most
  // promising comes first, the rest is spread over the enumeration. The product's handles must stay.
  virtual std::unique_ptr<Enumeration> all(const BlasProduct& p, const std::vector<BlasResult>& recommended) const = 0;
  // The one with this name, which says all about it, so that it means the same in another process with this version of the
  // library. Empty if it cannot compute the product.
  virtual std::optional<BlasResult> find(const BlasProduct& p, const std::string& name) const = 0;

 protected:
  ~BlasEnumeration() = default;  // they live as long as the process
};

}  // namespace pyflame::gpu
