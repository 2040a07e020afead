// The backward pass. It visits nodes by descending sequence number, which is a topological order because edges only
// point to older nodes. Gradients of the same output are added in the order in which they arrive. A leaf's total is
// added to .grad once, at the end.
#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "pyflame/autograd/autograd.h"
#include "pyflame/autograd/ready.h"
#include "pyflame/base/events.h"

#include "pyflame/base/location.h"
#include "pyflame/ops/ops.h"
#include "pyflame/record/cut_cause.h"
#include "pyflame/record/recorder.h"
#include "pyflame/tensor/alias.h"

namespace pyflame::autograd {

namespace {

std::atomic<bool> g_anomaly{false};

void check_no_nan(const GradNode& node, const Tensor& g) {
  if (!g || !is_float(g.dtype())) return;
  grad_mode::Guard off(false);
  PF_CHECK(any(isnan(g)).item_i64() == 0, Runtime, "{}: its gradient has NaN values; recorded at {}", node.name,
           describe_location(node.loc));
}

// Hooks that run after .grad of a leaf was added to. A leaf is known by its list of hooks, so that an entry ends with it.
struct PostHooks {
  using List = std::vector<std::function<void()>>;
  std::mutex mutex;
  std::map<std::weak_ptr<std::vector<TensorHook>>, List, std::owner_less<>> of;
};
PostHooks& post_hooks() {
  static auto& all = *new PostHooks;  // leaked: programs compute in exit handlers
  return all;
}
std::atomic<bool> g_any_post_hook{false};

// The same for hooks that run when a leaf's gradient is whole.
struct ReadyHooks {
  using List = std::vector<std::function<void(const Tensor&)>>;
  std::mutex mutex;
  std::map<std::weak_ptr<std::vector<TensorHook>>, List, std::owner_less<>> of;
};
ReadyHooks& ready_hooks() {
  static auto& all = *new ReadyHooks;  // leaked: programs compute in exit handlers
  return all;
}
std::atomic<bool> g_any_ready_hook{false};

// A list may be there for the hooks of others, which know a leaf by it.
bool any_hook(const std::vector<TensorHook>& hooks) {
  return std::any_of(hooks.begin(), hooks.end(), [](const TensorHook& h) { return bool(h); });
}

void run_ready_hooks(const Tensor& leaf, const Tensor& g) {
  const AutogradMeta& m = autograd_meta(leaf);
  if (!m.hooks || any_hook(*m.hooks)) return;  // a hook that may replace the gradient runs at the end
  ReadyHooks::List now;
  {
    const std::lock_guard lock(ready_hooks().mutex);
    const auto at = ready_hooks().of.find(m.hooks);
    if (at != ready_hooks().of.end()) now = at->second;
  }
  for (const auto& hook : now)
    if (hook) hook(g);
}

std::vector<std::function<void()>>& at_end() {
  thread_local std::vector<std::function<void()>> t_at_end;
  return t_at_end;
}

int64_t& pass_number() {
  thread_local int64_t t_number = 0;  // 0: no pass runs
  return t_number;
}

// What the hooks of a backward pass asked to be run at its end. It is forgotten when one of them raises. A hook may start a
// backward pass of its own, which has another number and leaves the outer one's list alone.
class RunsAtEnd {
 public:
  RunsAtEnd() : outer_(std::exchange(at_end(), {})), outer_number_(std::exchange(pass_number(), ++last_)) {}
  ~RunsAtEnd() {
    at_end() = std::move(outer_);
    pass_number() = outer_number_;
  }
  RunsAtEnd(const RunsAtEnd&) = delete;
  RunsAtEnd& operator=(const RunsAtEnd&) = delete;
  static void run() {
    const std::vector<std::function<void()>> now = std::exchange(at_end(), {});
    for (const auto& fn : now) fn();
  }

