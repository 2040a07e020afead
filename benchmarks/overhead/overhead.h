// What the overhead benchmarks share: small tensors, and times that are given per op.
#pragma once
#include <benchmark/benchmark.h>

#include "pyflame/compile/program.h"
#include "pyflame/ops/ops.h"
#include "pyflame/record/recorder.h"
#include "pyflame/tensor/grad_node.h"

namespace pyflame::overhead {

// Small enough for the kernel to cost next to nothing.
constexpr int64_t kElements = 8;

// Seconds per op, in a column of its own: `ops` is how many one iteration runs.
inline void per_op(benchmark::State& state, int64_t ops) {
  using benchmark::Counter;
  state.counters["per_op"] = Counter(static_cast<double>(ops), Counter::kIsIterationInvariantRate | Counter::kInvert);
}

}  // namespace pyflame::overhead
