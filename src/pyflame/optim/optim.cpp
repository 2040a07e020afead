#include "pyflame/optim/optim.h"

#include <algorithm>
#include <set>

#include "pyflame/base/events.h"
#include "pyflame/record/cut_cause.h"
#include "pyflame/record/recorder.h"
#include "pyflame/tensor/grad_node.h"

namespace pyflame::optim {

namespace {

void check_params(const char* op, const NamedTensors& params) {
  PF_CHECK(!params.empty(), Value, "{}: a parameter group is empty; expected at least one tensor", op);
  for (const auto& [name, t] : params) {
    PF_CHECK(static_cast<bool>(t), Value, "{}: parameter '{}' is undefined; got nothing; expected a tensor", op, name);
    PF_CHECK(t.is_leaf(), Value,
             "{}: parameter '{}' is not a leaf; got a tensor of shape {} that was computed from others; expected a "
             "leaf; hint: detach() makes one",
             op, name, t.shape().str());
  }
}

template <class Groups>
void check_new_names(const char* op, const Groups& groups, const NamedTensors& params) {
  std::set<std::string> names;
  for (const auto& g : groups) {
    for (const auto& e : g.entries) names.insert(e.name);
  }
  for (const auto& [name, t] : params) {
    PF_CHECK(names.insert(name).second, Value,
             "{}: a parameter appears in two groups; got '{}'; expected each name once", op, name);
  }
}

void check_positive(const char* op, const char* what, double v) {
  PF_CHECK(v >= 0, Value, "{}: {} must not be negative; got {}", op, what, v);
}

// A name that a state dict may hold, and what to do with its tensor.
struct Slot {
  Dims shape;
  Tensor* target;
  int64_t* step;
};

void fill_slots(const char* op, std::map<std::string, Slot>& slots, const NamedTensors& state, bool all_needed) {
  std::string problems;
  std::set<std::string> seen;
  for (const auto& [name, t] : state) {
    seen.insert(name);
    const auto it = slots.find(name);
    if (it == slots.end()) {
      problems += fmt::format("\n  unexpected: {}", name);
    } else if (!(it->second.shape == t.shape())) {
      problems += fmt::format("\n  misshapen: {}; got {}; expected {}", name, t.shape().str(), it->second.shape.str());
    }
  }
  for (const auto& [name, slot] : slots) {
    if (all_needed && !seen.contains(name)) problems += fmt::format("\n  missing: {}", name);
  }
  PF_CHECK(problems.empty(), Value, "{}.load_state_dict: the state does not match the parameters:{}", op, problems);
  grad_mode::Guard no_grad(false);
  for (const auto& [name, t] : state) {
    const Slot& slot = slots.at(name);
    if (slot.step) {
      *slot.step = t.item_i64();
    } else {
      *slot.target = clone(t.detach());
    }
  }
}

Tensor scalar_i64(int64_t v) { return from_host(&v, {}, DType::int64); }

}  // namespace

// ---- SGD

SGD::SGD(const NamedTensors& params, const Options& options) { add_group(params, options); }

void SGD::add_group(const NamedTensors& params, const Options& options) {
  check_params("SGD", params);
  check_new_names("SGD", groups_, params);
  check_positive("SGD", "lr", options.lr);
  check_positive("SGD", "momentum", options.momentum);
  check_positive("SGD", "weight_decay", options.weight_decay);
  PF_CHECK(!options.nesterov || (options.momentum > 0 && options.dampening == 0), Value,
           "SGD: nesterov needs a momentum and no dampening; got momentum {}, dampening {}", options.momentum,
           options.dampening);
  Group g{options, {}};
  for (const auto& [name, t] : params) g.entries.push_back({name, t, {}});
  groups_.push_back(std::move(g));
}

void SGD::step() {
  const events::Scope log(events::Kind::Range, "optimizer step");
  for (Group& g : groups_) {
    // The first update of a momentum buffer is a copy, so the entries are updated in two sets.
    for (const bool first : {false, true}) {
      Tensors params, grads, buffers;
      for (Entry& e : g.entries) {
        const Tensor grad = e.param.grad();
        if (!grad || (g.options.momentum != 0 && !e.momentum) != first) continue;
        if (g.options.momentum != 0) {
          if (first) e.momentum = zeros_like(e.param.detach());
          buffers.push_back(e.momentum);
        }
        params.push_back(e.param);
        grads.push_back(grad);
      }
      if (params.empty()) continue;
      const Options& o = g.options;
      sgd_step(params, grads, buffers,
               {.lr = o.lr,
                .momentum = o.momentum,
                .dampening = o.dampening,
                .weight_decay = o.weight_decay,
                .nesterov = o.nesterov,
                .maximize = o.maximize,
                .first = first});
    }
  }
  const CutCause why("the end of the optimizer's step()");
  cut_window();
}

void SGD::zero_grad() {
  for (Group& g : groups_) {
    for (Entry& e : g.entries) e.param.set_grad(Tensor());
  }
}

void SGD::set_lr(double lr) {
  for (Group& g : groups_) g.options.lr = lr;
}

NamedTensors SGD::state_dict() const {
  NamedTensors r;
  for (const Group& g : groups_) {
    for (const Entry& e : g.entries) {
      if (e.momentum) r.emplace_back("momentum_buffer." + e.name, e.momentum);
    }
  }
  return r;
}

void SGD::load_state_dict(const NamedTensors& state) {
  std::map<std::string, Slot> slots;
  for (Group& g : groups_) {
    for (Entry& e : g.entries) slots["momentum_buffer." + e.name] = {e.param.shape(), &e.momentum, nullptr};
  }
  // A buffer exists only after its parameter had a gradient, so a missing buffer is a valid state.
  fill_slots("SGD", slots, state, false);
}

// ---- Adam

Adam::Adam(const NamedTensors& params, const Options& options) { add_group(params, options); }

void Adam::add_group(const NamedTensors& params, const Options& options) {
  check_params("Adam", params);
  check_new_names("Adam", groups_, params);
  check_positive("Adam", "lr", options.lr);
  check_positive("Adam", "eps", options.eps);
  check_positive("Adam", "weight_decay", options.weight_decay);
  PF_CHECK(options.beta1 >= 0 && options.beta1 < 1 && options.beta2 >= 0 && options.beta2 < 1, Value,
           "Adam: betas are out of range; got {} and {}; expected 0 <= beta < 1", options.beta1, options.beta2);
  Group g{options, {}};
  for (const auto& [name, t] : params) {
    g.entries.push_back({name, t, zeros_like(t.detach()), zeros_like(t.detach()), 0});
  }
  groups_.push_back(std::move(g));
}

void Adam::step() {
  const events::Scope log(events::Kind::Range, "optimizer step");
  for (Group& g : groups_) {
    std::map<int64_t, std::vector<Entry*>> by_step;  // nearly always one set
    for (Entry& e : g.entries) {
      if (e.param.grad()) by_step[++e.step].push_back(&e);
    }
    for (const auto& [step, entries] : by_step) {
      Tensors params, grads, m, v;
      for (const Entry* e : entries) {
        params.push_back(e->param);
        grads.push_back(e->param.grad());
        m.push_back(e->exp_avg);
        v.push_back(e->exp_avg_sq);
      }
      const Options& o = g.options;
      adam_step(params, grads, m, v,
                {.lr = o.lr,
                 .beta1 = o.beta1,
                 .beta2 = o.beta2,
                 .eps = o.eps,
                 .weight_decay = o.weight_decay,
                 .step = step,
                 .decoupled = o.decoupled,
                 .maximize = o.maximize});
    }
  }
  const CutCause why("the end of the optimizer's step()");
  cut_window();
}

void Adam::zero_grad() {
  for (Group& g : groups_) {
    for (Entry& e : g.entries) e.param.set_grad(Tensor());
  }
}

void Adam::set_lr(double lr) {
  for (Group& g : groups_) g.options.lr = lr;
}

NamedTensors Adam::state_dict() const {
  NamedTensors r;
  for (const Group& g : groups_) {
    for (const Entry& e : g.entries) {
      r.emplace_back("exp_avg." + e.name, e.exp_avg);
      r.emplace_back("exp_avg_sq." + e.name, e.exp_avg_sq);
      r.emplace_back("step." + e.name, scalar_i64(e.step));
    }
  }
  return r;
}

void Adam::load_state_dict(const NamedTensors& state) {
  std::map<std::string, Slot> slots;
  for (Group& g : groups_) {
    for (Entry& e : g.entries) {
      slots["exp_avg." + e.name] = {e.param.shape(), &e.exp_avg, nullptr};
      slots["exp_avg_sq." + e.name] = {e.param.shape(), &e.exp_avg_sq, nullptr};
      slots["step." + e.name] = {{}, nullptr, &e.step};
    }
  }
  fill_slots("Adam", slots, state, true);
}

}  // namespace pyflame::optim
