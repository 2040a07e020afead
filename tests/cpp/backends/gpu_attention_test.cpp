// attention and its gradient on a device against the reference, in sizes that cross tiles: odd lengths, every mask, grouped heads, a cache,
// split keys, views; and the kernels' text for other compilers.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <map>

#include "gpu_case.h"
#include "gpu_forced.h"
#include "pyflame/autograd/autograd.h"
#include "pyflame/backends/gpu/ops/attention_kernels.h"
#include "pyflame/base/error.h"

namespace pyflame {
namespace {

using gpu::AttentionKind;
using gpu::AttentionMask;
using gpu::AttentionSource;

// The tiles depend on the architecture: all texts in one file, and the compiler takes the one for its target.
template <class Make>
void write_attention(const std::string& name, AttentionKind a, Make&& make) {
  const auto text = [&](MatrixKind units, int wave) {
    a.units = units;
    a.wave = wave;
    std::string why;
    const bool half = a.dtype == DType::float16 || a.dtype == DType::bfloat16;
    return gpu::whole_source((half && !attention_on_matrix_units(a, &why) ? gpu::attention_plain(a) : make(a)).text);
  };
  write_text("attention_" + name,
             fmt::format("#if {}\n{}#elif {}\n{}#elif defined(__GFX9__)\n{}#else\n{}#endif\n", kHasMfma,
                         text(MatrixKind::mfma, 64), kHasWmma, text(MatrixKind::wmma, 32), text(MatrixKind::none, 64),
                         text(MatrixKind::none, 32)));
}

// A device that is made up: 300 compute units with four SIMDs each, whose lanes have 512 registers.
gpu::Figures made_device() {
  gpu::Figures f;
  f.units = 300, f.unit_rate = 2e6, f.bandwidth = 4e6, f.unit_caches = 2 * f.bandwidth / f.units;
  f.wave = 64, f.simds = 4, f.most_waves = 8, f.registers = 512, f.granule = 8, f.shared_bytes = 64 * 1024;
  return f;
}

TEST(GpuEstimates, TheLastRoundOfWorkgroups) {
  const gpu::Figures f = made_device();
  gpu::Work w;
  w.operations = 1e6;
  const auto us = [&](double groups) {
    w.groups = groups;
    return launch_us(w, f);
  };
  EXPECT_DOUBLE_EQ(us(1), us(300)) << "they run at the same time";
  EXPECT_DOUBLE_EQ(us(301), us(600));
  EXPECT_DOUBLE_EQ(us(301) - gpu::kLaunchUs, 2 * (us(300) - gpu::kLaunchUs));
  w.evenly = true;
  EXPECT_LT(us(301), us(600));
}

TEST(GpuEstimates, WorkgroupsThatFitAComputeUnit) {
  const gpu::Figures f = made_device();
  gpu::Work w;
  w.waves = 4;
  EXPECT_EQ(resident_groups(w, f), 8);
  w.registers = 100;  // 104 with the granule: four waves of a SIMD
  EXPECT_EQ(resident_groups(w, f), 4);
  w.shared_bytes = 20 * 1024;
  EXPECT_EQ(resident_groups(w, f), 3);
  w.registers = 500;
  EXPECT_EQ(resident_groups(w, f), 1);
}

TEST(GpuEstimates, FewWavesAndFewLoadsAreSlow) {
  const gpu::Figures f = made_device();
  gpu::Work w;
  w.groups = 3000, w.operations = 1e7, w.waves = 4, w.registers = 128;
  const double usual = launch_us(w, f);
  w.registers = 512;  // a wave of each SIMD, which waits alone
  EXPECT_GT(launch_us(w, f), 1.5 * usual);
  gpu::Work copy;
  copy.groups = 300, copy.bytes = 1e9, copy.waves = 4, copy.loads = 64;
  const double wide = launch_us(copy, f);
  copy.loads = 4;
  EXPECT_GT(launch_us(copy, f), 1.5 * wide);
}

TEST(GpuEstimates, TilesAndSplitsOfAttention) {
  const gpu::Figures f = made_device();
  const AttentionKind a{DType::bfloat16, 64, AttentionMask::none, false, MatrixKind::mfma, 64};
  const gpu::AttentionForwardTiles usual{2, 4, 64, 1, true}, few_rows{1, 4, 64, 1, true};
  // One block for a long sequence leaves the device idle.
  const gpu::AttentionSizes one{1, 1, 1, 64, 65536};
  EXPECT_LT(10 * attention_forward_us(a, one, few_rows, 64, f), attention_forward_us(a, one, few_rows, 1, f));
  // With enough blocks, parts of the result are only more bytes.
  const gpu::AttentionSizes many{16, 16, 16, 4096, 4096};
  EXPECT_LT(attention_forward_us(a, many, usual, 1, f), attention_forward_us(a, many, usual, 4, f));
  // A workgroup of 64 queries reads all keys for half as many queries.
  EXPECT_LE(attention_forward_us(a, many, usual, 1, f), attention_forward_us(a, many, few_rows, 1, f));
  // Where there are as many blocks of 128 queries as compute units have room for, half of them would be idle.
  const gpu::AttentionSizes half{1, 150, 150, 128, 4096};
  EXPECT_LT(attention_forward_us(a, half, few_rows, 1, f), attention_forward_us(a, half, usual, 1, f));
  // A causal mask leaves out half of the keys.
  AttentionKind causal = a;
  causal.causal = true;
  EXPECT_LT(attention_forward_us(causal, many, usual, 1, f), 0.6 * attention_forward_us(a, many, usual, 1, f));
}

TEST(GpuEstimates, TilesOfTheGradientOfAttention) {
  const gpu::Figures f = made_device();
  const AttentionKind a{DType::bfloat16, 128, AttentionMask::none, false, MatrixKind::mfma, 64};
  const gpu::AttentionSizes many{16, 16, 16, 4096, 4096};
  const gpu::AttentionGradTiles usual{1, 4, 32, 1, true};
  gpu::AttentionGradTiles two_passes = usual;
  two_passes.at_once = false;
  EXPECT_LT(attention_keys_us(a, many, usual, f), attention_keys_us(a, many, two_passes, f));
  // A workgroup of one wave: shared memory has room for a few of them, so that SIMDs are idle.
  const gpu::AttentionGradTiles one_wave{1, 1, 32, 1, true};
  EXPECT_LT(attention_keys_us(a, many, usual, f), attention_keys_us(a, many, one_wave, f));
  EXPECT_LT(attention_queries_us(a, many, usual, f), attention_queries_us(a, many, one_wave, f));
  // One block of 64 rows for 32 of them, or two of 16 rows each.
  const gpu::AttentionSizes few{1, 16, 16, 32, 4096};
  EXPECT_LT(attention_queries_us(a, few, one_wave, f) / attention_queries_us(a, many, one_wave, f),
            attention_queries_us(a, few, usual, f) / attention_queries_us(a, many, usual, f));
}

TEST(GpuEstimates, FiguresOfDevices) {
  const gpu::Figures mi300x = gpu::Figures::of("gfx942", 64, 304, true),
                     half = gpu::Figures::of("gfx942", 64, 152, true);
  EXPECT_DOUBLE_EQ(mi300x.bandwidth, 5.3e6);
  EXPECT_DOUBLE_EQ(mi300x.unit_rate * 304, gpu::kReached * 1307.4e6);
  EXPECT_EQ(half.units, 152) << "a partition";
  const int narrow = gpu::Figures::of("gfx1100", 32, 96, true).registers;
  EXPECT_EQ(gpu::Figures::of("gfx1100", 64, 96, true).registers, narrow / 2);
  EXPECT_GT(gpu::Figures::of("an unknown one", 64, 10, true).unit_rate, 0);
}

TEST(GpuAttention, SourcesForOtherCompilers) {
  if (!std::getenv("PYFLAME_DUMP_KERNELS")) GTEST_SKIP() << "PYFLAME_DUMP_KERNELS names no folder";
  const auto write = [](const std::string& name, DType d, int64_t dim, AttentionMask mask, bool causal, auto make) {
    write_attention(name, {d, dim, mask, causal, MatrixKind::none, 0}, make);
  };
  for (const DType d : {DType::float16, DType::bfloat16}) {
    const std::string type(dtype_name(d));
    for (const int64_t dim : {64, 128, 256}) {
      const std::string end = fmt::format("{}_{}", dim, type);
      write("forward_" + end, d, dim, AttentionMask::none, true, [](const AttentionKind& a) {
        return attention_forward(a, attention_forward_tiles(a, false), true, true, false);
      });
      write("queries_grad_" + end, d, dim, AttentionMask::none, true,
            [](const AttentionKind& a) { return attention_queries_grad(a, attention_queries_tiles(a), true); });
      write("keys_grad_" + end, d, dim, AttentionMask::none, true, [](const AttentionKind& a) {
        return attention_keys_grad(a, attention_keys_tiles(a), true, attention_keys_tiles(a).at_once ? 3 : 2);
      });
    }
    write("split_" + type, d, 128, AttentionMask::none, true, [](const AttentionKind& a) {
      return attention_forward(a, attention_forward_tiles(a, true), true, true, true);
    });
    write("combine_" + type, d, 128, AttentionMask::none, true,
          [](const AttentionKind& a) { return attention_combine(a); });
    write("stats_" + type, d, 128, AttentionMask::none, true,
          [](const AttentionKind& a) { return attention_query_stats(a); });
    write("paged_tiles_" + type, d, 128, AttentionMask::none, false,
          [](const AttentionKind& a) { return attention_paged_tiles(a); });
    const auto packed = [](AttentionKind a) {
      a.packed = true;
      return a;
    };
    write("packed_" + type, d, 128, AttentionMask::none, true, [&](const AttentionKind& a) {
      return attention_forward(packed(a), attention_forward_tiles(packed(a), false), true, true, false);
    });
    write("packed_split_" + type, d, 128, AttentionMask::none, true, [&](const AttentionKind& a) {
      return attention_forward(packed(a), attention_forward_tiles(packed(a), true), true, true, true);
    });
    write("few_rows_" + type, d, 128, AttentionMask::none, true, [](AttentionKind a) {
      a.few_rows = true;
      return attention_forward(a, attention_forward_tiles(a, false), true, true, false);
    });
    write("packed_queries_grad_" + type, d, 128, AttentionMask::none, true,
          [&](const AttentionKind& a) { return attention_queries_grad(packed(a), attention_queries_tiles(a), true); });
    write("packed_keys_grad_" + type, d, 128, AttentionMask::none, true, [&](const AttentionKind& a) {
      return attention_keys_grad(packed(a), attention_keys_tiles(a), true, attention_keys_tiles(a).at_once ? 3 : 2);
    });
    write("masked_" + type, d, 80, AttentionMask::added, false, [](const AttentionKind& a) {
      return attention_forward(a, attention_forward_tiles(a, false), false, false, false);
    });
  }
  for (const DType d : {DType::float32, DType::float64, DType::bfloat16}) {
    const std::string type(dtype_name(d));
    write("plain_" + type, d, 64, AttentionMask::added, true,
          [](const AttentionKind& a) { return attention_plain(a); });
    write("plain_stats_" + type, d, 64, AttentionMask::boolean, true,
          [](const AttentionKind& a) { return attention_plain_query_stats(a); });
    write("plain_queries_grad_" + type, d, 64, AttentionMask::boolean, true,
          [](const AttentionKind& a) { return attention_plain_queries_grad(a); });
    write("plain_keys_grad_" + type, d, 64, AttentionMask::none, true,
          [](const AttentionKind& a) { return attention_plain_keys_grad(a); });
  }
}

// The tiles that tuning may try, in three forms: causal; with a mask and rows that are no whole vectors; packed sequences. A file
// is for the architectures of its kind of matrix cores; elsewhere it is empty.
TEST(GpuAttention, TilesForOtherCompilers) {
  if (!std::getenv("PYFLAME_DUMP_KERNELS")) GTEST_SKIP() << "PYFLAME_DUMP_KERNELS names no folder";
  constexpr int kSharedBytes = 64 * 1024;
  for (const MatrixKind units : {MatrixKind::mfma, MatrixKind::wmma})
    for (const int64_t dim : {64, 128, 192, 256})
      for (const std::string form : {"causal", "masked", "packed"}) {
        AttentionKind a{.dtype = DType::bfloat16, .dim = dim, .units = units};
        a.wave = units == MatrixKind::mfma ? 64 : 32;
        const bool wide = form != "masked", folded = wide, split = form == "packed";
        a.mask = form == "masked" ? AttentionMask::added : AttentionMask::none;
        a.causal = form != "masked", a.packed = form == "packed";
        const auto write = [&](const std::string& kernel, const AttentionSource& s) {
          write_text(fmt::format("attention_{}_{}_{}_{}", to_string(units), kernel, dim, form),
                     fmt::format("#if {}\n{}#endif\n", units == MatrixKind::mfma ? kHasMfma : kHasWmma,
                                 gpu::whole_source(s.text)));
        };
        for (const auto& t : all_attention_forward_tiles(a, kSharedBytes))
          write(fmt::format("forward_{}_{}_{}_{}_{:d}", t.tiles, t.waves, t.keys, t.stages, t.held),
                attention_forward(a, t, wide, folded, split));
        for (const auto& t : all_attention_queries_tiles(a, kSharedBytes))
          write(fmt::format("queries_{}_{}_{}_{}", t.tiles, t.waves, t.step, t.stages),
                attention_queries_grad(a, t, wide));
        for (const auto& t : all_attention_keys_tiles(a, kSharedBytes))
          write(fmt::format("keys_{}_{}_{}_{}_{:d}", t.tiles, t.waves, t.step, t.stages, t.at_once),
                attention_keys_grad(a, t, wide, t.at_once ? 3 : 2));
      }
}

class AttentionOnGpu : public GpuCase {
 protected:
  struct Setup {
    DType dtype = DType::bfloat16;
    int64_t batch = 2, heads = 2, kv_heads = 2, queries = 70, keys = 70, dim = 64;
    bool causal = false;
    std::optional<int64_t> kv_length = std::nullopt;
    std::optional<double> scale = std::nullopt;
    int mask = 0;             // 1: bool, 2: added
    bool transposed = false;  // q, k, v as views of [B, T, H, D]
    bool gradient = true;
  };
  static double tolerance(DType d) {
    return d == DType::bfloat16 ? 0.03 : d == DType::float16 ? 0.004 : d == DType::float32 ? 2e-5 : 1e-12;
  }
  void check(const Setup& s) {
    SCOPED_TRACE(fmt::format("{} B{} H{}/{} T{} S{} D{} causal {} mask {} transposed {}", dtype_name(s.dtype), s.batch,
                             s.heads, s.kv_heads, s.queries, s.keys, s.dim, s.causal, s.mask, s.transposed));
    const auto input = [&](int64_t heads, int64_t n) {
      const Dims shape = s.transposed ? Dims{s.batch, n, heads, s.dim} : Dims{s.batch, heads, n, s.dim};
      return cast(randn(shape, DType::float32, Device{}), s.dtype);
    };
    const Tensor host[4] = {input(s.heads, s.queries), input(s.kv_heads, s.keys), input(s.kv_heads, s.keys),
                            input(s.heads, s.queries)};
    Tensor mask;
    if (s.mask == 1) mask = gt(rand({s.queries, s.keys}, DType::float32, Device{}), 0.3);
    if (s.mask == 2) mask = cast(randn({s.heads, s.queries, s.keys}, DType::float32, Device{}), s.dtype);
    // The reference has the same numbers in float64.
    Tensor out[2], grads[2][3];
    for (const int on_gpu : {0, 1}) {
      Tensor x[4], in[3];
      for (int i = 0; i < 4; ++i) {
        x[i] = (on_gpu ? to_device(host[i], gpu_) : cast(host[i], DType::float64)).detach();
        if (i < 3 && s.gradient) x[i].set_requires_grad(true);
      }
      for (int i = 0; i < 3; ++i) in[i] = s.transposed ? transpose(x[i], 1, 2) : x[i];
      Tensor m;
      if (mask) m = on_gpu ? to_device(mask, gpu_) : s.mask == 1 ? mask : cast(mask, DType::float64);
      out[on_gpu] = scaled_dot_product_attention(in[0], in[1], in[2], m, 0, s.causal, s.scale, true, s.kv_length);
      if (!s.gradient) continue;
      const Tensor g = s.transposed ? transpose(x[3], 1, 2) : x[3];
      autograd::backward({sum(mul(out[on_gpu], g.detach()))});
      for (int i = 0; i < 3; ++i) grads[on_gpu][i] = x[i].grad();
    }
    expect_near(out[1], out[0], tolerance(s.dtype));
    if (!s.gradient) return;
    for (int i = 0; i < 3; ++i) {
      SCOPED_TRACE(fmt::format("gradient {}", i));
      expect_near(grads[1][i], grads[0][i], 4 * tolerance(s.dtype));
    }
  }
};

TEST_F(AttentionOnGpu, HeadSizes) {
  for (const DType d : {DType::bfloat16, DType::float16})
    for (const int64_t dim : {8, 32, 40, 64, 96, 128, 160, 256}) check({.dtype = d, .dim = dim, .causal = true});
  check({.dim = 35});   // no whole vectors
  check({.dim = 264});  // too wide for the matrix units' kernel
}

TEST_F(AttentionOnGpu, LengthsAndMasks) {
  for (const int64_t n : {1, 16, 63, 129, 200})
    for (const bool causal : {false, true}) check({.queries = n, .keys = n, .causal = causal});
  check({.queries = 33, .keys = 150});
  check({.queries = 150, .keys = 33, .causal = true});
  for (const int mask : {1, 2}) check({.queries = 65, .keys = 97, .mask = mask});
  check({.scale = -0.2});
  check({.scale = 0.0});
}

TEST_F(AttentionOnGpu, GroupedHeadsViewsAndCaches) {
  check({.heads = 6, .kv_heads = 2, .causal = true});
  check({.heads = 4, .kv_heads = 1, .mask = 2});
  check({.causal = true, .transposed = true});
  check({.queries = 5, .keys = 90, .causal = true, .kv_length = 71});
  check({.queries = 5, .keys = 90, .kv_length = 0});
  check({.queries = 20, .keys = 90, .causal = true, .kv_length = 10});  // the first ones see nothing
}

TEST_F(AttentionOnGpu, FewQueriesOverManyKeys) {
  for (const int64_t queries : {1, 3}) {
    check({.heads = 4,
           .kv_heads = 2,
           .queries = queries,
           .keys = 3000,
           .dim = 128,
           .kv_length = 2511,
           .gradient = false});
    check({.heads = 4,
           .kv_heads = 2,
           .queries = queries,
           .keys = 3000,
           .causal = true,
           .kv_length = 600,
           .gradient = false});
  }
  check({.queries = 1, .keys = 2000, .mask = 2, .gradient = false});
}

// Large enough for a library's entry, where there is one, of either mode; it refuses the others.
TEST_F(AttentionOnGpu, WhatLibrariesTake) {
  if (gpu_.type != DeviceType::cuda) GTEST_SKIP() << "this device's libraries have no attention";
  for (const bool deterministic : {false, true}) {
    use_deterministic_algorithms(deterministic);
    for (const bool causal : {false, true}) {
      check({.heads = 4, .kv_heads = 4, .queries = 256, .keys = 256, .causal = causal});
      check({.dtype = DType::float16,
             .heads = 4,
             .kv_heads = 4,
             .queries = 260,
             .keys = 260,
             .dim = 72,
             .causal = causal,
             .transposed = true});
    }
    check({.queries = 256, .keys = 256, .dim = 128, .causal = true, .scale = 0.3});
    check({.heads = 6, .kv_heads = 2, .queries = 256, .keys = 256, .causal = true, .transposed = true});
    for (const bool causal : {false, true})
      check({.heads = 4, .kv_heads = 4, .queries = 200, .keys = 400, .causal = causal});
    check({.heads = 4, .kv_heads = 4, .queries = 200, .keys = 400, .kv_length = 300});
  }
}

// More scores than a library's plan may keep: the plan processes batches or heads in parts.
TEST_F(AttentionOnGpu, ALargeGradientIsThatOfItsParts) {
  if (gpu_.type != DeviceType::cuda) GTEST_SKIP() << "this device's libraries have no attention";
  const auto gradients = [](const std::vector<Tensor>& x) {
    Tensor in[3];
    for (size_t i = 0; i < 3; ++i) {
      in[i] = x[i].detach();
      in[i].set_requires_grad(true);
    }
    autograd::backward({sum(mul(scaled_dot_product_attention(in[0], in[1], in[2], Tensor(), 0, true), x[3]))});
    return std::vector<Tensor>{in[0].grad(), in[1].grad(), in[2].grad()};
  };
  for (const int dim : {0, 1}) {
    const Dims shape = dim == 0 ? Dims{2, 16, 4096, 64} : Dims{1, 32, 4096, 64};
    std::vector<Tensor> all;
    for (int i = 0; i < 4; ++i) all.push_back(randn(shape, DType::bfloat16, gpu_));
    const std::vector<Tensor> whole = gradients(all);
    const int64_t half = shape[dim] / 2;
    for (const int64_t start : {int64_t{0}, half}) {
      std::vector<Tensor> part;
      for (const Tensor& x : all) part.push_back(narrow(x, dim, start, half));
      const std::vector<Tensor> got = gradients(part);
      for (size_t i = 0; i < 3; ++i) {
        SCOPED_TRACE(fmt::format("gradient {} from {} along {}", i, start, dim));
        expect_same(narrow(whole[i], dim, start, half), got[i]);
      }
    }
  }
}

TEST_F(AttentionOnGpu, OtherDtypes) {
  for (const DType d : {DType::float32, DType::float64}) {
    check({.dtype = d, .causal = true});
    check({.dtype = d, .heads = 4, .kv_heads = 2, .queries = 33, .keys = 150, .dim = 20, .mask = 2});
    check({.dtype = d, .queries = 5, .keys = 90, .dim = 20, .causal = true, .kv_length = 71});
    check({.dtype = d,
           .queries = 20,
           .keys = 90,
           .dim = 7,
           .causal = true,
           .kv_length = 10,
           .mask = 0,
           .transposed = true});
  }
}

TEST_F(AttentionOnGpu, TheSameBitsEveryTime) {
  const Tensor x = to_device(cast(randn({2, 4, 300, 64}, DType::float32, Device{}), DType::bfloat16), gpu_);
  Tensor grads[2];
  for (Tensor& g : grads) {
    const Tensor q = add(x, 0.0).detach();
    q.set_requires_grad(true);
    autograd::backward({sum(mul(scaled_dot_product_attention(q, q, q, Tensor(), 0, true), x))});
    g = q.grad();
  }
  expect_same(grads[0], grads[1]);
}

// --- the configurations that tuning may try
class AttentionConfigurationsOnGpu : public AttentionOnGpu {
 protected:
  struct Inputs {
    Tensor q, k, v, grad, mask;
  };
  Inputs inputs(const Setup& s) {
    const auto random = [&](int64_t heads, int64_t n) {
      return to_device(cast(randn({s.batch, heads, n, s.dim}, DType::float32, Device{}), s.dtype), gpu_);
    };
    Inputs x{random(s.heads, s.queries), random(s.kv_heads, s.keys), random(s.kv_heads, s.keys),
             random(s.heads, s.queries), Tensor()};
    if (s.mask == 1) x.mask = to_device(gt(rand({s.queries, s.keys}, DType::float32, Device{}), 0.3), gpu_);
    return x;
  }
  static std::vector<Tensor> results(const Setup& s, const Inputs& x) {
    Tensor in[3] = {x.q.detach(), x.k.detach(), x.v.detach()};
    for (Tensor& t : in) t.set_requires_grad(s.gradient);
    const Tensor out =
        scaled_dot_product_attention(in[0], in[1], in[2], x.mask, 0, s.causal, s.scale, true, s.kv_length);
    if (!s.gradient) return {on_host(out)};
    autograd::backward({sum(mul(out, x.grad))});
    return {on_host(out), on_host(in[0].grad()), on_host(in[1].grad()), on_host(in[2].grad())};
  }
  // The configurations for a problem. The error about one that does not exist names them.
  std::vector<std::string> configurations(const std::string& op, const std::string& entry, const Setup& s) {
    const Inputs x = inputs(s);
    return named_by_error(op, entry, [&] { results(s, x); });
  }
};

// Causal, grouped heads, each kind of mask, and a last tile that is short in both directions.
TEST_F(AttentionConfigurationsOnGpu, ForwardTilesComputeTheSame) {
  for (const int64_t dim : {64, 128, 256}) {
    Setup s{.batch = 1,
            .heads = 4,
            .kv_heads = 2,
            .queries = 150,
            .keys = 170,
            .dim = dim,
            .causal = true,
            .gradient = false};
    const std::vector<std::string> all = configurations("attention", "gpu.attention", s);
    if (all.empty()) GTEST_SKIP() << "this device has no matrix cores";
    EXPECT_GE(all.size(), 2u);
    for (size_t i = 0; i < all.size(); ++i) {
      SCOPED_TRACE(all[i]);
      const Forced forced("attention", "gpu.attention:" + all[i]);
      s.mask = static_cast<int>(i % 3);
      s.causal = s.mask == 0;
      check(s);
    }
  }
}

// What changes the bits is the number of queries of a wave and the keys of a tile; stages, and queries in registers, do not.
TEST_F(AttentionConfigurationsOnGpu, StagesChangeNoBits) {
  const Setup s{.batch = 1, .heads = 4, .kv_heads = 2, .queries = 150, .keys = 170, .causal = true, .gradient = false};
  const Inputs x = inputs(s);
  std::map<std::pair<int, int>, Tensor> by_tile;
  size_t compared = 0;
  for (const std::string& name : configurations("attention", "gpu.attention", s)) {
    int rows = 0, keys = 0, waves = 0;
    ASSERT_EQ(std::sscanf(name.c_str(), "tile=%dx%d,waves=%d", &rows, &keys, &waves), 3) << name;
    SCOPED_TRACE(name);
    const Forced forced("attention", "gpu.attention:" + name);
    const Tensor out = results(s, x)[0];
    const auto [at, fresh] = by_tile.try_emplace({rows / waves, keys}, out);
    if (fresh) continue;
    expect_same(out, at->second);
    ++compared;
  }
  if (by_tile.empty()) GTEST_SKIP() << "this device has no matrix cores";
  EXPECT_GE(compared, 2u);
}

// Splits of the keys, also more of them than there are tiles of keys before kv_length.
TEST_F(AttentionConfigurationsOnGpu, SplitsComputeTheSame) {
  const Setup decode{
      .heads = 4, .kv_heads = 2, .queries = 1, .keys = 2100, .causal = true, .kv_length = 1900, .gradient = false};
  const Setup several{.heads = 4, .kv_heads = 2, .queries = 37, .keys = 1100, .mask = 1, .gradient = false};
  for (const Setup& s : {decode, several}) {
    const std::vector<std::string> all = configurations("attention", "gpu.attention", s);
    if (all.empty()) GTEST_SKIP() << "this device has no matrix cores";
    size_t split = 0;
    for (const std::string& each : all) {
      if (each.ends_with(",splits=1")) continue;
      SCOPED_TRACE(each);
      const Forced forced("attention", "gpu.attention:" + each);
      check(s);
      ++split;
      if (s.kv_length) {
        Setup shorter = s;
        shorter.kv_length = 40;
        check(shorter);
      }
    }
    EXPECT_GE(split, 2u);
  }
}

// All of them add in the same order, so the gradients have the same bits.
TEST_F(AttentionConfigurationsOnGpu, GradientsHaveTheSameBits) {
  for (const int64_t dim : {64, 128, 256}) {
    const Setup s{.batch = 1,
                  .heads = 4,
                  .kv_heads = 2,
                  .queries = 150,
                  .keys = 170,
                  .dim = dim,
                  .causal = dim != 128,
                  .mask = dim == 128};
    std::vector<std::string> all = configurations("attention_grad", "gpu.attention_grad", s);
    if (all.empty()) GTEST_SKIP() << "this device has no matrix cores";
    const Inputs x = inputs(s);
    const Forced forward("attention", "gpu.attention");
    std::vector<Tensor> own;
    {
      const Forced forced("attention_grad", "gpu.attention_grad");
      own = results(s, x);
      check(s);
    }
    // Each changes one kernel alone. The last one has the tiles of two of them.
    const auto part = [](const std::string& name, const char* from) {
      const size_t at = name.find(from);
      return name.substr(at, std::string(from) == "keys=" ? name.find(",queries=") - at : std::string::npos);
    };
    std::map<std::string, size_t> keys, queries;
    for (const std::string& name : all) ++keys[part(name, "keys=")], ++queries[part(name, "queries=")];
    const auto rare = [](const std::map<std::string, size_t>& counts) {
      return std::min_element(counts.begin(), counts.end(), [](auto& l, auto& r) { return l.second < r.second; })
          ->first;
    };
    if (keys.size() > 1 && queries.size() > 1) all.push_back(rare(keys) + "," + rare(queries));
    for (const std::string& name : all) {
      SCOPED_TRACE(name);
      const Forced forced("attention_grad", "gpu.attention_grad:" + name);
      const std::vector<Tensor> got = results(s, x);
      for (size_t i = 0; i < 4; ++i) expect_same(got[i], own[i]);
    }
    EXPECT_GE(all.size(), dim < 256 ? 2u : 1u);
  }
}

// Packed sequences: one is empty, one is shorter than a tile.
TEST_F(AttentionConfigurationsOnGpu, PackedSequencesComputeTheSame) {
  const std::vector<int> offsets{0, 0, 5, 535, 612};
  constexpr int64_t kRows = 612, kLongest = 530, kDim = 64;
  const auto random = [&](int64_t heads) {
    return cast(randn({kRows, heads, kDim}, DType::float32, Device{}), DType::bfloat16);
  };
  const Tensor host[4] = {random(4), random(2), random(2), random(4)};
  const Tensor from = from_host(offsets.data(), {5}, DType::int32, Device{});
  // The output and the gradients of q, k and v.
  const auto results = [&](bool on_gpu) {
    Tensor x[4];
    for (int i = 0; i < 4; ++i) {
      x[i] = (on_gpu ? to_device(host[i], gpu_) : cast(host[i], DType::float64)).detach();
      if (i < 3) x[i].set_requires_grad(true);
    }
    const Tensor at = on_gpu ? to_device(from, gpu_) : from;
    const Tensor out = varlen_attn(x[0], x[1], x[2], at, at, kLongest, kLongest, true, {}, true);
    autograd::backward({sum(mul(out, x[3].detach()))});
    return std::vector<Tensor>{on_host(out), on_host(x[0].grad()), on_host(x[1].grad()), on_host(x[2].grad())};
  };
  const std::vector<Tensor> want = results(false);
  const auto names = [&](const std::string& op, const std::string& entry) {
    return named_by_error(op, entry, [&] { results(true); });
  };
  const auto compare = [&](const std::string& op, const std::string& name) {
    SCOPED_TRACE(name);
    const Forced forced(op, name);
    const std::vector<Tensor> got = results(true);
    for (size_t i = 0; i < 4; ++i) expect_near(got[i], want[i], (i == 0 ? 1 : 4) * tolerance(DType::bfloat16));
  };
  const std::vector<std::string> forward = names("varlen_attn", "gpu.attention"),
                                 grads = names("varlen_attn_grad", "gpu.attention_grad");
  if (forward.empty()) GTEST_SKIP() << "this device has no matrix cores";
  for (size_t i = 0; i < forward.size(); i += 3) compare("varlen_attn", "gpu.attention:" + forward[i]);
  for (size_t i = 0; i < grads.size(); i += 7) compare("varlen_attn_grad", "gpu.attention_grad:" + grads[i]);
}

}  // namespace
}  // namespace pyflame
