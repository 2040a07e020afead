// Recurrent layers by MIOpen (libMIOpen.so.1; no header is needed). The numbers are those of miopen.h.
#include <algorithm>
#include <mutex>
#include <vector>

#include "pyflame/backends/gpu/driver/device.h"
#include "pyflame/backends/rocm/libraries.h"
#include "pyflame/backends/rocm/rocblas.h"
#include "pyflame/base/error.h"

namespace pyflame::gpu {

namespace {

using Handle = void*;
using Descriptor = void*;

//   member, name after "miopen", parameters
#define PYFLAME_MIOPEN_RNN_FUNCTIONS(F)                                                                               \
  F(create, "CreateWithStream", (Handle * handle, Stream stream))                                                     \
  F(set_stream, "SetStream", (Handle handle, Stream stream))                                                          \
  F(make_tensor, "CreateTensorDescriptor", (Descriptor * d))                                                          \
  F(destroy_tensor, "DestroyTensorDescriptor", (Descriptor d))                                                        \
  F(set_tensor, "SetTensorDescriptor", (Descriptor d, int type, int dims, const int* shape, const int* strides))      \
  F(make_layers, "CreateRNNDescriptor", (Descriptor * d))                                                             \
  F(destroy_layers, "DestroyRNNDescriptor", (Descriptor d))                                                           \
  F(set_layers, "SetRNNDescriptor",                                                                                   \
    (Descriptor d, int hidden, int layers, int input, int direction, int mode, int biases, int algorithm, int type))  \
  F(make_data, "CreateSeqTensorDescriptor", (Descriptor * d))                                                         \
  F(destroy_data, "DestroySeqTensorDescriptor", (Descriptor d))                                                       \
  F(set_data, "SetRNNDataSeqTensorDescriptor",                                                                        \
    (Descriptor d, int type, int layout, int steps, int batch, int width, const int* lengths, void* padding))         \
  F(spaces, "GetRNNTempSpaceSizes",                                                                                   \
    (Handle handle, Descriptor d, Descriptor x, int forward, size_t* workspace, size_t* reserve))                     \
  F(weight_bytes, "GetRNNParamsSize", (Handle handle, Descriptor d, Descriptor x, size_t * bytes, int type))          \
  F(matrix_place, "GetRNNLayerParamOffset",                                                                           \
    (Descriptor d, int layer, Descriptor x, int gate, Descriptor matrix, size_t* elements))                           \
  F(bias_place, "GetRNNLayerBiasOffset",                                                                              \
    (Descriptor d, int layer, Descriptor x, int gate, Descriptor bias, size_t* elements))                             \
  F(forward, "RNNForward",                                                                                            \
    (Handle handle, Descriptor d, int mode, Descriptor x, const void* x_data, Descriptor h, const void* hx, void* hy, \
     Descriptor c, const void* cx, void* cy, Descriptor y, void* y_data, const void* weights, size_t weight_bytes,    \
     void* workspace, size_t workspace_bytes, void* reserve, size_t reserve_bytes))                                   \
  F(backward_data, "RNNBackwardSeqData",                                                                              \
    (Handle handle, Descriptor d, Descriptor y, const void* y_data, const void* dy, Descriptor h, const void* hx,     \
     const void* dhy, void* dhx, Descriptor c, const void* cx, const void* dcy, void* dcx, Descriptor x, void* dx,    \
     const void* weights, size_t weight_bytes, void* workspace, size_t workspace_bytes, void* reserve,                \
     size_t reserve_bytes))                                                                                           \
  F(backward_weights, "RNNBackwardWeightsSeqTensor",                                                                  \
    (Handle handle, Descriptor d, Descriptor x, const void* x_data, Descriptor h, const void* hx, Descriptor y,       \
     const void* y_data, void* dweights, size_t weight_bytes, void* workspace, size_t workspace_bytes,                \
     const void* reserve, size_t reserve_bytes))

struct LayerFunctions {
#define PYFLAME_MIOPEN_MEMBER(member, name, parameters) int(*member) parameters = nullptr;
  PYFLAME_MIOPEN_RNN_FUNCTIONS(PYFLAME_MIOPEN_MEMBER)
#undef PYFLAME_MIOPEN_MEMBER
};

const LayerFunctions* miopen_layer_functions(std::string* why) {
  struct Library {
    LayerFunctions f;
    std::string why;
  };
  static const Library* library = [] {
    auto* l = new Library;
    const Dylib::Opened& opened = kMiopen.open();
    l->why = opened.why;
    if (!opened.handle) return l;
#define PYFLAME_MIOPEN_LOAD(member, name, parameters)                                           \
  l->f.member = reinterpret_cast<int(*) parameters>(find_symbol(opened.handle, "miopen" name)); \
  if (!l->f.member) l->why = "this MIOpen lacks miopen" name;
    PYFLAME_MIOPEN_RNN_FUNCTIONS(PYFLAME_MIOPEN_LOAD)
#undef PYFLAME_MIOPEN_LOAD
    return l;
  }();
  if (library->why.empty()) return &library->f;
  if (why) *why = library->why;
  return nullptr;
}

constexpr int kLinearInput = 0, kDefaultAlgorithm = 0, kPackedSteps = 1, kTraining = 0, kInference = 1;

// MIOpen's first, second, ... gate, as one of PyTorch's: an LSTM has i, f, o, g here, a GRU z, r, n.
std::array<int64_t, 4> gate_order(RecurrentMode mode) {
  if (mode == RecurrentMode::Lstm) return {0, 1, 3, 2};
  if (mode == RecurrentMode::Gru) return {1, 0, 2, 0};
  return {0, 0, 0, 0};
}

class MiopenLayers final : public RecurrentPlan {
 public:
  MiopenLayers(const LayerFunctions& functions, Handle handle) : f(functions), handle_(handle) {}
  ~MiopenLayers() override {
    if (layers_) f.destroy_layers(layers_);
    for (const Descriptor d : {x_, y_})
      if (d) f.destroy_data(d);
    for (const Descriptor d : {step_, state_, place_})
      if (d) f.destroy_tensor(d);
  }
  MiopenLayers(const MiopenLayers&) = delete;

