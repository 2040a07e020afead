// Nodes of a group as C++ text: node i becomes "const pf::C<T> v<i> = …;", calls of kernels/device/scalar.h's functions, each rounded
// to its declared dtype, so that a fused kernel has the bits of its parts. Whoever writes a kernel says how an operand in memory is
// read; a value that an earlier node of the group has written is that node's variable. In an epilogue the kernel declares v0 itself.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "pyflame/backends/backend.h"

namespace pyflame::gpu {

class Expressions {
 public:
  // Text of an operand's value at the current point, of type pf::C<its stored type>.
  using Read = std::function<std::string(const Operand&)>;
  // `index`: text of the point's linear index (sources of numbers depend on it).
  Expressions(const Problem& p, Read read, std::string index = "0")
      : p_(p), read_(std::move(read)), index_(std::move(index)) {}

  std::string declare(size_t i);
  // An input as node i sees it: a parameter, an earlier node's variable, or memory.
  std::string value(size_t i, const Operand& o);
  // The node that gives a binding its value before node i, or -1: it is read from memory.
  int writer(size_t i, int32_t binding) const;
  // Must the result of node i be written to memory?
  bool stored(size_t i) const;

  // Parameters in the order in which the texts met them: kernel arguments "double p0, long long p1, ", each 8 bytes.
  std::string arguments() const;
  struct ParamUse {
    int32_t index;
    bool real;
    uint64_t bits(const Param* params) const;
  };
  const std::vector<ParamUse>& params() const { return params_; }

 private:
  std::string param(int32_t index, bool real);
  std::string source(size_t i);
  const Problem& p_;
  Read read_;
  std::string index_;
  std::vector<ParamUse> params_;
};

}  // namespace pyflame::gpu
