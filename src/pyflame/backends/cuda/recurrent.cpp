// Recurrent layers by cuDNN. Its gates come in PyTorch's order.
#include <mutex>
#include <vector>

#include "pyflame/backends/cuda/cudnn.h"
#include "pyflame/backends/cuda/libraries.h"
#include "pyflame/backends/gpu/driver/device.h"
#include "pyflame/base/error.h"

namespace pyflame::gpu {

namespace {

using cudnn_graph::Descriptor;
using cudnn_graph::Handle;

//   member, name after "cudnn", parameters
#define PYFLAME_CUDNN_RNN_FUNCTIONS(F)                                                                               \
  F(make_tensor, "CreateTensorDescriptor", (Descriptor * d))                                                         \
  F(destroy_tensor, "DestroyTensorDescriptor", (Descriptor d))                                                       \
  F(set_tensor, "SetTensorNdDescriptor", (Descriptor d, int type, int dims, const int* shape, const int* strides))   \
  F(make_dropout, "CreateDropoutDescriptor", (Descriptor * d))                                                       \
  F(destroy_dropout, "DestroyDropoutDescriptor", (Descriptor d))                                                     \
  F(set_dropout, "SetDropoutDescriptor",                                                                             \
    (Descriptor d, Handle handle, float p, void* states, size_t bytes, unsigned long long seed))                     \
  F(make_layers, "CreateRNNDescriptor", (Descriptor * d))                                                            \
  F(destroy_layers, "DestroyRNNDescriptor", (Descriptor d))                                                          \
  F(set_layers, "SetRNNDescriptor_v8",                                                                               \
    (Descriptor d, int algorithm, int mode, int biases, int direction, int input, int type, int precision, int math, \
     int32_t inputs, int32_t hidden, int32_t projected, int32_t layers, Descriptor dropout, uint32_t flags))         \
  F(make_data, "CreateRNNDataDescriptor", (Descriptor * d))                                                          \
  F(destroy_data, "DestroyRNNDataDescriptor", (Descriptor d))                                                        \
  F(set_data, "SetRNNDataDescriptor",                                                                                \
    (Descriptor d, int type, int layout, int steps, int batch, int width, const int* lengths, void* padding))        \
  F(spaces, "GetRNNTempSpaceSizes",                                                                                  \
    (Handle handle, Descriptor d, int forward, Descriptor x, size_t* workspace, size_t* reserve))                    \
  F(weight_bytes, "GetRNNWeightSpaceSize", (Handle handle, Descriptor d, size_t * bytes))                            \
  F(weight_places, "GetRNNWeightParams",                                                                             \
    (Handle handle, Descriptor d, int32_t layer, size_t bytes, const void* block, int32_t gate, Descriptor matrix,   \
     void** matrix_at, Descriptor bias, void** bias_at))                                                             \
  F(forward, "RNNForward",                                                                                           \
    (Handle handle, Descriptor d, int mode, const int32_t* lengths, Descriptor x, const void* x_data, Descriptor y,  \
     void* y_data, Descriptor h, const void* hx, void* hy, Descriptor c, const void* cx, void* cy,                   \
     size_t weight_bytes, const void* weights, size_t workspace_bytes, void* workspace, size_t reserve_bytes,        \
     void* reserve))                                                                                                 \
  F(backward_data, "RNNBackwardData_v8",                                                                             \
    (Handle handle, Descriptor d, const int32_t* lengths, Descriptor y, const void* y_data, const void* dy,          \
     Descriptor x, void* dx, Descriptor h, const void* hx, const void* dhy, void* dhx, Descriptor c, const void* cx, \
     const void* dcy, void* dcx, size_t weight_bytes, const void* weights, size_t workspace_bytes, void* workspace,  \
     size_t reserve_bytes, void* reserve))                                                                           \
  F(backward_weights, "RNNBackwardWeights_v8",                                                                       \
    (Handle handle, Descriptor d, int add, const int32_t* lengths, Descriptor x, const void* x_data, Descriptor h,   \
     const void* hx, Descriptor y, const void* y_data, size_t weight_bytes, void* dweights, size_t workspace_bytes,  \
     void* workspace, size_t reserve_bytes, void* reserve))

struct LayerFunctions {
#define PYFLAME_CUDNN_MEMBER(member, name, parameters) int(*member) parameters = nullptr;
  PYFLAME_CUDNN_RNN_FUNCTIONS(PYFLAME_CUDNN_MEMBER)
#undef PYFLAME_CUDNN_MEMBER
};

const LayerFunctions* cudnn_layer_functions(std::string* why) {
  struct Library {
    LayerFunctions f;
    std::string why;
  };
  static const Library* library = [] {
    auto* l = new Library;
    const Dylib::Opened& opened = kCudnn.open();
    l->why = opened.why;
    if (!opened.handle) return l;
#define PYFLAME_CUDNN_LOAD(member, name, parameters)                                           \
  l->f.member = reinterpret_cast<int(*) parameters>(find_symbol(opened.handle, "cudnn" name)); \
  if (!l->f.member) l->why = "this cuDNN lacks cudnn" name;
    PYFLAME_CUDNN_RNN_FUNCTIONS(PYFLAME_CUDNN_LOAD)
#undef PYFLAME_CUDNN_LOAD
    return l;
  }();
  if (library->why.empty()) return &library->f;
  if (why) *why = library->why;
  return nullptr;
}

constexpr int kStandard = 0, kNoBias = 0, kTwoBiases = 2, kLinearInput = 0, kPackedSteps = 1, kInference = 0,
              kTraining = 1, kAddGradient = 0;
constexpr int kDefaultMath = 0, kMatrixUnits = 1, kFullPrecision = 3;

class CudnnLayers final : public RecurrentPlan {
 public:
  CudnnLayers(const cudnn_graph::Functions& base, const LayerFunctions& functions, Handle handle)
      : base_(base), f(functions), handle_(handle) {}
  ~CudnnLayers() override {
    if (layers_) f.destroy_layers(layers_);
    if (dropout_) f.destroy_dropout(dropout_);
    for (const Descriptor d : {x_, y_})
      if (d) f.destroy_data(d);
    for (const Descriptor d : {state_, matrix_, bias_})
      if (d) f.destroy_tensor(d);
  }
  CudnnLayers(const CudnnLayers&) = delete;

