// Single rows of attention, directly from the definition and in double, with bounds for what 16-bit implementations round.
#pragma once
#include <optional>
#include <vector>

#include "pyflame/backends/backend.h"
#include "pyflame/runtime/sampled_inputs.h"

namespace pyflame::sampled {

struct AttentionRow {
  std::vector<double> values, allowed;  // of the result
  double lse = 0, lse_allowed = 0;      // the log of the sum of the scores' exponentials; -infinity: it sees no key
};

// The rows of some queries. The node is an attention of tensors of one float dtype.
class AttentionRows {
 public:
  // Both must live as long as this object.
  AttentionRows(const Node& node, Pointers inputs, Params params);
  // Multiplications of one row.
  int64_t cost() const;
  // Whether the op's definition leaves the row open, because the query is padding.
  bool is_padding(int64_t batch, int64_t head, int64_t query) const;
  bool has_padding() const { return padding_ && mask_; }
  // Nothing: the op's definition leaves this row open.
  std::optional<AttentionRow> row(int64_t batch, int64_t head, int64_t query) const;

 private:
  struct Score {
    double value, error;
    int64_t key;
  };
  std::vector<Score> scores(int64_t batch, int64_t head, int64_t query) const;
  static double drop_zeros(std::vector<Score>& all);
  double masked(double score, int64_t batch, int64_t head, int64_t query, int64_t key) const;
  void add_values(AttentionRow& row, const std::vector<Score>& weights, int64_t batch, int64_t head) const;

  const Node& node_;
  Elements q_, k_, v_;
  std::optional<Elements> mask_;
  Dims mask_strides_;
  double scale_ = 0;
  int64_t keys_ = 0;
  bool causal_ = false, padding_ = false;
};

}  // namespace pyflame::sampled
