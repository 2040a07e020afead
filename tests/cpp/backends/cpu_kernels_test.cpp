// Every kernel of the CPU backend against the reference backend: one node, the implementation that the backend would choose,
// the same bits in, outputs compared within c * eps * growth(K). A case fails when the kernel quietly leaves it to the
// reference, and when anything around the outputs is touched.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>

#include "pyflame/backends/backend.h"
#include "pyflame/backends/reference/reference.h"
#include "pyflame/base/threads.h"

namespace pyflame {
const Backend& cpu_backend();

namespace {

// A tensor with its own memory, possibly strided and offset.
struct Array {
  DType dtype = DType::float32;
  Dims shape, strides;
  int64_t offset = 0;
  std::vector<double> memory;  // over the whole extent, sentinels included

  static Array make(DType dtype, Dims shape, const std::function<double(int64_t)>& value) {
    return strided(dtype, shape, contiguous_strides(shape), 0, value);
  }
  static Array strided(DType dtype, Dims shape, Dims strides, int64_t offset, const std::function<double(int64_t)>& value) {
    Array a;
    a.dtype = dtype, a.shape = shape, a.strides = strides, a.offset = offset;
    const int64_t n = (shape.numel() ? extent(shape, strides) : 0) + offset + 16;
    for (int64_t i = 0; i < n; ++i) a.memory.push_back(value(i));
    return a;
  }
  // The same numbers as seen with two dims exchanged.
  Array transposed(int a, int b) const {
    Array r = *this;
    std::swap(r.shape[a], r.shape[b]);
    std::swap(r.strides[a], r.strides[b]);
    return r;
  }
};

double noise(int64_t i) {
  uint64_t x = static_cast<uint64_t>(i) * 0x9E3779B97F4A7C15u + 0x1234567;
  x ^= x >> 31;
  x *= 0xBF58476D1CE4E5B9u;
  x ^= x >> 29;
  return static_cast<double>(x >> 11) * 0x1p-52 - 1;  // [-1, 1)
}

std::vector<char> encode(DType dtype, const std::vector<double>& values) {
  std::vector<char> bytes(values.size() * static_cast<size_t>(dtype_size(dtype)));
  dispatch(dtype, [&]<class T>() {
    for (size_t i = 0; i < values.size(); ++i) {
      T v;
      if constexpr (std::is_same_v<T, float16> || std::is_same_v<T, bfloat16>) v = T(static_cast<float>(values[i]));
      else v = static_cast<T>(values[i]);
      std::memcpy(bytes.data() + i * sizeof(T), &v, sizeof(T));
    }
  });
  return bytes;
}

std::vector<double> decode(DType dtype, const std::vector<char>& bytes) {
  std::vector<double> values(bytes.size() / static_cast<size_t>(dtype_size(dtype)));
  dispatch(dtype, [&]<class T>() {
    for (size_t i = 0; i < values.size(); ++i) {
      T v;
      std::memcpy(&v, bytes.data() + i * sizeof(T), sizeof(T));
      if constexpr (std::is_same_v<T, float16> || std::is_same_v<T, bfloat16>) values[i] = static_cast<float>(v);
      else values[i] = static_cast<double>(v);
    }
  });
  return values;
}

double eps_of(DType d) {
  switch (d) {
    case DType::float64: return 0x1p-52;
    case DType::float32: return 0x1p-23;
    case DType::float16: return 0x1p-10;
    case DType::bfloat16: return 0x1p-7;
    default: return 0;
  }
}

struct Case {
  OpId op{};
  std::vector<int64_t> attrs;
  std::vector<Array> ins;
  std::vector<Scalar> params;
  std::vector<Array> outs;          // memory holds sentinels
  std::vector<int> in_place;        // output i is input in_place[i]
  double growth = 1;                // length of the longest sum
  double c = 4;
  double eps = 0;                   // 0: of each output's dtype
};

struct Result {
  std::string impl;
  std::vector<std::vector<double>> outs;  // whole memory of each output
};

Result run(const Case& t, bool reference) {
  Graph graph;
  Node node;
  node.op = t.op;
  node.attrs = t.attrs;
  std::vector<std::vector<char>> memory;
  std::vector<void*> bindings;
  const auto bind = [&](const Array& a) {
    Operand o;
    o.dtype = a.dtype, o.shape = a.shape, o.strides = a.strides;
    o.contiguous = is_contiguous(a.shape, a.strides);
    o.index = static_cast<int32_t>(memory.size());
    memory.push_back(encode(a.dtype, a.memory));
    graph.slots.push_back({memory.back().size(), true, true, false});
    graph.bindings.push_back({o.index});
    return o;
  };
  for (const Array& a : t.ins) node.ins.push_back(bind(a));
  std::vector<Param> params(t.params.begin(), t.params.end());
  for (size_t i = 0; i < params.size(); ++i) {
    Operand o;
    o.is_param = true;
    o.dtype = DType::float64;
    o.index = static_cast<int32_t>(i);
    node.ins.push_back(o);
  }
  for (size_t i = 0; i < t.outs.size(); ++i)
    node.outs.push_back(t.in_place.empty() ? bind(t.outs[i]) : node.ins[static_cast<size_t>(t.in_place[i])]);
  graph.nodes.push_back(node);
  graph.params = static_cast<int32_t>(params.size());
  Group group;
  group.nodes = {0};
  group.elided.assign(memory.size(), false);
  const Problem problem{graph, group};
  const Impl* impl = &kReferenceImpl;
  if (!reference)
    for (const Impl& i : cpu_backend().impls(problem))
      if (!i.accepts(problem)) {
        impl = &i;
        break;
      }
  const auto arrays = [&](size_t i) -> const Array& {
    return i < t.ins.size() ? t.ins[i] : t.outs[i - t.ins.size()];
  };
  for (size_t i = 0; i < memory.size(); ++i)
    bindings.push_back(memory[i].data() + arrays(i).offset * dtype_size(arrays(i).dtype));
  const auto executable = impl->make(problem);
  std::vector<char> workspace(executable->workspace() + 64);
  void* aligned = reinterpret_cast<void*>((reinterpret_cast<uintptr_t>(workspace.data()) + 63) / 64 * 64);
  executable->run({bindings.data(), params.data(), aligned});
  Result r;
  r.impl = impl->name;
  for (const Operand& o : node.outs) r.outs.push_back(decode(o.dtype, memory[static_cast<size_t>(o.index)]));
  return r;
}

void check(const Case& t) {
  const Result want = run(t, true), got = run(t, false);
  EXPECT_NE(got.impl, "reference");
  for (size_t o = 0; o < want.outs.size(); ++o) {
    const DType dtype = t.in_place.empty() ? t.outs[o].dtype : t.ins[static_cast<size_t>(t.in_place[o])].dtype;
    const double eps = t.eps > 0 && eps_of(dtype) > 0 ? std::max(t.eps, eps_of(dtype)) : eps_of(dtype);
    const double tolerance = t.c * eps * (1 + std::log2(1 + t.growth));
    double scale = 1;  // of the output's values, not counting sentinels
    for (double v : want.outs[o])
      if (std::isfinite(v) && v != -77) scale = std::max(scale, std::fabs(v));
    int failures = 0;
    for (size_t i = 0; i < want.outs[o].size() && failures < 5; ++i) {
      const double a = got.outs[o][i], b = want.outs[o][i];
      const bool same = a == b || (std::isnan(a) && std::isnan(b)) || std::fabs(a - b) <= tolerance * scale;
      if (!same) ++failures;
      EXPECT_TRUE(same) << op_name(t.op) << " by " << got.impl << ", output " << o << " at " << i << ": got " << a
                        << ", expected " << b << ", tolerance " << tolerance * scale;
    }
  }
}

Array out(DType d, Dims shape) {
  return Array::make(d, shape, [](int64_t) { return -77.0; });
}
Array in(DType d, Dims shape, int64_t seed = 0) {
  return Array::make(d, shape, [=](int64_t i) { return noise(i + seed * 7919); });
}
Array index(Dims shape, int64_t limit, int64_t seed = 0) {
  return Array::make(DType::int64, shape,
                     [=](int64_t i) { return std::floor((noise(i + seed * 104729) + 1) / 2 * static_cast<double>(limit)); });
}
// A view whose last dim has step 2 and which begins three elements into its memory.
Array spread(DType d, Dims shape, int64_t seed = 0) {
  Dims strides = contiguous_strides(shape);
  for (int64_t& s : strides) s *= 2;
  return Array::strided(d, shape, strides, 3, [=](int64_t i) { return noise(i + seed * 7919); });
}

constexpr DType kFloats[] = {DType::float64, DType::float32, DType::float16, DType::bfloat16};

Case matmul(const Array& a, const Array& b) {
  Case t;
  t.op = OpId::matmul;
  t.ins = {a, b};
  Dims shape = a.shape;
  shape.back() = b.shape.back();
  t.outs = {out(a.dtype, shape)};
  t.growth = static_cast<double>(a.shape.back());
  return t;
}

TEST(CpuMatmul, SizesAndDtypes) {
  for (DType d : kFloats)
    for (int64_t m : {0, 1, 15, 16, 17, 97})
      for (int64_t n : {0, 1, 16, 31, 97})
        for (int64_t k : {0, 1, 17, 64, 131}) {
          SCOPED_TRACE(fmt::format("{} {}x{}x{}", static_cast<int>(d), m, n, k));
          check(matmul(in(d, {m, k}), in(d, {k, n}, 1)));
        }
}

TEST(CpuMatmul, LargeEnoughToBeSplit) {
  check(matmul(in(DType::float32, {768, 128}), in(DType::float32, {128, 384}, 1)));
  check(matmul(in(DType::float32, {16, 700}), in(DType::float32, {700, 900}, 1)));
  check(matmul(in(DType::bfloat16, {300, 128}), in(DType::bfloat16, {128, 200}, 1)));
  check(matmul(in(DType::float32, {1, 700}), in(DType::float32, {700, 900}, 1)));
  check(matmul(in(DType::float32, {1, 700}), in(DType::float32, {900, 700}, 1).transposed(0, 1)));
}

TEST(CpuMatmul, Views) {
  for (DType d : kFloats)
    for (int64_t m : {1, 5, 33}) {
      SCOPED_TRACE(m);
      check(matmul(in(d, {20, m}).transposed(0, 1), in(d, {7, 20}, 1).transposed(0, 1)));
      check(matmul(spread(d, {m, 20}), in(d, {20, 7}, 1)));
      check(matmul(in(d, {m, 20}), spread(d, {20, 7}, 1)));
      check(matmul(spread(d, {m, 20}), spread(d, {1, 20}, 1).transposed(0, 1)));
      // Rows apart, an expanded row, an expanded column.
      check(matmul(Array::strided(d, {m, 20}, {50, 1}, 5, noise), in(d, {20, 7}, 1)));
      check(matmul(Array::strided(d, {m, 20}, {0, 1}, 0, noise), in(d, {20, 7}, 1)));
      check(matmul(in(d, {m, 20}), Array::strided(d, {20, 7}, {1, 0}, 0, noise)));
      Case strided_out = matmul(in(d, {m, 20}), in(d, {20, 7}, 1));
      strided_out.outs[0] = Array::strided(d, {m, 7}, {1, m}, 2, [](int64_t) { return -77.0; });
      check(strided_out);
    }
}

TEST(CpuMatmul, Batches) {
  for (DType d : kFloats)
    for (int64_t m : {1, 6}) {
      check(matmul(in(d, {3, 4, m, 10}), in(d, {3, 4, 10, 5}, 1)));
      check(matmul(in(d, {3, 4, m, 10}), Array::strided(d, {3, 4, 10, 5}, {0, 0, 5, 1}, 0, noise)));
      check(matmul(in(d, {3, 4, m, 10}), Array::strided(d, {3, 4, 10, 5}, {0, 50, 5, 1}, 0, noise)));
      check(matmul(Array::strided(d, {3, 4, m, 10}, {10 * m, 0, 10, 1}, 0, noise), in(d, {3, 4, 10, 5}, 1)));
      check(matmul(in(d, {4, m, 3, 10}).transposed(0, 2), in(d, {3, m, 10, 5}, 1)));
      check(matmul(in(d, {0, m, 10}), in(d, {0, 10, 5}, 1)));
      check(matmul(spread(d, {3, m, 10}), Array::strided(d, {3, 10, 5}, {0, 1, 10}, 0, noise)));
      // One vector for many matrices.
      check(matmul(Array::strided(d, {7, 1, 10}, {0, 10, 1}, 0, noise), in(d, {7, 10, 5}, 1)));
      check(matmul(in(d, {7, 5, 10}), in(d, {7, 10, 1}, 1)));
    }
}

TEST(CpuMatmul, IntegersAreExact) {
  const auto small = [](int64_t i) { return std::floor(noise(i) * 100); };
  for (DType d : {DType::int64, DType::int32, DType::uint8})
    check(matmul(Array::make(d, {2, 5, 9}, small), Array::strided(d, {2, 9, 4}, {0, 1, 9}, 1, small)));
}

TEST(CpuRows, Softmax) {
  for (OpId op : {OpId::softmax, OpId::log_softmax})
    for (DType d : kFloats)
      for (int64_t n : {0, 1, 15, 16, 17, 64, 1031}) {
        Case t;
        t.op = op;
        t.ins = {in(d, {5, n})};
        for (double& v : t.ins[0].memory) v *= 20;
        t.outs = {out(d, {5, n})};
        t.growth = static_cast<double>(n);
        check(t);
        t.ins = {spread(d, {5, n})};
        check(t);
        t.ins = {in(d, {n, 5}).transposed(0, 1)};
        check(t);
      }
}

TEST(CpuRows, SoftmaxSpecialValues) {
  Case t;
  t.op = OpId::softmax;
  t.ins = {in(DType::float32, {4, 20})};
  t.ins[0].memory[3] = -INFINITY;
  t.ins[0].memory[25] = NAN;
  for (size_t i = 40; i < 60; ++i) t.ins[0].memory[i] = -INFINITY;
  t.ins[0].memory[70] = 3e38;
  t.outs = {out(DType::float32, {4, 20})};
  check(t);
}

Case norm(OpId op, DType d, int64_t rows, int64_t n, bool weight, bool bias, const Array& x) {
  const bool layer = op == OpId::layer_norm;
  Case t;
  t.op = op;
  t.attrs = {weight, bias};
  t.ins = {x, weight ? in(d, {n}, 1) : x};
  if (layer) t.ins.push_back(bias ? in(d, {n}, 2) : x);
  t.params = {1e-5};
  const DType stat = d == DType::float64 ? d : DType::float32;
  t.outs = {out(d, {rows, n}), out(stat, {rows})};
  if (layer) t.outs.push_back(out(stat, {rows}));
  t.growth = static_cast<double>(n);
  t.c = 8;
  return t;
}

TEST(CpuRows, Norms) {
  for (OpId op : {OpId::layer_norm, OpId::rms_norm})
    for (DType d : kFloats)
      for (int64_t n : {1, 15, 16, 17, 128, 997})
        for (int flags = 0; flags < 4; ++flags) {
          if (n == 1) continue;  // rstd of a constant row is sqrt(1 / eps): nothing left of the digits
          check(norm(op, d, 9, n, flags & 1, flags & 2, in(d, {9, n})));
          check(norm(op, d, 9, n, flags & 1, flags & 2, spread(d, {9, n})));
        }
  check(norm(OpId::layer_norm, DType::float32, 0, 8, true, true, in(DType::float32, {0, 8})));
}

TEST(CpuRows, NormGradients) {
  for (bool layer : {true, false})
    for (DType d : kFloats)
      for (int64_t rows : {1, 9, 300})
        for (int64_t n : {15, 16, 17, 128})
          for (bool weight : {true, false}) {
            const DType stat = d == DType::float64 ? d : DType::float32;
            Case t;
            t.op = layer ? OpId::layer_norm_grad : OpId::rms_norm_grad;
            t.attrs = {weight, weight};
            t.ins = {in(d, {rows, n}, 3), rows == 9 ? spread(d, {rows, n}) : in(d, {rows, n})};
            if (layer) t.ins.push_back(in(stat, {rows}, 4));
            t.ins.push_back(Array::make(stat, {rows}, [](int64_t i) { return 1 + 0.5 * noise(i); }));
            t.ins.push_back(weight ? in(d, {n}, 1) : t.ins[1]);
            t.outs = {out(d, {rows, n}), out(d, {n})};
            if (layer) t.outs.push_back(out(d, {n}));
            t.growth = static_cast<double>(rows + n);
            t.c = 8;
            check(t);
          }
}

TEST(CpuRows, NegativeLogLikelihood) {
  for (DType d : kFloats)
    for (double smoothing : {0.0, 0.1})
      for (int64_t n : {0, 1, 37}) {
        Case t;
        t.op = OpId::nll_loss;
        t.attrs = {2};
        t.ins = {in(d, {n, 11}), index({n}, 11)};
        t.params = {smoothing};
        t.outs = {out(d, {n})};
        check(t);
        t.op = OpId::nll_loss_grad;
        t.ins = {in(d, {n}, 5), in(d, {n, 11}), index({n}, 11)};
        t.outs = {out(d, {n, 11})};
        check(t);
      }
}

struct AttentionShape {
  int64_t b, h, hk, t, s, d, kv;
};

Case attention(DType d, const AttentionShape& a, bool causal, int mask, bool packed) {
  Case t;
  t.op = OpId::attention;
  t.attrs = {causal, mask != 0};
  if (packed) {  // one [B, T, H, D] projection seen as [B, H, T, D]
    t.ins = {in(d, {a.b, a.t, a.h, a.d}).transposed(1, 2), in(d, {a.b, a.s, a.hk, a.d}, 1).transposed(1, 2),
             in(d, {a.b, a.s, a.hk, a.d}, 2).transposed(1, 2)};
  } else {
    t.ins = {in(d, {a.b, a.h, a.t, a.d}), in(d, {a.b, a.hk, a.s, a.d}, 1), in(d, {a.b, a.hk, a.s, a.d}, 2)};
  }
  if (mask == 1) t.ins.push_back(Array::make(DType::bool_, {1, 1, a.t, a.s}, [&](int64_t i) { return i / a.s != 3 && noise(i) > 0; }));
  if (mask == 2) t.ins.push_back(Array::strided(d, {a.b, a.h, a.t, a.s}, {0, a.s, 0, 1}, 0, noise));
  t.params = {0.3, a.kv};
  t.outs = {out(d, {a.b, a.h, a.t, a.d}), out(DType::float32, {a.b, a.h, a.t})};
  t.growth = static_cast<double>(a.s + a.d);
  t.c = 8;
  return t;
}

const AttentionShape kAttentionShapes[] = {{2, 4, 4, 17, 17, 8, 17},   {2, 4, 2, 64, 64, 32, 64}, {1, 2, 1, 1, 40, 16, 33},
                                           {1, 2, 2, 70, 130, 8, 130}, {1, 1, 1, 5, 1100, 8, 1031}, {1, 2, 2, 9, 5, 4, 5}};

TEST(CpuAttention, Forward) {
  for (DType d : kFloats)
    for (const AttentionShape& a : kAttentionShapes)
      for (bool causal : {false, true})
        for (int mask : {0, 1, 2})
          for (bool packed : {false, true}) {
            SCOPED_TRACE(fmt::format("{} t {} s {} causal {} mask {} packed {}", static_cast<int>(d), a.t, a.s, causal, mask, packed));
            check(attention(d, a, causal, mask, packed));
          }
}

TEST(CpuAttention, Gradient) {
  for (DType d : kFloats)
    for (const AttentionShape& a : kAttentionShapes)
      for (bool causal : {false, true})
        for (int mask : {0, 1, 2})
          for (bool packed : {false, true}) {
            SCOPED_TRACE(fmt::format("{} t {} s {} causal {} mask {} packed {}", static_cast<int>(d), a.t, a.s, causal, mask, packed));
            const Case forward = attention(d, a, causal, mask, packed);
            const Result r = run(forward, true);
            Case t = forward;
            t.op = OpId::attention_grad;
            t.ins = {in(d, {a.b, a.h, a.t, a.d}, 9), forward.ins[0], forward.ins[1], forward.ins[2], forward.outs[0], forward.outs[1]};
            t.ins[4].memory = r.outs[0];
            t.ins[5].memory = r.outs[1];
            if (mask) t.ins.push_back(forward.ins[3]);
            t.outs = {out(d, {a.b, a.h, a.t, a.d}), out(d, {a.b, a.hk, a.s, a.d}), out(d, {a.b, a.hk, a.s, a.d})};
            t.c = 16;
            check(t);
          }
}

TEST(CpuIndexing, GatherAndScatter) {
  for (DType d : {DType::float64, DType::float32, DType::float16, DType::bfloat16, DType::int64, DType::uint8})
    for (int64_t dim : {0, 1, 2}) {
      Case t;
      t.op = OpId::gather;
      t.attrs = {dim};
      const Array x = Array::make(d, {5, 6, 7}, [](int64_t i) { return std::floor((noise(i) + 1) * 50); });
      for (const Array& source : {x, Array(x).transposed(0, 2)}) {
        t.ins = {source, index({4, 5, 3}, source.shape[static_cast<int>(dim)])};
        t.outs = {out(d, {4, 5, 3})};
        for (double& v : t.outs[0].memory) v = 1;
        check(t);
      }
      t.op = OpId::index_select;
      t.ins = {x, index({9}, x.shape[static_cast<int>(dim)])};
      Dims shape = x.shape;
      shape[static_cast<int>(dim)] = 9;
      t.outs = {out(d, shape)};
      for (double& v : t.outs[0].memory) v = 1;
      check(t);
      if (!is_float(d)) continue;
      t.op = OpId::index_add;
      t.ins = {index({9}, 5), in(d, shape)};
      shape[static_cast<int>(dim)] = 5;
      t.outs = {out(d, shape)};
      t.growth = 9;
      check(t);
      t.op = OpId::scatter_add;
      t.ins = {index({4, 5, 3}, 5), in(d, {4, 6, 3})};
      t.outs = {out(d, {5, 6, 7})};
      check(t);
    }
}

TEST(CpuIndexing, EmbeddingSizes) {
  Case t;
  t.op = OpId::index_select;
  t.attrs = {0};
  t.ins = {in(DType::float32, {65, 128}), index({768}, 65)};
  t.outs = {out(DType::float32, {768, 128})};
  check(t);
  t.op = OpId::index_add;
  t.ins = {index({768}, 65), in(DType::float32, {768, 128})};
  t.outs = {out(DType::float32, {65, 128})};
  t.growth = 768;
  check(t);
}

TEST(CpuIndexing, OutOfRangeNamesTheIndexAndWritesNothing) {
  for (OpId op : {OpId::gather, OpId::index_select, OpId::scatter_add, OpId::index_add}) {
    Case t;
    t.op = op;
    t.attrs = {0};
    Array at = Array::make(DType::int64, {3}, [](int64_t i) { return i == 2 ? 7.0 : 0.0; });
    const bool adds = op == OpId::scatter_add || op == OpId::index_add;
    t.ins = adds ? std::vector<Array>{at, in(DType::float32, {3})} : std::vector<Array>{in(DType::float32, {5}), at};
    t.outs = {out(DType::float32, {adds ? 5 : 3})};
    try {
      run(t, false);
      ADD_FAILURE() << op_name(op);
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), ErrorKind::Index);
      EXPECT_EQ(std::string(e.what()), fmt::format("{}: index out of range; got 7; expected 0 <= index < 5", op_name(op)));
    }
  }
}