 private:
  std::vector<std::function<void()>> outer_;
  int64_t outer_number_;
  inline static std::atomic<int64_t> last_ = 0;
};

void run_post_hooks(const Tensor& leaf) {
  const AutogradMeta& m = autograd_meta(leaf);
  if (!m.hooks) return;
  PostHooks::List now;
  {
    const std::lock_guard lock(post_hooks().mutex);
    const auto at = post_hooks().of.find(m.hooks);
    if (at != post_hooks().of.end()) now = at->second;
  }
  for (const auto& hook : now)
    if (hook) hook();
}

void accumulate(Tensor& into, const Tensor& g) { into = into ? add(into, g) : g; }

Tensor run_hooks(const std::vector<TensorHook>& hooks, Tensor g) {
  // A hook may remove itself during the iteration. NOLINTNEXTLINE(performance-unnecessary-copy-initialization)
  const std::vector<TensorHook> now = hooks;
  for (const TensorHook& h : now) {
    if (!h) continue;
    const Tensor r = h(g);
    if (!r) continue;
    PF_CHECK(r.shape() == g.shape(), Runtime, "hook: the returned gradient has another shape; got {}; expected {}",
             r.shape().str(), g.shape().str());
    g = r;
  }
  return g;
}

template <class K, class V>
using Map = std::unordered_map<K, V, std::hash<K>, std::equal_to<K>, Pooled<std::pair<const K, V>>>;
template <class K>
using Set = std::unordered_set<K, std::hash<K>, std::equal_to<K>, Pooled<K>>;

class Walk {
 public:
  // targets: edges whose gradient is wanted (grad()); empty: accumulate into leaves (backward()).
  Walk(bool retain, bool create) : retain_(retain), create_(create) {}

  void want(const Tensor& t) {
    if (const Ref<GradNode> fn = t.grad_fn()) wanted_nodes_[fn.get()][autograd_meta(t).output_nr] = Tensor();
    else wanted_leaves_[t.impl()] = Tensor();
    only_wanted_ = true;
  }
  Tensor result(const Tensor& t) const {
    if (const Ref<GradNode> fn = t.grad_fn()) return wanted_nodes_.at(fn.get()).at(autograd_meta(t).output_nr);
    return wanted_leaves_.at(t.impl());
  }

  void seed(const Tensor& output, const Tensor& gradient) {
    if (const Ref<GradNode> fn = output.grad_fn()) {
      arrive(fn, autograd_meta(output).output_nr, gradient);
    } else {
      leaf(output, gradient);
    }
  }

  void run() {
    const RunsAtEnd scope;
    if (g_any_ready_hook && !only_wanted_ && !create_) count_edges_to_leaves();
    if (only_wanted_) find_leading();
    collect();
    grad_mode::Guard mode(create_, false);
    // After the last hook, so that a failure before leaves every .grad unchanged.
    for (Tensor& t : leaf_order_) {
      const AutogradMeta& m = autograd_meta(t);
      Tensor& g = (only_wanted_ ? wanted_leaves_ : leaves_).at(t.impl());
      if (m.hooks && any_hook(*m.hooks)) g = call_hooks(*m.hooks, g);
    }
    for (auto& [to, g] : retained_) {  // it adds up over backward passes, as a leaf's gradient does
      const Tensor total = *to ? add(*to, g) : g;
      *to = create_ ? total : total.detach();
    }
    if (!only_wanted_) deposit_all();
    RunsAtEnd::run();
  }

  // The backward pass that runs on this thread. A checkpoint that runs inside it belongs to it.
  static Walk*& current() {
    thread_local Walk* t_current = nullptr;
    return t_current;
  }

  // Runs as a part of another backward pass: the gradients of `own` are returned, all others belong to the outer pass.
  Tensors run_within(Walk& outer, const Tensors& own) {
    collect();
    outer.retained_.insert(outer.retained_.end(), retained_.begin(), retained_.end());
    outer.seeds_.insert(seeds_.begin(), seeds_.end());
    Tensors result;
    for (const Tensor& t : own) {
      auto it = t ? leaves_.find(t.impl()) : leaves_.end();
      result.push_back(it == leaves_.end() ? Tensor() : std::move(it->second));
      if (it != leaves_.end()) leaves_.erase(it);
    }
    for (const Tensor& t : leaf_order_)
      if (auto it = leaves_.find(t.impl()); it != leaves_.end()) outer.leaf(t, it->second);
    return result;
  }

 private:
  void collect() {
    struct Current {
      Walk* before;
      explicit Current(Walk* now) : before(std::exchange(current(), now)) {}
      ~Current() { current() = before; }
    } here(this);
    grad_mode::Guard mode(create_, false);
    while (!ready_.empty()) {
      const auto newest = ready_.extract(ready_.begin());
      step(*newest.mapped().node, newest.mapped().grads);
    }
  }

