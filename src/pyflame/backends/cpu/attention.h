// Fused attention. A task is a block of queries of one head. Scores stay in the thread's scratch memory. Keys are
// processed in blocks with a running maximum and sum (a single block if the sequence is short). The backward pass
// recomputes the probabilities from the stored logsumexp. A task there is one head of keys and values, so each of its
// sums has one writer and one order.
#pragma once
#include "pyflame/backends/cpu/common.h"

namespace pyflame::cpu {

Refusal accept_attention(const Problem& p);
std::unique_ptr<Executable> make_attention(const Problem& p);
std::unique_ptr<Executable> make_attention_grad(const Problem& p);

}  // namespace pyflame::cpu