TEST(CpuOrder, TopkSortArg) {
  for (DType d : kFloats)
    for (int64_t n : {1, 16, 17, 101}) {
      Array x = Array::make(d, {6, n}, [](int64_t i) { return std::floor(noise(i) * 8); });  // many ties
      if (n > 16) x.memory[static_cast<size_t>(n + 3)] = x.memory[static_cast<size_t>(n + 9)] = NAN;
      for (int64_t flag : {0, 1}) {
        Case t;
        t.op = OpId::sort;
        t.attrs = {flag};
        t.ins = {x};
        t.outs = {out(d, {6, n}), out(DType::int64, {6, n})};
        check(t);
        t.op = OpId::topk;
        const int64_t k = (n + 2) / 3;
        t.outs = {out(d, {6, k}), out(DType::int64, {6, k})};
        check(t);
        t.op = flag ? OpId::argmax : OpId::argmin;
        for (int64_t dim : {-1, 0, 1}) {
          t.attrs = {dim};
          t.outs = {out(DType::int64, dim < 0 ? Dims{} : Dims{dim == 0 ? n : 6})};
          check(t);
        }
      }
    }
}

TEST(CpuConv, ForwardAndGradients) {
  struct Shape {
    int64_t n, ic, h, w, oc, kh, kw, sh, sw, ph, pw, dh, dw, groups;
  };
  const Shape shapes[] = {{2, 3, 9, 8, 4, 3, 3, 1, 1, 1, 1, 1, 1, 1}, {1, 4, 12, 11, 6, 3, 2, 2, 3, 0, 1, 1, 1, 2},
                          {3, 2, 7, 7, 5, 1, 1, 1, 1, 0, 0, 1, 1, 1}, {2, 4, 13, 10, 4, 3, 3, 1, 1, 2, 2, 2, 2, 4},
                          {0, 2, 5, 5, 3, 3, 3, 1, 1, 0, 0, 1, 1, 1}, {2, 1, 4, 4, 2, 5, 5, 1, 1, 3, 3, 1, 1, 1}};
  for (DType d : kFloats)
    for (const Shape& s : shapes) {
      const int64_t oh = (s.h + 2 * s.ph - s.dh * (s.kh - 1) - 1) / s.sh + 1, ow = (s.w + 2 * s.pw - s.dw * (s.kw - 1) - 1) / s.sw + 1;
      const Dims xs{s.n, s.ic, s.h, s.w}, ws{s.oc, s.ic / s.groups, s.kh, s.kw}, ys{s.n, s.oc, oh, ow};
      Case t;
      t.attrs = {s.sh, s.sw, s.ph, s.pw, s.dh, s.dw, s.groups};
      t.growth = static_cast<double>(s.ic * s.kh * s.kw + s.n * oh * ow);
      t.op = OpId::conv2d;
      t.ins = {in(d, xs), in(d, ws, 1)};
      t.outs = {out(d, ys)};
      check(t);
      t.ins[0] = spread(d, xs);
      check(t);
      t.op = OpId::conv2d_grad_input;
      t.ins = {in(d, ys, 2), in(d, ws, 1)};
      t.outs = {out(d, xs)};
      check(t);
      t.op = OpId::conv2d_grad_weight;
      t.ins = {in(d, ys, 2), in(d, xs)};
      t.outs = {out(d, ws)};
      check(t);
    }
}

