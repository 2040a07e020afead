// Runs fused Loop groups by generated kernels.
#include "pyflame/backends/gpu/loops/loop.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <mutex>
#include <set>

#include "pyflame/backends/gpu/jit/kernel.h"
#include "pyflame/backends/gpu/loops/interpret.h"
#include "pyflame/backends/gpu/loops/loop_shape.h"
#include "pyflame/backends/gpu/loops/loop_text.h"
#include "pyflame/backends/gpu/shapes/layout.h"
#include "pyflame/base/env.h"
#include "pyflame/base/error.h"

namespace pyflame::gpu {

namespace {

constexpr int kMaxPointers = 64;

// A kernel with its arguments prepared; a run fills in pointers and params.
class Launch {
 public:
  Launch(DeviceType type, LoopKernel k)
      : grid_(k.grid), aligned_(std::move(k.aligned)), kernel_(type, kGroupThreads, std::move(k.source)) {
    words_.resize(2 * k.arguments.size());
    for (size_t i = 0; i < k.arguments.size(); ++i) {
      const LoopArgument& a = k.arguments[i];
      words_[2 * i] = a.value[0], words_[2 * i + 1] = a.value[1];
      if (a.kind == LoopArgument::Pointer) pointers_.push_back({2 * i, a.binding});
      if (a.kind == LoopArgument::Workspace) workspaces_.push_back({2 * i, a.value[0]});
      if (a.kind == LoopArgument::Parameter) params_.push_back({2 * i, a.param});
    }
    for (size_t i = 0; i < k.arguments.size(); ++i)
      arguments_.push_back(&words_[2 * i]), sizes_.push_back(k.arguments[i].bytes);
  }

  bool ready(int device_index) const { return kernel_.ready(device_index); }
  bool aligned(const RunContext& ctx) const {
    for (const auto& a : aligned_)
      if (reinterpret_cast<uintptr_t>(ctx.bindings[a.binding]) % a.bytes != 0) return false;
    return true;
  }

  void run(const RunContext& ctx) {
    for (const auto& [at, binding] : pointers_) words_[at] = reinterpret_cast<uint64_t>(ctx.bindings[binding]);
    for (const auto& [at, offset] : workspaces_) words_[at] = reinterpret_cast<uint64_t>(ctx.workspace) + offset;
    for (const auto& [at, use] : params_) words_[at] = use.bits(ctx.params);
    kernel_.run(ctx.device, grid_, arguments_.data(), sizes_);
  }

 private:
  std::array<unsigned, 3> grid_;
  std::vector<LoopKernel::Alignment> aligned_;
  Kernel kernel_;
  std::vector<uint64_t> words_;
  std::vector<void*> arguments_;
  std::vector<uint32_t> sizes_;
  struct PointerAt {
    size_t word;
    BindingId binding;
  };
  struct OffsetAt {
    size_t word;
    uint64_t offset;
  };
  struct ParamAt {
    size_t word;
    Expressions::ParamUse use;
  };
  std::vector<PointerAt> pointers_;
  std::vector<OffsetAt> workspaces_;
  std::vector<ParamAt> params_;
};

class Loop final : public Executable {
 public:
  Loop(DeviceType type, LoopPlan vectors, LoopPlan scalars, std::unique_ptr<Interpreter> meanwhile)
      : type_(type),
        workspace_(std::max(vectors.workspace, scalars.workspace)),
        scalar_plan_(std::move(scalars)),
        meanwhile_(std::move(meanwhile)) {
    for (LoopKernel& k : vectors.kernels) vectors_.push_back(std::make_unique<Launch>(type, std::move(k)));
  }
  size_t workspace() const override { return workspace_; }
  bool capturable() const override { return !meanwhile_; }  // a graph would keep the interpreter
  void end_stand_in() override { meanwhile_.reset(); }
  void run(const RunContext& ctx) override {
    if (!ready_ && !become_ready(ctx)) return;
    for (size_t i = 0; i < vectors_.size(); ++i) {
      if (vectors_[i]->aligned(ctx)) vectors_[i]->run(ctx);
      else scalar(i).run(ctx);
    }
  }

 private:
  // False if the interpreter has run the group, because the kernels are not ready.
  bool become_ready(const RunContext& ctx) {
    bool ready = true;
    for (const auto& v : vectors_) ready &= v->ready(ctx.device);
    if (!ready && meanwhile_ && meanwhile_->ready(ctx.device)) {
      meanwhile_->run(ctx);
      return false;
    }
    if (!ready && !meanwhile_ && env::interpret() && env::debug() >= 1) {
      static std::once_flag once;
      std::call_once(once, [] { fmt::print(stderr, "pyflame: a fused group waits for its kernel to be compiled\n"); });
    }
    ready_ = true;
    meanwhile_.reset();
    return true;
  }
  // For unaligned pointers (slices at odd offsets); made at the first such run.
  Launch& scalar(size_t i) {
    scalars_.resize(vectors_.size());
    if (!scalars_[i]) scalars_[i] = std::make_unique<Launch>(type_, scalar_plan_.kernels[i]);
    return *scalars_[i];
  }
  DeviceType type_;
  size_t workspace_;
  LoopPlan scalar_plan_;
  std::unique_ptr<Interpreter> meanwhile_;  // for groups of elementwise nodes only
  bool ready_ = false;
  std::vector<std::unique_ptr<Launch>> vectors_, scalars_;
};

// A reduction over no elements: gives the neutral element, or an error if there is none.
class EmptyReduction final : public Executable {
 public:
  explicit EmptyReduction(const Problem& p)
      : op_(p.root().op), out_(p.root().outs[0]), kernel_(p.graph.device.type, kGroupThreads, text(p.root())) {}
  void run(const RunContext& ctx) override {
    const int64_t n = out_.shape.numel();
    if (n == 0) return;
    PF_CHECK(op_ != OpId::amax && op_ != OpId::amin, Value,
             "{}: reduction over no elements; expected at least one element in each reduced dim", op_name(op_));
    kernel_.launch(ctx.device, {groups_for(n, kGroupThreads), 1, 1}, ctx.bindings[out_.binding], n,
                   view_of(out_.shape, out_.strides));
  }

