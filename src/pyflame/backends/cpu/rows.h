// Ops over rows: softmax, normalisations, and losses on class indices. Rows that fit the L1 cache are read once. Sums
// over rows (the gradients of weights) use partial sums whose number depends on the shape only.
#pragma once
#include "pyflame/backends/cpu/common.h"

namespace pyflame::cpu {

std::unique_ptr<Executable> make_softmax(const Problem& p);  // and log_softmax
std::unique_ptr<Executable> make_norm(const Problem& p);     // layer_norm, rms_norm
Refusal accept_norm_grad(const Problem& p);
std::unique_ptr<Executable> make_norm_grad(const Problem& p);
std::unique_ptr<Executable> make_nll(const Problem& p);
std::unique_ptr<Executable> make_nll_grad(const Problem& p);
std::unique_ptr<Executable> make_cross_entropy(const Problem& p);
Refusal accept_cross_entropy_grad(const Problem& p);
std::unique_ptr<Executable> make_cross_entropy_grad(const Problem& p);

}  // namespace pyflame::cpu