  // Empty, or what MIOpen refused.
  std::string describe(const RecurrentCase& c) {
    const RecurrentAttrs& a = c.attrs;
    const auto number = [](int64_t n) { return static_cast<int>(n); };
    training_ = a.kept != 0;
    const int type = c.dtype == DType::float16 ? 0 : 1;
    int status = 0;
    size_t untold = 0;
    std::string where;
    const auto step = [&](int result, const char* what) {
      if (status == 0 && result != 0) status = result, where = what;
      return status == 0;
    };
    const int state[] = {number(a.layers * a.directions), number(c.batch), number(a.hidden)};
    const int state_strides[] = {state[1] * state[2], state[2], 1};
    const int inputs[] = {number(c.batch), number(c.inputs)}, input_strides[] = {inputs[1], 1};
    const std::vector<int> lengths(static_cast<size_t>(c.batch), number(c.steps));
    const bool ok =
        step(f.make_layers(&layers_), "miopenCreateRNNDescriptor") &&
        step(f.make_data(&x_), "miopenCreateSeqTensorDescriptor") &&
        step(f.make_data(&y_), "miopenCreateSeqTensorDescriptor") &&
        step(f.make_tensor(&step_), "miopenCreateTensorDescriptor") &&
        step(f.make_tensor(&state_), "miopenCreateTensorDescriptor") &&
        step(f.make_tensor(&place_), "miopenCreateTensorDescriptor") &&
        step(f.set_layers(layers_, number(a.hidden), number(a.layers), kLinearInput, number(a.directions - 1),
                          number(a.mode), a.biases ? 1 : 0, kDefaultAlgorithm, type),
             "miopenSetRNNDescriptor") &&
        step(f.set_data(x_, type, kPackedSteps, number(c.steps), number(c.batch), number(c.inputs), lengths.data(),
                        nullptr),
             "miopenSetRNNDataSeqTensorDescriptor") &&
        step(f.set_data(y_, type, kPackedSteps, number(c.steps), number(c.batch), number(a.hidden * a.directions),
                        lengths.data(), nullptr),
             "miopenSetRNNDataSeqTensorDescriptor") &&
        step(f.set_tensor(step_, type, 2, inputs, input_strides), "miopenSetTensorDescriptor") &&
        step(f.set_tensor(state_, type, 3, state, state_strides), "miopenSetTensorDescriptor") &&
        step(f.spaces(handle_, layers_, x_, kTraining, &workspace, &reserve_), "miopenGetRNNTempSpaceSizes") &&
        (training_ ||
         step(f.spaces(handle_, layers_, x_, kInference, &workspace, &untold), "miopenGetRNNTempSpaceSizes")) &&
        step(f.weight_bytes(handle_, layers_, step_, &weights, type), "miopenGetRNNParamsSize");
    if (training_) {
      kept = reserve_;
    } else {
      workspace = at_reserve_ = (workspace + 255) / 256 * 256;
      workspace += reserve_;
    }
    if (ok) find_weights(c, step);
    return status == 0 ? where : fmt::format("{} failed with error {}", where, status);
  }