TEST(CpuPool, ForwardAndGradients) {
  struct Shape {
    int64_t h, w, oh, ow, kh, kw, sh, sw, ph, pw, dh, dw;
  };
  const Shape shapes[] = {{8, 8, 4, 4, 2, 2, 2, 2, 0, 0, 1, 1}, {9, 7, 5, 4, 3, 3, 2, 2, 1, 1, 1, 1},
                          {9, 7, 4, 3, 3, 2, 2, 2, 1, 0, 2, 2}, {7, 7, 4, 4, 2, 2, 2, 2, 0, 0, 1, 1}};
  for (DType d : kFloats)
    for (const Shape& s : shapes)
      for (int64_t include : {0, 1}) {
        Case t;
        t.attrs = {s.kh, s.kw, s.sh, s.sw, s.ph, s.pw, s.dh, s.dw, include};
        t.op = OpId::max_pool2d;
        t.ins = {in(d, {2, 3, s.h, s.w})};
        t.ins[0].memory[5] = NAN;
        t.outs = {out(d, {2, 3, s.oh, s.ow}), out(DType::int64, {2, 3, s.oh, s.ow})};
        check(t);
        t.op = OpId::avg_pool2d;
        t.ins = {in(d, {2, 3, s.h, s.w})};
        t.outs = {out(d, {2, 3, s.oh, s.ow})};
        check(t);
        t.op = OpId::avg_pool2d_grad;
        t.ins = {in(d, {2, 3, s.oh, s.ow})};
        t.outs = {out(d, {2, 3, s.h, s.w})};
        check(t);
      }
}

