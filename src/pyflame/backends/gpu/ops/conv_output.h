// What the kernels of kernels/conv do with each element of the result: all nodes of the group after the convolution,
// and the stores.
#pragma once
#include <string>
#include <vector>

#include "pyflame/backends/gpu/loops/expression.h"
#include "pyflame/backends/gpu/ops/gemm.h"

namespace pyflame::gpu {

class ConvOutput {
 public:
  explicit ConvOutput(const Problem& p);
  // Why the kernels cannot do it: an operand has neither the layout of the result nor one number per channel.
  const Refusal& refused() const { return refused_; }
  // "void* e0, …" with a leading comma: these follow the kernel's own parameters.
  std::string parameters() const;
  // Statements that define `out`, which is called with (offset in the result, channel, x).
  std::string text() const;
  void append(Arguments& arguments, const RunContext& ctx);

 private:
  std::string address(const Operand& o);
  std::string pointer(const Operand& o);
  Dims space_, made_;
  DType dtype_;
  Refusal refused_;
  std::string body_, params_text_;
  std::vector<BindingId> bindings_;
  std::vector<int64_t> numbers_;
  std::vector<Expressions::ParamUse> params_;
  std::vector<void*> pointers_;  // of the current run
  std::vector<uint64_t> values_;
};

}  // namespace pyflame::gpu
