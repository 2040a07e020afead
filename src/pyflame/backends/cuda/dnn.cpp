// cuDNN's graph interface (libcudnn.so.9; no header is needed): a graph of one convolution, engines as its heuristics rank them, and a
// plan for each that keeps our promises. The numbers are those of cudnn_graph.h.
#include "pyflame/backends/gpu/dnn.h"

#include <algorithm>
#include <mutex>
#include <optional>
#include <utility>

#include "pyflame/base/error.h"

namespace pyflame::gpu {

namespace {

using Handle = void*;
using Descriptor = void*;

//   member, name after "cudnn", parameters
#define PYFLAME_CUDNN_FUNCTIONS(F)                                                                                   \
  F(version, "GetVersion", size_t, ())                                                                               \
  F(create, "Create", int, (Handle * handle))                                                                        \
  F(set_stream, "SetStream", int, (Handle handle, Stream stream))                                                    \
  F(error_string, "GetErrorString", const char*, (int status))                                                       \
  F(make, "BackendCreateDescriptor", int, (int type, Descriptor* d))                                                 \
  F(destroy, "BackendDestroyDescriptor", int, (Descriptor d))                                                        \
  F(finalize, "BackendFinalize", int, (Descriptor d))                                                                \
  F(set, "BackendSetAttribute", int, (Descriptor d, int name, int type, int64_t count, const void* values))          \
  F(get, "BackendGetAttribute", int, (Descriptor d, int name, int type, int64_t most, int64_t* count, void* values)) \
  F(execute, "BackendExecute", int, (Handle handle, Descriptor plan, Descriptor pack))

struct Functions {
#define PYFLAME_CUDNN_MEMBER(member, name, result, parameters) result(*member) parameters = nullptr;
  PYFLAME_CUDNN_FUNCTIONS(PYFLAME_CUDNN_MEMBER)
#undef PYFLAME_CUDNN_MEMBER
};

constexpr const char* kLibraries[] = {"libcudnn.so.9", "libcudnn.so", nullptr};

namespace descriptor {
constexpr int convolution = 1, engine = 2, engine_config = 3, heuristics = 4, plan = 5, forward = 10,
              backward_filter = 11, backward_data = 12, graph = 15, pack = 16, tensor = 17;
}
namespace type {
constexpr int handle = 0, data_type = 1, int64 = 3, floating = 4, real = 5, pointer = 6, mode = 7, heuristic = 8,
              numerical_note = 11, descriptor = 15;
}
namespace attribute {
constexpr int conv_type = 100, conv_mode = 101, conv_dilation = 102, conv_stride = 103, conv_after = 104,
              conv_before = 105, conv_dims = 106, heuristic_mode = 200, heuristic_graph = 201, heuristic_results = 202,
              config_engine = 300, plan_handle = 400, plan_config = 401, plan_workspace = 402, forward_alpha = 700,
              data_alpha = 706, filter_alpha = 712, graph_handle = 800, graph_ops = 801, tensor_alignment = 900,
              tensor_type = 901, tensor_shape = 902, tensor_strides = 903, tensor_id = 906, pack_ids = 1000,
              pack_pointers = 1001, pack_workspace = 1003, engine_note = 1303;
}
constexpr int kHeuristicA = 3, kHeuristicFallback = 2, kCrossCorrelation = 1;
// What an engine may say of itself and we do not take: rounded operands, sums or orders that vary, and transforms, whose errors grow with
// the largest value instead of each result's own terms. Matrix units read float32 as TF32.
constexpr int kNotes = 10, kNoteMatrixUnits = 0;
constexpr bool kRefused[kNotes] = {false, true, true, true, true, true, true, true, true, false};

int data_type(DType d) {
  switch (d) {
    case DType::float32: return 0;
    case DType::float64: return 1;
    case DType::float16: return 2;
    default: return 9;  // bfloat16
  }
}

// A descriptor that ends with its owner.
class Owned {
 public:
  Owned(const Functions& f, int type) : f_(&f) { ok_ = f.make(type, &d_) == 0; }
  ~Owned() {
    if (d_) f_->destroy(d_);
  }
  Owned(Owned&& o) noexcept : f_(o.f_), d_(std::exchange(o.d_, nullptr)), ok_(o.ok_) {}
  Owned& operator=(Owned&&) = delete;
  Descriptor raw() const { return d_; }
  bool ok() const { return ok_; }
  // A failure stays: it is asked for once, by finish().
  template <class T>
  Owned& set(int name, int type, const T* values, int64_t count) {
    ok_ = ok_ && f_->set(d_, name, type, count, values) == 0;
    return *this;
  }
  template <class T>
  Owned& set(int name, int type, const T& value) {
    return set(name, type, &value, 1);
  }
  Owned& set(int name, const Owned& other) {
    const Descriptor d = other.d_;
    ok_ = ok_ && other.ok_;
    return set(name, type::descriptor, d);
  }
  bool finish() { return ok_ = ok_ && f_->finalize(d_) == 0; }

 private:
  const Functions* f_;
  Descriptor d_ = nullptr;
  bool ok_;
};

class Plan final : public DnnPlan {
 public:
  Plan(const Functions& f, Handle handle, Owned plan, size_t workspace)
      : f_(f), handle_(handle), plan_(std::move(plan)), workspace_(workspace) {}
  size_t workspace() const override { return workspace_; }
  void run(GpuDevice& device, const std::array<void*, 3>& tensors, void* workspace) override {
    std::lock_guard lock(mutex_);
    const std::array<void*, 4> now{tensors[0], tensors[1], tensors[2], workspace};
    if (!pack_ || now != packed_) {
      constexpr int64_t kIds[] = {0, 1, 2};
      pack_.emplace(f_, descriptor::pack);
      const bool ok = pack_->set(attribute::pack_ids, type::int64, kIds, 3)
                          .set(attribute::pack_pointers, type::pointer, tensors.data(), 3)
                          .set(attribute::pack_workspace, type::pointer, workspace)
                          .finish();
      PF_CHECK(ok, Runtime, "conv2d: cuDNN refused its operands");
      packed_ = now;
    }
    device.enter();
    int status = f_.set_stream(handle_, device.stream());
    if (status == 0) status = f_.execute(handle_, plan_.raw(), pack_->raw());
    PF_CHECK(status == 0, Runtime, "conv2d: cuDNN failed with error {}: {}", status, f_.error_string(status));
  }

