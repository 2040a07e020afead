// Sources and random ops. base/philox.h defines how seed, offset and element become a number.
#include "pyflame/base/philox.h"

#include <cmath>
#include <numeric>

#include "pyflame/backends/reference/access.h"

namespace pyflame::reference {
namespace {

constexpr double kTwoPi = 6.28318530717958647693;

struct Stream {
  uint64_t seed, offset;
  explicit Stream(const Call& c)
      : seed(static_cast<uint64_t>(c.integer(0))), offset(static_cast<uint64_t>(c.integer(1))) {}
  PhiloxBlock block(int64_t i) const { return philox(seed, offset, static_cast<uint64_t>(i)); }
  uint64_t bits64(int64_t i) const { return philox_element64(seed, offset, i); }
  uint32_t bits32(int64_t i) const { return block(i / 4)[static_cast<size_t>(i % 4)]; }
};

double uniform(const Stream& s, DType dtype, int64_t i) {
  switch (dtype) {
    case DType::float64: return philox_uniform_f64(s.bits64(i));
    case DType::float16: return static_cast<double>(philox_uniform_f16(s.bits32(i)));
    case DType::bfloat16: return static_cast<double>(philox_uniform_bf16(s.bits32(i)));
    default: return static_cast<double>(philox_uniform_f32(s.bits32(i)));
  }
}

double normal(const Stream& s, DType dtype, int64_t i) {
  const int64_t pair = i / 2;
  double u, t;
  if (dtype == DType::float64) {
    const PhiloxBlock w = s.block(pair);
    u = philox_open_uniform_f64(philox_word64(w, 0));
    t = philox_uniform_f64(philox_word64(w, 1));
  } else {
    const PhiloxBlock w = s.block(pair / 2);
    const auto at = static_cast<size_t>(2 * (pair % 2));
    u = static_cast<double>(philox_open_uniform_f32(w[at]));
    t = static_cast<double>(philox_uniform_f32(w[at + 1]));
  }
  const double r = std::sqrt(-2 * std::log(u));
  return r * (i % 2 == 0 ? std::cos(kTwoPi * t) : std::sin(kTwoPi * t));
}

template <class T, class F>
void fill(const View& out, F&& value_of) {
  std::vector<T> all(static_cast<size_t>(out.numel()));
  for (size_t i = 0; i < all.size(); ++i) all[i] = value_of(static_cast<int64_t>(i));
  write_all(out, all);
}

template <class T>
T param_as(const Call& c, int i) {
  const Operand& o = c.node.ins[static_cast<size_t>(i)];
  if constexpr (std::is_same_v<T, double>) return param_as_f64(c.params[o.param], o.dtype);
  else return param_as_i64(c.params[o.param], o.dtype);
}

}  // namespace

void run_source(const Call& c) {
  const View out = c.out(0);
  switch (c.node.op) {
    case OpId::full:
      return with_compute_type(out.dtype, [&]<class T>() {
        const T value = param_as<T>(c, 0);
        fill<T>(out, [&](int64_t) { return value; });
      });
    case OpId::arange:
      return with_compute_type(out.dtype, [&]<class T>() {
        const T start = param_as<T>(c, 0), step = param_as<T>(c, 1);
        fill<T>(out, [&](int64_t i) { return add(start, mul(static_cast<T>(i), step)); });
      });
    case OpId::rand_uniform:
      return fill<double>(out, [s = Stream(c), d = out.dtype](int64_t i) { return uniform(s, d, i); });
    case OpId::rand_normal:
      return fill<double>(out, [s = Stream(c), d = out.dtype](int64_t i) { return normal(s, d, i); });
    case OpId::rand_int: {
      const int64_t low = c.integer(2), high = c.integer(3);
      PF_CHECK(low < high, Value, "rand_int: empty range; got low {} and high {}; expected low < high", low, high);
      return fill<int64_t>(out, [s = Stream(c), low, high](int64_t i) { return philox_int(s.bits64(i), low, high); });
    }
    default: PF_FAIL(NotImplemented, "{}: the reference has no kernel for it", c.name());
  }
}

void run_user_kernel(const Call& c) { PF_FAIL(NotImplemented, "{}: the reference has no kernel for it", c.name()); }

void run_randperm(const Call& c) {
  const Stream s(c);
  const View out = c.out(0);
  std::vector<uint64_t> key(static_cast<size_t>(out.numel()));
  for (size_t i = 0; i < key.size(); ++i) key[i] = s.bits64(static_cast<int64_t>(i));
  std::vector<int64_t> order(key.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int64_t a, int64_t b) { return key[static_cast<size_t>(a)] < key[static_cast<size_t>(b)]; });
  write_all(out, order);
}

}  // namespace pyflame::reference
