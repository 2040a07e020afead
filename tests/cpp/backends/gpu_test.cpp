// The GPU backend. What needs no device runs everywhere: half types against the host's own, the text of generated kernels. The rest runs
// on 'cuda' or 'rocm' where there is one, against the reference backend, and says that it is skipped otherwise.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <fstream>

#include "pyflame/autograd/autograd.h"
#include "pyflame/backends/gpu/kernel.h"
#include "pyflame/backends/gpu/loop.h"
#include "pyflame/backends/gpu/rt.h"
#include "pyflame/base/half.h"
#include "pyflame/ops/ops.h"
#include "pyflame/runtime/allocator.h"
#include "pyflame/runtime/device.h"

#include "pyflame/kernels/device/launch.h"
// In this order: the run-time compilers see one text.
#include "pyflame/kernels/device/scalar.h"
#include "pyflame/kernels/device/view.h"

namespace pyflame {
namespace {

TEST(GpuScalars, HalfTypesAreTheHosts) {
  for (uint32_t h = 0; h < 65536; ++h) {
    const auto bits = static_cast<uint16_t>(h);
    const float f = pf::half_to_float(bits), b = pf::bfloat_to_float(bits);
    const float want_f = static_cast<float>(std::bit_cast<float16>(bits)),
                want_b = static_cast<float>(std::bit_cast<bfloat16>(bits));
    ASSERT_TRUE(f == want_f || (std::isnan(f) && std::isnan(want_f))) << h;
    ASSERT_TRUE(b == want_b || (std::isnan(b) && std::isnan(want_b))) << h;
  }
  // Every float that is half way between two halves, and its neighbours.
  for (uint32_t u = 0; u < 0x7f800000u; u += 0x1000u - 1)
    for (const uint32_t sign : {0u, 0x80000000u}) {
      const float x = pf::float_of_bits(u | sign);
      const auto want_half = std::bit_cast<uint16_t>(float16(x)), want_bfloat = std::bit_cast<uint16_t>(bfloat16(x));
      ASSERT_EQ(pf::float_to_half(x), want_half) << x;
      ASSERT_EQ(pf::float_to_bfloat(x), want_bfloat) << x;
    }
  EXPECT_TRUE(std::isnan(pf::half_to_float(pf::float_to_half(NAN))));
  EXPECT_TRUE(std::isnan(pf::bfloat_to_float(pf::float_to_bfloat(NAN))));
}

// A graph of one group over [rows, n], made by hand: no device is needed to write its kernel.
struct ByHand {
  Graph graph;
  Group group;
  int32_t binding(int64_t bytes) {
    graph.slots.push_back({static_cast<size_t>(bytes), true, true, false});
    graph.bindings.push_back({static_cast<int32_t>(graph.slots.size()) - 1});
    group.elided.push_back(false);
    return static_cast<int32_t>(graph.bindings.size()) - 1;
  }
  Operand tensor(DType dtype, const Dims& shape) {
    Operand o;
    o.dtype = dtype;
    o.shape = shape;
    o.strides = contiguous_strides(shape);
    o.index = binding(shape.numel() * dtype_size(dtype));
    return o;
  }
  Operand param(DType dtype) {
    Operand o;
    o.is_param = true;
    o.dtype = dtype;
    o.index = graph.params++;
    return o;
  }
  Operand add(OpId op, Role role, std::vector<Operand> ins, const Operand& out) {
    Node n;
    n.op = op;
    n.ins = std::move(ins);
    n.outs = {out};
    graph.nodes.push_back(n);
    group.nodes.push_back(static_cast<int32_t>(graph.nodes.size()) - 1);
    group.roles.push_back(role);
    return out;
  }
};

std::string chain_source(DType dtype) {
  ByHand h;
  const Dims shape{64, 1000};
  h.group.kind = GroupKind::Loop;
  h.group.space = shape;
  h.group.split = 2;
  const Operand x = h.tensor(dtype, shape);
  Operand y = h.add(OpId::mul, Role::Map, {x, h.param(dtype)}, h.tensor(dtype, shape));
  h.group.elided[static_cast<size_t>(y.index)] = true;
  y = h.add(OpId::gelu, Role::Map, {y}, h.tensor(dtype, shape));
  return gpu::loop_source({h.graph, h.group});
}

std::string centred_source(DType dtype) {
  ByHand h;
  const Dims shape{64, 1000}, row{64, 1};
  h.group.kind = GroupKind::Loop;
  h.group.space = shape;
  h.group.split = 1;
  const Operand x = h.tensor(dtype, shape);
  const Operand sum = h.add(OpId::sum, Role::RowReduce, {x}, h.tensor(dtype, row));
  const Operand mean = h.add(OpId::mul, Role::RowMap, {sum, h.param(dtype)}, h.tensor(dtype, row));
  h.add(OpId::sub, Role::Map, {x, mean}, h.tensor(dtype, shape));
  return gpu::loop_source({h.graph, h.group});
}

TEST(GpuLoop, OneKernelForEveryShapeAndValue) {
  const std::string source = chain_source(DType::float32);
  EXPECT_EQ(source.find("1000"), std::string::npos) << "a size is a run-time argument";
  EXPECT_NE(source.find("pf::gelu"), std::string::npos);
  EXPECT_NE(centred_source(DType::float16).find("pf::sub"), std::string::npos);
}

// For the build that compiles kernels for AMD GPUs: PYFLAME_DUMP_KERNELS names the folder.
TEST(GpuLoop, SourcesForOtherCompilers) {
  const char* folder = std::getenv("PYFLAME_DUMP_KERNELS");
  if (!folder) GTEST_SKIP() << "PYFLAME_DUMP_KERNELS names no folder";
  const auto write = [&](const std::string& name, const std::string& text) {
    std::ofstream out(std::string(folder) + "/" + name + ".hip");
    out << text;
    ASSERT_TRUE(out.flush()) << name;
  };
  for (const DType d : {DType::float32, DType::float16, DType::bfloat16, DType::float64}) {
    const std::string type = gpu::stored_type(d), name(dtype_name(d));
    write("chain_" + name, chain_source(d));
    write("centred_" + name, centred_source(d));
    write(
        "matmul_" + name,
        gpu::kernel_source(
            {"matmul/matmul.h"}, 256,
            fmt::format(
                "(const {0}* a, const {0}* b, {0}* c, pf::MatmulShape p) {{ pf::matmul<{0}, 64, 16, 4>(a, b, c, p); }}",
                type)));
    write("softmax_" + name,
          gpu::kernel_source(
              {"rows/softmax.h"}, 256,
              fmt::format(
                  "(const {0}* x, {0}* y, pf::i64 rows, pf::i64 n, pf::View xr, pf::i64 xs, pf::View yr, pf::i64 ys) "
                  "{{ pf::softmax<{0}, false, 256>(x, y, rows, n, xr, xs, yr, ys); }}",
                  type)));
  }
}

TEST(GpuRuntime, AbsenceHasAReason) {
  for (const DeviceType type : {DeviceType::rocm, DeviceType::cuda}) {
    std::string why;
    if (gpu::runtime(type, &why)) continue;
    EXPECT_FALSE(why.empty());
    EXPECT_EQ(device_count(type), 0);
    EXPECT_FALSE(unavailable_reason(type).empty());
    EXPECT_THROW(set_current_device({type, 0}), Error);
    EXPECT_THROW(zeros({2}, DType::float32, Device{type, 0}).item<float>(), Error);
  }
}

// --- on a device

class OnGpu : public testing::Test {
 protected:
  void SetUp() override {
    if (device_count(DeviceType::cuda) > 0) gpu_ = {DeviceType::cuda, 0};
    else if (device_count(DeviceType::rocm) > 0) gpu_ = {DeviceType::rocm, 0};
    else GTEST_SKIP() << "no GPU: " << unavailable_reason(DeviceType::cuda);
  }
  static void expect_near(const Tensor& got, const Tensor& want, double tolerance) {
    const Tensor a = contiguous(cast(to_device(got, Device{}), DType::float64)),
                 b = contiguous(cast(want, DType::float64));
    ASSERT_EQ(a.shape(), b.shape());
    const auto* x = static_cast<const double*>(a.data());
    const auto* y = static_cast<const double*>(b.data());
    for (int64_t i = 0; i < a.numel(); ++i)
      ASSERT_LE(std::fabs(x[i] - y[i]), tolerance * (1 + std::fabs(y[i]))) << "element " << i;
  }
  Device gpu_;
};

TEST_F(OnGpu, ElementwiseReductionsAndProducts) {
  const Tensor hx = rand({37, 129}, DType::float32, Device{}), hy = randn({37, 129}, DType::float32, Device{});
  const Tensor x = to_device(hx, gpu_), y = to_device(hy, gpu_);
  expect_near(x, hx, 0);
  expect_near(gelu(add(mul(x, y), 0.5)), gelu(add(mul(hx, hy), 0.5)), 1e-6);
  expect_near(add(transpose(x, 0, 1), 1.0), add(transpose(hx, 0, 1), 1.0), 1e-6);
  expect_near(sum(x, {0}), sum(hx, {0}), 1e-6);
  expect_near(sub(x, mean(x, {1}, true)), sub(hx, mean(hx, {1}, true)), 1e-6);
  expect_near(max(y), max(hy), 0);
  expect_near(matmul(x, transpose(y, 0, 1)), matmul(hx, transpose(hy, 0, 1)), 1e-5);
  expect_near(softmax(y, 1), softmax(hy, 1), 1e-6);
  expect_near(where(gt(y, 0.0), x, y), where(gt(hy, 0.0), hx, hy), 0);
}

TEST_F(OnGpu, GradientsAreTheHosts) {
  const Tensor hx = rand({16, 8}, DType::float32, Device{}), hw = randn({8, 4}, DType::float32, Device{});
  const Tensor gw = to_device(hw, gpu_);
  hw.set_requires_grad(true);
  gw.set_requires_grad(true);
  autograd::backward({sum(gelu(matmul(hx, hw)))});
  autograd::backward({sum(gelu(matmul(to_device(hx, gpu_), gw)))});
  expect_near(gw.grad(), hw.grad(), 1e-5);
}

TEST_F(OnGpu, AnOpWithoutAKernelRefusesByName) {
  const Tensor x = rand({8}, DType::float32, gpu_);
  try {
    sort(x).first.data();
    FAIL() << "sort has no kernel yet";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("sort"), std::string::npos);
  }
  expect_near(add(x, 0.0), to_device(x, Device{}), 0);  // what came before is sound
}

}  // namespace
}  // namespace pyflame
