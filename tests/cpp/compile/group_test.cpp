// Which nodes become one group, and what holds for every grouping of every graph.
#include <gtest/gtest.h>

#include <random>

#include "pyflame/compile/align.h"
#include "pyflame/compile/passes.h"
#include "support/recorded_graph.h"

namespace pyflame {
namespace {

using testing::RecordedGraph;

class Accepting : public Backend {
 public:
  const char* name() const override { return "accepting"; }
  std::span<const Impl> impls(const Problem&) const override { return {}; }
  bool has_bias_gradient_epilogue(DType) const override { return true; }
};

std::vector<Group> groups_of(const Graph& graph, const Rules& rules = {}) {
  return group(graph, no_cuts(graph, Accepting()), rules);
}

std::vector<int> numbers(const Group& g) {
  std::vector<int> all;
  for (const NodeId id : g.nodes) all.push_back(id.value());
  return all;
}

TEST(Group, AChainIsOneLoop) {
  RecordedGraph g;
  const Operand x = g.input({4, 5}), a = g.op(OpId::relu, {x}), b = g.op(OpId::mul, {a, x});
  const Operand y = g.keep(g.op(OpId::exp, {b}));
  const auto groups = groups_of(g.graph);
  ASSERT_EQ(groups.size(), 1u);
  EXPECT_EQ(groups[0].kind, GroupKind::Loop);
  EXPECT_EQ(groups[0].space, (Dims{4, 5}));
  EXPECT_FALSE(groups[0].stores(a));
  EXPECT_FALSE(groups[0].stores(b));
  EXPECT_TRUE(groups[0].stores(y));
}

TEST(Group, WithoutFusionEachNodeIsAlone) {
  RecordedGraph g;
  g.op(OpId::exp, {g.op(OpId::relu, {g.input({4, 5})})});
  const auto groups = groups_of(g.graph, Rules{false, false});
  ASSERT_EQ(groups.size(), 2u);
  for (const Group& one : groups) EXPECT_EQ(one.nodes.size(), 1u);
}

TEST(Group, ASoftmaxIsOneLoopOverRows) {
  RecordedGraph g;
  const Operand x = g.input({4, 5});
  const Operand e = g.op(OpId::exp, {g.op(OpId::sub, {x, g.reduce(OpId::amax, x, 0b10)})});
  g.keep(g.op(OpId::div, {e, g.reduce(OpId::sum, e, 0b10)}));
  const auto groups = groups_of(g.graph);
  ASSERT_EQ(groups.size(), 1u);
  EXPECT_EQ(groups[0].split, 1);
  EXPECT_EQ(groups[0].roles, (std::vector{Role::RowReduce, Role::Map, Role::Map, Role::RowReduce, Role::Map}));
}

TEST(Group, AProductTakesWhatIsElementwiseOverIt) {
  RecordedGraph g;
  const Operand c = g.op(OpId::matmul, {g.input({4, 6}), g.input({6, 5})}, {4, 5});
  const Operand y = g.op(OpId::relu, {g.op(OpId::add, {c, g.input({5})})});
  g.keep(y);
  const auto groups = groups_of(g.graph);
  ASSERT_EQ(groups.size(), 1u);
  EXPECT_EQ(groups[0].kind, GroupKind::Epilogue);
  EXPECT_EQ(groups[0].node(g.graph, 1).ins[1].shape, (Dims{1, 5}));
  EXPECT_FALSE(groups[0].stores(c));
}

TEST(Group, TheSumOfAnOperandInTheEpilogueOfItsProduct) {
  RecordedGraph g;
  const Operand x = g.input({8, 6}), gradient = g.input({8, 5});
  const Operand transposed = g.view(gradient, {5, 8}, {1, 5});
  g.keep(g.op(OpId::matmul, {transposed, x}, {5, 6}));
  g.graph.nodes.back().ins[0].binding = gradient.binding;
  g.keep(g.reduce(OpId::sum, gradient, 0b01));
  Cuts cuts = no_cuts(g.graph, Accepting());
  auto groups = group(g.graph, cuts, {});
  ASSERT_EQ(groups.size(), 1u);
  EXPECT_EQ(groups[0].summed, 0);
  cuts.apart[NodeId(1)] = true;
  groups = group(g.graph, cuts, {});
  ASSERT_EQ(groups.size(), 2u);
  EXPECT_EQ(groups[0].summed, -1);
}

TEST(Group, CutsBoundWhatANodeOpens) {
  RecordedGraph g;
  Operand y = g.input({4, 5});
  for (int i = 0; i < 5; ++i) y = g.op(OpId::relu, {y});
  Cuts cuts = no_cuts(g.graph, Accepting());
  cuts.most[NodeId(0)] = 2;
  cuts.most[NodeId(3)] = 1;
  std::vector<std::vector<int>> got;
  for (const Group& one : group(g.graph, cuts, {})) got.push_back(numbers(one));
  EXPECT_EQ(got, (std::vector<std::vector<int>>{{0, 1}, {2}, {3}, {4}}));
}

TEST(Group, WhatMayFailIsAlone) {
  RecordedGraph g;
  const Operand x = g.input({4}, DType::int64), y = g.op(OpId::abs, {x});
  g.op(OpId::neg, {g.op(OpId::floor_divide, {y, x})});
  EXPECT_EQ(groups_of(g.graph).size(), 3u);
}

TEST(Group, AnInPlaceOpOfAReadValueStaysBehindItsReader) {
  RecordedGraph g;
  const Operand x = g.input({4, 5}), w = g.input({5, 6});
  g.keep(g.op(OpId::matmul, {x, w}, {4, 6}));
  g.into(OpId::relu, {x}, x);
  const auto groups = groups_of(g.graph);
  ASSERT_EQ(groups.size(), 2u);
  EXPECT_EQ(numbers(groups[1]), (std::vector<int>{1}));
}

// ---- every grouping

bool broadcasts(const Operand& o, const Dims& to) {
  if (o.shape.size() != to.size()) return false;
  for (int d = 0; d < to.size(); ++d)
    if (o.shape[d] != 1 && o.shape[d] != to[d]) return false;
  return true;
}

// Ops that read random earlier values, sometimes in place, through views, over other factorisations of the same elements.
Graph random_graph(uint32_t seed) {
  std::mt19937 rng(seed);
  const auto below = [&](size_t n) { return static_cast<size_t>(rng() % n); };
  RecordedGraph g;
  std::vector<Operand> values = {g.input({6, 4}), g.input({6, 4}), g.input({2, 3, 4}), g.input({24})};
  const auto value = [&] { return values[below(values.size())]; };
  const auto full = [&] {
    for (;;)
      if (Operand o = value(); o.numel() == 24) return o;
  };
  const size_t nodes = 3 + below(40);
  for (size_t i = 0; i < nodes; ++i) {
    const Operand x = full();
    switch (below(8)) {
      case 0: values.push_back(g.reduce(OpId::sum, x, int64_t{1} << below(static_cast<size_t>(x.shape.size())))); break;
      case 1: g.into(OpId::exp, {x}, x); break;
      case 2: {
        const Operand other = full(), y = value();
        if (other.shape == x.shape) g.into(OpId::add, {x, broadcasts(y, x.shape) ? y : x}, other);
        break;
      }
      case 3: {
        const Operand a = g.view(x, {6, 4}, {4, 1}), b = g.view(full(), {4, 6}, {6, 1});
        values.push_back(g.op(OpId::matmul, {a, b}, {6, 6}));
        break;
      }
      case 4: values.push_back(g.view(x, {4, 6}, {1, 4})); break;
      default: {
        const Operand y = value();
        values.push_back(g.op(OpId::mul, {x, broadcasts(y, x.shape) ? y : x}));
      }
    }
    if (below(6) == 0) g.keep(values.back());
  }
  return g.graph;
}

bool conflict(const Graph& g, const Node& a, const Node& b) {
  const auto writes_what = [&](const Node& w, const Node& t) {
    for (const Operand& out : w.outs)
      for (const auto* operands : {&t.ins, &t.outs})
        for (const Operand& o : *operands)
          if (!o.is_param && g.slot(o) == g.slot(out)) return true;
    return false;
  };
  return writes_what(a, b) || writes_what(b, a);
}

TEST(Group, EveryGroupingKeepsTheOrderOfDependentNodes) {
  size_t fused = 0;
  for (uint32_t seed = 0; seed < 3000; ++seed) {
    const Graph g = random_graph(seed);
    const auto groups = groups_of(g);
    Indexed<NodeId, int> place(g.nodes.size(), -1);
    int next = 0;
    for (const Group& one : groups) {
      ASSERT_EQ(one.aligned.size(), one.aligned.empty() ? 0 : one.nodes.size());
      fused += one.nodes.size() > 1;
      for (const NodeId id : one.nodes) {
        ASSERT_EQ(place[id], -1) << "seed " << seed << ": node " << id.value() << " is in two groups";
        place[id] = next++;
      }
    }
    ASSERT_EQ(next, static_cast<int>(g.nodes.size())) << "seed " << seed;
    for (const NodeId j : g.nodes.ids())
      for (const NodeId i : IdRange{NodeId(0), j})
        ASSERT_TRUE(place[i] < place[j] || !conflict(g, g.nodes[i], g.nodes[j]))
            << "seed " << seed << ": nodes " << i.value() << " and " << j.value() << "\n"
            << describe_graph(g) << describe_groups(g, groups);
  }
  EXPECT_GT(fused, 3000u);
}

// If one node of a loop writes a value and another one accesses it, both do so at the same index.
TEST(Group, EveryLoopTouchesWhatItWritesInOneWay) {
  for (uint32_t seed = 0; seed < 3000; ++seed) {
    const Graph g = random_graph(seed);
    for (const Group& one : groups_of(g)) {
      if (one.kind != GroupKind::Loop) continue;
      for (size_t i = 0; i < one.nodes.size(); ++i)
        for (size_t j = 0; j < one.nodes.size(); ++j)
          for (const Operand& w : one.aligned[i].outs)
            for (const auto* operands : {&one.aligned[j].ins, &one.aligned[j].outs})
              for (const Operand& o : *operands)
                if (i != j && !o.is_param && g.slot(o) == g.slot(w)) {
                  ASSERT_TRUE(same_geometry(o, w)) << "seed " << seed << "\n" << describe_groups(g, groups_of(g));
                }
    }
  }
}

// What has no memory is used by its own group alone.
TEST(Group, WhatIsElidedIsSeenByNobodyElse) {
  size_t elided = 0;
  for (uint32_t seed = 0; seed < 1000; ++seed) {
    const Graph g = random_graph(seed);
    const auto groups = groups_of(g);
    for (const Group& one : groups)
      for (const BindingId b : one.elided.ids()) {
        if (!one.elided[b]) continue;
        ++elided;
        const SlotId s = g.bindings[b].slot;
        EXPECT_FALSE(g.slots[s].external || g.slots[s].live);
        for (const Group& other : groups)
          for (const NodeId id : other.nodes)
            for (const auto* operands : {&g.nodes[id].ins, &g.nodes[id].outs})
              for (const Operand& o : *operands)
                if (!o.is_param && g.slot(o) == s) {
                  EXPECT_TRUE(&other == &one && o.binding == b) << "seed " << seed;
                }
      }
  }
  EXPECT_GT(elided, 1000u);
}

}  // namespace
}  // namespace pyflame
