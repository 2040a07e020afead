// Convolution as a matrix product over unfolded input (im2col), one image and group at a time, so that the unfolded
// block stays in the L2 cache and the product runs at the speed of matmul. Work is split over images, groups and, for
// large images, blocks of output rows. Gradients of weights are partial sums over chunks of images, added in a fixed
// order.
#pragma once
#include "pyflame/backends/cpu/common.h"

namespace pyflame::cpu {

// By oneDNN, if it has a fast kernel for the shape (dnn_conv.h).
Refusal accept_dnn_conv(const Problem& p);
Refusal accept_dnn_grad_input(const Problem& p);
Refusal accept_dnn_grad_weight(const Problem& p);
std::unique_ptr<Executable> make_dnn_conv(const Problem& p);
std::unique_ptr<Executable> make_dnn_grad_input(const Problem& p);
std::unique_ptr<Executable> make_dnn_grad_weight(const Problem& p);

Refusal accept_conv(const Problem& p);
std::unique_ptr<Executable> make_conv(const Problem& p);  // conv2d and groups that begin with it
std::unique_ptr<Executable> make_conv_grad_input(const Problem& p);
std::unique_ptr<Executable> make_conv_grad_weight(const Problem& p);

}  // namespace pyflame::cpu
