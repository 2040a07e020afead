// Where fusion ends and why, what a cut between two windows costs, and the work of a group.
#include "pyflame/compile/fusion_ends.h"

#include <gtest/gtest.h>

#include "pyflame/compile/joined.h"
#include "pyflame/compile/passes.h"
#include "pyflame/compile/work.h"
#include "support/recorded_graph.h"

namespace pyflame {
namespace {

using testing::RecordedGraph;

std::optional<std::string> any(const Problem&) { return std::nullopt; }
std::optional<std::string> no_exp(const Problem& p) {
  for (size_t i = 0; i < p.size() && p.size() > 1; ++i)
    if (p.node(i).op == OpId::exp) return "takes no exp";
  return std::nullopt;
}
constexpr Impl kAny[] = {{"any", any, nullptr}};
constexpr Impl kNoExp[] = {{"no exp", no_exp, nullptr}};

class Taking : public Backend {
 public:
  explicit Taking(std::span<const Impl> impls = kAny) : impls_(impls) {}
  const char* name() const override { return "taking"; }
  std::span<const Impl> impls(const Problem&) const override { return impls_; }

 private:
  std::span<const Impl> impls_;
};

std::shared_ptr<const Program> program_of(const Graph& graph, const Backend& backend) {
  const auto p = std::make_shared<Program>();
  p->backend = &backend;
  p->graph = graph;
  Grouping r = group_and_select(p->graph, backend, p->rules);
  p->cuts = std::move(r.cuts);
  for (Group& g : r.groups) {
    p->steps.emplace_back();
    p->steps.back().group = std::move(g);
  }
  return p;
}

TEST(FusionEnds, AChainThatIsOneLoopHasNone) {
  const Taking backend;
  RecordedGraph g;
  g.keep(g.op(OpId::exp, {g.op(OpId::relu, {g.input({4, 5})})}));
  EXPECT_TRUE(fusion_ends(*program_of(g.graph, backend)).empty());
}

TEST(FusionEnds, AValueThatOnlyTheNextStepNeedsCostsAWriteAndARead) {
  const Taking backend;
  RecordedGraph g;
  const Operand y = g.op(OpId::relu, {g.input({100})});
  g.keep(g.op(OpId::softmax, {y}));
  const auto ends = fusion_ends(*program_of(g.graph, backend));
  ASSERT_EQ(ends.size(), 1U);
  EXPECT_EQ(ends[0].from, 0U);
  EXPECT_EQ(ends[0].to, 1U);
  EXPECT_EQ(ends[0].writer, NodeId(0));
  EXPECT_EQ(ends[0].reader, NodeId(1));
  EXPECT_EQ(ends[0].saves, 800);
  EXPECT_EQ(ends[0].why, "softmax has a kernel of its own");
}

TEST(FusionEnds, AValueThatIsNeededLaterCostsARead) {
  const Taking backend;
  RecordedGraph g;
  const Operand y = g.keep(g.op(OpId::relu, {g.input({100})}));
  g.keep(g.op(OpId::softmax, {y}));
  EXPECT_EQ(fusion_ends(*program_of(g.graph, backend)).at(0).saves, 400);
}

TEST(FusionEnds, TheColumnSumIsCompleteAfterTheLoop) {
  const Taking backend;
  RecordedGraph g;
  const Operand x = g.op(OpId::relu, {g.input({8, 5})});
  g.keep(g.op(OpId::sub, {x, g.reduce(OpId::sum, x, 0b01)}));
  const auto ends = fusion_ends(*program_of(g.graph, backend));
  ASSERT_FALSE(ends.empty());
  EXPECT_EQ(ends[0].why, "the result of sum is complete only after the whole loop");
}

TEST(FusionEnds, RefusalsOfKernelsAreNamed) {
  const Taking backend(kNoExp);
  RecordedGraph g;
  g.keep(g.op(OpId::exp, {g.op(OpId::relu, {g.input({100})})}));
  const auto ends = fusion_ends(*program_of(g.graph, backend));
  ASSERT_EQ(ends.size(), 1U);
  EXPECT_EQ(ends[0].why, "no kernel takes both (no exp: takes no exp)");
}

TEST(Work, CountsEachOperandOnce) {
  const Taking backend;
  RecordedGraph g;
  const Operand a = g.input({8, 16}), b = g.input({16, 4});
  g.keep(g.op(OpId::matmul, {a, b}, {8, 4}));
  const auto p = program_of(g.graph, backend);
  const GroupWork work = work_of(p->graph, p->steps.at(0).group);
  EXPECT_EQ(work.kind, Work::Gemm);
  EXPECT_EQ(work.bytes, 4 * (8 * 16 + 16 * 4 + 8 * 4));
  EXPECT_EQ(work.flops, 2.0 * 8 * 16 * 4);
  EXPECT_EQ(work.dtype, DType::float32);
}

Placed placed(const std::shared_ptr<const Program>& p, const std::vector<uint64_t>& storages) {
  Placed at{p, {}, {}};
  for (const uint64_t s : storages) at.storages.push_back(s);
  at.offsets.resize(p->graph.bindings.size(), 0);
  return at;
}

// y = relu(x), cut, exp(y)
Across across(const Backend& backend, OpId second_op, bool live_after, uint64_t read = 2) {
  RecordedGraph first, second;
  first.keep(first.op(OpId::relu, {first.input({100})}));
  const Operand y = second.input({100});
  second.graph.slots[second.graph.slot(y)].live = live_after;
  second.keep(second.op(second_op, {y}));
  return saved_by_joining(placed(program_of(first.graph, backend), {1, 2}),
                          placed(program_of(second.graph, backend), {read, 3}));
}

TEST(Joined, ACutCostsTheWriteAndTheReadOfAValue) {
  const Taking backend;
  const Across a = across(backend, OpId::exp, false);
  EXPECT_EQ(a.saves, 800);
  EXPECT_EQ(a.ops, "relu -> exp");
}

TEST(Joined, ACutCostsOnlyTheReadOfAValueThatStaysAlive) { EXPECT_EQ(across(Taking(), OpId::exp, true).saves, 400); }

TEST(Joined, WhatWouldNotBeFusedCostsNothing) {
  EXPECT_EQ(across(Taking(), OpId::softmax, false).saves, 0);
  EXPECT_EQ(across(Taking(kNoExp), OpId::exp, false).saves, 0);
  EXPECT_EQ(across(Taking(), OpId::exp, false, 4).saves, 0) << "it reads another storage";
}

TEST(Joined, BothReadOneInput) {
  const Across a = across(Taking(), OpId::exp, true, 1);
  EXPECT_EQ(a.saves, 400);
  EXPECT_EQ(a.ops, "relu -> exp");
}

}  // namespace
}  // namespace pyflame
