// Gradients for Python: grad modes, backward, hooks, functions written in Python, recomputation. Backward passes run
// without the GIL; the Python code in them (hooks, Function.backward, a checkpointed function) acquires it.
#include "pyflame/autograd/autograd.h"
#include "pyflame/autograd/ready.h"

#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>

#include "casters.h"
#include "pyflame/ops/autocast.h"

namespace pyflame::python {

namespace {

Tensor tensor_or_none(const char* op, nb::handle h) {
  if (h.is_none()) return {};
  const Tensor* t = as_tensor(h);
  PF_CHECK(t, Type, "{}: not a tensor; got {}; expected a tensor or None", op, kind_name(h));
  return *t;
}

bool flag_or(const char* op, nb::handle h, bool otherwise) {
  PF_CHECK(h.is_none() || PyBool_Check(h.ptr()), Type,
           "{}: retain_graph is not a bool; got {}; expected a bool or None", op, kind_name(h));
  return h.is_none() ? otherwise : h.ptr() == Py_True;
}

nb::object object_or_none(const Tensor& t) { return t ? nb::cast(t) : nb::none(); }

// Whether it has values to go through, as those of a dict; texts and dicts are mistakes.
bool is_iterable(nb::handle h) {
  return Py_TYPE(h.ptr())->tp_iter != nullptr && !PyUnicode_Check(h.ptr()) && !PyDict_Check(h.ptr());
}

// One tensor, or an iterable of them. With `optional`, None is allowed too, for all or for single ones. They become
// undefined tensors, so only callers that check for those may use it.
Tensors tensor_list(const char* op, nb::handle h, bool optional = false) {
  if (h.is_none() && optional) return {};
  if (as_tensor(h)) return {*as_tensor(h)};
  PF_CHECK(is_iterable(h), Type, "{}: not tensors; got {}; expected a tensor or a sequence of tensors", op,
           kind_name(h));
  Tensors out;
  for (nb::handle e : h) {
    PF_CHECK(optional || as_tensor(e), Type, "{}: not a tensor; got {}; expected a sequence of tensors", op,
             kind_name(e));
    out.push_back(tensor_or_none(op, e));
  }
  return out;
}

// The tape's node of a Function, whose backward is Python code.
class PythonNode final : public GradNode {
 public:
  PythonNode(std::string op, nb::handle fn, bool materialize)
      : GradNode(std::move(op)), fn_(std::make_shared<Held>(fn)), materialize_(materialize) {}

  Tensors apply(const Tensors& grads) override {
    check_not_released();
    Tensors saved_now;
    for (size_t i = 0; i < saved_tensors.size(); ++i) saved_now.push_back(saved(i));
    const Locked gil;
    nb::list gs, ss;
    for (size_t i = 0; i < outputs.size(); ++i) {
      const Tensor g = i < grads.size() ? grads[i] : Tensor();
      const bool fill = !g && materialize_;
      gs.append(object_or_none(fill ? zeros(outputs[i].shape, outputs[i].dtype, outputs[i].device) : g));
    }
    for (const Tensor& s : saved_now) ss.append(nb::cast(s));
    nb::object result = fn_->handle()(gs, ss);
    Tensors out = tensor_list("Function.backward", result, true);
    PF_CHECK(out.size() == edges.size(), Runtime,
             "{}: backward returned {} gradients; expected {}, one per tensor input of forward", name, out.size(),
             edges.size());
    for (size_t i = 0; i < out.size(); ++i) {
      if (!needs(i)) out[i] = {};
    }
    return out;
  }

