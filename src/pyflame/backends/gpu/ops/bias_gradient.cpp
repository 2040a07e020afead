// Splits a product with a bias-gradient epilogue into a product and a loop.
#include "pyflame/backends/gpu/ops/bias_gradient.h"

#include <algorithm>

#include "pyflame/backends/gpu/loops/loop.h"
#include "pyflame/backends/gpu/loops/loop_text.h"
#include "pyflame/ops/helpers.h"

namespace pyflame::gpu {

namespace {

// The sum as a Loop group in its own graph.
struct SumAlone {
  Graph graph;
  Group group;
  explicit SumAlone(const Problem& p) {
    graph.device = p.graph.device;
    graph.slots = p.graph.slots;
    graph.bindings = p.graph.bindings;
    for (size_t i = 1; i < p.size(); ++i)
      if (p.node(i).op == OpId::sum) graph.nodes = {p.node(i)};
    Node& n = graph.nodes[NodeId(0)];
    const bool rows = n.attr<ReduceAttrs>().axes == 2;
    Operand& out = n.outs[0];
    out.strides[rows ? 1 : 0] = 0;
    out.strides[rows ? 0 : 1] = 1;
    group.kind = GroupKind::Loop;
    group.nodes = {NodeId(0)};
    group.roles = {rows ? Role::RowReduce : Role::ColReduce};
    group.space = n.ins[0].shape;
    group.split = 1;
    group.elided.assign(graph.bindings.size(), false);
  }
  Problem problem() const { return {graph, group}; }
};

class SumLater final : public Executable {
 public:
  explicit SumLater(const Problem& p)
      : sum_(p),
        workspace_(std::max(plan_loop(sum_.problem(), true).workspace, plan_loop(sum_.problem(), false).workspace)) {}
  size_t workspace() const override { return workspace_; }
  void run(const RunContext& ctx) override {
    if (!loop_) loop_ = kLoop.make(sum_.problem());
    loop_->run(ctx);
  }

 private:
  SumAlone sum_;
  size_t workspace_;
  std::unique_ptr<Executable> loop_;
};

}  // namespace

Group without_sum(const Problem& p) {
  Group group = p.group;
  group.summed = -1;
  group.nodes.clear(), group.aligned.clear();
  for (size_t i = 0; i < p.size(); ++i) {
    if (p.node(i).op == OpId::sum) continue;
    group.nodes.push_back(p.group.nodes[i]);
    group.aligned.push_back(p.node(i));
  }
  if (group.nodes.size() == 1) group.kind = GroupKind::Single;
  return group;
}

std::unique_ptr<Executable> make_sum(const Problem& p) { return kLoop.make(SumAlone(p).problem()); }
std::unique_ptr<Executable> make_sum_later(const Problem& p) { return std::make_unique<SumLater>(p); }

}  // namespace pyflame::gpu