TEST(CpuOptim, AdamAndSgd) {
  const std::vector<Dims> shapes = {{3, 5}, {}, {0}, {17}, {9000}};
  const auto n = static_cast<int64_t>(shapes.size());
  for (DType d : kFloats)
    for (int64_t flag : {0, 1})
      for (int64_t maximize : {0, 1}) {
        Case t;
        t.op = OpId::adam_step;
        t.attrs = {n, 0, flag, maximize};
        for (int64_t role = 0; role < 4; ++role)
          for (const Dims& s : shapes)
            t.ins.push_back(role == 3 ? Array::make(d, s, [](int64_t i) { return std::fabs(noise(i)); }) : in(d, s, role));
        t.params = {0.01, 0.9, 0.99, 1e-8, 0.1, 0.5, 0.3};
        for (int64_t role : {0, 2, 3})
          for (int64_t i = 0; i < n; ++i) t.in_place.push_back(static_cast<int>(role * n + i));
        t.outs.resize(t.in_place.size());
        check(t);
        for (double momentum : {0.0, 0.9})
          for (bool first : {false, true}) {
            t.op = OpId::sgd_step;
            t.attrs = {n, flag, 0, maximize};
            t.ins.resize(static_cast<size_t>(3 * n));
            t.params = {0.01, momentum, 0.2, 0.1, first};
            t.in_place.clear();
            for (int64_t role : {0, 2})
              for (int64_t i = 0; i < n; ++i) t.in_place.push_back(static_cast<int>(role * n + i));
            t.outs.resize(t.in_place.size());
            check(t);
          }
      }
}

