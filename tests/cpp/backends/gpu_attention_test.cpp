// attention and its gradient on a device against the reference, in sizes that cross tiles: odd lengths, every mask, grouped heads, a cache,
// split keys, views; and the kernels' text for other compilers.
#include <gtest/gtest.h>

#include "gpu_case.h"
#include "pyflame/autograd/autograd.h"
#include "pyflame/backends/gpu/ops/attention_kernels.h"

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

TEST(GpuAttention, SourcesForOtherCompilers) {
  if (!std::getenv("PYFLAME_DUMP_KERNELS")) GTEST_SKIP() << "PYFLAME_DUMP_KERNELS names no folder";
  const auto write = [](const std::string& name, DType d, int64_t dim, AttentionMask mask, bool causal, auto make) {
    write_attention(name, {d, dim, mask, causal, MatrixKind::none, 0}, make);
  };
  for (const DType d : {DType::float16, DType::bfloat16}) {
    const std::string type(dtype_name(d));
    for (const int64_t dim : {64, 128, 256}) {
      const std::string end = fmt::format("{}_{}", dim, type);
      write("forward_" + end, d, dim, AttentionMask::none, true,
            [](const AttentionKind& a) { return attention_forward(a, true, true, false); });
      write("queries_grad_" + end, d, dim, AttentionMask::none, true,
            [](const AttentionKind& a) { return attention_queries_grad(a, true); });
      write("keys_grad_" + end, d, dim, AttentionMask::none, true, [](const AttentionKind& a) {
        return attention_keys_grad(a, true, attention_keys_grad_at_once(a) ? 3 : 2);
      });
    }
    write("split_" + type, d, 128, AttentionMask::none, true,
          [](const AttentionKind& a) { return attention_forward(a, true, true, true); });
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
    write("packed_" + type, d, 128, AttentionMask::none, true,
          [&](const AttentionKind& a) { return attention_forward(packed(a), true, true, false); });
    write("packed_split_" + type, d, 128, AttentionMask::none, true,
          [&](const AttentionKind& a) { return attention_forward(packed(a), true, true, true); });
    write("few_rows_" + type, d, 128, AttentionMask::none, true, [](AttentionKind a) {
      a.few_rows = true;
      return attention_forward(a, true, true, false);
    });
    write("packed_queries_grad_" + type, d, 128, AttentionMask::none, true,
          [&](const AttentionKind& a) { return attention_queries_grad(packed(a), true); });
    write("packed_keys_grad_" + type, d, 128, AttentionMask::none, true, [&](const AttentionKind& a) {
      return attention_keys_grad(packed(a), true, attention_keys_grad_at_once(a) ? 3 : 2);
    });
    write("masked_" + type, d, 80, AttentionMask::added, false,
          [](const AttentionKind& a) { return attention_forward(a, false, false, false); });
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

}  // namespace
}  // namespace pyflame
