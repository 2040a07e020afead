// Single rows of attention's gradients, directly from the definition and in double, with bounds for what 16-bit implementations round.
#pragma once
#include <map>
#include <optional>
#include <tuple>
#include <vector>

#include "pyflame/runtime/sampled_attention.h"

namespace pyflame::sampled {

// The node is an attention_grad of tensors of one float dtype. What is known of a query is kept: rows of keys need it of all queries that see the key.
// The stored logsumexp and output would take less, but only all pairs of a query tell how far implementations that compute both anew may be from them,
// so long sequences have rows of keys that few queries see, or none.
class AttentionGradRows {
 public:
  // Both must live as long as this object.
  AttentionGradRows(const Node& node, Pointers inputs, Params params);

  struct Row {
    std::vector<double> values, allowed;
  };
  struct KeyRows {
    Row key, value;  // of dK and dV
  };
  // A row of dQ. Nothing: the op's definition leaves it open, a row of the head's keys or values is not finite, or the stored output is
  // not right.
  std::optional<Row> query(int64_t batch, int64_t head, int64_t query);
  // Rows of dK and dV. `head`: of the keys. Nothing: a query that sees the key is padding, not finite, or has a stored output that is
  // not right.
  std::optional<KeyRows> key(int64_t batch, int64_t head, int64_t key);

  // Multiplications of a row of dQ, of rows of dK and dV (with those of the queries that are not known yet), and of the latter where nothing is known.
  int64_t cost_of_query() const;
  int64_t cost_of_key(int64_t batch, int64_t head, int64_t key) const;
  int64_t cost_of_head() const;

 private:
  // A key that a query sees. dot: of the row of the output's gradient with the key's value.
  struct Pair {
    double weight, score_error, dot, dot_error;
    int64_t key;
  };
  struct Query {
    std::vector<Pair> seen;
    double lse_error = 0;
    double delta = 0, delta_error = 0;  // the sum of weight * dot
    bool follows =
        true;  // the stored output and logsumexp are those of an attention; otherwise nothing says what is right
  };
  const Query& known(int64_t batch, int64_t head, int64_t query);
  double dot_of_output(int64_t batch, int64_t head, int64_t query, double& error) const;
  void add_pairs(Query& q, const AttentionWeights& weights, int64_t batch, int64_t head, int64_t query) const;
  bool is_finite(const Elements& x, int64_t batch, int64_t head, int64_t rows) const;
  bool has_finite_keys(int64_t batch, int64_t head);
  bool has_finite_queries(int64_t batch, int64_t head);
  bool is_zero(int64_t batch, int64_t head, int64_t query) const;
  int64_t keys_head(int64_t head) const { return head / together_; }
  int64_t cost_of_pairs() const;

  const AttentionRows rows_;
  const Elements grad_, out_, lse_;
  const DType dtype_;
  const int64_t together_;  // heads of queries for one of keys
  std::map<std::tuple<int64_t, int64_t, int64_t>, Query> known_;
  std::map<std::pair<int64_t, int64_t>, bool> finite_keys_, finite_queries_;
};

}  // namespace pyflame::sampled
