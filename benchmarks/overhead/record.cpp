// Recording one elementwise op: checks, shape and dtype, the window's words, a promised storage, and with gradients a node of the tape.
// Less than a window's limit is recorded at a time; what runs it is not timed.
#include "overhead.h"

namespace pyflame::overhead {

namespace {

constexpr int64_t kOps = 200;

template <class Op>
void record_ops(benchmark::State& state, bool gradients, Op op) {
  const Tensor a = full({kElements}, 1.0), b = full({kElements}, 1.0);
  a.set_requires_grad(gradients);
  synchronize();
  for (auto _ : state) {
    Tensor x = a;
    for (int64_t i = 0; i < kOps; ++i) x = op(x, b);
    state.PauseTiming();
    x = Tensor();
    synchronize();
    state.ResumeTiming();
  }
  per_op(state, kOps);
}

void record_add(benchmark::State& state) {
  record_ops(state, false, [](const Tensor& x, const Tensor& b) { return add(x, b); });
}
void record_add_grad(benchmark::State& state) {
  record_ops(state, true, [](const Tensor& x, const Tensor& b) { return add(x, b); });
}
void record_add_scalar(benchmark::State& state) {
  record_ops(state, false, [](const Tensor& x, const Tensor&) { return add(x, 1.0); });
}
void record_add_scalar_grad(benchmark::State& state) {
  record_ops(state, true, [](const Tensor& x, const Tensor&) { return add(x, 1.0); });
}

BENCHMARK(record_add);
BENCHMARK(record_add_grad);
BENCHMARK(record_add_scalar);
BENCHMARK(record_add_scalar_grad);

}  // namespace

}  // namespace pyflame::overhead