  // How many gradients each leaf gets. What a checkpoint gives to leaves is not known before it runs, so then nothing is counted.
  void count_edges_to_leaves() {
    std::vector<const GradNode*> open;
    Set<const GradNode*> seen;
    const auto visit = [&](const Ref<GradNode>& n) {
      if (seen.insert(n.get()).second) open.push_back(n.get());
    };
    for (const auto& [sequence, r] : ready_) visit(r.node);
    while (!open.empty()) {
      const GradNode* n = open.back();
      open.pop_back();
      if (n->run_always) return missing_.clear();
      for (const Edge& e : n->edges) {
        if (e.node) visit(e.node);
        else if (e.leaf) ++missing_[e.leaf.impl()];
      }
    }
  }

  // The nodes from which a wanted gradient is reached. grad() runs and frees no others: what lies behind its inputs stays for
  // a later pass. An edge goes to a node that was recorded before, so the oldest nodes come first.
  void find_leading() {
    std::vector<const GradNode*> nodes;
    Set<const GradNode*> seen;
    const auto visit = [&](const GradNode* n) {
      if (seen.insert(n).second) nodes.push_back(n);
    };
    for (const auto& [sequence, r] : ready_) visit(r.node.get());
    for (size_t i = 0; i < nodes.size(); ++i) {
      const GradNode* n = nodes[i];  // visit() may move the elements
      for (const Edge& e : n->edges)
        if (e.node) visit(e.node.get());
    }
    std::sort(nodes.begin(), nodes.end(),
              [](const GradNode* a, const GradNode* b) { return a->sequence < b->sequence; });
    for (const GradNode* n : nodes)
      if (n->run_always || std::any_of(n->edges.begin(), n->edges.end(), [&](const Edge& e) { return leads(e); }))
        leading_.insert(n);
  }

  // Whether a gradient that is wanted lies at the edge or behind it.
  bool leads(const Edge& e) const {
    if (!only_wanted_) return e.needed();
    if (e.node) return wanted_nodes_.count(e.node.get()) || leading_.count(e.node.get());
    return e.leaf && wanted_leaves_.count(e.leaf.impl());
  }

  struct Ready {
    Ref<GradNode> node;
    Tensors grads;
  };

  void arrive(const Ref<GradNode>& node, uint32_t index, const Tensor& g) {
    auto [it, added] = ready_.try_emplace(node->sequence);
    Ready& r = it->second;
    if (added) {
      r.node = node;
      r.grads.resize(node->outputs.size());
    }
    accumulate(r.grads[index], g);
  }

  void leaf(const Tensor& t, const Tensor& g) {
    if (only_wanted_) {
      auto it = wanted_leaves_.find(t.impl());
      if (it == wanted_leaves_.end()) return;
      if (!it->second) leaf_order_.push_back(t);
      accumulate(it->second, g);
      return;
    }
    auto [it, added] = leaves_.try_emplace(t.impl());
    if (added) leaf_order_.push_back(t);
    accumulate(it->second, g);
    if (missing_.empty()) return;
    const auto missing = missing_.find(t.impl());
    if (missing != missing_.end() && --missing->second == 0) run_ready_hooks(t, borrow(it->second));
  }

  void deposit_all() {
    for (Tensor& t : leaf_order_) deposit(t, leaves_.at(t.impl()));
    if (!g_any_post_hook && !g_any_ready_hook) return;
    for (const Tensor& t : leaf_order_) run_post_hooks(t);
  }

  void deposit(const Tensor& t, Tensor g) {
    AutogradMeta& m = autograd_meta(t);
    if (!create_ && g.requires_grad()) g = g.detach();
    if (!m.grad) {
      // The gradient must belong to this leaf alone: not a view, and not shared with another leaf or with a node.
      const bool same_layout = g.is_contiguous() || g.impl()->free_layout || g.strides() == t.strides();
      const bool own = !create_ && same_layout && g.offset() == 0 &&
                       g.nbytes() == static_cast<int64_t>(g.storage()->nbytes) &&
                       given_.insert(g.storage().get()).second && !seeds_.count(g.storage().get());
      m.grad = own || create_ ? g : clone(g);
    } else if (create_) {
      m.grad = add(m.grad, g);
    } else {
      copy_(m.grad, add(m.grad, g));
    }
  }

  // A hook may keep the tensor that it saw or returned, so such a tensor must not become a .grad that later steps add
  // to.
  Tensor call_hooks(const std::vector<TensorHook>& hooks, const Tensor& g) {
    seeds_.insert(g.storage().get());
    Tensor r = run_hooks(hooks, g);
    seeds_.insert(r.storage().get());
    return r;
  }

