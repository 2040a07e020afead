// The processes of a data-parallel run. pyflame.train (python/pyflame/train/_gpt.py) lets them meet and hands the connected sockets over; without it, this
// process is alone. Gradients go through the host's memory.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "pyflame/distributed/group.h"
#include "pyflame/nn/module.h"

namespace pyflame::apps::gpt {

class Ranks {
 public:
  Ranks() = default;
  // `connected`: {"rank", "local_rank", "control", "data", "messages", "memory"}, the arguments of distributed::Group.
  explicit Ranks(const std::string& connected);
  int rank() const { return group_ ? group_->rank() : 0; }
  int size() const { return group_ ? group_->size() : 1; }
  int local_rank() const { return local_rank_; }  // among the processes of this host
  bool first() const { return rank() == 0; }

  // The gradients of the parameters and `values` become their means over all processes.
  void average(const Tensors& parameters, std::vector<float>& values);
  double sum(double value);
  // These tensors of rank 0, in each process.
  NamedTensors of_first(const NamedTensors& tensors);

 private:
  std::unique_ptr<distributed::Group> group_;
  int local_rank_ = 0;
};

}  // namespace pyflame::apps::gpt
