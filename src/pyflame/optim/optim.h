// Optimizers for C++ programs: groups of named parameters, and one fused update per group and step. The state is named
// after the parameters ("exp_avg.blocks.0.ln.weight"), so it does not depend on the order of a module's members.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "pyflame/io/safetensors.h"

namespace pyflame::optim {

// PyTorch's arguments of SGD.
struct SgdOptions {
  double lr = 1e-3, momentum = 0, dampening = 0, weight_decay = 0;
  bool nesterov = false, maximize = false;
};

// Stochastic gradient descent with momentum, as torch.optim.SGD.
class SGD {
 public:
  using Options = SgdOptions;
  SGD(const NamedTensors& params, const Options& options);
  void add_group(const NamedTensors& params, const Options& options);

  void step();       // skips parameters without a gradient; cuts the window at the end
  void zero_grad();  // removes the gradients
  void set_lr(double lr);
  NamedTensors state_dict() const;
  // ValueError that lists every missing, unexpected and misshapen name, before anything is changed.
  void load_state_dict(const NamedTensors& state);

 private:
  struct Entry {
    std::string name;
    Tensor param;
    Tensor momentum;  // undefined before the first step with momentum
  };
  struct Group {
    Options options;
    std::vector<Entry> entries;
  };
  std::vector<Group> groups_;
};

// PyTorch's arguments of Adam and AdamW.
struct AdamOptions {
  double lr = 1e-3, beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0;
  bool maximize = false;
  bool decoupled = false;  // true is AdamW
};

// Adam, as torch.optim.Adam. The methods are those of SGD.
class Adam {
 public:
  using Options = AdamOptions;
  Adam(const NamedTensors& params, const Options& options);
  void add_group(const NamedTensors& params, const Options& options);

  void step();
  void zero_grad();
  void set_lr(double lr);
  NamedTensors state_dict() const;
  void load_state_dict(const NamedTensors& state);

 private:
  struct Entry {
    std::string name;
    Tensor param, exp_avg, exp_avg_sq;
    int64_t step = 0;  // this parameter's number of updates, because it may have had no gradient in some steps
  };
  struct Group {
    Options options;
    std::vector<Entry> entries;
  };
  std::vector<Group> groups_;
};

// Adam with decoupled weight decay; the default is PyTorch's, 0.01.
class AdamW : public Adam {
 public:
  explicit AdamW(const NamedTensors& params, Options options = default_options()) : Adam(params, decouple(options)) {}
  void add_group(const NamedTensors& params, const Options& options) { Adam::add_group(params, decouple(options)); }
  static Options default_options() {
    Options o;
    o.weight_decay = 0.01;
    return o;
  }

 private:
  static Options decouple(Options o) {
    o.decoupled = true;
    return o;
  }
};

}  // namespace pyflame::optim
