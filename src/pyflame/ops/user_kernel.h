// Kernels that a program brings along: source text for GPUs in the dialect of kernels/device (pf.kernel), or a compiled function of an
// extension (extension.h). Each is registered once and gets a number, which is an attribute of the op user_kernel.
#pragma once
#include <array>
#include <span>
#include <string>
#include <vector>

#include "pyflame/plugin.h"
#include "pyflame/record/emit.h"

namespace pyflame {

// With a text, the statements of `body` see each input as `const T* name` and each output as `T* name`, contiguous, with T as name_t; each scalar as a
// value; and name_size, name_rank, name_shape of the tensors whose sizes the text mentions. They run once for each thread.
struct UserKernel {
  std::string name;  // an identifier
  std::string header, body;
  std::vector<std::string> inputs, outputs, scalars;
  std::vector<DType> scalar_types;
  unsigned threads = 0;  // of a workgroup
  // With a function, header, body and threads are not used.
  pyflame_plugin_function function = nullptr;
  void* context = nullptr;
  std::string library;  // for messages
  bool operator==(const UserKernel&) const = default;
};

// The number of the kernel; equal ones have the same. The names and the number of threads must have been checked.
int64_t register_user_kernel(UserKernel kernel);
const UserKernel& user_kernel(int64_t number);

// The outputs of one launch. Inputs that are not contiguous are copied. There is no gradient. The caller knows that the
// kernel is one for the device.
// groups: workgroups in x, y and z. into: tensors that the kernel changes, one for each output; empty: new ones, with arbitrary contents.
std::vector<Tensor> launch_user_kernel(int64_t number, std::span<const Tensor> inputs, std::span<const Scalar> scalars,
                                       std::span<const OutSpec> outs, std::array<int64_t, 3> groups, int64_t shared,
                                       std::span<const Tensor> into = {});

// The op's name, and for a user's kernel its own.
std::string shown_name(OpId op, std::span<const int64_t> attrs);

}  // namespace pyflame
