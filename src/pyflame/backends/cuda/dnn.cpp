// Convolutions by cuDNN: a graph with one convolution, the engines in the order of its heuristics, and a plan for each
// acceptable engine.
#include "pyflame/backends/cuda/libraries.h"

#include "pyflame/backends/cuda/cudnn.h"

namespace pyflame::gpu {

namespace {

using namespace cudnn_graph;

namespace descriptor {
using namespace cudnn_graph::descriptor;
constexpr int convolution = 1, forward = 10, backward_filter = 11, backward_data = 12;
}  // namespace descriptor
namespace attribute {
using namespace cudnn_graph::attribute;
constexpr int conv_type = 100, conv_mode = 101, conv_dilation = 102, conv_stride = 103, conv_after = 104,
              conv_before = 105, conv_dims = 106, forward_alpha = 700, data_alpha = 706, filter_alpha = 712;
}  // namespace attribute
constexpr int kCrossCorrelation = 1;
constexpr int64_t kIds[] = {0, 1, 2};

class CudnnConvPlan final : public DnnPlan {
 public:
  explicit CudnnConvPlan(std::unique_ptr<Execution> e) : execution_(std::move(e)) {}
  size_t workspace() const override { return execution_->workspace(); }
  bool repeats() const override { return execution_->repeats(); }
  void run(GpuDevice& device, const std::array<void*, 3>& tensors, void* workspace) override {
    execution_->run(device, "conv2d", kIds, tensors, workspace);
  }

 private:
  std::unique_ptr<Execution> execution_;
};

class Cudnn final : public DnnLibrary {
 public:
  const char* name() const override { return "cudnn"; }
  bool rounds_float32() const override { return true; }
  // Measured on an H200: 3x3 and 7x7, strides 1 and 2, float32 and bfloat16, all passes.
  bool fast_for_few_channels() const override { return true; }
  explicit Cudnn(const Functions& functions) : f(functions) {}

  std::vector<std::unique_ptr<DnnPlan>> plans(GpuDevice& device, const DnnProblem& p, int most) const override {
    std::vector<std::unique_ptr<DnnPlan>> all;
    const Handle handle = handle_of(f, device);
    if (!handle) return all;
    std::vector<Owned> tensors;
    for (size_t i = 0; i < 3; ++i) {
      tensors.emplace_back(f, descriptor::tensor);
      const int64_t id = static_cast<int64_t>(i), alignment = 16;
      const bool ok = tensors[i]
                          .set(attribute::tensor_type, type::data_type, data_type(p.dtype))
                          .set(attribute::tensor_shape, type::int64, p.shape[i].begin(), 4)
                          .set(attribute::tensor_strides, type::int64, p.strides[i].begin(), 4)
                          .set(attribute::tensor_id, type::int64, id)
                          .set(attribute::tensor_alignment, type::int64, alignment)
                          .finish();
      if (!ok) return all;
    }
    Owned convolution(f, descriptor::convolution);
    const ConvAttrs& a = p.attrs;
    const int64_t stride[] = {a.stride_h, a.stride_w}, pad[] = {a.pad_h, a.pad_w},
                  dilation[] = {a.dilation_h, a.dilation_w}, dims = 2;
    const DType sums = p.dtype == DType::float64 ? DType::float64 : DType::float32;
    const bool described = convolution.set(attribute::conv_type, type::data_type, data_type(sums))
                               .set(attribute::conv_mode, type::mode, kCrossCorrelation)
                               .set(attribute::conv_dims, type::int64, dims)
                               .set(attribute::conv_stride, type::int64, stride, 2)
                               .set(attribute::conv_before, type::int64, pad, 2)
                               .set(attribute::conv_after, type::int64, pad, 2)
                               .set(attribute::conv_dilation, type::int64, dilation, 2)
                               .finish();
    if (!described) return all;
    Owned op = operation(p, tensors, convolution);
    if (!op.finish()) return all;
    const Descriptor operations[] = {op.raw()};
    for (const int heuristic : {kHeuristicA, kHeuristicFallback}) {
      for (auto& e : cudnn_graph::plans(f, handle, operations, p.dtype, heuristic, most,
                                        {.any_order = a.any_order != 0, .tf32 = a.rounded != 0}))
        all.push_back(std::make_unique<CudnnConvPlan>(std::move(e)));
      if (!all.empty()) break;
    }
    return all;
  }

 private:
  // Alpha and beta, the convolution, weight, image and result: their numbers are consecutive in all three variants.
  Owned operation(const DnnProblem& p, const std::vector<Owned>& t, const Owned& convolution) const {
    const bool wide = p.dtype == DType::float64;
    const double one = 1, zero = 0;
    const float one_f = 1, zero_f = 0;
    const auto fill = [&](int which, int first) {
      Owned op(f, which);
      if (wide) op.set(first, type::real, one).set(first + 1, type::real, zero);
      else op.set(first, type::floating, one_f).set(first + 1, type::floating, zero_f);
      op.set(first + 2, convolution).set(first + 3, t[1]).set(first + 4, t[0]).set(first + 5, t[2]);
      return op;
    };
    switch (p.pass) {
      case ConvPass::forward: return fill(descriptor::forward, attribute::forward_alpha);
      case ConvPass::grad_input: return fill(descriptor::backward_data, attribute::data_alpha);
      default: return fill(descriptor::backward_filter, attribute::filter_alpha);
    }
  }

  const Functions& f;
};

}  // namespace

const DnnLibrary* cudnn(std::string* why) {
  const Functions* f = functions(why);
  if (!f) return nullptr;
  static const auto* library = new Cudnn(*f);
  return library;
}

}  // namespace pyflame::gpu
