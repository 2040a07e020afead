// The nodes of a group as C++ text. Node i becomes "const pf::C<T> v<i> = …;", a call of a function of
// kernels/device/scalar.h. Each value is rounded to its dtype, so a fused kernel has the same bits as its parts. The
// caller says how an operand in memory is read. A value that an earlier node of the group has written is the variable
// of that node. In an epilogue, the kernel declares v0 itself.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "pyflame/backends/backend.h"

namespace pyflame::gpu {

class Expressions {
 public:
  // Text for an operand's value at the current point, of type pf::C<its stored type>.
  using Read = std::function<std::string(const Operand&)>;
  // `index`: text for the linear index of the point (ops without inputs depend on it).
  Expressions(const Problem& p, Read read, std::string index = "0")
      : p_(p), read_(std::move(read)), index_(std::move(index)) {}

  std::string declare(size_t i);
  // Takes the arguments of other texts of the same kernel, in their order.
  void share_arguments(const Expressions& other) { params_ = other.params_; }
  // What is declared once for the `count` neighbours from the linear index `first` on: random numbers, which share their work. declare(i) of
  // neighbour j then takes its number. Empty for other nodes.
  std::string declare_neighbours(size_t i, int64_t count, const std::string& first);
  // Text for an input of node i: a param, the variable of an earlier node, or memory.
  std::string value(size_t i, const Operand& o);
  // The node that writes a binding before node i; -1: the value is read from memory.
  int writer(size_t i, BindingId binding) const;
  // Whether the result of node i must be stored.
  bool stored(size_t i) const;

  // The params in the order in which the texts used them. As kernel arguments: "double p0, long long p1, ", each 8
  // bytes.
  std::string arguments() const;
  struct ParamUse {
    ParamId param;
    bool real;
    uint64_t bits(Params params) const;
  };
  const std::vector<ParamUse>& params() const { return params_; }

 private:
  std::string param(ParamId id, bool real);
  std::string source(size_t i);
  const Problem& p_;
  Read read_;
  std::string index_;
  std::vector<ParamUse> params_;
  std::vector<size_t> neighbours_;  // the nodes of declare_neighbours
};

}  // namespace pyflame::gpu
