// One step of recurrent layers, and its gradient: compositions of ops, which are recorded and fused like them. The layers call them once for
// each step; the sequence around them, and the gradients of the weights, are Python (nn/_recurrence.py). Where a library of the device computes whole
// sequences, one op stands for all steps, layers and directions.
#pragma once
#include <optional>
#include <string>

#include "pyflame/ops/ops.h"

namespace pyflame {

// x [N, 4 H] is the product with the input; h [N, R], c [N, H], weight [R, 4 H] -> sigmoid(o) tanh(c'), c', and the gates before their
// functions.
Tensors lstm_step(const Tensor& x, const Tensor& h, const Tensor& c, const Tensor& weight);
// Writes the gradients of the gates into [N, 4 H]; returns that of c.
Tensor lstm_step_grad(const Tensor& gates, const Tensor& c, const Tensor& new_c, const Tensor& dh, const Tensor& dc,
                      const Tensor& into);

// x [N, 3 H] is the product with the input; h [N, H], weight [H, 3 H], bias [3 H] or undefined -> h', and the product of the state.
Tensors gru_step(const Tensor& x, const Tensor& h, const Tensor& weight, const Tensor& bias);
// Writes the gradients of both products, [N, 3 H] each; returns what h gets besides its product's gradient.
Tensor gru_step_grad(const Tensor& h, const Tensor& x, const Tensor& own, const Tensor& dh, const Tensor& into_x,
                     const Tensor& into_own);

// Layers of this kind over x [T, N, I], from the states [layers * directions, N, H] (h, and of an LSTM c), with the weights w_ih, w_hh and, if there
// are biases, b_ih, b_hh of each layer and direction -> y [T, N, directions * H], the final states, and what recurrent_grad needs if `kept`. Nothing if the
// device has no implementation, with the reason in `why`. There is no gradient on the tape.
std::optional<Tensors> recurrent(RecurrentMode mode, bool bidirectional, bool biases, bool kept, const Tensor& x,
                                 const Tensors& states, const Tensors& weights, std::string* why);
// From the gradients of y and of the final states: those of x, of the states and of the weights.
Tensors recurrent_grad(RecurrentMode mode, bool bidirectional, bool biases, const Tensors& grads, const Tensor& x,
                       const Tensor& y, const Tensors& states, const Tensor& kept, const Tensors& weights);

}  // namespace pyflame
