// What the kernels of kernels/conv do with an element of the result: every node of the group after the convolution, and the stores.
#pragma once
#include <string>
#include <vector>

#include "pyflame/backends/gpu/loops/expression.h"
#include "pyflame/backends/gpu/ops/gemm.h"

namespace pyflame::gpu {

class ConvOutput {
 public:
  explicit ConvOutput(const Problem& p);
  // Why the kernels cannot do it: what lies neither as the result does nor as one number for each channel.
  const Refusal& refused() const { return refused_; }
  // "void* e0, …" with a leading comma: they come after the kernel's own.
  std::string parameters() const;
  // Statements that make `out`, called with (place in the result, channel, x).
  std::string text() const;
  void append(Arguments& arguments, const RunContext& ctx);

 private:
  std::string address(const Operand& o);
  std::string pointer(const Operand& o);
  Dims space_, made_;
  DType dtype_;
  Refusal refused_;
  std::string body_, params_text_;
  std::vector<int32_t> bindings_;
  std::vector<int64_t> numbers_;
  std::vector<Expressions::ParamUse> params_;
  std::vector<void*> pointers_;  // of the run in progress
  std::vector<uint64_t> values_;
};

}  // namespace pyflame::gpu
