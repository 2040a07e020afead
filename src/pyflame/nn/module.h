// A layer in C++ is a plain struct of tensors with operator() and a function visit():
//
//   template <class V> void visit(V& v) { v.parameter("weight", weight); v.buffer("running_mean", m); v.child("fc", fc);
//                                         v.training(training); }
//
// There is no base class; parameters(), state_dict(), load_state_dict() and train() are free functions over visit().
// Names are those of the Python classes, so both can use the same state dict.
#pragma once
#include <functional>
#include <string>

#include "pyflame/io/safetensors.h"

namespace pyflame::nn {

// Calls `fn` for each parameter and buffer of a module, with its name such as "fc.weight".
struct TensorVisitor {
  using Fn = std::function<void(const std::string& name, Tensor& t, bool is_parameter)>;
  Fn fn;
  std::string prefix;

  // Missing tensors (a layer without bias) are skipped, as in Python's state dicts.
  void parameter(const char* name, Tensor& t) {
    if (t) fn(prefix + name, t, true);
  }
  void buffer(const char* name, Tensor& t) {
    if (t) fn(prefix + name, t, false);
  }
  template <class M>
  void child(const std::string& name, M& m) {
    const size_t length = prefix.size();
    prefix += name + ".";
    m.visit(*this);
    prefix.resize(length);
  }
  void training(bool&) {}
};

// Sets the mode (training or not) of a module and of everything inside it.
struct ModeVisitor {
  bool on;
  void parameter(const char*, Tensor&) {}
  void buffer(const char*, Tensor&) {}
  template <class M>
  void child(const std::string&, M& m) {
    m.visit(*this);
  }
  void training(bool& flag) { flag = on; }
};

// Calls fn(name, tensor, is_parameter) for each parameter and buffer, in the order of the visits.
template <class M>
void for_each_tensor(M& module, TensorVisitor::Fn fn) {
  TensorVisitor v{std::move(fn), {}};
  module.visit(v);
}
// Calls fn(name, tensor) for each parameter.
template <class M>
void for_each_parameter(M& module, const std::function<void(const std::string&, Tensor&)>& fn) {
  for_each_tensor(module, [&](const std::string& name, Tensor& t, bool is_parameter) {
    if (is_parameter) fn(name, t);
  });
}
// The parameters with their names.
template <class M>
NamedTensors named_parameters(M& module) {
  NamedTensors r;
  for_each_parameter(module, [&](const std::string& name, Tensor& t) { r.emplace_back(name, t); });
  return r;
}
// The parameters.
template <class M>
Tensors parameters(M& module) {
  Tensors r;
  for_each_parameter(module, [&](const std::string&, Tensor& t) { r.push_back(t); });
  return r;
}
// Parameters and buffers, detached: they share storage with the module.
template <class M>
NamedTensors state_dict(M& module) {
  NamedTensors r;
  for_each_tensor(module, [&](const std::string& name, Tensor& t, bool) { r.emplace_back(name, t.detach()); });
  return r;
}
// Sets the mode of the module and of everything inside it.
template <class M>
void train(M& module, bool on = true) {
  ModeVisitor v{on};
  module.visit(v);
}
// The number of elements of all parameters.
template <class M>
int64_t count_parameters(M& module) {
  int64_t n = 0;
  for_each_parameter(module, [&](const std::string&, Tensor& t) { n += t.numel(); });
  return n;
}

namespace detail {
void load_tensors(const NamedTensors& own, const NamedTensors& given, bool strict);
}
// Copies values into the module's tensors. ValueError that lists every missing, unexpected (when strict) and misshapen
// name, before anything is changed.
template <class M>
void load_state_dict(M& module, const NamedTensors& state, bool strict = true) {
  NamedTensors own;
  for_each_tensor(module, [&](const std::string& name, Tensor& t, bool) { own.emplace_back(name, t); });
  detail::load_tensors(own, state, strict);
}

}  // namespace pyflame::nn