TEST(CpuOptim, SumSquaresAndScale) {
  for (DType d : kFloats) {
    Case t;
    t.op = OpId::sum_squares;
    t.ins = {in(d, {3, 5}), in(d, {20000}, 1), in(d, {}, 2), in(d, {0})};
    t.outs = {out(DType::float32, {})};
    check(t);
    t.op = OpId::scale_all;
    t.ins.push_back(Array::make(DType::float32, {}, [](int64_t) { return 0.37; }));
    t.in_place = {0, 1, 2, 3};
    t.outs.resize(4);
    check(t);
  }
}

// A root with elementwise nodes behind it: out = relu(root + bias), the root itself elided or kept.
struct Fused {
  Graph graph;
  Group group;
  std::vector<std::vector<char>> memory;
  Operand bind(const Array& a) {
    Operand o;
    o.dtype = a.dtype, o.shape = a.shape, o.strides = a.strides;
    o.contiguous = is_contiguous(a.shape, a.strides);
    o.index = static_cast<int32_t>(memory.size());
    memory.push_back(encode(a.dtype, a.memory));
    graph.slots.push_back({memory.back().size(), true, true, false});
    graph.bindings.push_back({o.index});
    return o;
  }
};

std::vector<std::vector<double>> run_fused(const Case& root, const Array& bias, bool elide, bool reference) {
  Fused f;
  Node node, add, relu;
  node.op = root.op, node.attrs = root.attrs;
  for (const Array& a : root.ins) node.ins.push_back(f.bind(a));
  node.outs = {f.bind(root.outs[0])};
  add.op = OpId::add;
  Operand b = f.bind(bias);
  b.strides = broadcast_strides(bias.shape, bias.strides, root.outs[0].shape);
  b.shape = root.outs[0].shape;
  b.contiguous = false;
  add.ins = {node.outs[0], b};
  add.outs = {f.bind(root.outs[0])};
  relu.op = OpId::relu;
  relu.ins = {add.outs[0]};
  relu.outs = {f.bind(root.outs[0])};
  f.graph.nodes = {node, add, relu};
  f.group.kind = GroupKind::Epilogue;
  f.group.nodes = {0, 1, 2};
  f.group.elided.assign(f.memory.size(), false);
  f.group.elided[static_cast<size_t>(add.outs[0].index)] = true;
  f.group.elided[static_cast<size_t>(node.outs[0].index)] = elide;
  std::vector<void*> bindings;
  for (size_t i = 0; i < f.memory.size(); ++i) bindings.push_back(f.group.elided[i] ? nullptr : f.memory[i].data());
  const Problem problem{f.graph, f.group};
  const Impl* impl = &kReferenceImpl;
  if (!reference)
    for (const Impl& i : cpu_backend().impls(problem))
      if (!i.accepts(problem)) {
        impl = &i;
        break;
      }
  EXPECT_EQ(reference, impl->name == std::string("reference"));
  const auto executable = impl->make(problem);
  std::vector<char> workspace(executable->workspace() + 64);
  void* aligned = reinterpret_cast<void*>((reinterpret_cast<uintptr_t>(workspace.data()) + 63) / 64 * 64);
  executable->run({bindings.data(), nullptr, aligned});
  std::vector<std::vector<double>> outs;
  for (const Operand& o : {relu.outs[0], node.outs[0]})
    if (!f.group.elided[static_cast<size_t>(o.index)]) outs.push_back(decode(o.dtype, f.memory[static_cast<size_t>(o.index)]));
  return outs;
}

