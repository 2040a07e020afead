// Single rows of attention, directly from the definition and in double, with bounds for what 16-bit implementations round.
#pragma once
#include <optional>
#include <vector>

#include "pyflame/backends/backend.h"
#include "pyflame/runtime/sampled_inputs.h"

namespace pyflame::sampled {

// A sum of products of rounded numbers, whose errors have either sign.
class RoundedSum {
 public:
  void add(double term) { value_ += term, magnitude_ += std::fabs(term), ++terms_; }
  // What the roundings of one term's factors make of it. vanished: what it lacks if a small factor becomes 0.
  void add_error(double error, double vanished = 0) {
    errors_ += error, squares_ += error * error, vanished_ += vanished;
  }
  double value() const { return value_; }
  // Of an element of the dtype.
  double allowed(DType dtype) const;
  // The same without the last roundings: what it is off in the type of the sums.
  double error(DType dtype) const;

 private:
  double value_ = 0, magnitude_ = 0, errors_ = 0, squares_ = 0, vanished_ = 0;
  int64_t terms_ = 0;
};

// Of an exponential, whose argument was computed in the type of the sums: GPUs have fast ones.
double rounding_of_exponentials(DType dtype);

// What becomes of a factor of a term that is rounded to the dtype and is too small for it, if it becomes 0.
double vanishing(double factor, DType dtype);

// The softmax of a query's scores.
struct AttentionWeights {
  struct Weight {
    double value, error;  // the error is that of the score
    int64_t key;
  };
  std::vector<Weight> seen;  // in the order of the keys; those that vanish are not among them
  double lse = 0;            // the log of the sum of the scores' exponentials; -infinity: it sees no key
  double lse_error = 0;      // as it is computed, before it is stored
};

struct AttentionRow {
  std::vector<double> values, allowed;  // of the result
  double lse = 0, lse_allowed = 0;
};

// The rows of some queries. The node is an attention of tensors of one float dtype, its gradient, or an attention of packed sequences.
class AttentionRows {
 public:
  // cap: a score s becomes cap tanh(s / cap); 0: it stays. All must live as long as this object.
  AttentionRows(const Node& node, Pointers inputs, Params params, double cap = 0);
  // At (batch, head, query), or (row, head) of packed sequences. Nothing: the op's definition leaves this row open.
  std::optional<AttentionRow> row(const Dims& at) const;
  // Multiplications of one row.
  int64_t cost() const;
  // Of packed sequences: the last row of the one that has this row.
  int64_t last_of_sequence(int64_t row) const;
  // Whether the op's definition leaves the row open, because the query is padding.
  bool is_padding(int64_t batch, int64_t head, int64_t query) const;
  bool has_padding() const { return padding_ && mask_; }
  // `batch` is the number of a sequence, and the query is one of it, where they are packed.
  AttentionWeights weights(int64_t batch, int64_t head, int64_t query) const;
  // How many keys count at the most, and how many of them a query may see but for the mask.
  int64_t keys() const { return keys_; }
  int64_t seen(int64_t batch, int64_t query) const;
  double scale() const { return scale_; }
  const Elements& q() const { return q_; }
  const Elements& k() const { return k_; }
  const Elements& v() const { return v_; }

 private:
  using Weight = AttentionWeights::Weight;
  // Queries with the keys that belong to them: a batch entry, or a packed sequence.
  struct Part {
    int64_t first_query, queries, first_key, keys;
  };
  std::vector<Part>::const_iterator sequence_of(int64_t row) const;
  void find_sequences(const Operand& queries, const Operand& keys, Pointers inputs);
  int64_t query_at(int64_t batch, int64_t head, int64_t query) const;
  int64_t key_at(const Elements& x, int64_t batch, int64_t head, int64_t key) const;  // `head`: of the queries
  std::vector<Weight> scores(int64_t batch, int64_t head, int64_t query) const;
  Weight capped(double score, double error) const;  // of no key
  static double drop_zeros(std::vector<Weight>& all);
  double masked(double score, int64_t batch, int64_t head, int64_t query, int64_t key) const;
  void add_values(AttentionRow& row, const std::vector<Weight>& weights, int64_t batch, int64_t head) const;

  const Node& node_;
  const bool packed_;
  const size_t first_;  // of the inputs: the query
  Elements q_, k_, v_;
  const Operand* mask_operand_ = nullptr;
  std::optional<Elements> mask_;
  Dims mask_strides_;
  std::vector<Part> parts_;
  double scale_ = 0;
  const double cap_;
  int64_t keys_ = 0;
  bool causal_ = false, padding_ = false;
};

}  // namespace pyflame::sampled
