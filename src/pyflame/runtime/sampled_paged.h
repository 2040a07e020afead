// Single rows of attention to keys and values in pages.
#pragma once
#include <array>
#include <optional>

#include "pyflame/backends/backend.h"
#include "pyflame/runtime/sampled_attention.h"

namespace pyflame::sampled {

// Of a paged_attention whose keys and values have the queries' dtype or 8 bits. Those of 8 bits are exact in each type that implementations compute with,
// so their scales are no more than another factor of a term.
class PagedRows {
 public:
  // far: how to get at the pages of keys and of values, where these are on a device. All must live as long as this object.
  PagedRows(const Node& node, Pointers inputs, Params params, const std::array<Fetch, 2>& far);
  static bool takes(const Node& node);
  // Nothing: the sequence has no keys, or its pages are wrong.
  std::optional<AttentionRow> row(int64_t sequence, int64_t head) const;
  // Multiplications of one row, at the most.
  int64_t cost() const;

 private:
  static bool has_scales(const Node& node);
  int64_t whole(size_t input, int64_t offset) const;
  std::optional<std::vector<double>> gather(size_t which, int64_t sequence, int64_t head, int64_t first,
                                            int64_t end) const;

  const Node& node_;
  const Pointers inputs_;
  const std::array<Fetch, 2>& far_;
  const size_t numbers_;  // where they begin among the inputs
  double scale_ = 0, cap_ = 0;
  int64_t window_ = 0;
};

}  // namespace pyflame::sampled
