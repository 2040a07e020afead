// One step of recurrent layers, and its gradient: compositions of ops, which are recorded and fused like them. The layers call them once for
// each step; the sequence around them, and the gradients of the weights, are Python (nn/_recurrence.py).
#pragma once
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

}  // namespace pyflame
