// Random numbers are counter-based: the numbers of a call are a function of (seed, offset, element), and each call
// takes its own offset when it is recorded. Both are run-time params, so dropout does not make new programs.
#include <mutex>
#include <numbers>

#include "pyflame/base/fork.h"
#include "pyflame/ops/helpers.h"
#include "pyflame/record/emit.h"
#include "pyflame/tensor/default_dtype.h"

namespace pyflame {

using ops::check_defined;

namespace {

struct Generator {
  std::mutex mutex;
  RngState state{0x853c49e6748fea9bull, 0};
};
Generator& generator() {
  static Generator* g = new Generator;  // leaked: threads may outlive static destruction
  return *g;
}

const AtFork g_at_fork{ForkOrder::Random, [] { generator().mutex.lock(); }, [](bool) { generator().mutex.unlock(); }};

// The number of the element is the other half of the counter (base/philox.h), so one offset per call is enough.
RngState take() {
  Generator& g = generator();
  std::lock_guard lock(g.mutex);
  return {g.state.seed, g.state.offset++};
}

Arg word(uint64_t v) { return Arg(static_cast<int64_t>(v), DType::int64); }

Tensor draw(OpId op, const Dims& shape, DType dtype, Device device) {
  const RngState s = take();
  return emit_on(device, op, {word(s.seed), word(s.offset)}, shape, dtype);
}

Tensor draw_float(const char* name, OpId op, const Dims& shape, DTypeOpt dtype, DeviceOpt device) {
  checked_numel(name, shape);
  const DType d = dtype.value_or(default_dtype());
  if (is_complex(d)) {  // the parts of normal numbers have half the variance each
    Dims pairs = shape;
    pairs.push_back(2);
    const Tensor parts = draw_float(name, op, pairs, part_dtype(d), device);
    return view_as_complex(op == OpId::rand_normal ? mul(parts, std::numbers::sqrt2 / 2) : parts).detach();
  }
  PF_CHECK(is_float(d), Type, "{}: not a float dtype; got {}; expected a float dtype", name, dtype_name(d));
  return draw(op, shape, d, device.value_or(current_device()));
}

}  // namespace

void manual_seed(uint64_t seed) { set_rng_state({seed, 0}); }

RngState get_rng_state() {
  Generator& g = generator();
  std::lock_guard lock(g.mutex);
  return g.state;
}

void set_rng_state(RngState s) {
  Generator& g = generator();
  std::lock_guard lock(g.mutex);
  g.state = s;
}

Tensor rand(const Dims& shape, DTypeOpt dtype, DeviceOpt device) {
  return draw_float("rand", OpId::rand_uniform, shape, dtype, device);
}
Tensor randn(const Dims& shape, DTypeOpt dtype, DeviceOpt device) {
  return draw_float("randn", OpId::rand_normal, shape, dtype, device);
}

Tensor randint(int64_t low, int64_t high, const Dims& shape, DTypeOpt dtype, DeviceOpt device) {
  checked_numel("randint", shape);
  PF_CHECK(low < high, Value, "randint: empty range; got low {} and high {}; expected low < high", low, high);
  const DType d = dtype.value_or(DType::int64);
  for (const int64_t end : {low, high - 1}) ops::check_fits("randint", Scalar(end), d);
  const RngState s = take();
  const Tensor out =
      emit_on(device.value_or(current_device()), OpId::rand_int,
              {word(s.seed), word(s.offset), Arg(low, DType::int64), Arg(high, DType::int64)}, shape, DType::int64);
  return cast(out, d);
}

Tensor randperm(int64_t n, DTypeOpt dtype, DeviceOpt device) {
  PF_CHECK(n >= 0, Value, "randperm: negative size; got {}; expected >= 0", n);
  checked_numel("randperm", {n});
  return cast(draw(OpId::randperm, {n}, DType::int64, device.value_or(current_device())), dtype.value_or(DType::int64));
}

Tensor bernoulli(const Tensor& p) {
  check_defined("bernoulli", p);
  PF_CHECK(is_float(p.dtype()), Type, "bernoulli: the probabilities are not floats; got {}; expected a float dtype",
           dtype_name(p.dtype()));
  const DType drawn = p.dtype() == DType::float64 ? DType::float64 : DType::float32;
  return cast(lt(draw(OpId::rand_uniform, p.shape(), drawn, p.device()), cast(p.detach(), drawn)), p.dtype());
}

Tensor dropout(const Tensor& x, double p, bool training) {
  check_defined("dropout", x);
  PF_CHECK(p >= 0 && p <= 1, Value, "dropout: the probability is out of range; got {}; expected 0 <= p <= 1", p);
  if (!training || p == 0) return x;
  PF_CHECK(has_gradient(x.dtype()), Type, "dropout: not defined for this dtype; got {}; expected a float dtype",
           dtype_name(x.dtype()));
  if (p == 1) return mul(x, 0.0);
  // The gradient keeps only the mask, one byte per element.
  const Tensor keep = lt(draw(OpId::rand_uniform, x.shape(), DType::float32, x.device()), 1 - p);
  return where(keep, mul(x, 1 / (1 - p)), 0.0);
}

}  // namespace pyflame
