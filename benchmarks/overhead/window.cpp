// Running windows: one from the cache, one whose shapes are new each time, one of a single op, and a backward pass. Each benchmark
// asks the program cache whether it measured what its name says, and fails when it did not.
#include "overhead.h"
#include "pyflame/autograd/autograd.h"
#include "pyflame/runtime/explain.h"

namespace pyflame::overhead {

namespace {

int count(const std::string& text, std::string_view word) {
  int n = 0;
  for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) ++n;
  return n;
}

// Rows are softmaxed over and over: softmax is a kernel of its own, so every op is a step.
Tensor softmaxes(Tensor x, int64_t ops) {
  for (int64_t i = 0; i < ops; ++i) x = softmax(x, -1);
  return x;
}
Tensor additions(Tensor x, int64_t ops) {
  for (int64_t i = 0; i < ops; ++i) x = add(x, 1.0);
  return x;
}

// Record, find in the cache, run: 100 ops in 100 steps.
void cached_window_unfusable(benchmark::State& state) {
  constexpr int64_t kOps = 100;
  const Tensor a = full({1, kElements}, 1.0);
  softmaxes(a, kOps);
  synchronize();
  explain_start();
  softmaxes(a, kOps);
  const int steps = count(explain_stop(), "  step ");
  const uint64_t misses = cache_stats().misses;
  for (auto _ : state) {
    softmaxes(a, kOps);
    synchronize();
  }
  per_op(state, kOps);
  if (steps != kOps) state.SkipWithError("the window was not run in 100 steps");
  if (cache_stats().misses != misses) state.SkipWithError("the window was planned anew");
}

// The same with ops that become one step, for comparison.
void cached_window_fused(benchmark::State& state) {
  constexpr int64_t kOps = 100;
  const Tensor a = full({1, kElements}, 1.0);
  additions(a, kOps);
  synchronize();
  additions(a, kOps);
  synchronize();
  const uint64_t misses = cache_stats().misses;
  for (auto _ : state) {
    additions(a, kOps);
    synchronize();
  }
  per_op(state, kOps);
  if (cache_stats().misses != misses) state.SkipWithError("the window was planned anew");
}

// An op with gradients on and its share of the cut, of the look-up and of the run: what one op costs in all.
void cached_window_fused_grad(benchmark::State& state) {
  constexpr int64_t kOps = 100;
  const Tensor a = full({kElements}, 1.0);
  a.set_requires_grad(true);
  for (int i = 0; i < 3; ++i) {
    additions(a, kOps);
    synchronize();
  }
  const uint64_t misses = cache_stats().misses;
  for (auto _ : state) {
    additions(a, kOps);
    synchronize();
  }
  per_op(state, kOps);
  if (cache_stats().misses != misses) state.SkipWithError("the window was planned anew");
}

// A window of a shape that was never seen: recorded, fused, planned, run. Never again the same shape, whatever ran before.
template <class Ops>
void fresh_shape(benchmark::State& state, Ops ops) {
  constexpr int64_t kOps = 20;
  static int64_t rows = 0;
  const uint64_t misses = cache_stats().misses;
  for (auto _ : state) {
    state.PauseTiming();
    const int64_t n = ++rows;
    const Tensor x = empty({1 + n % 64, 1 + n / 64});
    state.ResumeTiming();
    ops(x, kOps);
    synchronize();
  }
  per_op(state, kOps);
  if (cache_stats().misses - misses < static_cast<uint64_t>(state.iterations()))
    state.SkipWithError("a program was found in the cache");
}
void plan_fresh_shape_unfusable(benchmark::State& state) { fresh_shape(state, softmaxes); }
void plan_fresh_shape_fused(benchmark::State& state) { fresh_shape(state, additions); }

void one_op_and_synchronize(benchmark::State& state) {
  const Tensor a = full({kElements}, 1.0);
  synchronize();
  for (auto _ : state) {
    add(a, 1.0);
    synchronize();
  }
  per_op(state, 1);
}

void one_op_and_read(benchmark::State& state) {
  const Tensor a = full({1}, 1.0);
  synchronize();
  double total = 0;
  for (auto _ : state) total += add(a, 1.0).item_f64();
  benchmark::DoNotOptimize(total);
  per_op(state, 1);
}

// backward() of a chain of 20 ops whose forward pass has run: the walk, the gradients' ops and their window.
void backward_of_chain(benchmark::State& state) {
  constexpr int64_t kOps = 20;
  const Tensor a = full({kElements}, 1.0);
  a.set_requires_grad(true);
  for (auto _ : state) {
    state.PauseTiming();
    Tensor x = a;
    for (int64_t i = 0; i < kOps; ++i) x = tanh(x);
    const Tensor loss = sum(x);
    a.set_grad(Tensor());
    synchronize();
    state.ResumeTiming();
    autograd::backward({loss});
    synchronize();
  }
  per_op(state, kOps);
}

BENCHMARK(cached_window_unfusable);
BENCHMARK(cached_window_fused);
BENCHMARK(cached_window_fused_grad);
BENCHMARK(plan_fresh_shape_unfusable);
BENCHMARK(plan_fresh_shape_fused);
BENCHMARK(one_op_and_synchronize);
BENCHMARK(one_op_and_read);
BENCHMARK(backward_of_chain);

}  // namespace

}  // namespace pyflame::overhead
