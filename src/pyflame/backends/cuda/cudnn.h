// cuDNN's graph interface, for convolution and attention: functions loaded at run time (libcudnn.so.9; no header is
// needed), descriptors, and plans that keep our guarantees. The numbers are those of cudnn_graph.h.
#pragma once
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "pyflame/backends/gpu/driver/device.h"

namespace pyflame::gpu::cudnn_graph {

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

namespace descriptor {
constexpr int engine = 2, engine_config = 3, heuristics = 4, plan = 5, graph = 15, pack = 16, tensor = 17;
}
namespace type {
constexpr int handle = 0, data_type = 1, boolean = 2, int64 = 3, floating = 4, real = 5, pointer = 6, mode = 7,
              heuristic = 8, numerical_note = 11, descriptor = 15;
}
namespace attribute {
constexpr int heuristic_mode = 200, heuristic_graph = 201, heuristic_results = 202, config_engine = 300,
              plan_handle = 400, plan_config = 401, plan_workspace = 402, graph_handle = 800, graph_ops = 801,
              tensor_alignment = 900, tensor_type = 901, tensor_shape = 902, tensor_strides = 903, tensor_id = 906,
              tensor_virtual = 907, tensor_by_value = 908, pack_ids = 1000, pack_pointers = 1001, pack_workspace = 1003,
              engine_note = 1303;
}
constexpr int kHeuristicA = 3, kHeuristicFallback = 2;

int data_type(DType d);

// A descriptor that its owner destroys.
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
  // A failure is kept; finish() returns it.
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

// A plan, and the variant pack with the pointers of its last run, because steps repeat. Any thread may call, one at a
// time.
class Execution {
 public:
  Execution(const Functions& f, Handle handle, std::shared_ptr<const Owned> plan, size_t workspace, bool repeats)
      : f_(f), handle_(handle), plan_(std::move(plan)), workspace_(workspace), repeats_(repeats) {}
  size_t workspace() const { return workspace_; }
  bool repeats() const { return repeats_; }  // as the engine's notes say
  // Asynchronous, on the device's stream; `what` names the op in errors.
  void run(GpuDevice& device, const char* what, std::span<const int64_t> ids, std::span<void* const> pointers,
           void* workspace);
  // Tells that numbers on the host, to which the pack points, have changed.
  void forget() { pack_.reset(); }
  // With its own pack.
  std::unique_ptr<Execution> another() const {
    return std::make_unique<Execution>(f_, handle_, plan_, workspace_, repeats_);
  }

 private:
  const Functions& f_;
  Handle handle_;
  std::shared_ptr<const Owned> plan_;
  size_t workspace_;
  bool repeats_;
  std::mutex mutex_;
  std::optional<Owned> pack_;
  std::vector<void*> packed_;
};

// Null if cuDNN is missing, with the reason in `why`.
const Functions* functions(std::string* why);
// One per device, never freed; null if cuDNN refuses.
Handle handle_of(const Functions& f, GpuDevice& device);
// What plans may do beside the promise: sums in an order that varies, and float32 inputs rounded to TF32, which matrix
// cores do.
struct Allowed {
  bool any_order = false, tf32 = false;
};
// At most `most` plans for the operations, in the order of cuDNN's heuristic. They have full precision and are
// deterministic, unless something else is allowed.
std::vector<std::unique_ptr<Execution>> plans(const Functions& f, Handle handle, std::span<const Descriptor> operations,
                                              DType dtype, int heuristic, int most, Allowed allowed);

}  // namespace pyflame::gpu::cudnn_graph
