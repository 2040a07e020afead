// Every kernel of the CPU backend against the reference backend: one node, the implementation that the backend would
// choose, the same bits in, outputs compared within c * eps * growth(K). A case fails when the kernel quietly leaves it to
// the reference, and when bytes around the outputs change.
#include "backends/cpu_case.h"

namespace pyflame {
namespace {

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

TEST(CpuRows, CrossEntropy) {
  for (DType d : kFloats)
    for (double smoothing : {0.0, 0.1})
      for (int64_t n : {0, 1, 37})
        for (bool strided : {false, true}) {
          const DType wide = d == DType::float64 ? d : DType::float32;
          Case t;
          t.op = OpId::cross_entropy;
          t.attrs = {2};
          t.ins = {strided ? in(d, {11, n}).transposed(0, 1) : in(d, {n, 11}), index({n}, 11)};
          t.params = {smoothing};
          t.outs = {out(wide, {n}), out(wide, {n}), out(wide, {n})};
          t.growth = 11;
          check(t);
          t.op = OpId::cross_entropy_grad;
          const Array number = Array::make(wide, {n}, [](int64_t i) { return 3 + noise(i); });
          t.ins = {in(wide, {n}, 5), t.ins[0], index({n}, 11), number, number};
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
  if (mask == 1)
    t.ins.push_back(
        Array::make(DType::bool_, {1, 1, a.t, a.s}, [&](int64_t i) { return i / a.s != 3 && noise(i) > 0; }));
  if (mask == 2) t.ins.push_back(Array::strided(d, {a.b, a.h, a.t, a.s}, {0, a.s, 0, 1}, 0, noise));
  t.params = {0.3, a.kv};
  t.outs = {out(d, {a.b, a.h, a.t, a.d}), out(DType::float32, {a.b, a.h, a.t})};
  t.growth = static_cast<double>(a.s + a.d);
  t.c = 8;
  return t;
}

const AttentionShape kAttentionShapes[] = {{2, 4, 4, 17, 17, 8, 17},    {2, 4, 2, 64, 64, 32, 64},
                                           {1, 2, 1, 1, 40, 16, 33},    {1, 2, 2, 70, 130, 8, 130},
                                           {1, 1, 1, 5, 1100, 8, 1031}, {1, 2, 2, 9, 5, 4, 5}};

TEST(CpuAttention, Forward) {
  for (DType d : kFloats)
    for (const AttentionShape& a : kAttentionShapes)
      for (bool causal : {false, true})
        for (int mask : {0, 1, 2})
          for (bool packed : {false, true}) {
            SCOPED_TRACE(fmt::format("{} t {} s {} causal {} mask {} packed {}", static_cast<int>(d), a.t, a.s, causal,
                                     mask, packed));
            check(attention(d, a, causal, mask, packed));
          }
}

TEST(CpuAttention, Gradient) {
  for (DType d : kFloats)
    for (const AttentionShape& a : kAttentionShapes)
      for (bool causal : {false, true})
        for (int mask : {0, 1, 2})
          for (bool packed : {false, true}) {
            SCOPED_TRACE(fmt::format("{} t {} s {} causal {} mask {} packed {}", static_cast<int>(d), a.t, a.s, causal,
                                     mask, packed));
            const Case forward = attention(d, a, causal, mask, packed);
            const Result r = run(forward, true);
            Case t = forward;
            t.op = OpId::attention_grad;
            t.ins = {in(d, {a.b, a.h, a.t, a.d}, 9),
                     forward.ins[0],
                     forward.ins[1],
                     forward.ins[2],
                     forward.outs[0],
                     forward.outs[1]};
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
      EXPECT_EQ(std::string(e.what()),
                fmt::format("{}: index out of range; got 7; expected 0 <= index < 5", op_name(op)));
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

// Images of one shape, converted to channels-last. The bytes behind them do not change.
std::vector<double> moved(const Dims& shape, const std::vector<double>& memory) {
  std::vector<double> r = memory;
  const int64_t channels = shape[1], plane = shape[2] * shape[3];
  for (int64_t n = 0; n < shape[0]; ++n)
    for (int64_t c = 0; c < channels; ++c)
      for (int64_t i = 0; i < plane; ++i)
        r[static_cast<size_t>((n * plane + i) * channels + c)] =
            memory[static_cast<size_t>((n * channels + c) * plane + i)];
  return r;
}

// The same images, channels-last in memory.
Array transposed(const Array& a) {
  Array r = a;
  r.strides = {a.shape[1] * a.shape[2] * a.shape[3], 1, a.shape[3] * a.shape[1], a.shape[1]};
  r.memory = moved(a.shape, a.memory);
  return r;
}

// In each combination of orders that its images (and weights) may have. The reference, which takes long, computes once.
void check_orders(const Case& t, std::initializer_list<int> inputs, std::initializer_list<int> outputs) {
  const Result plain = run(t, true);
  const auto images = static_cast<int>(inputs.size() + outputs.size());
  for (int mask = 0; mask < 1 << images; ++mask) {
    SCOPED_TRACE(mask);
    Case changed = t;
    Result want = plain;
    int bit = 0;
    for (int i : inputs)
      if (mask >> bit++ & 1) changed.ins[static_cast<size_t>(i)] = transposed(t.ins[static_cast<size_t>(i)]);
    for (int o : outputs)
      if (mask >> bit++ & 1) {
        const auto at = static_cast<size_t>(o);
        changed.outs[at] = transposed(t.outs[at]);
        want.outs[at] = moved(t.outs[at].shape, plain.outs[at]);
      }
    check(changed, want);
  }
}

TEST(CpuConv, ForwardAndGradients) {
  struct Shape {
    int64_t n, ic, h, w, oc, kh, kw, sh, sw, ph, pw, dh, dw, groups;
    // The reference takes long for it, and only these dtypes have kernels for so much work.
    bool large() const { return n * oc * ic * h * w > 1000000; }
  };
  const Shape shapes[] = {
      {2, 3, 9, 8, 4, 3, 3, 1, 1, 1, 1, 1, 1, 1},
      {1, 4, 12, 11, 6, 3, 2, 2, 3, 0, 1, 1, 1, 2},
      {3, 2, 7, 7, 5, 1, 1, 1, 1, 0, 0, 1, 1, 1},
      {2, 4, 13, 10, 4, 3, 3, 1, 1, 2, 2, 2, 2, 4},
      {0, 2, 5, 5, 3, 3, 3, 1, 1, 0, 0, 1, 1, 1},
      {2, 1, 4, 4, 2, 5, 5, 1, 1, 3, 3, 1, 1, 1},
      // With work enough for oneDNN, where the processor has its kernels: two images at a time, output sizes that
      // round down, dilation, taps that are not square, weights so large that few sums are made.
      {32, 24, 10, 10, 32, 3, 3, 1, 1, 1, 1, 1, 1, 1},
      {3, 48, 13, 11, 64, 3, 3, 2, 2, 1, 1, 1, 1, 1},
      {2, 32, 9, 9, 32, 3, 3, 1, 1, 2, 2, 2, 2, 1},
      {1, 40, 9, 8, 48, 3, 2, 1, 1, 1, 0, 1, 1, 1},
      {8, 96, 4, 4, 320, 3, 3, 1, 1, 1, 1, 1, 1, 1},
      // Single pixels, which are the library's where both images are channels-last; weights in parts, and in one.
      {4, 64, 9, 7, 128, 1, 1, 2, 2, 0, 0, 1, 1, 1},
      {2, 32, 10, 10, 192, 3, 3, 1, 1, 1, 1, 1, 1, 1},
      {2, 3, 40, 38, 64, 7, 7, 2, 2, 3, 3, 1, 1, 1}};
  for (DType d : kFloats)
    for (const Shape& s : shapes) {
      if (s.large() && d != DType::float32 && d != DType::bfloat16) continue;
      const int64_t oh = (s.h + 2 * s.ph - s.dh * (s.kh - 1) - 1) / s.sh + 1,
                    ow = (s.w + 2 * s.pw - s.dw * (s.kw - 1) - 1) / s.sw + 1;
      const Dims xs{s.n, s.ic, s.h, s.w}, ws{s.oc, s.ic / s.groups, s.kh, s.kw}, ys{s.n, s.oc, oh, ow};
      Case t;
      t.attrs = {s.sh, s.sw, s.ph, s.pw, s.dh, s.dw, s.groups};
      t.growth = static_cast<double>(s.ic * s.kh * s.kw + s.n * oh * ow);
      t.op = OpId::conv2d;
      t.ins = {in(d, xs), in(d, ws, 1)};
      t.outs = {out(d, ys)};
      check_orders(t, {0, 1}, {0});
      t.ins[0] = spread(d, xs);
      check(t);
      t.op = OpId::conv2d_grad_input;
      t.ins = {in(d, ys, 2), in(d, ws, 1)};
      t.outs = {out(d, xs)};
      check_orders(t, {0, 1}, {0});
      t.op = OpId::conv2d_grad_weight;
      t.ins = {in(d, ys, 2), in(d, xs)};
      t.outs = {out(d, ws)};
      check_orders(t, {0, 1}, {0});
    }
}

// The reference's choice of each window.
Array plane_indices(const Case& t) {
  Array r = t.outs[1];
  r.memory = run(t, true).outs[1];
  for (double& v : r.memory) v = std::max(v, 0.0);  // sentinels
  return r;
}

TEST(CpuPool, ForwardAndGradients) {
  struct Shape {
    int64_t h, w, oh, ow, kh, kw, sh, sw, ph, pw, dh, dw;
  };
  const Shape shapes[] = {{8, 8, 4, 4, 2, 2, 2, 2, 0, 0, 1, 1},   {9, 7, 5, 4, 3, 3, 2, 2, 1, 1, 1, 1},
                          {9, 7, 4, 3, 3, 2, 2, 2, 1, 0, 2, 2},   {7, 7, 4, 4, 2, 2, 2, 2, 0, 0, 1, 1},
                          {5, 70, 3, 35, 3, 3, 2, 2, 1, 1, 1, 1},  // longer than vectors
                          {5, 70, 5, 70, 3, 3, 1, 1, 1, 1, 1, 1}, {5, 70, 1, 23, 3, 4, 3, 3, 0, 0, 1, 1}};
  const auto check = [](DType d, const Shape& s, int64_t channels, int64_t include) {
    Case t;
    t.attrs = {s.kh, s.kw, s.sh, s.sw, s.ph, s.pw, s.dh, s.dw, include};
    t.op = OpId::max_pool2d;
    t.ins = {in(d, {2, channels, s.h, s.w})};
    t.ins[0].memory[5] = t.ins[0].memory[24] = t.ins[0].memory[25] = NAN;
    t.ins[0].memory[33] = -INFINITY;
    t.outs = {out(d, {2, channels, s.oh, s.ow}), out(DType::int64, {2, channels, s.oh, s.ow})};
    check_orders(t, {0}, {});
    const Array taken = plane_indices(t);
    t.outs = {transposed(t.outs[0]), transposed(t.outs[1])};
    check_orders(t, {0}, {});
    t.op = OpId::max_pool2d_grad;
    t.ins = {in(d, {2, channels, s.oh, s.ow}), taken};
    t.outs = {out(d, {2, channels, s.h, s.w})};
    t.growth = static_cast<double>(s.kh * s.kw);
    check_orders(t, {0, 1}, {0});
    t.op = OpId::avg_pool2d;
    t.ins = {in(d, {2, channels, s.h, s.w})};
    t.outs = {out(d, {2, channels, s.oh, s.ow})};
    check_orders(t, {0}, {0});
    t.op = OpId::avg_pool2d_grad;
    t.ins = {in(d, {2, channels, s.oh, s.ow})};
    t.outs = {out(d, {2, channels, s.h, s.w})};
    check_orders(t, {0}, {0});
  };
  // 19 channels: two vectors of float32 and some more
  for (DType d : kFloats)
    for (const Shape& s : shapes)
      for (int64_t include : {0, 1})
        for (int64_t channels : {3, 19}) check(d, s, channels, include);
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
            t.ins.push_back(role == 3 ? Array::make(d, s, [](int64_t i) { return std::fabs(noise(i)); })
                                      : in(d, s, role));
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
    t.attrs = {1, 1, 1, 1, 1, 1, 1};  // two images at a time by oneDNN
    t.growth = 216;
    t.ins = {in(d, {32, 24, 10, 10}), in(d, {32, 24, 3, 3}, 1)};
    t.outs = {out(d, {32, 32, 10, 10})};
    check_fused(t, in(d, {32, 1, 1}, 2));
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
  Case c, w;
  c.op = OpId::conv2d, w.op = OpId::conv2d_grad_weight;
  c.attrs = w.attrs = {1, 1, 1, 1, 1, 1, 1};
  c.ins = {in(d, {32, 24, 10, 10}), in(d, {32, 24, 3, 3}, 1)};
  c.outs = {out(d, {32, 32, 10, 10})};
  w.ins = {in(d, {32, 32, 10, 10}, 2), in(d, {32, 24, 10, 10})};
  w.outs = {out(d, {32, 24, 3, 3})};
  const int before = num_threads();
  std::vector<Result> results;
  for (int threads : {1, 2, 5}) {
    set_num_threads(threads);
    results.push_back(run(t, false));
    for (const Case& other : {s, c, w})
      for (const auto& o : run(other, false).outs) results.back().outs.push_back(o);
    EXPECT_EQ(results.back().outs, results.front().outs) << threads;
  }
  set_num_threads(before);
}

}  // namespace
}  // namespace pyflame