  // Empty, or what cuDNN refused.
  std::string describe(GpuDevice& device, const RecurrentCase& c) {
    const RecurrentAttrs& a = c.attrs;
    const auto number = [](int64_t n) { return static_cast<int>(n); };
    training_ = a.kept != 0;
    const int type = cudnn_graph::data_type(c.dtype),
              wide = c.dtype == DType::float64 ? type : cudnn_graph::data_type(DType::float32);
    const bool exact = c.dtype == DType::float32 && !a.rounded;
    const int math = exact ? kFullPrecision : c.dtype == DType::float16 ? kMatrixUnits : kDefaultMath;
    int status = 0;
    std::string where;
    const auto step = [&](int result, const char* what) {
      if (status == 0 && result != 0) status = result, where = what;
      return status == 0;
    };
    const int shape[] = {number(a.layers * a.directions), number(c.batch), number(a.hidden)};
    const int strides[] = {shape[1] * shape[2], shape[2], 1};
    const std::vector<int> lengths(static_cast<size_t>(c.batch), number(c.steps));
    const bool ok = step(f.make_layers(&layers_), "cudnnCreateRNNDescriptor") &&
                    step(f.make_dropout(&dropout_), "cudnnCreateDropoutDescriptor") &&
                    step(f.make_data(&x_), "cudnnCreateRNNDataDescriptor") &&
                    step(f.make_data(&y_), "cudnnCreateRNNDataDescriptor") &&
                    step(f.make_tensor(&state_), "cudnnCreateTensorDescriptor") &&
                    step(f.make_tensor(&matrix_), "cudnnCreateTensorDescriptor") &&
                    step(f.make_tensor(&bias_), "cudnnCreateTensorDescriptor") &&
                    step(f.set_dropout(dropout_, handle_, 0, nullptr, 0, 0), "cudnnSetDropoutDescriptor") &&
                    step(f.set_layers(layers_, kStandard, number(a.mode), a.biases ? kTwoBiases : kNoBias,
                                      number(a.directions - 1), kLinearInput, type, wide, math, number(c.inputs),
                                      number(a.hidden), number(a.hidden), number(a.layers), dropout_, 0),
                         "cudnnSetRNNDescriptor_v8") &&
                    step(f.set_data(x_, type, kPackedSteps, number(c.steps), number(c.batch), number(c.inputs),
                                    lengths.data(), nullptr),
                         "cudnnSetRNNDataDescriptor") &&
                    step(f.set_data(y_, type, kPackedSteps, number(c.steps), number(c.batch),
                                    number(a.hidden * a.directions), lengths.data(), nullptr),
                         "cudnnSetRNNDataDescriptor") &&
                    step(f.set_tensor(state_, type, 3, shape, strides), "cudnnSetTensorNdDescriptor") &&
                    step(f.spaces(handle_, layers_, training_ ? kTraining : kInference, x_, &workspace, &kept),
                         "cudnnGetRNNTempSpaceSizes") &&
                    step(f.weight_bytes(handle_, layers_, &weights), "cudnnGetRNNWeightSpaceSize");
    if (!training_) kept = 0;
    if (ok) find_weights(device, c, step);
    return status == 0 ? where : fmt::format("{} failed: {}", where, base_.error_string(status));
  }

