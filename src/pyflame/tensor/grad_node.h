// The tape: one GradNode per differentiable op call. It is in tensor/ because op families (ops/) attach their gradients
// next to their forward functions; autograd/backward.cpp walks the tape.
//
// Sequence numbers grow with creation, and edges only point to older nodes, so descending numbers are a topological
// order. Leaves are referenced directly (Edge::leaf), so there is no reference cycle between a parameter and the tape.
#pragma once
#include <functional>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "pyflame/base/location.h"
#include "pyflame/tensor/tensor.h"

namespace pyflame {

class GradNode;

// Where the gradient of one input goes: to an output of another node, or to a leaf. An input that needs no gradient has neither.
struct Edge {
  Ref<GradNode> node;  // null for leaves and for inputs that need no gradient
  uint32_t index = 0;  // which output of `node`
  Tensor leaf;
  bool needed() const { return node || leaf; }
};

// What a program does with the tensors that the tape keeps (autograd.graph.saved_tensors_hooks): pack() is called for each of them when
// it is saved, and its result is kept instead; unpack() makes the tensor again when a gradient needs it.
struct SavedHooks {
  virtual ~SavedHooks() = default;
  virtual std::shared_ptr<void> pack(const Tensor& t) = 0;
  virtual Tensor unpack(const std::shared_ptr<void>& packed) = 0;
};
// The hooks of this thread; the last ones that were pushed count.
void push_saved_hooks(std::shared_ptr<SavedHooks> hooks);
void pop_saved_hooks();

// A tensor kept for the backward pass, with its version. A node's own output is kept without its history, to avoid a cycle.
class SavedTensor {
 public:
  SavedTensor(const Tensor& t, bool is_output, uint32_t output_nr = 0);
  // RuntimeError if it was written in place since; the error names `node`'s op and line.
  Tensor unpack(GradNode& node) const;
  bool defined() const { return tensor_ || packed_; }

 private:
  friend class GradNode;
  struct Packed;
  void pack(const Tensor& t);
  Tensor unpack_by_hooks(GradNode& node) const;
  Tensor connected(const Tensor& t, GradNode& node) const;
  Tensor tensor_;
  std::shared_ptr<Packed> packed_;  // instead of tensor_, where the thread had hooks
  Ref<GradNode> grad_fn_;  // of an input that is not a leaf; needed only if the gradient is differentiated again
  uint32_t version_ = 0;
  bool is_output_ = false;
  uint32_t output_nr_ = 0;
};

using Tensors = std::vector<Tensor>;
using TensorHook = std::function<Tensor(const Tensor&)>;  // may return an undefined Tensor: the gradient is unchanged

// One differentiable call of an op. It computes the gradients of the inputs from those of the outputs.
class GradNode : public RefCounted {
 public:
  explicit GradNode(std::string name);
  ~GradNode() override;
  // grads: one per output, undefined if none arrived. Returns one gradient per input (edge), undefined for "none".
  virtual Tensors apply(const Tensors& grads) = 0;
  virtual void free_saved();  // frees what was saved; a later apply() is an error

  bool needs(size_t input) const { return input < edges.size() && edges[input].needed(); }
  Tensor saved(size_t i);  // RuntimeError after free_saved()
  void forget_unpacked();  // after apply(): tensors that hooks made again for it
  void check_not_released() const;

  std::string name;
  SourceLoc loc;
  uint64_t sequence;
  std::vector<Edge, Pooled<Edge>> edges;
  std::vector<SavedTensor, Pooled<SavedTensor>> saved_tensors;
  struct OutputMeta {
    Dims shape;
    DType dtype;
    Device device;
  };
  std::vector<OutputMeta, Pooled<OutputMeta>> outputs;
  std::vector<std::pair<uint32_t, std::shared_ptr<std::vector<TensorHook>>>> hooks;  // (output, hooks)
  std::vector<uint32_t> retained;                       // outputs whose gradient is kept (retain_grad)
  std::vector<std::shared_ptr<Tensor>> retained_grads;  // where it is stored: not in the tensors, which own this node
  bool released = false;
  bool run_always = false;  // has effects beyond its edges (checkpoint: parameters that are used inside)
};

// view_epoch of a view that was made while gradients were off: it has no history and cannot get one.
constexpr uint32_t kUntrackedView = 0xffffffffu;

// What autograd knows of one tensor.
struct AutogradMeta {
  static void* operator new(size_t bytes) { return pool::take(bytes); }
  static void operator delete(void* p, size_t bytes) noexcept { pool::give(p, bytes); }
  bool requires_grad = false;  // leaf flag
  Ref<GradNode> grad_fn;
  uint32_t output_nr = 0;
  Tensor grad;
  std::shared_ptr<Tensor> retained_grad;           // instead of grad, after retain_grad
  std::shared_ptr<std::vector<TensorHook>> hooks;  // of a leaf
  // Views made while gradients were on: if `base` was written in place since, grad_fn is made anew.
  Tensor view_base;
  uint32_t view_epoch = 0;
  uint32_t epoch = 0;      // counts in-place rewrites of this tensor's history
  bool inference = false;  // made under inference_mode: it can never be part of a tape
};

AutogradMeta& autograd_meta(const Tensor& t);  // makes it if it is missing

namespace grad_mode {
// Of this thread: whether gradients are recorded, and whether inference mode is on. set() sets both.
bool enabled();
bool inference();
struct Guard {  // sets the thread's mode for a scope
  explicit Guard(bool on, bool inference_on = false);
  ~Guard();
  Guard(const Guard&) = delete;
  Guard& operator=(const Guard&) = delete;

 private:
  bool before_, inference_before_;
};
// Sets this thread's mode until the next call; Guard does it for a scope.
void set(bool on, bool inference_on);
}  // namespace grad_mode

// A node whose gradient is a function object.
template <class F>
class FnNode final : public GradNode {
 public:
  FnNode(std::string op, F f) : GradNode(std::move(op)), f_(std::move(f)) {}
  Tensors apply(const Tensors& grads) override {
    check_not_released();
    return f_(static_cast<GradNode&>(*this), grads);
  }

 private:
  F f_;
};

using TensorList = std::initializer_list<std::reference_wrapper<const Tensor>>;
using TensorSpan = std::span<const std::reference_wrapper<const Tensor>>;
bool any_requires_grad(TensorList inputs);  // false when gradients are off
// Connects `node` with inputs and outputs. `saved` may contain inputs and outputs.
void attach_node(const Ref<GradNode>& node, TensorSpan inputs, TensorSpan outputs, TensorSpan saved);

// The call that an op makes after emit():
//   attach("mul", {out}, {a, b}, {a, b}, [](GradNode& n, const Tensors& g) -> Tensors {
//     return {n.needs(0) ? sum_to(mul(g[0], n.saved(1)), …) : Tensor(), …}; });
// f is stored only if some input requires a gradient. It must capture by value, and never capture tensors: save those instead.
template <class F>
void attach(const char* name, TensorList outputs, TensorList inputs, TensorList saved, F f) {
  if (!any_requires_grad(inputs)) return;
  attach_node(make_ref<FnNode<F>>(name, std::move(f)), {inputs.begin(), inputs.end()}, {outputs.begin(), outputs.end()},
              {saved.begin(), saved.end()});
}

}  // namespace pyflame