  void forward(GpuDevice& device, const RecurrentRun& r) const override {
    begin(device);
    void* const reserve = training_ ? r.kept : static_cast<char*>(r.workspace) + at_reserve_;
    check(f.forward(handle_, layers_, training_ ? kTraining : kInference, x_, r.x, state_, r.first[0], r.last[0],
                    state_, r.first[1], r.last[1], y_, r.y, r.weights, weights, r.workspace,
                    training_ ? workspace : at_reserve_, reserve, reserve_),
          "RNNForward");
  }
  void backward(GpuDevice& device, const RecurrentRun& r) const override {
    begin(device);
    check(f.backward_data(handle_, layers_, y_, r.y, r.dy, state_, r.first[0], r.dlast[0], r.dfirst[0], state_,
                          r.first[1], r.dlast[1], r.dfirst[1], x_, r.dx, r.weights, weights, r.workspace, workspace,
                          r.kept, kept),
          "RNNBackwardSeqData");
    check(f.backward_weights(handle_, layers_, x_, r.x, state_, r.first[0], y_, r.y, r.dweights, weights, r.workspace,
                             workspace, r.kept, kept),
          "RNNBackwardWeightsSeqTensor");
  }

 private:
  template <class Step>
  void find_weights(const RecurrentCase& c, Step&& step) {
    const RecurrentAttrs& a = c.attrs;
    const auto mode = static_cast<RecurrentMode>(a.mode);
    const auto size = static_cast<size_t>(dtype_size(c.dtype));
    const auto gates = static_cast<int>(gates_of(mode));
    WeightPlaces places;
    for (int layer = 0; layer < static_cast<int>(a.layers * a.directions); ++layer)
      for (int gate = 0; gate < 2 * gates; ++gate) {
        size_t matrix = 0, bias = 0;
        if (!step(f.matrix_place(layers_, layer, step_, gate, place_, &matrix), "miopenGetRNNLayerParamOffset")) return;
        if (a.biases && !step(f.bias_place(layers_, layer, step_, gate, place_, &bias), "miopenGetRNNLayerBiasOffset"))
          return;
        places.matrices.push_back(matrix * size), places.biases.push_back(bias * size);
      }
    pieces = weight_pieces(c, places, gate_order(mode));
  }
  void begin(GpuDevice& device) const {
    device.enter();
    check(f.set_stream(handle_, device.stream()), "SetStream");
  }
  void check(int status, const char* what) const {
    PF_CHECK(status == 0, Runtime, "recurrent: miopen{} failed with error {}", what, status);
  }

  const LayerFunctions& f;
  Handle handle_;
  Descriptor layers_ = nullptr, x_ = nullptr, y_ = nullptr, step_ = nullptr, state_ = nullptr, place_ = nullptr;
  bool training_ = false;
  // MIOpen refuses to run without its reserve, in inference too, although it tells the size in training only. In inference it is a part of the
  // workspace, from at_reserve_ on.
  size_t reserve_ = 0, at_reserve_ = 0;
};

// One per device, never freed.
Handle handle_for_layers(const LayerFunctions& f, GpuDevice& device) {
  static std::mutex mutex;
  static std::vector<Handle> handles;
  std::lock_guard lock(mutex);
  const auto at = static_cast<size_t>(device.index());
  if (handles.size() <= at) handles.resize(at + 1);
  if (!handles[at] && f.create(&handles[at], device.own_stream()) != 0) handles[at] = nullptr;
  return handles[at];
}

}  // namespace

std::shared_ptr<const RecurrentPlan> miopen_recurrent(GpuDevice& device, const RecurrentCase& c, std::string* why) {
  const auto refuse = [&](std::string reason) {
    if (why) *why = std::move(reason);
    return nullptr;
  };
  const LayerFunctions* f = miopen_layer_functions(why);
  if (!f) return nullptr;
  if (c.dtype != DType::float32 && c.dtype != DType::float16) return refuse("MIOpen takes float32 and float16");
  // Its products are rocBLAS's, which ends the process if it has no kernels for the GPU.
  const RocBlas* products = rocblas();
  if (!products || !rocblas_has_kernels(*products, device.arch().name))
    return refuse("MIOpen's recurrent layers need rocBLAS, which has no kernels for this GPU");
  device.enter();
  const Handle handle = handle_for_layers(*f, device);
  if (!handle) return refuse("MIOpen could not start");
  auto plan = std::make_shared<MiopenLayers>(*f, handle);
  std::string failed = plan->describe(c);
  if (!failed.empty()) return refuse(std::move(failed));
  return plan;
}

}  // namespace pyflame::gpu