  void forward(GpuDevice& device, const RecurrentRun& r) const override {
    begin(device);
    check(f.forward(handle_, layers_, training_ ? kTraining : kInference, nullptr, x_, r.x, y_, r.y, state_, r.first[0],
                    r.last[0], state_, r.first[1], r.last[1], weights, r.weights, workspace, r.workspace, kept, r.kept),
          "RNNForward");
  }
  void backward(GpuDevice& device, const RecurrentRun& r) const override {
    begin(device);
    check(f.backward_data(handle_, layers_, nullptr, y_, r.y, r.dy, x_, r.dx, state_, r.first[0], r.dlast[0],
                          r.dfirst[0], state_, r.first[1], r.dlast[1], r.dfirst[1], weights, r.weights, workspace,
                          r.workspace, kept, r.kept),
          "RNNBackwardData_v8");
    check(f.backward_weights(handle_, layers_, kAddGradient, nullptr, x_, r.x, state_, r.first[0], y_, r.y, weights,
                             r.dweights, workspace, r.workspace, kept, r.kept),
          "RNNBackwardWeights_v8");
  }

 private:
  // cuDNN says where weights are in a block of memory, so it gets one.
  template <class Step>
  void find_weights(GpuDevice& device, const RecurrentCase& c, Step&& step) {
    const RecurrentAttrs& a = c.attrs;
    void* const block = device.allocate(std::max<size_t>(weights, 1));
    if (!block) {
      step(1, "an allocation for the weights");
      return;
    }
    const auto gates = static_cast<int32_t>(gates_of(static_cast<RecurrentMode>(a.mode)));
    WeightPlaces places;
    const auto offset = [&](const void* p) {
      return p ? static_cast<size_t>(static_cast<const char*>(p) - static_cast<const char*>(block)) : 0;
    };
    for (int32_t layer = 0; layer < static_cast<int32_t>(a.layers * a.directions); ++layer)
      for (int32_t gate = 0; gate < 2 * gates; ++gate) {
        void *matrix = nullptr, *bias = nullptr;
        if (!step(f.weight_places(handle_, layers_, layer, weights, block, gate, matrix_, &matrix, bias_, &bias),
                  "cudnnGetRNNWeightParams"))
          break;
        places.matrices.push_back(offset(matrix)), places.biases.push_back(offset(bias));
      }
    device.release(block);
    if (places.matrices.size() == static_cast<size_t>(2 * gates * a.layers * a.directions))
      pieces = weight_pieces(c, places, {0, 1, 2, 3});
  }
  void begin(GpuDevice& device) const {
    device.enter();
    check(base_.set_stream(handle_, device.stream()), "SetStream");
  }
  void check(int status, const char* what) const {
    PF_CHECK(status == 0, Runtime, "recurrent: cudnn{} failed with error {}: {}", what, status,
             base_.error_string(status));
  }

  const cudnn_graph::Functions& base_;
  const LayerFunctions& f;
  Handle handle_;
  Descriptor layers_ = nullptr, dropout_ = nullptr, x_ = nullptr, y_ = nullptr, state_ = nullptr, matrix_ = nullptr,
             bias_ = nullptr;
  bool training_ = false;
};

}  // namespace

std::shared_ptr<const RecurrentPlan> cudnn_recurrent(GpuDevice& device, const RecurrentCase& c, std::string* why) {
  const cudnn_graph::Functions* base = cudnn_graph::functions(why);
  const LayerFunctions* f = base ? cudnn_layer_functions(why) : nullptr;
  if (!f) return nullptr;
  constexpr size_t kReadsLengthsItself = 8901;  // before, it wanted them in the device's memory
  if (base->version() < kReadsLengthsItself) {
    if (why) *why = "recurrent layers need cuDNN 8.9.1 or later";
    return nullptr;
  }
  const Handle handle = cudnn_graph::handle_of(*base, device);
  if (!handle) {
    if (why) *why = "cuDNN could not start";
    return nullptr;
  }
  device.enter();
  auto plan = std::make_shared<CudnnLayers>(*base, *f, handle);
  const std::string failed = plan->describe(device, c);
  if (failed.empty()) return plan;
  if (why) *why = failed;
  return nullptr;
}

}  // namespace pyflame::gpu
