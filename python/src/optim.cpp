// The fused multi-tensor updates, and one step of an optimizer's group as one call. It finds which parameters have a
// gradient, the state of each (the dicts in Optimizer.state, which remain Python objects), and which parameters one
// update can serve. This is done in C++ because every step does it for every parameter.
#include "casters.h"

#include "pyflame/base/events.h"
#include "pyflame/tensor/grad_node.h"

namespace pyflame::python {

namespace {

// Parameters of a group that one update serves: they have the same device, dtype and `count`, the number of updates so
// far.
struct Bucket {
  Device device;
  DType dtype;
  int64_t count;
  Tensors params, grads;
  std::vector<nb::object> names;   // the parameters as Python objects
  std::vector<nb::object> states;  // their dicts; null: none yet
};

// count_of(state); state is null if the parameter has none.
template <class CountOf>
std::vector<Bucket> buckets_of(nb::handle params, nb::handle state, CountOf count_of) {
  PF_CHECK(PyDict_Check(state.ptr()), Type, "optimizer: the state is not a dict; got {}", kind_name(state));
  std::vector<Bucket> all;
  const size_t n = nb::len(params);
  for (nb::handle name : params) {
    const Tensor* p = as_tensor(name);
    PF_CHECK(p, Type, "optimizer: not a tensor; got {}", kind_name(name));
    Tensor grad = p->grad();
    if (!grad) continue;
    nb::object known = nb::borrow(PyDict_GetItemWithError(state.ptr(), name.ptr()));
    if (!known && PyErr_Occurred()) throw nb::python_error();
    const int64_t count = count_of(known);
    auto same = std::find_if(all.begin(), all.end(), [&](const Bucket& b) {
      return b.device == p->device() && b.dtype == p->dtype() && b.count == count;
    });
    if (same == all.end()) {
      same = all.insert(same, Bucket{p->device(), p->dtype(), count, {}, {}, {}, {}});
      same->params.reserve(n), same->grads.reserve(n), same->names.reserve(n), same->states.reserve(n);
    }
    same->params.push_back(*p);
    same->grads.push_back(std::move(grad));
    same->names.push_back(nb::borrow(name));
    same->states.push_back(std::move(known));
  }
  return all;
}

Tensors tensors_in(const std::vector<nb::object>& states, nb::handle key) {
  Tensors all;
  all.reserve(states.size());
  for (const nb::object& s : states) {
    const nb::object value = s[key];
    const Tensor* t = as_tensor(value);
    PF_CHECK(t, Type, "optimizer: a parameter's state is not a tensor; got {} for {}", kind_name(value),
             short_repr(key));
    all.push_back(*t);
  }
  return all;
}

// A key of the state dicts; made once.
nb::handle key(const char* text) { return PyUnicode_InternFromString(text); }

// Makes states for parameters that have none.
template <class Make>
void begin(Bucket& b, nb::handle state, Make make) {
  for (size_t i = 0; i < b.states.size(); ++i) {
    if (b.states[i] && nb::len(b.states[i]) > 0) continue;
    b.states[i] = make(b.params[i]);
    if (PyDict_SetItem(state.ptr(), b.names[i].ptr(), b.states[i].ptr()) != 0) throw nb::python_error();
  }
}

void adam_group(nb::handle params, nb::handle state, double lr, double beta1, double beta2, double eps,
                double weight_decay, bool decoupled, bool maximize) {
  const events::Scope log(events::Kind::Range, "optimizer step");
  static const nb::handle step = key("step"), first = key("exp_avg"), second = key("exp_avg_sq");
  const grad_mode::Guard off(false);
  auto all = buckets_of(params, state, [](const nb::object& s) -> int64_t {
    if (!s || nb::len(s) == 0) return 0;
    const nb::object n = nb::steal(PyNumber_Long(nb::object(s[step]).ptr()));
    if (!n) throw nb::python_error();
    return nb::cast<int64_t>(n);
  });
  for (Bucket& b : all) {
    if (b.count == 0)
      begin(b, state, [](const Tensor& p) {
        nb::dict s;
        s[step] = 0;
        s[first] = zeros_like(p);
        s[second] = zeros_like(p);
        return s;
      });
    adam_step(b.params, b.grads, tensors_in(b.states, first), tensors_in(b.states, second),
              {lr, beta1, beta2, eps, weight_decay, b.count + 1, decoupled, maximize});
    const nb::int_ next(b.count + 1);
    for (const nb::object& s : b.states) s[step] = next;
  }
}

void sgd_group(nb::handle params, nb::handle state, double lr, double momentum, double dampening, double weight_decay,
               bool nesterov, bool maximize) {
  const events::Scope log(events::Kind::Range, "optimizer step");
  static const nb::handle buffer = key("momentum_buffer");
  const grad_mode::Guard off(false);
  auto all = buckets_of(params, state, [](const nb::object& s) -> int64_t {
    return s && PyMapping_HasKey(s.ptr(), buffer.ptr()) && !nb::object(s[buffer]).is_none();
  });
  for (Bucket& b : all) {
    const bool keeps = momentum != 0, starts = keeps && b.count == 0;
    if (starts) {
      for (nb::object& s : b.states) s = nb::object();
      begin(b, state, [](const Tensor& p) {
        nb::dict s;
        s[buffer] = zeros_like(p);
        return s;
      });
    }
    sgd_step(b.params, b.grads, keeps ? tensors_in(b.states, buffer) : Tensors(),
             {lr, momentum, dampening, weight_decay, nesterov, maximize, starts});
  }
}

// Removes the gradients, or sets them to zero.
void drop_gradients(nb::handle params, bool set_to_none) {
  const grad_mode::Guard off(false);
  for (nb::handle name : params) {
    const Tensor* p = as_tensor(name);
    PF_CHECK(p, Type, "zero_grad: not a tensor; got {}", kind_name(name));
    const Tensor g = p->grad();
    if (!g) continue;
    p->set_grad(set_to_none ? Tensor() : g.grad_fn() ? g.detach() : g);
    if (!set_to_none) fill_(p->grad(), Scalar(0));
  }
}

void bind_updates(nb::module_& m) {
  m.def(
      "sgd_step",
      [](const Tensors& params, const Tensors& grads, const Tensors& buffers, double lr, double momentum,
         double dampening, double weight_decay, bool nesterov, bool maximize, bool first) {
        sgd_step(params, grads, buffers, {lr, momentum, dampening, weight_decay, nesterov, maximize, first});
      },
      "params"_a, "grads"_a, "momentum_buffers"_a, nb::kw_only(), "lr"_a, "momentum"_a, "dampening"_a, "weight_decay"_a,
      "nesterov"_a, "maximize"_a, "first"_a,
      "One SGD update of all tensors in place: g += weight_decay p; b = momentum b + (1 - dampening) g; p -= lr (g + "
      "momentum b with nesterov, b without).\n"
      "params, grads: the p and g, as many of each and of the same shapes. momentum_buffers: the b; an empty list "
      "without momentum. first: the momentum buffers become the gradients. maximize: p goes up. "
      "ValueError where the lists, the shapes or the dtypes do not fit, TypeError for tensors of integers.");
  m.def(
      "adam_step",
      [](const Tensors& params, const Tensors& grads, const Tensors& m1, const Tensors& m2, double lr, double beta1,
         double beta2, double eps, double weight_decay, int64_t step, bool decoupled, bool maximize) {
        adam_step(params, grads, m1, m2, {lr, beta1, beta2, eps, weight_decay, step, decoupled, maximize});
      },
      "params"_a, "grads"_a, "exp_avg"_a, "exp_avg_sq"_a, nb::kw_only(), "lr"_a, "beta1"_a, "beta2"_a, "eps"_a,
      "weight_decay"_a, "step"_a, "decoupled"_a, "maximize"_a,
      "One Adam (decoupled: AdamW) update of all tensors in place; step is 1 at the first.\n"
      "params, grads, exp_avg, exp_avg_sq: lists of equal length; the tensors of one place have the same floating "
      "dtype and shape. exp_avg and exp_avg_sq, m and v, are 0 before the first step and are updated, too.\n"
      "m = beta1 m + (1 - beta1) g; v = beta2 v + (1 - beta2) g^2; p -= lr m' / (sqrt(v') + eps), with m' = m / (1 - "
      "beta1^step) and v' = v / (1 - beta2^step).\n"
      "weight_decay is added to the gradient, times p; with decoupled p *= 1 - lr weight_decay instead. maximize: of "
      "-g, so that the update goes up. ValueError, TypeError.");
  m.def(
      "total_norm", [](const Tensors& xs) { return total_norm(xs); }, "tensors"_a,
      "The square root of the sum of the squares of all elements of all tensors, a 0-d float32 tensor; 0 for an empty "
      "list. TypeError for a tensor of integers.");
  m.def(
      "clip_grad_norm_", [](const Tensors& params, double max_norm) { return clip_grad_norm_(params, max_norm); },
      "parameters"_a, "max_norm"_a,
      "Scales all gradients in place so that their joint 2-norm is at most max_norm; returns the norm before. "
      "A tensor without a gradient counts nothing, and a negative max_norm is not refused. TypeError for what is "
      "not a tensor.");
}

void bind_groups(nb::module_& m) {
  m.def("_adam_group", &adam_group, "params"_a, "state"_a, "lr"_a, "beta1"_a, "beta2"_a, "eps"_a, "weight_decay"_a,
        "decoupled"_a, "maximize"_a);
  m.def("_sgd_group", &sgd_group, "params"_a, "state"_a, "lr"_a, "momentum"_a, "dampening"_a, "weight_decay"_a,
        "nesterov"_a, "maximize"_a);
  m.def("_drop_gradients", &drop_gradients, "params"_a, "set_to_none"_a);
}

}  // namespace

void bind_optimizers(nb::module_& m) {
  bind_updates(m);
  bind_groups(m);
}

}  // namespace pyflame::python
