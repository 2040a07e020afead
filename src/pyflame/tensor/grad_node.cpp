// The tape's bookkeeping: what an op's node keeps, and how it is connected to others. A saved tensor does not share the
// autograd state of the tensor that it came from. Otherwise, an in-place op that gives the tensor a new history would
// close a reference cycle through the tape. (A leaf that requires gradients is an exception: its state cannot change.)
#include "pyflame/tensor/grad_node.h"

#include <atomic>

#include "pyflame/base/location.h"
#include "pyflame/tensor/alias.h"

namespace pyflame {

namespace {

thread_local bool t_enabled = true;
thread_local bool t_inference = false;
thread_local std::vector<std::shared_ptr<SavedHooks>> t_saved_hooks;

std::atomic<uint64_t> g_sequence{0};

uint32_t version_of(const Tensor& t) { return t.storage()->version.load(std::memory_order_relaxed); }

Tensor with_history(const Tensor& t, Ref<GradNode> node, uint32_t output_nr) {
  Tensor handle = borrow(t);
  AutogradMeta& m = autograd_meta(handle);
  m.grad_fn = std::move(node);
  m.output_nr = output_nr;
  return handle;
}

}  // namespace

namespace grad_mode {
bool enabled() { return t_enabled; }
bool inference() { return t_inference; }
void set(bool on, bool inference_on) {
  t_enabled = on && !inference_on;
  t_inference = inference_on;
}
Guard::Guard(bool on, bool inference_on) : before_(t_enabled), inference_before_(t_inference) { set(on, inference_on); }
Guard::~Guard() {
  t_enabled = before_;
  t_inference = inference_before_;
}
}  // namespace grad_mode

AutogradMeta& autograd_meta(const Tensor& t) {
  std::unique_ptr<AutogradMeta>& m = t.impl()->autograd;
  if (!m) m = std::make_unique<AutogradMeta>();
  return *m;
}

void push_saved_hooks(std::shared_ptr<SavedHooks> hooks) { t_saved_hooks.push_back(std::move(hooks)); }
void pop_saved_hooks() { t_saved_hooks.pop_back(); }

// What hooks made of a saved tensor.
struct SavedTensor::Packed {
  std::shared_ptr<SavedHooks> hooks;
  std::shared_ptr<void> value;
  Dims shape;
  DType dtype;
  Device device;
  Tensor leaf;      // whose gradient this is about, if the tensor was a leaf that requires one
  Tensor unpacked;  // while a gradient is computed: unpack() is called once for it
};

SavedTensor::SavedTensor(const Tensor& t, bool is_output, uint32_t output_nr)
    : is_output_(is_output), output_nr_(output_nr) {
  if (!t) return;
  const AutogradMeta* m = t.impl()->autograd.get();
  PF_CHECK(!m || !m->inference, Runtime,
           "autograd: a tensor made under inference_mode cannot be saved for the gradient; hint: clone() it outside "
           "inference_mode");
  version_ = version_of(t);
  if (!is_output && m) grad_fn_ = t.grad_fn();
  if (grad_fn_) output_nr_ = m->output_nr;
  if (!t_saved_hooks.empty()) [[unlikely]] {
    pack(t);
    return;
  }
  tensor_ = !is_output && m && m->requires_grad && !grad_fn_ ? t : borrow(t);
}

void SavedTensor::pack(const Tensor& t) {
  const std::shared_ptr<SavedHooks> hooks = t_saved_hooks.back();
  const AutogradMeta* m = t.impl()->autograd.get();
  const bool leaf = !is_output_ && m && m->requires_grad && !grad_fn_;
  packed_ = std::make_shared<Packed>(Packed{hooks, nullptr, t.shape(), t.dtype(), t.device(), leaf ? t : Tensor(), {}});
  const grad_mode::Guard off(false);
  packed_->value = hooks->pack(borrow(t));
  const uint32_t now = version_of(t);
  PF_CHECK(now == version_, Runtime,
           "saved_tensors_hooks: pack_hook modified its argument in place; got version {}; expected version {}", now,
           version_);
}

Tensor SavedTensor::unpack_by_hooks(GradNode& node) const {
  Packed& p = *packed_;
  if (!p.unpacked) {
    const grad_mode::Guard off(false);
    const Tensor made = p.hooks->unpack(p.value);
    PF_CHECK(made.shape() == p.shape && made.dtype() == p.dtype && made.device() == p.device, Runtime,
             "saved_tensors_hooks: unpack_hook returned a tensor that is not like the saved one; got {} {} on {}; "
             "expected {} {} on {}; saved by {} at {}",
             dtype_name(made.dtype()), made.shape().str(), made.device().str(), dtype_name(p.dtype), p.shape.str(),
             p.device.str(), node.name, describe_location(node.loc));
    p.unpacked = borrow(made);
  }
  if (!grad_mode::enabled() || !p.leaf) return connected(p.unpacked, node);
  // A gradient of the gradient must arrive at the leaf itself.
  const Tensor handle = borrow(p.unpacked);
  attach("saved", {handle}, {p.leaf}, {}, [](GradNode&, const Tensors& g) -> Tensors { return {g[0]}; });
  return handle;
}

Tensor SavedTensor::unpack(GradNode& node) const {
  if (packed_) return unpack_by_hooks(node);
  if (!tensor_) return {};
  const uint32_t now = version_of(tensor_);
  PF_CHECK(now == version_, Runtime,
           "{}: a tensor needed for the gradient was modified in place; got version {}; expected version {}; recorded "
           "at {}; "
           "hint: clone() it before the in-place op",
           node.name, now, version_, describe_location(node.loc));
  return connected(tensor_, node);
}

Tensor SavedTensor::connected(const Tensor& t, GradNode& node) const {
  if (!grad_mode::enabled()) return t;
  if (is_output_) return has_gradient(t.dtype()) ? with_history(t, Ref<GradNode>(&node), output_nr_) : t;
  return grad_fn_ ? with_history(t, grad_fn_, output_nr_) : t;
}

GradNode::GradNode(std::string op)
    : name(std::move(op)), loc(current_location()), sequence(g_sequence.fetch_add(1, std::memory_order_relaxed)) {}

// A chain of nodes would release itself recursively, with one stack frame per node. So the outermost destructor
// releases them in a loop.
GradNode::~GradNode() {
  thread_local std::vector<Ref<GradNode>>* t_dying = nullptr;
  std::vector<Ref<GradNode>> mine;
  const bool outermost = t_dying == nullptr;
  if (outermost) t_dying = &mine;
  for (Edge& e : edges)
    if (e.node) t_dying->push_back(std::move(e.node));
  for (SavedTensor& s : saved_tensors)
    if (s.grad_fn_) t_dying->push_back(std::move(s.grad_fn_));
  if (!outermost) return;
  while (!mine.empty()) {
    const Ref<GradNode> last = std::move(mine.back());
    mine.pop_back();
  }
  t_dying = nullptr;
}

void GradNode::free_saved() {
  saved_tensors.clear();
  released = true;
}

void GradNode::forget_unpacked() {
  for (const SavedTensor& s : saved_tensors)
    if (s.packed_) s.packed_->unpacked = Tensor();
}

void GradNode::check_not_released() const {
  PF_CHECK(!released, Runtime,
           "{}: backward a second time through the same graph, whose saved tensors are freed; recorded at {}; hint: "
           "retain_graph=True in the first backward()",
           name, describe_location(loc));
}

Tensor GradNode::saved(size_t i) {
  check_not_released();
  PF_CHECK(i < saved_tensors.size(), Runtime, "{}: internal error: saved tensor {} of {}", name, i,
           saved_tensors.size());
  return saved_tensors[i].unpack(*this);
}

bool any_requires_grad(TensorList inputs) {
  if (!t_enabled) return false;
  for (const Tensor& t : inputs)
    if (t && t.impl()->autograd && t.requires_grad()) return true;
  return false;
}

void attach_node(const Ref<GradNode>& node, TensorSpan inputs, TensorSpan outputs, TensorSpan saved) {
  GradNode& n = *node;
  n.edges.resize(inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Tensor& t = inputs[i];
    if (!t || !t.requires_grad()) continue;
    const AutogradMeta& m = *t.impl()->autograd;
    if (m.grad_fn) n.edges[i] = {m.grad_fn, m.output_nr, {}};
    else n.edges[i].leaf = t;
  }
  n.saved_tensors.reserve(saved.size());
  for (const Tensor& t : saved) {
    bool is_output = false;
    uint32_t output_nr = 0;
    for (size_t k = 0; t && k < outputs.size(); ++k) {
      if (!t.same(outputs[k])) continue;
      is_output = true;
      output_nr = static_cast<uint32_t>(k);
    }
    n.saved_tensors.emplace_back(t, is_output, output_nr);
  }
  // Assigned now, not when the node was made: reading the inputs may have given a view a new history, which must count
  // as older.
  n.sequence = g_sequence.fetch_add(1, std::memory_order_relaxed);
  n.outputs.reserve(outputs.size());
  for (size_t k = 0; k < outputs.size(); ++k) {
    const Tensor& t = outputs[k];
    n.outputs.push_back({t.shape(), t.dtype(), t.device()});
    if (!has_gradient(t.dtype())) continue;
    AutogradMeta& m = autograd_meta(t);
    m.grad_fn = node;
    m.output_nr = static_cast<uint32_t>(k);
  }
}

}  // namespace pyflame