void check_fused(const Case& root, const Array& bias) {
  for (bool elide : {true, false}) {
    const auto want = run_fused(root, bias, elide, true), got = run_fused(root, bias, elide, false);
    ASSERT_EQ(want.size(), got.size());
    const double tolerance = 16 * eps_of(root.outs[0].dtype) * (1 + std::log2(1 + root.growth));
    for (size_t o = 0; o < want.size(); ++o)
      for (size_t i = 0; i < want[o].size(); ++i)
        ASSERT_NEAR(got[o][i], want[o][i], tolerance * (1 + std::fabs(want[o][i]))) << op_name(root.op) << " output " << o << " at " << i;
  }
}

TEST(CpuEpilogue, MatmulBiasRelu) {
  for (DType d : kFloats)
    for (int64_t m : {0, 1, 17, 300})
      for (int64_t n : {1, 16, 65, 512}) {
        SCOPED_TRACE(fmt::format("{} {}x{}", static_cast<int>(d), m, n));
        check_fused(matmul(in(d, {m, 40}), in(d, {40, n}, 1)), in(d, {n}, 2));
        check_fused(matmul(in(d, {2, m, 40}), Array::strided(d, {2, 40, n}, {0, n, 1}, 0, noise)), in(d, {n}, 2));
        check_fused(matmul(in(d, {2, m, 40}), in(d, {2, 40, n}, 1)), in(d, {2, m, n}, 2));
      }
}