 private:
  std::shared_ptr<Held> fn_;
  bool materialize_;  // outputs without a gradient get zeros, not None
};

// Connects the outputs of a Python forward with its backward. Returns the outputs (new handles where forward returned
// an input).
nb::list attach_python(const std::string& name, nb::handle backward, const Tensors& inputs, Tensors outputs,
                       const Tensors& saved, bool materialize) {
  for (Tensor& o : outputs) {
    if (o.grad_fn() || o.requires_grad()) o = o.detach();
    for (const Tensor& i : inputs)
      if (o.same(i)) o = o.detach();
  }
  std::vector<std::reference_wrapper<const Tensor>> ins(inputs.begin(), inputs.end()),
      outs(outputs.begin(), outputs.end()), keep(saved.begin(), saved.end());
  attach_node(Ref<GradNode>(new PythonNode(name, backward, materialize)), ins, outs, keep);
  nb::list result;
  for (const Tensor& o : outputs) result.append(nb::cast(o));
  return result;
}

// Gives a tensor that a Function's forward wrote in place the history of the Function's output.
void adopt_history(const Tensor& written, const Tensor& output) {
  AutogradMeta& m = autograd_meta(written);
  PF_CHECK(
      !m.view_base, NotImplemented,
      "mark_dirty: a view was written in place; got a view of shape {}; expected a tensor that is not a view; hint: "
      "clone() it first",
      written.shape().str());
  const AutogradMeta& of = autograd_meta(output);
  m.grad_fn = of.grad_fn;
  m.output_nr = of.output_nr;
  m.requires_grad = false;
  ++m.epoch;
}

// fn(list of tensors) -> sequence of tensors, callable without the GIL.
std::function<Tensors(const Tensors&)> python_function(nb::handle fn) {
  auto held = std::make_shared<Held>(fn);
  return [held](const Tensors& xs) {
    const Locked gil;
    nb::list args;
    for (const Tensor& x : xs) args.append(nb::cast(x));
    return tensor_list("checkpoint", held->handle()(args));
  };
}

struct HookHandle {
  Tensor tensor;
  size_t id = 0;
  bool live = true;
  void remove() {
    if (live) autograd::remove_hook(tensor, id);
    live = false;
  }
};

// The two functions of saved_tensors_hooks().
class PythonSavedHooks final : public SavedHooks {
 public:
  PythonSavedHooks(nb::handle pack, nb::handle unpack) : pack_(pack), unpack_(unpack) {}
  std::shared_ptr<void> pack(const Tensor& t) override {
    const Locked gil;
    const nb::object kept = pack_.handle()(nb::cast(t));
    return std::make_shared<Held>(kept);
  }
  Tensor unpack(const std::shared_ptr<void>& packed) override {
    const Locked gil;
    const nb::object made = unpack_.handle()(static_cast<const Held*>(packed.get())->handle());
    const Tensor* t = as_tensor(made);
    PF_CHECK(t, Type, "saved_tensors_hooks: unpack_hook returned no tensor; got {}; expected a tensor",
             kind_name(made));
    return *t;
  }