 private:
  static std::string text(const Node& n) {
    return kernel_source({"device/divider.h", "loop/loop.h"}, kGroupThreads,
                         fmt::format("(void* out, pf::i64 n, pf::View v) {{ for (pf::i64 i = pf::group().x * 256ll + "
                                     "pf::thread(); i < n; i += pf::groups().x * 256ll) pf::store(({0}*)out + v.at(i), "
                                     "pf::as<{0}>({1}::start())); }}",
                                     stored_type(n.outs[0].dtype), reduction_op(n)));
  }
  OpId op_;
  Operand out_;
  Kernel kernel_;
};

Refusal accepts(const Problem& p) {
  if (p.group.kind != GroupKind::Loop) return "not a loop of elementwise ops and reductions";
  std::set<BindingId> bindings, written;
  bool passes = false;
  for (size_t i = 0; i < p.size(); ++i) {
    passes |= p.group.roles[i] != Role::Map;
    for (const Operand& o : p.node(i).ins)
      if (!o.is_param) bindings.insert(o.binding);
    for (const Operand& o : p.node(i).outs) bindings.insert(o.binding), written.insert(o.binding);
  }
  if (static_cast<int>(bindings.size()) > kMaxPointers) return "more operands than a kernel takes";
  if (!passes || p.size() == 1) return std::nullopt;
  // A later pass would read what an earlier one has overwritten.
  for (size_t i = 0; i < p.size(); ++i)
    for (const Operand& o : p.node(i).ins) {
      if (o.is_param || !written.count(o.binding)) continue;
      bool before = false;
      for (size_t j = 0; j < i; ++j) before |= p.node(j).outs[0].binding == o.binding;
      if (!before) return "writes in place what another pass reads";
    }
  return std::nullopt;
}

std::unique_ptr<Executable> make_shape(const Problem& p, const LoopShape& shape) {
  return std::make_unique<Loop>(p.graph.device.type, plan_loop(p, true, shape), plan_loop(p, false, shape),
                                env::interpret() ? interpreter(p) : nullptr);
}
std::unique_ptr<Executable> make(const Problem& p) { return make_shape(p, own_shape(p)); }

class ShapeConfigurations final : public Configurations {
 public:
  std::vector<std::string> list(const Problem& p) const override {
    return worth_measuring(p) ? names(p) : std::vector<std::string>();
  }
  // Also for loops that are too small to be measured.
  std::unique_ptr<Executable> make(const Problem& p, const std::string& name) const override {
    for (const NamedShape& s : other_shapes(p))
      if (s.name == name) return make_shape(p, s.shape);
    const std::vector<std::string> all = names(p);
    PF_FAIL(Value, "{}: no such configuration of a loop that begins with it; got '{}'; expected {}",
            op_name(p.root().op), name, all.empty() ? "none, because the loop has no others" : one_of(all));
  }
  bool for_any_size() const override { return true; }

 private:
  static std::vector<std::string> names(const Problem& p) {
    std::vector<std::string> all;
    for (NamedShape& s : other_shapes(p)) all.push_back(std::move(s.name));
    return all;
  }
};
constexpr ShapeConfigurations kShapes;

}  // namespace

LoopPlan plan_loop(const Problem& p, bool vectors, const LoopShape& shape) {
  LoopPlan plan;
  const auto has = [&](Role r) { return std::count(p.group.roles.begin(), p.group.roles.end(), r) > 0; };
  const Geometry g(p);
  bool empty = true;
  for (size_t i = 0; i < p.size(); ++i) empty &= p.node(i).outs[0].numel() == 0;
  if (empty) return plan;
  std::vector<int64_t> row_values(p.size(), -1);
  if (has(Role::RowReduce)) row_kernels(p, g, vectors, shape.rows, plan, row_values);
  if (has(Role::ColReduce)) column_kernels(p, g, vectors, shape.columns, plan, row_values);
  if (plan.kernels.empty()) plan.kernels.push_back(flat_kernel(p, g, vectors, shape.flat));
  return plan;
}

const Impl kLoop{"gpu.loop", accepts, make, &kShapes};
const Impl kEmptyReduction{
    "gpu.loop", [](const Problem&) -> Refusal { return std::nullopt; },
    [](const Problem& p) -> std::unique_ptr<Executable> { return std::make_unique<EmptyReduction>(p); }};

}  // namespace pyflame::gpu
