// The backward pass and what is built on it: gradients, checkpointing, hooks.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "pyflame/tensor/grad_node.h"

namespace pyflame::autograd {

// Adds gradients to .grad of every leaf that the outputs depend on. grads[i] may be undefined for an output of one
// element. Cuts the window at the end.
void backward(const Tensors& outputs, const Tensors& grads = {}, bool retain_graph = false, bool create_graph = false);

// Gradients of outputs with respect to inputs (leaves or not); .grad is not changed. If an input is not used, its
// gradient is undefined with allow_unused, and a RuntimeError otherwise.
Tensors grad(const Tensors& outputs, const Tensors& inputs, const Tensors& grad_outputs = {}, bool retain_graph = false,
             bool create_graph = false, bool allow_unused = false);

// Runs fn without saving its intermediates. The backward pass runs it again, with the same random numbers.
Tensors checkpoint(const std::function<Tensors(const Tensors&)>& fn, const Tensors& inputs);

// Registers a hook that may replace the gradient of t. Returns an id for remove_hook.
size_t register_hook(const Tensor& t, TensorHook hook);
void remove_hook(const Tensor& t, size_t id);
void retain_grad(const Tensor& t);
// Registers a function that runs at the end of a backward pass that added to the leaf's .grad. Returns an id.
size_t register_post_hook(const Tensor& leaf, std::function<void()> hook);
void remove_post_hook(const Tensor& leaf, size_t id);
// Called in a hook: fn runs once, at the end of this pass of backward() or grad(), after the post hooks of all leaves. A pass that
// fails forgets it.
void run_at_end(std::function<void()> fn);
// The number of the pass that runs on this thread, which no other pass has; 0 where none runs.
int64_t current_pass();

// While it is on, a gradient that is NaN is an error that names the op of the forward pass. Each check waits for values.
bool anomaly_detection();
void set_anomaly_detection(bool on);

}  // namespace pyflame::autograd