  void step(GradNode& node, Tensors& grads) {
    for (auto& [index, hooks] : node.hooks)
      if (grads[index]) grads[index] = call_hooks(*hooks, grads[index]);
    for (size_t i = 0; i < node.retained.size(); ++i)
      if (const Tensor& g = grads[node.retained[i]]) {
        seeds_.insert(g.storage().get());
        retained_.emplace_back(node.retained_grads[i], create_ ? g : g.detach());
      }
    if (!retain_) {
      node.retained.clear();
      node.retained_grads.clear();
    }
    auto wanted = wanted_nodes_.find(&node);
    if (wanted != wanted_nodes_.end())
      for (auto& [index, g] : wanted->second) g = grads[index];
    bool goes_on = node.run_always;
    for (const Edge& e : node.edges) goes_on |= leads(e);
    if (!goes_on) return;
    struct Forgets {
      GradNode& node;
      ~Forgets() { node.forget_unpacked(); }
    };
    Tensors result;
    {
      const Forgets after{node};
      result = node.apply(grads);
    }
    if (g_anomaly)
      for (const Tensor& g : result) check_no_nan(node, g);
    PF_CHECK(result.size() <= node.edges.size(), Runtime,
             "{}: backward returned too many gradients; got {}; expected at most {}; recorded at {}", node.name,
             result.size(), node.edges.size(), describe_location(node.loc));
    for (size_t i = 0; i < result.size(); ++i) {
      const Edge& e = node.edges[i];
      if (!result[i] || !leads(e)) continue;
      if (e.node) {
        const GradNode::OutputMeta& want_meta = e.node->outputs[e.index];
        check(node, result[i], want_meta.shape);
        arrive(e.node, e.index, result[i].dtype() == want_meta.dtype ? result[i] : cast(result[i], want_meta.dtype));
      } else {
        check(node, result[i], e.leaf.shape());
        leaf(e.leaf, result[i].dtype() == e.leaf.dtype() ? result[i] : cast(result[i], e.leaf.dtype()));
      }
    }
    if (!retain_) node.free_saved();
  }

  static void check(const GradNode& node, const Tensor& g, const Dims& shape) {
    PF_CHECK(g.shape() == shape, Runtime,
             "{}: backward returned a gradient of the wrong shape; got {}; expected {}; recorded at {}", node.name,
             g.shape().str(), shape.str(), describe_location(node.loc));
  }

 public:
  Set<const Storage*> seeds_;  // storages that the caller passed: they never become a .grad

