// Ops that compare along a line: argmax, argmin, topk, sort. NaN counts as the largest value; equal values keep the
// order of their indices.
#pragma once
#include "pyflame/backends/cpu/common.h"

namespace pyflame::cpu {

Refusal accept_order(const Problem& p);
std::unique_ptr<Executable> make_arg_reduce(const Problem& p);
std::unique_ptr<Executable> make_topk(const Problem& p);
std::unique_ptr<Executable> make_sort(const Problem& p);

}  // namespace pyflame::cpu
