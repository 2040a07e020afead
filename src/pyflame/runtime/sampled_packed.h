// The gradient of attention of packed sequences: each sequence is a batch of its own, with the same memory.
#pragma once
#include <vector>

#include "pyflame/backends/backend.h"

namespace pyflame::sampled {

// The rows of one sequence.
struct PackedSequence {
  int64_t first_query, queries, first_key, keys;
};

// Of a varlen_attn_grad. None: the offsets are wrong, which is an error of the op.
std::vector<PackedSequence> packed_sequences(const Node& n, Pointers inputs);

// The attention_grad of one sequence alone, of shapes [1, H, T, D], and where its operands are.
struct AloneSequence {
  Node node;
  Indexed<BindingId, void*> pointers;
};
AloneSequence alone(const Node& n, const PackedSequence& sequence, Pointers inputs);

}  // namespace pyflame::sampled