 private:
  const Functions& f_;
  Handle handle_;
  Owned plan_;
  size_t workspace_;
  std::mutex mutex_;
  std::optional<Owned> pack_;  // for the pointers of the last run: steps repeat
  std::array<void*, 4> packed_{};
};

class Cudnn final : public DnnLibrary {
 public:
  const char* name() const override { return "cudnn"; }
  Functions f;
  std::string why;

  std::vector<std::unique_ptr<DnnPlan>> plans(GpuDevice& device, const DnnProblem& p, int most) const override {
    std::vector<std::unique_ptr<DnnPlan>> all;
    device.enter();
    const Handle handle = handle_of(device);
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
    Owned graph(f, descriptor::graph);
    if (!graph.set(attribute::graph_handle, type::handle, handle).set(attribute::graph_ops, op).finish()) return all;
    for (const int mode : {kHeuristicA, kHeuristicFallback}) {
      add_plans(handle, graph, p.dtype, mode, most, all);
      if (!all.empty()) break;
    }
    return all;
  }

 private:
  // Alpha and beta, the convolution, weight, image and result, under numbers that follow each other in all three.
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
    switch (p.face) {
      case ConvFace::result: return fill(descriptor::forward, attribute::forward_alpha);
      case ConvFace::image: return fill(descriptor::backward_data, attribute::data_alpha);
      default: return fill(descriptor::backward_filter, attribute::filter_alpha);
    }
  }

  void add_plans(Handle handle, const Owned& graph, DType dtype, int mode, int most,
                 std::vector<std::unique_ptr<DnnPlan>>& all) const {
    Owned heuristics(f, descriptor::heuristics);
    if (!heuristics.set(attribute::heuristic_graph, graph)
             .set(attribute::heuristic_mode, type::heuristic, mode)
             .finish())
      return;
    constexpr int64_t kMostConfigs = 32;
    std::vector<Owned> configs;
    std::vector<Descriptor> raw;
    for (int64_t i = 0; i < kMostConfigs; ++i) {
      configs.emplace_back(f, descriptor::engine_config);
      raw.push_back(configs.back().raw());
    }
    int64_t found = 0;
    if (f.get(heuristics.raw(), attribute::heuristic_results, type::descriptor, kMostConfigs, &found, raw.data()) != 0)
      return;
    for (size_t i = 0; i < static_cast<size_t>(std::min(found, kMostConfigs)) && static_cast<int>(all.size()) < most;
         ++i) {
      if (!keeps_promises(configs[i], dtype)) continue;
      Owned plan(f, descriptor::plan);
      if (!plan.set(attribute::plan_handle, type::handle, handle).set(attribute::plan_config, configs[i]).finish())
        continue;
      int64_t workspace = 0, count = 0;
      if (f.get(plan.raw(), attribute::plan_workspace, type::int64, 1, &count, &workspace) != 0) continue;
      all.push_back(std::make_unique<Plan>(f, handle, std::move(plan), static_cast<size_t>(workspace)));
    }
  }

  bool keeps_promises(const Owned& config, DType dtype) const {
    Owned engine(f, descriptor::engine);
    Descriptor raw = engine.raw();
    int64_t count = 0;
    if (f.get(config.raw(), attribute::config_engine, type::descriptor, 1, &count, &raw) != 0) return false;
    int notes[kNotes] = {};
    if (f.get(raw, attribute::engine_note, type::numerical_note, kNotes, &count, notes) != 0) return false;
    for (int64_t i = 0; i < count; ++i)
      if (notes[i] < kNotes && (kRefused[notes[i]] || (notes[i] == kNoteMatrixUnits && dtype == DType::float32)))
        return false;
    return true;
  }

  // One for each device, for good.
  Handle handle_of(GpuDevice& device) const {
    static std::mutex mutex;
    static std::vector<Handle> handles;
    std::lock_guard lock(mutex);
    const auto at = static_cast<size_t>(device.index());
    if (handles.size() <= at) handles.resize(at + 1);
    if (!handles[at] && f.create(&handles[at]) != 0) handles[at] = nullptr;
    return handles[at];
  }
};

}  // namespace

const DnnLibrary* cudnn(std::string* why) {
  static const Cudnn* library = [] {
    auto* c = new Cudnn;
    void* opened = open_library(DeviceType::cuda, kLibraries);
    if (!opened) {
      c->why = "cuDNN (libcudnn.so.9) was not found; put its folder on LD_LIBRARY_PATH";
      return c;
    }
#define PYFLAME_CUDNN_LOAD(member, name, result, parameters)                               \
  c->f.member = reinterpret_cast<result(*) parameters>(find_symbol(opened, "cudnn" name)); \
  if (!c->f.member) c->why = "cuDNN is too old: it lacks cudnn" name;
    PYFLAME_CUDNN_FUNCTIONS(PYFLAME_CUDNN_LOAD)
#undef PYFLAME_CUDNN_LOAD
    return c;
  }();
  if (library->why.empty()) return library;
  if (why) *why = library->why;
  return nullptr;
}

}  // namespace pyflame::gpu