 private:
  Held pack_, unpack_;
};

HookHandle register_hook(const Tensor& x, nb::handle hook) {
  PF_CHECK(PyCallable_Check(hook.ptr()), Type, "register_hook: not callable; got {}", kind_name(hook));
  auto held = std::make_shared<Held>(hook);
  const size_t id = autograd::register_hook(x, [held](const Tensor& g) -> Tensor {
    const Locked gil;
    nb::object r = held->handle()(g);
    return tensor_or_none("hook", r);
  });
  return {x, id, true};
}

void bind_modes(nb::module_& m) {
  m.def(
      "is_grad_enabled", [] { return grad_mode::enabled(); },
      "Whether ops on this thread are recorded for gradients: True unless no_grad() or inference_mode() is active.");
  m.def(
      "is_inference_mode_enabled", [] { return grad_mode::inference(); },
      "Whether inference_mode() is active in this thread, so that nothing is recorded for gradients.");
  m.def("_grad_mode", [] { return nb::make_tuple(grad_mode::enabled(), grad_mode::inference()); });
  m.def("_autocast", [](const std::string& device_type) {
    const autocast::State state = autocast::state(device_from_text(device_type).type);
    return std::pair(state.enabled, state.dtype);
  });
  m.def("_set_autocast", [](const std::string& device_type, bool enabled, DType dtype) {
    autocast::set_state(device_from_text(device_type).type, {enabled, dtype});
  });
  m.def(
      "_push_saved_hooks",
      [](nb::handle pack, nb::handle unpack) { push_saved_hooks(std::make_shared<PythonSavedHooks>(pack, unpack)); },
      "pack_hook"_a, "unpack_hook"_a);
  m.def("_pop_saved_hooks", &pop_saved_hooks);
  m.def("_set_grad_mode", [](bool on, bool inference) { grad_mode::set(on, inference); });
}

// The backward pass; with `inputs`, only their gradients are accumulated.
void backward_into(const Tensors& outputs, const Tensors& grads, bool retain, bool create, const Tensors* inputs) {
  if (!inputs) return autograd::backward(outputs, grads, retain, create);
  PF_CHECK(!inputs->empty(), Runtime, "backward: no inputs; got an empty sequence; expected tensors or None");
  const Tensors found = autograd::grad(outputs, *inputs, grads, retain, create, true);
  grad_mode::Guard mode(create, false);
  for (size_t i = 0; i < found.size(); ++i) {
    if (!found[i]) continue;
    const Tensor before = (*inputs)[i].grad();
    (*inputs)[i].set_grad(before ? add(before, found[i]) : create ? found[i] : clone(found[i]));
  }
}

void bind_walks(nb::module_& m, TensorClass& c) {
  c.def(
      "backward",
      [](const Tensor& x, nb::handle gradient, nb::handle retain_graph, bool create_graph, nb::handle inputs) {
        const Tensor g = tensor_or_none("backward", gradient);
        const bool keep = flag_or("backward", retain_graph, create_graph);
        const Tensors into = tensor_list("backward", inputs, true);
        Unlocked u;
        backward_into({x}, {g}, keep, create_graph, inputs.is_none() ? nullptr : &into);
      },
      "gradient"_a.none() = nb::none(), "retain_graph"_a.none() = nb::none(), "create_graph"_a = false,
      "inputs"_a.none() = nb::none(),
      "Adds the gradient of this tensor with respect to every leaf to the leaf's .grad. Only a one-element tensor "
      "needs no `gradient`.\n\n"
      "gradient: a tensor of this tensor's shape, by which the gradients are multiplied; None: 1. retain_graph: "
      "whether "
      "what was saved for the backward pass is kept, so that there can be another one; None: as create_graph. "
      "create_graph: whether the gradients can be differentiated; what was saved is then kept in any case. inputs: a "
      "tensor or several, which alone get gradients; None: all leaves.\n\n"
      "Raises RuntimeError for a tensor that does not require a gradient, a missing gradient of several elements or of "
      "a complex one, a gradient of another shape, a second backward pass through the same graph without "
      "retain_graph, a saved tensor that was modified in place, and inputs that are empty or do not require a "
      "gradient; TypeError for a gradient or inputs that are no tensors, a complex gradient of a real tensor, and "
      "flags that are no bools.");
  m.def(
      "_backward",
      [](nb::handle tensors, nb::handle grads, nb::handle retain_graph, bool create_graph, nb::handle inputs) {
        const Tensors outs = tensor_list("backward", tensors);
        const Tensors gs = tensor_list("backward", grads, true);
        PF_CHECK(gs.empty() || gs.size() == outs.size(), Value, "backward: got {} gradients for {} tensors", gs.size(),
                 outs.size());
        const bool keep = flag_or("backward", retain_graph, create_graph);
        const Tensors into = tensor_list("backward", inputs, true);
        Unlocked u;
        backward_into(outs, gs, keep, create_graph, inputs.is_none() ? nullptr : &into);
      },
      "tensors"_a.none(), "grad_tensors"_a.none(), "retain_graph"_a.none(), "create_graph"_a,
      "inputs"_a.none() = nb::none());
  m.def(
      "_grad",
      [](nb::handle outputs, nb::handle inputs, nb::handle grad_outputs, nb::handle retain_graph, bool create_graph,
         bool allow_unused) {
        const Tensors outs = tensor_list("grad", outputs), ins = tensor_list("grad", inputs),
                      gs = tensor_list("grad", grad_outputs, true);
        PF_CHECK(gs.empty() || gs.size() == outs.size(), Value, "grad: got {} gradients for {} outputs", gs.size(),
                 outs.size());
        const bool keep = flag_or("grad", retain_graph, create_graph);
        Tensors r;
        {
          Unlocked u;
          r = autograd::grad(outs, ins, gs, keep, create_graph, allow_unused);
        }
        nb::list l;
        for (const Tensor& t : r) l.append(object_or_none(t));
        return nb::tuple(l);
      },
      "outputs"_a.none(), "inputs"_a.none(), "grad_outputs"_a.none(), "retain_graph"_a.none(), "create_graph"_a,
      "allow_unused"_a);
  m.def(
      "_checkpoint",
      [](nb::handle fn, const Tensors& inputs) {
        auto f = python_function(fn);
        Tensors r;
        {
          Unlocked u;
          r = autograd::checkpoint(f, inputs);
        }
        return r;
      },
      "fn"_a, "inputs"_a);
  m.def("_adopt_history", &adopt_history, "written"_a, "output"_a);
  m.def("_attach", &attach_python, "name"_a, "backward"_a, "inputs"_a, "outputs"_a, "saved"_a, "materialize"_a = true);
}

}  // namespace

void bind_autograd(nb::module_& m, TensorClass& c) {
  nb::class_<Ref<GradNode>>(m, "GradFn",
                            "A recorded step of the computation, through which backward() computes gradients: "
                            "Tensor.grad_fn. It cannot be made by a call: TypeError.")
      .def_prop_ro(
          "name", [](const Ref<GradNode>& n) { return n->name; },
          "The name of the op of which the step computes the gradients, such as 'mul'.")
      .def("__repr__", [](const Ref<GradNode>& n) { return "<" + n->name + ">"; })
      .def_prop_ro("_id", [](const Ref<GradNode>& n) { return n->sequence; })
      .def_prop_ro("_leaves",
                   [](const Ref<GradNode>& n) {
                     nb::list l;
                     for (const Edge& e : n->edges)
                       if (!e.node && e.needed()) l.append(nb::cast(e.leaf));
                     return l;
                   })
      .def_prop_ro(
          "next_functions",
          [](const Ref<GradNode>& n) {
            nb::list l;
            for (const Edge& e : n->edges) l.append(nb::make_tuple(e.node ? nb::cast(e.node) : nb::none(), e.index));
            return nb::tuple(l);
          },
          "For each input of the op a pair: the step that made it, or None, and the number of that step's output.");
  nb::class_<HookHandle>(m, "HookHandle",
                         "What Tensor.register_hook returns: its method remove() ends the calls of the hook. It cannot "
                         "be made by a call: TypeError.")
      .def("remove", &HookHandle::remove,
           "Removes the hook, so that backward() does not call it any more. Further calls have no effect.");
  bind_modes(m);
  bind_walks(m, c);
  c.def("register_hook", &register_hook, "hook"_a,
        "hook(grad) is called when the gradient of this tensor is known; what it returns (if not None) replaces it.");
  m.def("_set_anomaly", &autograd::set_anomaly_detection, "on"_a);
  m.def(
      "is_anomaly_enabled", [] { return autograd::anomaly_detection(); },
      "Whether backward() looks for NaN values in gradients, as detect_anomaly sets it; False at first.");
  m.def(
      "_register_post_hook",
      [](const Tensor& leaf, nb::handle hook) {
        auto held = std::make_shared<Held>(hook);
        return autograd::register_post_hook(leaf, [held] {
          const Locked gil;
          held->handle()();
        });
      },
      "leaf"_a, "hook"_a);
  m.def(
      "_register_ready_hook",
      [](const Tensor& leaf, nb::handle hook) {
        auto held = std::make_shared<Held>(hook);
        return autograd::register_ready_hook(leaf, [held](const Tensor& g) {
          const Locked gil;
          held->handle()(g);
        });
      },
      "leaf"_a, "hook"_a);
  m.def("_remove_ready_hook", &autograd::remove_ready_hook, "leaf"_a, "id"_a);
  m.def(
      "_run_at_end_of_backward",
      [](nb::handle fn) {
        auto held = std::make_shared<Held>(fn);
        autograd::run_at_end([held] {
          const Locked gil;
          held->handle()();
        });
      },
      "fn"_a);
  m.def("_backward_pass", &autograd::current_pass);
  m.def("_remove_post_hook", &autograd::remove_post_hook, "leaf"_a, "id"_a);
  c.def(
      "retain_grad", [](const Tensor& x) { autograd::retain_grad(x); }, "Keeps .grad of a tensor that is no leaf.");
  c.def(
      "requires_grad_",
      [](nb::handle_t<Tensor> self, bool on) {
        self_tensor(self).set_requires_grad(on);
        return nb::borrow(self);
      },
      "requires_grad"_a = true,
      "Sets requires_grad, in place, and returns the tensor. ValueError for dtypes of integers and for bool, and where "
      "it is switched off for the result of an op.");
}

}  // namespace pyflame::python
