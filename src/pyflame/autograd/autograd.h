// The walk over the tape and what is built on it.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "pyflame/tensor/grad_node.h"

namespace pyflame::autograd {

// Accumulates into .grad of every leaf that the outputs depend on. grads[i] may be undefined for a one-element output.
// Ends with a cut of the window.
void backward(const Tensors& outputs, const Tensors& grads = {}, bool retain_graph = false, bool create_graph = false);

// Gradients of outputs with respect to inputs (leaves or not); nothing accumulates. Undefined where unused if allow_unused,
// else RuntimeError.
Tensors grad(const Tensors& outputs, const Tensors& inputs, const Tensors& grad_outputs = {}, bool retain_graph = false,
             bool create_graph = false, bool allow_unused = false);

// Runs fn without saving what is inside; the backward pass runs it again, with the same random numbers.
Tensors checkpoint(const std::function<Tensors(const Tensors&)>& fn, const Tensors& inputs);

// Registers a hook that may replace the gradient of t. Returns an id for remove_hook.
size_t register_hook(const Tensor& t, TensorHook hook);
void remove_hook(const Tensor& t, size_t id);
void retain_grad(const Tensor& t);

}  // namespace pyflame::autograd
