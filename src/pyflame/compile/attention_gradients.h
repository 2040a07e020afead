// The gradient of softmax(q k^T * scale + mask) v as autograd records it, for find_attention (attention_patterns.cpp).
#pragma once
#include <optional>
#include <vector>

#include "pyflame/compile/constants.h"

namespace pyflame {

// What is known of the forward pass. q, k, v and probabilities as they were recorded; k is [.., S, D].
struct ForwardPattern {
  NodeId product;  // probabilities v
  Operand q, k, v, probabilities;
  NodeId softmax, narrowed;     // narrowed: casts the float32 result of the softmax to 16 bits; invalid: there is none
  std::optional<Operand> mask;  // of a `where`
  int kept = 0;                 // that input of the `where` is the scores
  std::optional<Operand> factor;
  bool divides = false;
};

struct GradientPattern {
  Operand grad;
  NodeId dp, dv, weighted, sum, centred, ds, masked, scaled, dq, dk;  // masked and scaled may be invalid
  // Casts, in 16-bit training: dp and the probabilities to float32, ds back. wide_p is invalid if the softmax is float32.
  NodeId wide_dp, wide_p, narrow_ds;
};

// Nothing: something else reads the values in between, or they are other ops.
std::optional<GradientPattern> match_gradient(const Graph& g, const Indexed<SlotId, Users>& users,
                                              const ForwardPattern& f);

// `ins`: those of the attention op, [B, H, T, D] each. out and lse: its results.
void replace_gradient(Parts& p, const GradientPattern& b, const ForwardPattern& f, const std::vector<Operand>& ins,
                      const Operand& out, const Operand& lse);

}  // namespace pyflame
