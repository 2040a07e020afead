// The fused-loop engine against the reference backend (every op and dtype), against the C library in ulp, and against itself:
// fused or not, one thread or several, contiguous or strided, the bits are the same.
#include "pyflame/backends/cpu/tile.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <random>

#include "pyflame/backends/reference/reference.h"
#include "pyflame/base/threads.h"
#include "pyflame/kernels/device/launch.h"
#include "support/graph_builder.h"

#include "pyflame/kernels/device/scalar.h"  // after launch.h

namespace pyflame {
namespace {

using test::GraphBuilder;
using test::host;
using test::host_of;
using test::host_zeros;
using test::HostArg;
using test::HostParam;
using test::HostTensor;
using test::run_op;
using test::values;

const Impl kTile{"cpu.tile", cpu::tile_accepts, cpu::tile_make};
const Impl& kReference = kReferenceImpl;

constexpr DType kFloats[] = {DType::float64, DType::float32, DType::float16, DType::bfloat16};
constexpr DType kAll[] = {DType::float64, DType::float32, DType::float16, DType::bfloat16, DType::int64,
                          DType::int32,   DType::int16,   DType::int8,    DType::uint8,    DType::bool_};
constexpr int64_t kSizes[] = {0, 1, 7, 8, 9, 15, 16, 17, 63, 64, 65, 1009, 5003};

double eps_of(DType d) {
  switch (d) {
    case DType::float64: return 0x1p-52;
    case DType::float32: return 0x1p-23;
    case DType::float16: return 0x1p-10;
    case DType::bfloat16: return 0x1p-7;
    default: return 0;
  }
}

HostTensor random_tensor(DType d, const Dims& shape, uint32_t seed, double low = -3, double high = 3) {
  std::mt19937 gen(seed);
  std::uniform_real_distribution<double> u(low, high);
  std::vector<double> v(static_cast<size_t>(shape.numel()));
  for (double& x : v) {
    x = u(gen);
    if (!is_float(d))
      x = d == DType::bool_ ? (x > 0) : d == DType::uint8 ? std::abs(std::round(x * 20)) : std::round(x * 20);
  }
  return host(d, shape, v);
}
// Every second element of a larger tensor: it is not contiguous, and it does not start where its storage starts.
HostTensor strided(const HostTensor& t) {
  Dims shape = t.shape;
  shape.back() = shape.back() * 2 + 3;
  HostTensor big = host_zeros(t.dtype, shape);
  Dims strides = big.strides;
  strides.back() = 2;
  HostTensor v = big.view(t.shape, strides, 3);
  dispatch(t.dtype, [&]<class T>() {
    std::vector<int64_t> from;
    test::detail::each_element(t, [&](int64_t, int64_t offset) { from.push_back(offset); });
    test::detail::each_element(v, [&](int64_t i, int64_t offset) {
      reinterpret_cast<T*>(v.data())[offset] = reinterpret_cast<const T*>(t.data())[from[static_cast<size_t>(i)]];
    });
  });
  return v;
}
bool same_bits(const HostTensor& a, const HostTensor& b) {
  std::vector<double> x = values(a), y = values(b);
  for (size_t i = 0; i < x.size(); ++i)
    if (std::bit_cast<uint64_t>(x[i]) != std::bit_cast<uint64_t>(y[i]) && !(x[i] != x[i] && y[i] != y[i])) return false;
  return x.size() == y.size();
}
// `least`: what is smaller is as exact as this is.
void expect_close(const HostTensor& got, const HostTensor& want, double ulps, const std::string& what,
                  double least = 0) {
  const auto g = values(got), w = values(want);
  const double eps = eps_of(want.dtype);
  const double tiny = want.dtype == DType::float16 ? 0x1p-24 : want.dtype == DType::float64 ? 0x1p-1074 : 0x1p-133;
  for (size_t i = 0; i < w.size(); ++i) {
    if (w[i] != w[i]) {
      ASSERT_NE(g[i], g[i]) << what << " element " << i;
    } else if (g[i] != w[i]) {
      ASSERT_LE(std::abs(g[i] - w[i]), ulps * (eps * std::max(std::abs(w[i]), least) + tiny))
          << what << " element " << i << ": " << g[i] << " for " << w[i];
    }
  }
}

struct ThreadsGuard {
  int before = num_threads();
  explicit ThreadsGuard(int n) { set_num_threads(n); }
  ~ThreadsGuard() { set_num_threads(before); }
};

// --- every op

// All that are computed from one input alone, in its dtype.
std::vector<OpId> unary_ops(bool integers) {
  std::vector<OpId> ops;
  for (int i = 0; i < kNumOps; ++i) {
    const OpInfo& info = kOps[i];
    const bool fits = info.cls == OpClass::Unary && info.param_count == 0 && !info.bool_result && !info.bits_kept;
    if (fits && !(integers ? info.floats_only : info.integers_only)) ops.push_back(static_cast<OpId>(i));
  }
  return ops;
}

TEST(TileOps, UnaryFloats) {
  for (const DType d : kFloats)
    for (const OpId op : unary_ops(false))
      for (const int64_t n : kSizes) {
        const HostTensor x = random_tensor(d, {n}, 1), y = host_zeros(d, {n}), want = host_zeros(d, {n});
        run_op(kTile, op, {x}, {y});
        run_op(kReference, op, {x}, {want});
        // The reference's gelu rounds its argument once more than ours. Special functions have zeros.
        const bool large = op_info(op).gpu_cost >= kLarge;
        expect_close(y, want,
                     large                                       ? 100
                     : op == OpId::gelu_tanh || op == OpId::gelu ? 12
                                                                 : 5,
                     std::string(op_name(op)) + " " + std::string(dtype_name(d)), large ? 1 : 0);
        if (HasFatalFailure()) return;
      }
}

TEST(TileOps, UnaryIntegers) {
  for (const DType d : {DType::int64, DType::int32, DType::int16, DType::int8, DType::uint8})
    for (const OpId op : unary_ops(true))
      for (const int64_t n : kSizes) {
        const HostTensor x = random_tensor(d, {n}, 2), y = host_zeros(d, {n}), want = host_zeros(d, {n});
        run_op(kTile, op, {x}, {y});
        run_op(kReference, op, {x}, {want});
        ASSERT_TRUE(same_bits(y, want)) << op_name(op) << " " << dtype_name(d) << " " << n;
      }
}

TEST(TileOps, Predicates) {
  for (const DType d : kFloats)
    for (const OpId op : {OpId::isnan, OpId::isinf, OpId::logical_not}) {
      constexpr double inf = std::numeric_limits<double>::infinity();
      const HostTensor x = host(d, {6}, {0.0, -0.0, 1.0, inf, -inf, std::nan("")});
      const HostTensor y = host_zeros(DType::bool_, {6}), want = host_zeros(DType::bool_, {6});
      run_op(kTile, op, {x}, {y});
      run_op(kReference, op, {x}, {want});
      ASSERT_TRUE(same_bits(y, want)) << op_name(op);
    }
}

TEST(TileOps, Binary) {
  for (const DType d : kAll)
    for (const OpId op : {OpId::add, OpId::sub, OpId::mul, OpId::div, OpId::floor_divide, OpId::remainder, OpId::pow,
                          OpId::maximum, OpId::minimum, OpId::gelu_grad, OpId::gelu_tanh_grad, OpId::silu_grad}) {
      const bool float_only =
          op == OpId::div || op == OpId::gelu_grad || op == OpId::gelu_tanh_grad || op == OpId::silu_grad;
      if (float_only && !is_float(d)) continue;
      if (d == DType::bool_ && (op == OpId::floor_divide || op == OpId::remainder || op == OpId::pow)) continue;
      for (const int64_t n : kSizes) {
        const HostTensor x = random_tensor(d, {n}, 3);
        HostTensor z = random_tensor(d, {n}, 4);
        if (!is_float(d) && op == OpId::pow) z = random_tensor(d, {n}, 4, 0, 0.3);
        if (!is_float(d) && (op == OpId::floor_divide || op == OpId::remainder)) z = random_tensor(d, {n}, 4, 0.1, 3);
        const HostTensor y = host_zeros(d, {n}), want = host_zeros(d, {n});
        run_op(kTile, op, {x, z}, {y});
        run_op(kReference, op, {x, z}, {want});
        // Gradients cross zero: what cancels there is measured against the gradient's size.
        if (op == OpId::gelu_grad || op == OpId::gelu_tanh_grad || op == OpId::silu_grad) {
          const auto g = values(y), w = values(want);
          for (size_t i = 0; i < g.size(); ++i) ASSERT_NEAR(g[i], w[i], 12 * eps_of(d)) << op_name(op);
        } else {
          expect_close(y, want, 2, std::string(op_name(op)) + " " + std::string(dtype_name(d)));
        }
        if (HasFatalFailure()) return;
      }
    }
}

TEST(TileOps, NaNPassesMaximumAndMinimum) {
  for (const DType d : kFloats)
    for (const OpId op : {OpId::maximum, OpId::minimum, OpId::relu, OpId::sign, OpId::leaky_relu}) {
      std::vector<double> a(40, 1.0), b(40, 2.0);
      a[3] = b[7] = a[33] = b[39] = std::nan("");
      const HostTensor x = host(d, {40}, a), z = host(d, {40}, b), y = host_zeros(d, {40}), want = host_zeros(d, {40});
      const bool two = op_info(op).arity == 2;
      const std::vector<HostArg> args = two ? std::vector<HostArg>{x, z} : std::vector<HostArg>{x, HostParam{0.1, d}};
      run_op(kTile, op, op == OpId::relu || op == OpId::sign ? std::vector<HostArg>{x} : args, {y});
      run_op(kReference, op, op == OpId::relu || op == OpId::sign ? std::vector<HostArg>{x} : args, {want});
      ASSERT_TRUE(same_bits(y, want)) << op_name(op);
      ASSERT_TRUE(std::isnan(values(y)[3]));
    }
}

TEST(TileOps, ComparisonsAndLogic) {
  for (const DType d : kAll)
    for (const OpId op : {OpId::eq, OpId::ne, OpId::lt, OpId::le, OpId::gt, OpId::ge, OpId::logical_and,
                          OpId::logical_or, OpId::logical_xor})
      for (const int64_t n : kSizes) {
        const HostTensor x = random_tensor(d, {n}, 5, -0.1, 0.1), z = random_tensor(d, {n}, 6, -0.1, 0.1);
        const HostTensor y = host_zeros(DType::bool_, {n}), want = host_zeros(DType::bool_, {n});
        run_op(kTile, op, {x, z}, {y});
        run_op(kReference, op, {x, z}, {want});
        ASSERT_TRUE(same_bits(y, want)) << op_name(op) << " " << dtype_name(d);
      }
}

TEST(TileOps, Casts) {
  constexpr double inf = std::numeric_limits<double>::infinity();
  for (const DType from : kAll)
    for (const DType to : kAll) {
      std::vector<double> v = {0, 1, 2, 100, 127, 65, 3, 1, 0};
      if (from != DType::uint8 && from != DType::bool_) v.insert(v.end(), {-1, -128, -7, -100});
      if (from == DType::int64 || from == DType::int32)
        v.insert(v.end(), {300, 70000, 2049, 16777217, -40000, 2147483647});
      if (is_float(from))
        v.insert(v.end(), {0.5, -0.5, 1e-3, 1 + 0x1p-11 + 0x1p-30, 1 + 0x1p-8 + 0x1p-30, 300, -300, 1e10, -1e10, 1e30,
                           inf, -inf, std::nan("")});
      const auto n = static_cast<int64_t>(v.size());
      const HostTensor x = from == DType::bool_ ? random_tensor(from, {n}, 3) : host(from, {n}, v);
      const HostTensor y = host_zeros(to, {n}), want = host_zeros(to, {n});
      run_op(kTile, OpId::cast, {x}, {y});
      run_op(kReference, OpId::cast, {x}, {want});
      ASSERT_TRUE(same_bits(y, want)) << dtype_name(from) << " to " << dtype_name(to) << ": "
                                      << ::testing::PrintToString(values(y)) << " for "
                                      << ::testing::PrintToString(values(want));
    }
}

TEST(TileOps, WhereAndParams) {
  for (const DType d : kAll) {
    const HostTensor c = random_tensor(DType::bool_, {37}, 7), a = random_tensor(d, {37}, 8),
                     b = random_tensor(d, {37}, 9);
    const HostTensor y = host_zeros(d, {37}), want = host_zeros(d, {37});
    run_op(kTile, OpId::where, {c, a, b}, {y});
    run_op(kReference, OpId::where, {c, a, b}, {want});
    ASSERT_TRUE(same_bits(y, want)) << dtype_name(d);
    run_op(kTile, OpId::mul, {a, HostParam{3, d}}, {y});
    run_op(kReference, OpId::mul, {a, HostParam{3, d}}, {want});
    ASSERT_TRUE(same_bits(y, want)) << dtype_name(d);
  }
  for (const DType d : kFloats) {
    const HostTensor x = random_tensor(d, {70}, 8, -30, 30), y = host_zeros(d, {70}), want = host_zeros(d, {70});
    for (const double beta : {1.0, 1.5}) {
      run_op(kTile, OpId::softplus, {x, HostParam{beta}, HostParam{20.0}}, {y});
      run_op(kReference, OpId::softplus, {x, HostParam{beta}, HostParam{20.0}}, {want});
      expect_close(y, want, beta == 1 ? 5 : 50, "softplus");  // the rounding of beta x <= 45 counts 45-fold
    }
    run_op(kTile, OpId::leaky_relu, {x, HostParam{0.01, d}}, {y});
    run_op(kReference, OpId::leaky_relu, {x, HostParam{0.01, d}}, {want});
    expect_close(y, want, 1, "leaky_relu");
    for (const double e : {2.0, 3.0, 1.0, -1.0, 0.5, 0.0, 1.7}) {
      const HostTensor p = random_tensor(d, {70}, 8, 0, 3);
      run_op(kTile, OpId::pow, {p, HostParam{e, d}}, {y});
      run_op(kReference, OpId::pow, {p, HostParam{e, d}}, {want});
      expect_close(y, want, 2, "pow");
    }
  }
}

TEST(TileOps, Sources) {
  for (const DType d : kAll)
    for (const int64_t n : kSizes) {
      const HostTensor y = host_zeros(d, {n}), want = host_zeros(d, {n});
      const auto both = [&](OpId op, const std::vector<HostArg>& args) {
        run_op(kTile, op, args, {y});
        run_op(kReference, op, args, {want});
      };
      both(OpId::full, {HostParam{1, d}});
      ASSERT_TRUE(same_bits(y, want)) << "full " << dtype_name(d);
      if (d != DType::bool_) {
        both(OpId::rand_int, {HostParam{7, DType::int64}, HostParam{9, DType::int64}, HostParam{3, DType::int64},
                              HostParam{100, DType::int64}});
        ASSERT_TRUE(same_bits(y, want)) << "rand_int " << dtype_name(d);
        if (is_float(d)) both(OpId::arange, {HostParam{0.25, DType::float64}, HostParam{0.1, DType::float64}});
        else both(OpId::arange, {HostParam{3, DType::int64}, HostParam{-2, DType::int64}});
        ASSERT_TRUE(same_bits(y, want)) << "arange " << dtype_name(d);
      }
      if (!is_float(d)) continue;
      both(OpId::rand_uniform, {HostParam{7, DType::int64}, HostParam{9, DType::int64}});
      ASSERT_TRUE(same_bits(y, want)) << "uniform " << dtype_name(d);
      both(OpId::rand_normal, {HostParam{7, DType::int64}, HostParam{9, DType::int64}});
      expect_close(y, want, 2, "normal");
    }
}

TEST(TileOps, IntegerErrors) {
  const HostTensor x = host(DType::int32, {3}, {1, 2, 3}), zero = host(DType::int32, {3}, {1, 0, 1}),
                   y = host_zeros(DType::int32, {3});
  EXPECT_THROW(run_op(kTile, OpId::floor_divide, {x, zero}, {y}), Error);
  EXPECT_THROW(run_op(kTile, OpId::remainder, {x, zero}, {y}), Error);
  EXPECT_THROW(run_op(kTile, OpId::pow, {x, HostParam{-1, DType::int32}}, {y}), Error);
  const HostTensor most = host_of<int64_t>(DType::int32, {1}, {std::numeric_limits<int32_t>::min()}),
                   q = host_zeros(DType::int32, {1});
  run_op(kTile, OpId::floor_divide, {most, HostParam{-1, DType::int32}}, {q});
  EXPECT_EQ(values(q)[0], static_cast<double>(std::numeric_limits<int32_t>::min()));
}

// --- accuracy of the vector functions, over all magnitudes

template <class T>
double ulps(T got, long double want, bool gated) {
  if (std::isnan(want)) return std::isnan(got) ? 0 : 1e30;
  const T nearest = static_cast<T>(want);
  if (std::isinf(nearest) || std::isinf(got)) return got == nearest ? 0 : 1e30;
  // A gate that is subnormal has few digits, and x <= 110 (f32), 750 (f64) multiplies it.
  const long double loss =
      (sizeof(T) == 4 ? 110 : 750) * static_cast<long double>(std::numeric_limits<T>::denorm_min());
  if (gated && std::abs(static_cast<long double>(got) - want) <= loss) return 0;
  const T next = std::nextafter(std::abs(nearest), std::numeric_limits<T>::infinity());
  return static_cast<double>(std::abs(static_cast<long double>(got) - want) /
                             (static_cast<long double>(next) - std::abs(static_cast<long double>(nearest))));
}
template <class T>
std::vector<T> test_points(double low_exponent, double high_exponent) {
  std::mt19937 gen(11);
  std::uniform_real_distribution<double> u(low_exponent, high_exponent), lin(-20, 20), near(-1.5, 1.5);
  std::vector<T> v = {T{0},
                      -T{0},
                      T{1},
                      T{-1},
                      std::numeric_limits<T>::infinity(),
                      -std::numeric_limits<T>::infinity(),
                      std::numeric_limits<T>::quiet_NaN(),
                      std::numeric_limits<T>::max(),
                      std::numeric_limits<T>::lowest(),
                      std::numeric_limits<T>::min(),
                      std::numeric_limits<T>::denorm_min(),
                      -std::numeric_limits<T>::denorm_min()};
  for (int i = 0; i < 20000; ++i) {
    v.push_back(static_cast<T>(std::exp2(u(gen))));
    v.push_back(-v.back());
    v.push_back(static_cast<T>(lin(gen)));
    v.push_back(static_cast<T>(near(gen)));
  }
  return v;
}
struct Function {
  OpId op;
  long double (*exact)(long double);
  double float_ulps, double_ulps;
};
long double exact_sigmoid(long double x) { return x < 0 ? std::exp(x) / (1 + std::exp(x)) : 1 / (1 + std::exp(-x)); }
long double exact_gelu(long double x) {
  const long double p = 0.5L * std::erfc(-x * 0.70710678118654752440084436210485L);
  return p == 0 ? 0 : x * p;
}
const std::vector<Function>& functions() {
  static const std::vector<Function> all = [] {
    std::vector<Function> f = {
        {OpId::exp, [](long double x) { return std::exp(x); }, 1.5, 2},
        {OpId::expm1, [](long double x) { return std::expm1(x); }, 3, 3},
        {OpId::log, [](long double x) { return std::log(x); }, 2, 2},
        {OpId::log1p, [](long double x) { return std::log1p(x); }, 3, 3},
        {OpId::erf, [](long double x) { return std::erf(x); }, 3, 3},
        {OpId::sigmoid, exact_sigmoid, 3, 3},
        {OpId::silu,
         [](long double x) {
           const long double s = exact_sigmoid(x);
           return s == 0 ? 0 : x * s;
         },
         4, 4},
        {OpId::gelu, exact_gelu, 6, 6},
        {OpId::sqrt, [](long double x) { return std::sqrt(x); }, 0.5001, 0.5001},
    };
    // The functions of the C library that are not above.
#define X(name)                                                                               \
  if (std::none_of(f.begin(), f.end(), [](const Function& g) { return g.op == OpId::name; })) \
    f.push_back({OpId::name, [](long double x) { return std::name(x); }, 4, 4});
    PF_C_FUNCTIONS(X)
#undef X
    return f;
  }();
  return all;
}
template <class T>
void check_functions(DType d, double low_exponent, double high_exponent) {
  const std::vector<T> x = test_points<T>(low_exponent, high_exponent);
  const auto n = static_cast<int64_t>(x.size());
  const HostTensor in = host_of<T>(d, {n}, x), out = host_zeros(d, {n});
  for (const Function& f : functions()) {
    run_op(kTile, f.op, {in}, {out});
    const auto* y = reinterpret_cast<const T*>(out.data());
    double worst = 0;
    T at = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      const double e = ulps(y[i], f.exact(static_cast<long double>(x[i])), f.op == OpId::silu || f.op == OpId::gelu);
      if (e > worst) worst = e, at = x[i];
    }
    EXPECT_LE(worst, sizeof(T) == 4 ? f.float_ulps : f.double_ulps)
        << op_name(f.op) << " " << dtype_name(d) << " at " << at;
    if (std::getenv("PYFLAME_TEST_SHOW_ULPS"))
      std::printf("%s %s %.3f ulp at %.9g\n", op_name(f.op), std::string(dtype_name(d)).c_str(), worst,
                  static_cast<double>(at));
  }
}
TEST(TileMath, Float32) { check_functions<float>(DType::float32, -149, 128); }
TEST(TileMath, Float64) { check_functions<double>(DType::float64, -1074, 1024); }

// --- layouts

TEST(TileLayout, StridedOffsetBroadcastTransposed) {
  for (const DType d : kAll)
    for (const int64_t n : {int64_t{1}, int64_t{5}, int64_t{17}, int64_t{64}, int64_t{300}, int64_t{1009}}) {
      const Dims s{4, n};
      const HostTensor x = random_tensor(d, s, 1), z = random_tensor(d, {1, n}, 2), c = random_tensor(d, {4, 1}, 3);
      const HostTensor want = host_zeros(d, s), y = host_zeros(d, s);
      GraphBuilder g(GroupKind::Loop);
      run_op(kReference, OpId::add, {x, z}, {want});
      run_op(kTile, OpId::add, {strided(x), strided(z)}, {y});
      ASSERT_TRUE(same_bits(y, want)) << dtype_name(d) << n;
      const HostTensor ys = strided(host_zeros(d, s));
      run_op(kTile, OpId::add, {x, z}, {ys});
      ASSERT_TRUE(same_bits(ys, want)) << dtype_name(d) << n;
      run_op(kReference, OpId::add, {c, z}, {want});
      run_op(kTile, OpId::add, {c, z}, {y});
      ASSERT_TRUE(same_bits(y, want)) << dtype_name(d) << n;
      const HostTensor t = host_zeros(d, {n, 4}), tw = host_zeros(d, {n, 4});
      run_op(kTile, OpId::cast, {x.view({n, 4}, {1, n})}, {t});
      run_op(kReference, OpId::cast, {x.view({n, 4}, {1, n})}, {tw});
      ASSERT_TRUE(same_bits(t, tw)) << dtype_name(d) << n;
    }
}

TEST(TileLayout, NothingAroundTheOutputIsTouched) {
  for (const int64_t n : {1, 7, 15, 17, 33, 1025}) {
    const HostTensor big = random_tensor(DType::float32, {n + 40}, 5);
    const HostTensor y = big.view({n}, {1}, 20);
    const std::vector<double> before = values(big);
    run_op(kTile, OpId::exp, {random_tensor(DType::float32, {n}, 6)}, {y});
    const std::vector<double> after = values(big);
    for (int64_t i = 0; i < n + 40; ++i) {
      if (i < 20 || i >= 20 + n) {
        ASSERT_EQ(before[static_cast<size_t>(i)], after[static_cast<size_t>(i)]);
      }
    }
  }
}

TEST(TileLayout, OutputsBeyondTheCaches) {  // written past them, from an odd address on
  const int64_t n = (int64_t{8} << 20) + 13;
  const HostTensor big = host_zeros(DType::float32, {n + 32}), x = host_zeros(DType::float32, {n});
  auto* in = reinterpret_cast<float*>(x.data());
  for (int64_t i = 0; i < n; ++i) in[i] = static_cast<float>(i & 0xffff);
  run_op(kTile, OpId::neg, {x}, {big.view({n}, {1}, 3)});
  const auto* out = reinterpret_cast<const float*>(big.data());
  for (int64_t i = 0; i < n + 32; ++i) {
    const bool inside = i >= 3 && i < n + 3;
    ASSERT_EQ(out[i], inside ? -static_cast<float>((i - 3) & 0xffff) : 0.0f) << i;
  }
}

TEST(TileLayout, ZeroDimensional) {
  const HostTensor x = host(DType::float32, {}, {2}), y = host_zeros(DType::float32, {});
  run_op(kTile, OpId::mul, {x, x}, {y});
  EXPECT_EQ(values(y)[0], 4);
}

TEST(TileLayout, OverlapIsReadBeforeItIsWritten) {
  for (const int64_t n : {9, 5000}) {
    const HostTensor m = random_tensor(DType::float32, {n + 1}, 5);
    const auto old = values(m);
    run_op(kTile, OpId::add, {m.view({n}, {1}, 0), HostParam{1.0, DType::float32}}, {m.view({n}, {1}, 1)});
    const auto now = values(m);
    for (int64_t i = 0; i < n; ++i)
      ASSERT_EQ(now[static_cast<size_t>(i) + 1],
                static_cast<double>(static_cast<float>(old[static_cast<size_t>(i)]) + 1.0f))
          << i;
    const HostTensor x = random_tensor(DType::float32, {n}, 5);
    const auto x0 = static_cast<float>(values(x)[0]), x1 = static_cast<float>(values(x)[1]);
    run_op(kTile, OpId::sub, {x, x.view({1}, {1}, 0)}, {x});  // in place, by its own first element
    EXPECT_EQ(values(x)[0], 0);
    EXPECT_EQ(values(x)[1], static_cast<double>(x1 - x0));
  }
}

// An output that was given the memory of an input which is read again later.
TEST(TileLayout, DonatedMemory) {
  for (const int64_t n : {9, 5000}) {
    const HostTensor x = random_tensor(DType::float32, {n}, 5), z = host_zeros(DType::float32, {n});
    const auto old = values(x);
    GraphBuilder g(GroupKind::Loop);
    g.space({n}, 1);
    const Operand in = g.bind(x), out = g.bind_reusing(x), other = g.bind(z);
    g.node(OpId::add, {in, g.param(1.0, DType::float32)}, {out});
    g.node(OpId::mul, {in, g.param(2.0, DType::float32)}, {other});
    g.run(kTile);
    for (int64_t i = 0; i < n; ++i) {
      const auto v = static_cast<float>(old[static_cast<size_t>(i)]);
      ASSERT_EQ(values(z)[static_cast<size_t>(i)], static_cast<double>(v * 2));
      if (n > 100) break;
    }
    EXPECT_EQ(values(x)[1], static_cast<double>(static_cast<float>(old[1]) + 1));
  }
}

// --- fusion

// y = where(x > 0, gelu(x * w + b) + r, tanh(x)); also keeps x * w. One group, or a group a node.
struct Chain {
  HostTensor x, w, b, r, xw, y;
};
void run_chain(const Chain& c, bool fused) {
  const DType d = c.x.dtype;
  const Dims s = c.x.shape;
  const HostTensor t1 = host_zeros(d, s), t2 = host_zeros(d, s), t3 = host_zeros(d, s), t4 = host_zeros(d, s),
                   m = host_zeros(DType::bool_, s);
  GraphBuilder g(GroupKind::Loop);
  g.space(s, s.size());
  const auto at = [&](const HostTensor& t) { return fused ? g.elided(t.dtype, t.shape) : g.bind(t); };
  const Operand o1 = at(t1), o2 = at(t2), o3 = at(t3), o4 = at(t4), om = at(m), x = g.bind(c.x), oxw = g.bind(c.xw);
  struct N {
    OpId op;
    std::vector<Operand> in;
    Operand out;
  };
  const std::vector<N> nodes = {{OpId::mul, {x, g.bind(c.w)}, oxw},
                                {OpId::add, {oxw, g.bind(c.b)}, o1},
                                {OpId::gelu, {o1}, o2},
                                {OpId::add, {o2, g.bind(c.r)}, o3},
                                {OpId::tanh, {x}, o4},
                                {OpId::gt, {x, g.param(0.0, d)}, om},
                                {OpId::where, {om, o3, o4}, g.bind(c.y)}};
  for (const N& n : nodes) g.node(n.op, n.in, {n.out});
  if (fused) return g.run(kTile);
  const std::vector<NodeId> all = g.group().nodes;
  g.group().roles.assign(1, Role::Map);
  for (const NodeId i : all) {
    g.group().nodes = {i};
    g.run(kTile);
  }
}

TEST(TileFusion, SameBitsAsOneNodeAtATime) {
  for (const DType d : kFloats)
    for (const auto& shape : {Dims{1}, Dims{7}, Dims{3, 65}, Dims{5, 1009}, Dims{300, 10}, Dims{2, 3, 700}}) {
      Dims row = Dims::filled(1, shape.back());
      Chain a{random_tensor(d, shape, 1), random_tensor(d, row, 2), random_tensor(d, row, 3),
              random_tensor(d, shape, 4), host_zeros(d, shape),     host_zeros(d, shape)};
      Chain b = a;
      b.xw = host_zeros(d, shape), b.y = host_zeros(d, shape);
      run_chain(a, true);
      run_chain(b, false);
      ASSERT_TRUE(same_bits(a.y, b.y) && same_bits(a.xw, b.xw)) << dtype_name(d) << shape.str();
      b.x = strided(b.x), b.r = strided(b.r), b.y = strided(b.y);
      run_chain(b, true);
      ASSERT_TRUE(same_bits(a.y, b.y)) << dtype_name(d) << shape.str() << " strided";
      const ThreadsGuard one(1);
      run_chain(b, true);
      ASSERT_TRUE(same_bits(a.y, b.y)) << "one thread";
    }
}

// --- reductions

DType reduced_dtype(OpId op, DType d) {
  return (op == OpId::sum || op == OpId::prod) && !is_float(d) ? DType::int64 : d;
}

TEST(TileReduce, EveryOpAndType) {
  for (const DType d : kAll)
    for (const OpId op : {OpId::sum, OpId::prod, OpId::amax, OpId::amin, OpId::any, OpId::all}) {
      if ((op == OpId::any || op == OpId::all) != (d == DType::bool_) && (op == OpId::any || op == OpId::all)) continue;
      for (const int64_t n : kSizes) {
        if (n == 0 && (op == OpId::amax || op == OpId::amin)) continue;
        const bool prod = op == OpId::prod;
        const HostTensor x =
            random_tensor(d, {3, n}, 1, prod && is_float(d) ? 0.99 : -3, prod && is_float(d) ? 1.01 : 3);
        const DType out = reduced_dtype(op, d);
        const HostTensor y = host_zeros(out, {3, 1}), want = host_zeros(out, {3, 1});
        run_op(kTile, op, {x}, {y}, ReduceAttrs{2});
        run_op(kReference, op, {x}, {want}, ReduceAttrs{2});
        if (is_float(d) && (op == OpId::sum || prod)) {
          const auto g = values(y), w = values(want);
          for (size_t i = 0; i < g.size(); ++i)
            ASSERT_NEAR(
                g[i], w[i],
                eps_of(d) * (2 * std::abs(w[i]) +
                             (d == DType::float64 ? static_cast<double>(n) : 2 * std::sqrt(static_cast<double>(n)))))
                << op_name(op) << " " << dtype_name(d) << " " << n;
        } else {
          ASSERT_TRUE(same_bits(y, want)) << op_name(op) << " " << dtype_name(d) << " " << n;
        }
        const HostTensor ys = host_zeros(out, {3, 1});
        run_op(kTile, op, {strided(x)}, {ys}, ReduceAttrs{2});
        ASSERT_TRUE(same_bits(y, ys)) << op_name(op) << " " << dtype_name(d) << " strided";
        const HostTensor yc = host_zeros(out, {1, 3}), wc = host_zeros(out, {1, 3});
        const HostTensor xt =
            random_tensor(d, {n, 3}, 2, prod && is_float(d) ? 0.99 : -3, prod && is_float(d) ? 1.01 : 3);
        run_op(kTile, op, {xt}, {yc}, ReduceAttrs{1});
        run_op(kReference, op, {xt}, {wc}, ReduceAttrs{1});
        const auto g = values(yc), w = values(wc);
        for (size_t i = 0; i < g.size(); ++i)
          ASSERT_NEAR(g[i], w[i], eps_of(d) * (std::abs(w[i]) + (d == DType::float64 ? static_cast<double>(n) : 1)))
              << op_name(op) << " cols " << dtype_name(d) << " " << n;
      }
    }
}

TEST(TileReduce, NaNWins) {
  for (const OpId op : {OpId::amax, OpId::amin})
    for (const int64_t at : {0, 5, 40, 69}) {
      HostTensor x = random_tensor(DType::float32, {70}, 1);
      reinterpret_cast<float*>(x.data())[at] = std::nanf("");
      const HostTensor y = host_zeros(DType::float32, {1});
      run_op(kTile, op, {x}, {y}, ReduceAttrs{1});
      EXPECT_TRUE(std::isnan(values(y)[0]));
    }
}

TEST(TileReduce, OrderDependsOnShapeOnly) {
  for (const auto& [rows, cols] :
       {std::pair<int64_t, int64_t>{1, 200003}, {2, 70000}, {7, 20000}, {300, 1009}, {5000, 3}, {70000, 1}}) {
    const HostTensor x = random_tensor(DType::float32, {rows, cols}, 1);
    std::vector<HostTensor> row, col;
    for (const int threads : {1, 2, 3}) {
      const ThreadsGuard guard(threads);
      row.push_back(host_zeros(DType::float32, {rows, 1}));
      run_op(kTile, OpId::sum, {x}, {row.back()}, ReduceAttrs{2});
      col.push_back(host_zeros(DType::float32, {1, cols}));
      run_op(kTile, OpId::sum, {threads == 3 ? strided(x) : x}, {col.back()}, ReduceAttrs{1});
    }
    for (int i : {1, 2}) {
      EXPECT_TRUE(same_bits(row[0], row[static_cast<size_t>(i)])) << rows << " " << cols;
      EXPECT_TRUE(same_bits(col[0], col[static_cast<size_t>(i)])) << rows << " " << cols;
    }
    const HostTensor want = host_zeros(DType::float32, {rows, 1}), want_col = host_zeros(DType::float32, {1, cols});
    run_op(kReference, OpId::sum, {x}, {want}, ReduceAttrs{2});
    run_op(kReference, OpId::sum, {x}, {want_col}, ReduceAttrs{1});
    const auto g = values(row[0]), w = values(want), gc = values(col[0]), wc = values(want_col);
    for (size_t i = 0; i < g.size(); ++i)
      ASSERT_NEAR(g[i], w[i], 0x1p-23 * (std::abs(w[i]) + 6 * std::sqrt(static_cast<double>(cols))));
    for (size_t i = 0; i < gc.size(); ++i) ASSERT_NEAR(gc[i], wc[i], 0x1p-23 * (std::abs(wc[i]) + 1));
  }
}

// max, x - max, exp, sum, divide, and the column sums of the result; rows that fit a tile, that do not, and long ones.
void run_softmax(const HostTensor& x, const HostTensor& y, const HostTensor& cols, bool fused) {
  const DType d = x.dtype;
  const Dims s = x.shape, r{s[0], 1};
  const HostTensor m = host_zeros(d, r), t = host_zeros(d, s), e = host_zeros(d, s), sum = host_zeros(d, r),
                   rs = host_zeros(d, r);
  GraphBuilder g(GroupKind::Loop);
  g.space(s, 1);
  const auto at = [&](const HostTensor& v) { return fused ? g.elided(v.dtype, v.shape) : g.bind(v); };
  const Operand ox = g.bind(x), om = at(m), ot = at(t), oe = at(e), os = at(sum), ors = at(rs), oy = g.bind(y);
  g.node(OpId::amax, {ox}, {om}, ReduceAttrs{2}, Role::RowReduce);
  g.node(OpId::sub, {ox, om}, {ot});
  g.node(OpId::exp, {ot}, {oe});
  g.node(OpId::sum, {oe}, {os}, ReduceAttrs{2}, Role::RowReduce);
  g.node(OpId::reciprocal, {os}, {ors}, NoAttrs{}, Role::RowMap);
  g.node(OpId::mul, {oe, ors}, {oy});
  g.node(OpId::sum, {oy}, {g.bind(cols)}, ReduceAttrs{1}, Role::ColReduce);
  if (fused) return g.run(kTile);
  const auto nodes = g.group().nodes;
  const auto roles = g.group().roles;
  for (size_t i = 0; i < nodes.size(); ++i) {
    g.group().nodes = {nodes[i]};
    g.group().roles = {roles[i]};
    g.run(kTile);
  }
}

TEST(TileReduce, SoftmaxFusedAndNot) {
  for (const DType d : kFloats)
    for (const auto& s : {Dims{1, 1}, Dims{5, 7}, Dims{300, 10}, Dims{130, 65}, Dims{3, 1009}, Dims{4, 5003},
                          Dims{3, 40000}, Dims{150, 17000}, Dims{0, 5}, Dims{4, 0}}) {
      if (s[0] == 150 && d != DType::float32) continue;
      const HostTensor x = random_tensor(d, s, 1, -8, 8), a = host_zeros(d, s), b = host_zeros(d, s),
                       c = host_zeros(d, s);
      const HostTensor ca = host_zeros(d, {1, s[1]}), cb = host_zeros(d, {1, s[1]}), cc = host_zeros(d, {1, s[1]});
      run_softmax(x, a, ca, true);
      run_softmax(x, b, cb, false);
      ASSERT_TRUE(same_bits(a, b) && same_bits(ca, cb)) << dtype_name(d) << s.str();
      const ThreadsGuard one(1);
      run_softmax(s.numel() ? strided(x) : x, c, cc, true);
      ASSERT_TRUE(same_bits(a, c) && same_bits(ca, cc)) << dtype_name(d) << s.str();
      if (s.numel() == 0) continue;
      const HostTensor in_place = host_zeros(d, s);
      run_op(kTile, OpId::cast, {x}, {in_place});
      run_softmax(in_place, in_place, cc, true);
      ASSERT_TRUE(same_bits(a, in_place)) << dtype_name(d) << s.str() << " in place";
      double total = 0;
      for (double v : values(a)) total += v;
      EXPECT_NEAR(total / static_cast<double>(s[0]), 1, 0.05);
    }
}

TEST(TileRefuses, WhatItCannotOrder) {
  const HostTensor x = random_tensor(DType::float32, {4, 4}, 1), y = host_zeros(DType::float32, {4, 4});
  GraphBuilder g(GroupKind::Loop);
  g.space({4, 4}, 2);
  const Operand t = g.bind(y);
  g.node(OpId::neg, {g.bind(x)}, {t});
  Operand transposed = t;
  transposed.strides = {1, 4};
  g.node(OpId::exp, {transposed}, {g.bind(host_zeros(DType::float32, {4, 4}))});
  EXPECT_TRUE(cpu::tile_accepts(g.problem()).has_value());
}

// --- epilogues

TEST(TileEpilogue, BlocksOfRowsInPlaceAndNot) {
  for (const DType d : kFloats)
    for (const auto& s : {Dims{6, 5}, Dims{2, 9, 33}, Dims{40, 700}}) {
      const int64_t n = s.back(), rows = s.numel() / n;
      const HostTensor root = random_tensor(d, s, 1), bias = random_tensor(d, {n}, 2), r = random_tensor(d, s, 3);
      const HostTensor t1 = host_zeros(d, s), t2 = host_zeros(d, s), want = host_zeros(d, s);
      run_op(kTile, OpId::add, {root, bias}, {t1});
      run_op(kTile, OpId::gelu, {t1}, {t2});
      run_op(kTile, OpId::add, {t2, r}, {want});
      GraphBuilder g(GroupKind::Epilogue);
      const HostTensor y = host_zeros(d, s);
      const Operand o0 = g.elided(d, s), o1 = g.elided(d, s), o2 = g.elided(d, s), oy = g.bind(y), ob = g.bind(bias),
                    orr = g.bind(r);
      g.node(OpId::matmul, {}, {o0});
      g.node(OpId::add, {o0, ob}, {o1});
      g.node(OpId::gelu, {o1}, {o2});
      g.node(OpId::add, {o2, orr}, {oy});
      Indexed<BindingId, void*> pointers(g.graph().bindings.size(), nullptr);
      pointers[oy.binding] = y.data();
      pointers[ob.binding] = bias.data();
      pointers[orr.binding] = r.data();
      const RunContext ctx{pointers.data(), nullptr, nullptr};
      const auto e = cpu::TileEpilogue::make(g.problem(), n);
      for (int64_t row = 0; row < rows; row += 4)
        e->run(ctx, root.data() + row * n * dtype_size(d), row, std::min<int64_t>(4, rows - row));
      ASSERT_TRUE(same_bits(y, want)) << dtype_name(d) << s.str();
      run_op(kReference, OpId::cast, {root}, {y});
      for (int64_t row = 0; row < rows; row += 4)
        e->run(ctx, y.data() + row * n * dtype_size(d), row, std::min<int64_t>(4, rows - row));
      ASSERT_TRUE(same_bits(y, want)) << dtype_name(d) << s.str() << " in place";
    }
}

}  // namespace
}  // namespace pyflame
