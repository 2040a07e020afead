// Fused attention: one task is a block of queries of one head. Scores live in the thread's scratch and never in
// memory; keys are taken in blocks with a running maximum and sum (one block when the sequence is short). The
// backward pass recomputes the probabilities from the stored logsumexp; a task there is one key/value head, so that
// its sums have one writer and one order.
#pragma once
#include "pyflame/backends/cpu/common.h"

namespace pyflame::cpu {

Refusal accept_attention(const Problem& p);
std::unique_ptr<Executable> make_attention(const Problem& p);
std::unique_ptr<Executable> make_attention_grad(const Problem& p);

}  // namespace pyflame::cpu