TEST(CpuEpilogue, ConvBiasRelu) {
  for (DType d : kFloats) {
    Case t;
    t.op = OpId::conv2d;
    t.attrs = {1, 1, 1, 1, 1, 1, 2};
    t.growth = 18;
    t.ins = {in(d, {3, 4, 9, 8}), in(d, {6, 2, 3, 3}, 1)};
    t.outs = {out(d, {3, 6, 9, 8})};
    check_fused(t, in(d, {6, 1, 1}, 2));
  }
}

// Our own kernels give the same bits with any number of threads.
TEST(CpuThreads, ResultsDoNotDependOnThem) {
  Case t;
  t.op = OpId::layer_norm_grad;
  t.attrs = {1, 1};
  const DType d = DType::float32;
  t.ins = {in(d, {700, 96}, 3), in(d, {700, 96}), in(d, {700}, 4), in(d, {700}, 5), in(d, {96}, 1)};
  t.outs = {out(d, {700, 96}), out(d, {96}), out(d, {96})};
  Case s;
  s.op = OpId::sum_squares;
  s.ins = {in(d, {300000})};
  s.outs = {out(d, {})};
  const int before = num_threads();
  std::vector<Result> results;
  for (int threads : {1, 2, 5}) {
    set_num_threads(threads);
    results.push_back(run(t, false));
    for (const auto& o : run(s, false).outs) results.back().outs.push_back(o);
    EXPECT_EQ(results.back().outs, results.front().outs) << threads;
  }
  set_num_threads(before);
}

}  // namespace
}  // namespace pyflame
