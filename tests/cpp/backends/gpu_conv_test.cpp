// Convolution and pooling on a GPU: sources for other compilers, and against the reference backend's loops on a device where there is one.
#include <gtest/gtest.h>

#include <cmath>

#include "gpu_case.h"
#include "pyflame/autograd/autograd.h"
#include "pyflame/backends/gpu/ops/batch_norm.h"
#include "pyflame/backends/gpu/ops/conv.h"
#include "pyflame/backends/gpu/ops/pool.h"
#include "pyflame/ops/ops.h"
#include "pyflame/record/recorder.h"
#include "pyflame/runtime/device.h"
#include "pyflame/runtime/explain.h"

namespace pyflame {
namespace {

// For the build that compiles kernels for AMD GPUs: PYFLAME_DUMP_KERNELS names the folder.
TEST(GpuConv, SourcesForOtherCompilers) {
  if (!std::getenv("PYFLAME_DUMP_KERNELS")) GTEST_SKIP() << "PYFLAME_DUMP_KERNELS names no folder";
  for (const DType d : {DType::float32, DType::float16, DType::bfloat16, DType::float64})
    for (const auto& sources : {gpu::conv_sources(d), gpu::pool_sources(d), gpu::batch_norm_sources(d)})
      for (const auto& [name, text] : sources)
        write_text(name + "_" + std::string(dtype_name(d)),
                   name.starts_with("conv_units") ? by_matrix_units(text, "") : text);
}

struct Shape {
  Dims x, w;
  Pair stride = 1, pad = 0, dilation = 1;
  int64_t groups = 1;
};

const Shape kShapes[] = {
    {{2, 3, 9, 8}, {4, 3, 3, 3}, 1, 1},
    {{2, 4, 9, 8}, {6, 2, 3, 2}, 2, Pair(1, 0), 1, 2},
    {{1, 4, 11, 10}, {4, 1, 3, 3}, 1, 2, 2, 4},
    {{1, 3, 7, 7}, {5, 3, 1, 1}, Pair(2, 1)},
    {{3, 5, 5, 5}, {4, 5, 5, 5}},
    {{2, 3, 33, 35}, {8, 3, 7, 7}, 2, 3},
    {{2, 70, 13, 11}, {67, 70, 3, 3}, 1, 1},
    {{1, 16, 19, 17}, {140, 16, 3, 3}, Pair(3, 2), Pair(2, 1), Pair(2, 3)},
    {{2, 12, 10, 10}, {24, 2, 3, 3}, 2, 1, 1, 6},
    {{2, 40, 9, 9}, {80, 20, 1, 1}, 2, 0, 1, 2},
    {{8, 16, 24, 24}, {32, 16, 3, 3}, 1, 1},
    {{2, 48, 11, 9}, {144, 24, 3, 3}, 2, 1, 1, 2},
    {{1, 2, 6, 6}, {2, 2, 2, 2}, 4, 1},
    {{4, 130, 14, 14}, {136, 130, 1, 1}},
};

class ConvOnGpu : public ::testing::Test {
 protected:
  void SetUp() override {
    if (device_count(DeviceType::cuda) > 0) gpu_ = {DeviceType::cuda, 0};
    else if (device_count(DeviceType::rocm) > 0) gpu_ = {DeviceType::rocm, 0};
    else GTEST_SKIP() << "no GPU: " << unavailable_reason(DeviceType::cuda);
  }
  // Error relative to the size of the largest value: sums cancel.
  static void expect_near(const Tensor& got, const Tensor& want, double tolerance, const std::string& what) {
    const Tensor a = contiguous(cast(to_device(got, Device{}), DType::float64)),
                 b = contiguous(cast(want, DType::float64));
    ASSERT_EQ(a.shape(), b.shape()) << what;
    const auto* x = static_cast<const double*>(a.data());
    const auto* y = static_cast<const double*>(b.data());
    double scale = 1e-30;
    for (int64_t i = 0; i < a.numel(); ++i) scale = std::max(scale, std::fabs(y[i]));
    for (int64_t i = 0; i < a.numel(); ++i)
      ASSERT_LE(std::fabs(x[i] - y[i]), tolerance * scale) << what << ", element " << i << " is " << x[i];
  }
  static double tolerance(DType d) {
    return d == DType::float64 ? 1e-13 : d == DType::float32 ? 1e-5 : d == DType::float16 ? 4e-3 : 2e-2;
  }
  Device gpu_;
};

// NHWC in memory, NCHW in shape.
Tensor channels_last(const Tensor& x) { return permute(contiguous(permute(x, {0, 2, 3, 1})), {0, 3, 1, 2}); }

TEST_F(ConvOnGpu, EveryPassIsTheHosts) {
  int number = 0;
  for (const Shape& s : kShapes)
    for (const DType d : {DType::float32, DType::float64, DType::float16, DType::bfloat16})
      for (const bool last : {false, true}) {
        const std::string what = fmt::format("case {} {}{}", number++ / 8, dtype_name(d), last ? " channels last" : "");
        // The host computes in float64 from the values that the device gets.
        const Tensor x0 = cast(randn(s.x, DType::float32, Device{}), d),
                     w0 = cast(randn(s.w, DType::float32, Device{}), d);
        const Tensor hx = cast(x0, DType::float64), hw = cast(w0, DType::float64);
        const Tensor gx = last ? channels_last(to_device(x0, gpu_)) : to_device(x0, gpu_),
                     gw = last ? channels_last(to_device(w0, gpu_)) : to_device(w0, gpu_);
        for (const Tensor& t : {hx, hw, gx, gw}) t.set_requires_grad(true);
        const Tensor hy = conv2d(hx, hw, {}, s.stride, s.pad, s.dilation, s.groups),
                     gy = conv2d(gx, gw, {}, s.stride, s.pad, s.dilation, s.groups);
        expect_near(gy, hy, tolerance(d), what + ": output");
        const Tensor g0 = cast(randn(hy.shape(), DType::float32, Device{}), d);
        autograd::backward({hy}, {cast(g0, DType::float64)});
        autograd::backward({gy}, {last ? channels_last(to_device(g0, gpu_)) : to_device(g0, gpu_)});
        expect_near(gx.grad(), hx.grad(), tolerance(d), what + ": input's gradient");
        expect_near(gw.grad(), hw.grad(), tolerance(d), what + ": weight's gradient");
      }
}

TEST_F(ConvOnGpu, WeightGradientsAreTheSameEveryTime) {
  const Tensor x = randn({8, 16, 24, 24}, DType::float32, gpu_), w = randn({32, 16, 3, 3}, DType::float32, gpu_);
  const auto once = [&] {
    const Tensor v = add(w, 0.0).detach();
    v.set_requires_grad(true);
    autograd::backward({sum(conv2d(x, v, {}, 1, 1))});
    return to_device(v.grad(), Device{});
  };
  const Tensor first = once();
  for (int i = 0; i < 3; ++i) expect_near(once(), cast(first, DType::float64), 0, "again");
}

TEST_F(ConvOnGpu, PoolingIsTheHosts) {
  struct Window {
    Dims x;
    Pair kernel, stride, pad, dilation;
  };
  for (const Window& p : {Window{{2, 3, 8, 9}, 2, 2, 0, 1}, Window{{2, 3, 9, 9}, 3, 2, 1, 1},
                          Window{{1, 5, 7, 8}, Pair(3, 2), 1, Pair(1, 0), 1}, Window{{1, 2, 11, 9}, 2, 2, 1, 2}})
    for (const DType d : {DType::float32, DType::float64, DType::float16, DType::bfloat16})
      for (const bool last : {false, true}) {
        const Tensor x0 = cast(randn(p.x, DType::float32, Device{}), d), hx = cast(x0, DType::float64);
        const Tensor gx = last ? channels_last(to_device(x0, gpu_)) : to_device(x0, gpu_);
        for (const Tensor& t : {hx, gx}) t.set_requires_grad(true);
        const auto [hv, hi] = max_pool2d_with_indices(hx, p.kernel, p.stride, p.pad, p.dilation);
        const auto [gv, gi] = max_pool2d_with_indices(gx, p.kernel, p.stride, p.pad, p.dilation);
        expect_near(gv, hv, 0, "max_pool2d");
        expect_near(gi, hi, 0, "max_pool2d's index");
        const Tensor g1 = cast(randn(hv.shape(), DType::float32, Device{}), d);
        autograd::backward({hv}, {cast(g1, DType::float64)});
        autograd::backward({gv}, {to_device(g1, gpu_)});
        expect_near(gx.grad(), hx.grad(), tolerance(d), "max_pool2d's gradient");
        if (p.dilation.h != 1) continue;
        for (const bool padded : {true, false}) {
          const Tensor ha = avg_pool2d(hx, p.kernel, p.stride, p.pad, padded),
                       ga = avg_pool2d(gx, p.kernel, p.stride, p.pad, padded);
          expect_near(ga, ha, tolerance(d), "avg_pool2d");
          hx.set_grad({});
          gx.set_grad({});
          const Tensor g0 = cast(randn(ha.shape(), DType::float32, Device{}), d);
          autograd::backward({ha}, {cast(g0, DType::float64)});
          autograd::backward({ga}, {to_device(g0, gpu_)});
          expect_near(gx.grad(), hx.grad(), tolerance(d), "avg_pool2d's gradient");
        }
      }
}

TEST_F(ConvOnGpu, BatchNormIsTheHosts) {
  for (const Dims& shape : {Dims{4, 3, 5, 7}, Dims{65, 3}, Dims{2, 24, 9}, Dims{8, 72, 13, 11}, Dims{3, 130, 16, 16}})
    for (const DType d : {DType::float32, DType::float64, DType::float16, DType::bfloat16})
      for (const bool last : {false, true}) {
        if (last && shape.size() != 4) continue;
        const std::string what = fmt::format("{} {}{}", shape.str(), dtype_name(d), last ? " channels last" : "");
        const Dims channels{shape[1]};
        const auto make = [&](const Dims& s) { return cast(add(randn(s, DType::float32, Device{}), 3.0), d); };
        const Tensor x0 = make(shape), w0 = make(channels), b0 = make(channels), m0 = make(channels), g0 = make(shape);
        const auto host = [](const Tensor& t) { return clone(cast(t, DType::float64)); };  // one is updated in place
        const auto dev = [&](const Tensor& t) { return to_device(t, gpu_); };
        const Tensor hx = host(x0), hw = host(w0), hb = host(b0), hm = host(m0), hv = host(m0);
        const Tensor gx = last ? channels_last(dev(x0)) : dev(x0), gw = dev(w0), gb = dev(b0), gm = dev(m0),
                     gv = dev(m0);
        for (const Tensor& t : {hx, hw, hb, gx, gw, gb}) t.set_requires_grad(true);
        const Tensor hy = batch_norm(hx, hm, hv, hw, hb, true, 0.2, 1e-5),
                     gy = batch_norm(gx, gm, gv, gw, gb, true, 0.2, 1e-5);
        expect_near(gy, hy, tolerance(d), what + ": output");
        expect_near(gm, hm, tolerance(d), what + ": running mean");
        expect_near(gv, hv, tolerance(d), what + ": running variance");
        autograd::backward({hy}, {host(g0)});
        autograd::backward({gy}, {dev(g0)});
        expect_near(gx.grad(), hx.grad(), 4 * tolerance(d), what + ": input's gradient");
        expect_near(gw.grad(), hw.grad(), 4 * tolerance(d), what + ": weight's gradient");
        expect_near(gb.grad(), hb.grad(), 4 * tolerance(d), what + ": bias's gradient");
      }
}

TEST_F(ConvOnGpu, ImagesStayChannelsLast) {
  const Tensor x = channels_last(randn({2, 8, 6, 6}, DType::float32, gpu_)),
               w = randn({16, 8, 3, 3}, DType::float32, gpu_);
  const Tensor y = max_pool2d(relu(add(conv2d(x, w, {}, 1, 1), 1.0)), 2);
  EXPECT_EQ(y.strides()[1], 1);
  EXPECT_TRUE(contiguous(y).is_contiguous());
  expect_near(y, max_pool2d(relu(add(conv2d(to_device(x, Device{}), to_device(w, Device{}), {}, 1, 1), 1.0)), 2), 1e-5,
              "channels last");
}

// In 16 bits a convolution's result lies channels-last, unless somebody looks.
TEST_F(ConvOnGpu, ALayoutThatNobodyAskedForIsNotSeen) {
  const Tensor x0 = cast(randn({2, 8, 6, 5}, DType::float32, Device{}), DType::bfloat16),
               w0 = cast(randn({16, 8, 3, 3}, DType::float32, Device{}), DType::bfloat16);
  const Tensor x = to_device(x0, gpu_), w = to_device(w0, gpu_);
  w.set_requires_grad(true);
  const Tensor want = relu(conv2d(cast(x0, DType::float64), cast(w0, DType::float64), {}, 1, 1));
  const Tensor y = relu(conv2d(x, w, {}, 1, 1));
  EXPECT_EQ(y.strides()[1], 1);
  const Tensor kept = y, part = select(y, 0, 1), all = view(y, {2, -1});
  EXPECT_TRUE(y.is_contiguous());
  EXPECT_TRUE(kept.is_contiguous());
  EXPECT_EQ(all.storage()->id, y.storage()->id);
  EXPECT_EQ(part.storage()->id, y.storage()->id);
  expect_near(y, want, tolerance(DType::bfloat16), "the result");
  expect_near(all, view(want, {2, -1}), tolerance(DType::bfloat16), "its view");
  autograd::backward({sum(all)});
  const Tensor hw = cast(w0, DType::float64);
  hw.set_requires_grad(true);
  autograd::backward({sum(relu(conv2d(cast(x0, DType::float64), hw, {}, 1, 1)))});
  expect_near(w.grad(), hw.grad(), tolerance(DType::bfloat16), "the weight's gradient");
  // What is written through a view is seen by all.
  const Tensor z = conv2d(x, w.detach(), {}, 1, 1);
  fill_(view(z, {-1}), 3.0);
  expect_near(z, full({2, 16, 6, 5}, 3.0, DType::float64, Device{}), 0, "written");
  // Who asks for channels last gets it, for good.
  const Tensor asked = contiguous(conv2d(x, w.detach(), {}, 1, 1), MemoryFormat::channels_last);
  EXPECT_TRUE(is_contiguous(asked, MemoryFormat::channels_last));
  EXPECT_FALSE(is_contiguous(asked, MemoryFormat::contiguous));
  EXPECT_EQ(permute(asked, {0, 2, 3, 1}).storage()->id, asked.storage()->id);
}

TEST_F(ConvOnGpu, NormalisationInEvaluationIsPartOfTheConvolution) {
  const grad_mode::Guard no_grad(false);
  for (const DType d : {DType::float32, DType::float16, DType::bfloat16})
    for (const int64_t groups : {1, 8}) {
      const auto make = [&](const Dims& s) { return cast(add(abs(randn(s, DType::float32, Device{})), 0.5), d); };
      const Dims channels{16};
      const Tensor x = make({2, 8, 6, 5}), w = make({16, 8 / groups, 3, 3}), m = make(channels), v = make(channels),
                   g = make(channels), b = make(channels);
      const auto block = [&](const auto& at) {
        return relu(
            batch_norm(conv2d(at(x), at(w), {}, 1, 1, 1, groups), at(m), at(v), at(g), at(b), false, 0.1, 1e-5));
      };
      const Tensor want = block([](const Tensor& t) { return cast(t, DType::float64); });
      const Tensors host{x, w, m, v, g, b};
      Tensors given;
      for (const Tensor& t : host) given.push_back(to_device(t, gpu_));
      synchronize();
      explain_start();
      const Tensor got = block([&](const Tensor& t) {
        for (size_t i = 0; i < host.size(); ++i)
          if (host[i].same(t)) return given[i];
        return Tensor();
      });
      synchronize();
      const std::string text = explain_stop();
      EXPECT_NE(text.find("conv2d with epilogue"), std::string::npos) << text;
      EXPECT_EQ(text.find("loop over (2, 16, 6, 5)"), std::string::npos) << text;
      expect_near(got, want, tolerance(d), std::string(dtype_name(d)));
    }
}

TEST_F(ConvOnGpu, WeightGradientsLieAsTheWeight) {
  const Tensor x = channels_last(randn({2, 8, 6, 6}, DType::float32, gpu_));
  const Tensor w = contiguous(randn({16, 8, 3, 3}, DType::float32, gpu_), MemoryFormat::channels_last);
  w.set_requires_grad(true);
  autograd::backward({sum(conv2d(x, w, {}, 1, 1))});
  EXPECT_EQ(w.grad().strides(), w.strides());
}

}  // namespace
}  // namespace pyflame
