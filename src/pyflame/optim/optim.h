// Optimizers for C++ programs: groups of named parameters, one fused update a group and step. Their state is named after the
// parameters ("exp_avg.blocks.0.ln.weight"), so that it survives a change in the order of a module's members.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "pyflame/io/safetensors.h"

namespace pyflame::optim {

struct SgdOptions {
  double lr = 1e-3, momentum = 0, dampening = 0, weight_decay = 0;
  bool nesterov = false, maximize = false;
};

class SGD {
 public:
  using Options = SgdOptions;
  SGD(const NamedTensors& params, const Options& options);
  void add_group(const NamedTensors& params, const Options& options);

  void step();       // parameters without a gradient are left alone; ends with a cut of the window
  void zero_grad();  // drops the gradients
  void set_lr(double lr);
  NamedTensors state_dict() const;
  // ValueError lists every missing, unexpected and misshapen name before anything is changed.
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

struct AdamOptions {
  double lr = 1e-3, beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0;
  bool maximize = false;
  bool decoupled = false;  // true is AdamW
};

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
    int64_t step = 0;  // counts this parameter's updates, as it may have had no gradient in some steps
  };
  struct Group {
    Options options;
    std::vector<Entry> entries;
  };
  std::vector<Group> groups_;
};

// Adam with decoupled weight decay; PyTorch's default of 0.01 where options are not given.
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