 private:
  bool retain_, create_, only_wanted_ = false;
  std::map<uint64_t, Ready, std::greater<>, Pooled<std::pair<const uint64_t, Ready>>> ready_;  // by sequence
  Map<const TensorImpl*, Tensor> leaves_, wanted_leaves_;
  Map<const TensorImpl*, size_t> missing_;  // gradients that a leaf still gets; empty: not known
  std::unordered_map<const GradNode*, std::unordered_map<uint32_t, Tensor>> wanted_nodes_;
  Set<const GradNode*> leading_;  // of grad(): nodes from which a wanted gradient is reached
  Tensors leaf_order_;
  std::vector<std::pair<std::shared_ptr<Tensor>, Tensor>> retained_;
  Set<const Storage*> given_;
};

Tensor seed_gradient(const char* op, const Tensor& output, const Tensor& given) {
  PF_CHECK(output.requires_grad(), Runtime,
           "{}: the output does not require grad; got a tensor of shape {} without history; hint: requires_grad=True "
           "on what it was "
           "computed from, and no no_grad() around it",
           op, output.shape().str());
  if (given) {
    PF_CHECK(given.shape() == output.shape(), Runtime,
             "{}: the gradient's shape is not the output's; got {}; expected {}", op, given.shape().str(),
             output.shape().str());
    PF_CHECK(given.device() == output.device(), Value, "{}: the gradient is on another device; got {}; expected {}", op,
             given.device().str(), output.device().str());
    return given.dtype() == output.dtype() ? given : cast(given, output.dtype());
  }
  PF_CHECK(output.numel() == 1, Runtime,
           "{}: a gradient can be made up for one element only; got an output of shape {}; expected one element; hint: "
           "pass gradient=, or "
           "take .sum() first",
           op, output.shape().str());
  PF_CHECK(
      !is_complex(output.dtype()), Runtime,
      "{}: a gradient can be made up for a real output only; got {}; expected a real loss; hint: pass gradient=, or "
      "take .abs() or .real first",
      op, dtype_name(output.dtype()));
  return ones_like(output);
}

void seed_all(const char* op, Walk& walk, const Tensors& outputs, const Tensors& grads) {
  PF_CHECK(grads.empty() || grads.size() == outputs.size(), Value,
           "{}: numbers of outputs and gradients differ; got {} and {}", op, outputs.size(), grads.size());
  for (size_t i = 0; i < outputs.size(); ++i) {
    const Tensor given = grads.empty() ? Tensor() : grads[i];
    const Tensor g = seed_gradient(op, outputs[i], given);
    if (given) walk.seeds_.insert(given.storage().get());
    walk.seed(outputs[i], g);
  }
}

}  // namespace

void backward(const Tensors& outputs, const Tensors& grads, bool retain_graph, bool create_graph) {
  const events::Scope log(events::Kind::Range, "backward");
  Walk walk(retain_graph || create_graph, create_graph);
  {
    grad_mode::Guard off(create_graph, false);
    seed_all("backward", walk, outputs, grads);
  }
  walk.run();
  const CutCause why("the end of backward()");
  cut_window();
}

Tensors grad(const Tensors& outputs, const Tensors& inputs, const Tensors& grad_outputs, bool retain_graph,
             bool create_graph, bool allow_unused) {
  Walk walk(retain_graph || create_graph, create_graph);
  for (size_t i = 0; i < inputs.size(); ++i) {
    PF_CHECK(inputs[i].requires_grad(), Runtime,
             "grad: input {} does not require grad; got a tensor of shape {}; hint: requires_grad=True", i,
             inputs[i].shape().str());
    walk.want(inputs[i]);
  }
  {
    grad_mode::Guard off(create_graph, false);
    seed_all("grad", walk, outputs, grad_outputs);
  }
  walk.run();
  Tensors result;
  for (size_t i = 0; i < inputs.size(); ++i) {
    result.push_back(walk.result(inputs[i]));
    PF_CHECK(result.back() || allow_unused, Runtime,
             "grad: input {} was not used to compute the outputs; got a tensor of shape {}; hint: allow_unused=True "
             "gives None for it",
             i, inputs[i].shape().str());
  }
  return result;
}

// ---- checkpoint: the function is not taped; backward runs it again with the saved random state.

Tensors checkpoint(const std::function<Tensors(const Tensors&)>& fn, const Tensors& inputs) {
  const RngState rng = get_rng_state();
  Tensors outputs;
  if (!grad_mode::enabled()) return fn(inputs);
  {
    grad_mode::Guard off(false, false);
    outputs = fn(inputs);
  }
  // New handles, because fn may return an input or a parameter, which must keep its own history.
  for (Tensor& t : outputs)
    if (t) t = t.detach();
  auto again = [fn, rng](GradNode& node, const Tensors& grads) -> Tensors {
    PF_CHECK(!grad_mode::enabled(), NotImplemented,
             "checkpoint: its gradient cannot be differentiated again; got create_graph=True; hint: call the function "
             "without checkpoint");
    Tensors detached;
    for (size_t i = 0; i < node.saved_tensors.size(); ++i) {
      const Tensor saved = node.saved(i);
      if (!saved) {
        detached.push_back(saved);
        continue;
      }
      Tensor d = borrow(saved);
      if (node.needs(i)) d.set_requires_grad(true);
      detached.push_back(d);
    }
    Tensors outs;
    {
      struct Restore {
        RngState now = get_rng_state();
        ~Restore() { set_rng_state(now); }
      } restore;
      grad_mode::Guard on(true, false);
      set_rng_state(rng);
      outs = fn(detached);
    }
    Tensors used, used_grads;
    for (size_t i = 0; i < outs.size(); ++i)
      if (grads[i] && outs[i].requires_grad()) {
        used.push_back(outs[i]);
        used_grads.push_back(grads[i]);
      }
    Walk walk(false, false);
    {
      grad_mode::Guard off(false, false);
      seed_all("checkpoint", walk, used, used_grads);
    }
    PF_CHECK(Walk::current(), Runtime, "checkpoint: its node is run outside of a backward pass");
    return walk.run_within(*Walk::current(), detached);
  };
  std::vector<std::reference_wrapper<const Tensor>> ins(inputs.begin(), inputs.end()), outs;
  for (const Tensor& t : outputs)
    if (t && has_gradient(t.dtype())) outs.emplace_back(t);
  auto node = Ref<GradNode>(new FnNode<decltype(again)>("checkpoint", std::move(again)));
  node->run_always = true;  // parameters that are used inside are not edges of this node
  attach_node(node, ins, outs, ins);
  return outputs;
}

// ---- hooks

size_t register_hook(const Tensor& t, TensorHook hook) {
  PF_CHECK(t.requires_grad(), Runtime,
           "register_hook: the tensor does not require grad; got shape {}; hint: requires_grad=True", t.shape().str());
  AutogradMeta& m = autograd_meta(t);
  std::shared_ptr<std::vector<TensorHook>> list;
  if (const Ref<GradNode> fn = t.grad_fn()) {
    for (auto& [index, hooks] : fn->hooks)
      if (index == m.output_nr) list = hooks;
    if (!list) {
      list = std::make_shared<std::vector<TensorHook>>();
      fn->hooks.emplace_back(m.output_nr, list);
    }
    m.hooks = list;
  } else {
    if (!m.hooks) m.hooks = std::make_shared<std::vector<TensorHook>>();
    list = m.hooks;
  }
  list->push_back(std::move(hook));
  return list->size() - 1;
}

void remove_hook(const Tensor& t, size_t id) {
  AutogradMeta& m = autograd_meta(t);
  if (m.hooks && id < m.hooks->size()) (*m.hooks)[id] = nullptr;
}

void retain_grad(const Tensor& t) {
  const Ref<GradNode> fn = t.grad_fn();
  if (!fn) return;  // a leaf keeps its gradient in any case
  AutogradMeta& m = autograd_meta(t);
  if (!m.retained_grad) m.retained_grad = std::make_shared<Tensor>(m.grad);
  for (size_t i = 0; i < fn->retained.size(); ++i)
    if (fn->retained[i] == m.output_nr && fn->retained_grads[i] == m.retained_grad) return;
  fn->retained.push_back(m.output_nr);
  fn->retained_grads.push_back(m.retained_grad);
}

size_t register_post_hook(const Tensor& leaf, std::function<void()> hook) {
  AutogradMeta& m = autograd_meta(leaf);
  if (!m.hooks) m.hooks = std::make_shared<std::vector<TensorHook>>();
  const std::lock_guard lock(post_hooks().mutex);
  std::erase_if(post_hooks().of, [](const auto& entry) { return entry.first.expired(); });
  PostHooks::List& list = post_hooks().of[m.hooks];
  list.push_back(std::move(hook));
  g_any_post_hook = true;
  return list.size() - 1;
}

size_t register_ready_hook(const Tensor& leaf, std::function<void(const Tensor&)> hook) {
  AutogradMeta& m = autograd_meta(leaf);
  if (!m.hooks) m.hooks = std::make_shared<std::vector<TensorHook>>();
  const std::lock_guard lock(ready_hooks().mutex);
  std::erase_if(ready_hooks().of, [](const auto& entry) { return entry.first.expired(); });
  ReadyHooks::List& list = ready_hooks().of[m.hooks];
  list.push_back(std::move(hook));
  g_any_ready_hook = true;
  return list.size() - 1;
}

void remove_ready_hook(const Tensor& leaf, size_t id) {
  const AutogradMeta& m = autograd_meta(leaf);
  const std::lock_guard lock(ready_hooks().mutex);
  const auto at = m.hooks ? ready_hooks().of.find(m.hooks) : ready_hooks().of.end();
  if (at != ready_hooks().of.end() && id < at->second.size()) at->second[id] = nullptr;
}

void run_at_end(std::function<void()> fn) {
  PF_CHECK(pass_number(), Runtime,
           "run_at_end: no backward pass runs on this thread; got a call outside of one; expected a call in a hook");
  at_end().push_back(std::move(fn));
}

int64_t current_pass() { return pass_number(); }

void remove_post_hook(const Tensor& leaf, size_t id) {
  const AutogradMeta& m = autograd_meta(leaf);
  const std::lock_guard lock(post_hooks().mutex);
  const auto at = m.hooks ? post_hooks().of.find(m.hooks) : post_hooks().of.end();
  if (at != post_hooks().of.end() && id < at->second.size()) at->second[id] = nullptr;
}

bool anomaly_detection() { return g_anomaly; }
void set_anomaly_detection(bool on) { g_anomaly = on; }

}  // namespace pyflame::autograd
