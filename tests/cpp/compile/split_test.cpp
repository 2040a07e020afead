// What happens to groups that only the last implementation accepts: select finds them, split cuts them, and group runs again.
#include <gtest/gtest.h>

#include "pyflame/compile/passes.h"
#include "support/recorded_graph.h"

namespace pyflame {
namespace {

using testing::RecordedGraph;

// Each implementation has a set of ops that it accepts. The last one accepts everything and is slow.
bool has_sum(const Problem& p) {
  for (size_t i = 1; i < p.size(); ++i)
    if (p.node(i).op == OpId::sum) return true;
  return false;
}
Refusal never(const Problem&) { return "never"; }
Refusal up_to_three(const Problem& p) {
  if (p.group.summed >= 0) return "no sum beside";
  if (p.size() > 3) return "more than three nodes";
  return std::nullopt;
}
Refusal no_reductions(const Problem& p) {
  if (p.root().info().cls == OpClass::Reduce || has_sum(p)) return "a reduction";
  return std::nullopt;
}
Refusal anything(const Problem&) { return std::nullopt; }

constexpr Impl kThree[] = {{"never", never, nullptr}, {"three", up_to_three, nullptr}, {"slow", anything, nullptr}};
constexpr Impl kMaps[] = {{"maps", no_reductions, nullptr}, {"slow", anything, nullptr}};
constexpr Impl kNone[] = {{"never", never, nullptr}};

class Listed : public Backend {
 public:
  explicit Listed(std::span<const Impl> impls, bool last_is_slow = true) : impls_(impls), slow_(last_is_slow) {}
  const char* name() const override { return "listed"; }
  std::span<const Impl> impls(const Problem&) const override { return impls_; }
  bool last_is_slow() const override { return slow_; }
  bool has_bias_gradient_epilogue(DType) const override { return true; }

 private:
  std::span<const Impl> impls_;
  bool slow_;
};

// As compile_window does it.
std::vector<Group> split_until_accepted(const Graph& g, const Backend& backend) {
  Cuts cuts = no_cuts(g, backend);
  for (int round = 0;; ++round) {
    if (round > 100) throw std::logic_error("split never ends");
    std::vector<Group> groups = group(g, cuts, {});
    std::vector<Selection> selections;
    for (const Group& one : groups) selections.push_back(select(g, one, backend));
    const auto stricter = split(g, groups, selections, backend, cuts);
    if (!stricter) return groups;
    cuts = *stricter;
  }
}

std::vector<size_t> sizes(const std::vector<Group>& groups) {
  std::vector<size_t> all;
  for (const Group& one : groups) all.push_back(one.nodes.size());
  return all;
}

// A product with four elementwise nodes over it.
RecordedGraph product() {
  RecordedGraph g;
  Operand y = g.op(OpId::matmul, {g.input({4, 6}), g.input({6, 5})}, {4, 5});
  for (int i = 0; i < 4; ++i) y = g.op(OpId::relu, {y});
  g.keep(y);
  return g;
}

TEST(Select, TheFirstThatAccepts) {
  RecordedGraph g;
  g.keep(g.op(OpId::relu, {g.input({4})}));
  const Listed backend(kThree);
  const Selection s = select(g.graph, group(g.graph, no_cuts(g.graph, backend), {})[0], backend);
  ASSERT_TRUE(s.impl);
  EXPECT_STREQ(s.impls[*s.impl].name, "three");
  ASSERT_EQ(s.refused.size(), 1u);
  EXPECT_STREQ(s.refused[0].impl, "never");
  EXPECT_FALSE(s.falls_back(backend));
}

TEST(Select, NobodyAccepts) {
  RecordedGraph g;
  g.keep(g.op(OpId::relu, {g.input({4})}));
  const Listed backend(kNone);
  const Selection s = select(g.graph, group(g.graph, no_cuts(g.graph, backend), {})[0], backend);
  EXPECT_FALSE(s.impl);
  EXPECT_EQ(s.refused.size(), 1u);
}

TEST(Split, NothingWhereAllAreAccepted) {
  const RecordedGraph g = product();
  EXPECT_EQ(sizes(split_until_accepted(g.graph, Listed(kMaps))), (std::vector<size_t>{5}));
}

TEST(Split, AnEpilogueKeepsItsFirstNodes) {
  const RecordedGraph g = product();
  const auto groups = split_until_accepted(g.graph, Listed(kThree));
  EXPECT_EQ(sizes(groups), (std::vector<size_t>{3, 2}));
  EXPECT_EQ(groups[0].kind, GroupKind::Epilogue);
  EXPECT_EQ(groups[1].kind, GroupKind::Loop);
}

TEST(Split, GeneralLoopsThatAreFastTakeWhatIsLeft) {
  const RecordedGraph g = product();
  EXPECT_EQ(sizes(split_until_accepted(g.graph, Listed(kThree, false))), (std::vector<size_t>{5}));
}

TEST(Split, NodesOfALoopAreAlone) {
  RecordedGraph g;
  const Operand x = g.input({4, 5}), y = g.op(OpId::relu, {x});
  g.keep(g.op(OpId::mul, {y, g.reduce(OpId::sum, y, 0b10)}));
  EXPECT_EQ(sizes(split_until_accepted(g.graph, Listed(kMaps))), (std::vector<size_t>{1, 1, 1}));
}

// A backend whose kernels hold few values of the memory of a loop: so many inputs, each of which is an operand of one node.
class Small final : public Listed {
 public:
  explicit Small(size_t inputs) : Listed(kAll, false), inputs_(inputs) {}
  size_t most_nodes(const Problem& loop) const override {
    size_t read = 0;
    for (size_t i = 0; i < loop.size(); ++i) {
      for (const Operand& o : loop.node(i).ins) read += loop.graph.slots[loop.graph.slot(o)].external;
      if (read > inputs_) return i;
    }
    return loop.size();
  }

 private:
  static constexpr Impl kAll[] = {{"all", anything, nullptr}};
  size_t inputs_;
};

TEST(Split, ALoopThatIsTooLargeIsCutWhereItsKernelIsFull) {
  RecordedGraph g;
  Operand y = g.input({4, 5});
  for (int i = 0; i < 6; ++i) y = g.op(OpId::add, {y, g.input({4, 5})});
  g.keep(y);
  EXPECT_EQ(sizes(split_until_accepted(g.graph, Small(7))), (std::vector<size_t>{6}));
  EXPECT_EQ(sizes(split_until_accepted(g.graph, Small(3))), (std::vector<size_t>{2, 3, 1}));
  EXPECT_EQ(sizes(split_until_accepted(g.graph, Small(0))),
            (std::vector<size_t>{1, 1, 1, 1, 1, 1}));  // a node is never divided
}

TEST(Split, WhatIsCutOffALoopJoinsTheNextOne) {
  RecordedGraph g;
  const Operand x = g.input({4, 5});
  Operand y = g.op(OpId::add, {x, g.input({4, 5})});
  y = g.op(OpId::mul, {y, g.input({4, 5})});
  const Operand sum = g.reduce(OpId::sum, y, 0b10);
  g.keep(g.op(OpId::sub, {y, sum}));
  EXPECT_EQ(sizes(split_until_accepted(g.graph, Small(3))), (std::vector<size_t>{4}));
  const auto groups = split_until_accepted(g.graph, Small(2));
  ASSERT_EQ(sizes(groups), (std::vector<size_t>{1, 3}));
  EXPECT_EQ(groups[1].roles, (std::vector{Role::Map, Role::RowReduce, Role::Map}));
}

TEST(Split, ASumInAnEpilogueComesApartFirst) {
  RecordedGraph g;
  const Operand x = g.input({8, 6}), gradient = g.input({8, 5});
  g.keep(g.op(OpId::matmul, {g.view(gradient, {5, 8}, {1, 5}), x}, {5, 6}));
  g.graph.nodes.back().ins[0].binding = gradient.binding;
  g.keep(g.reduce(OpId::sum, gradient, 0b01));
  const auto groups = split_until_accepted(g.graph, Listed(kThree));
  EXPECT_EQ(sizes(groups), (std::vector<size_t>{1, 1}));
}

TEST(Split, CutsOnlyBecomeStricter) {
  const RecordedGraph g = product();
  const Listed backend(kThree);
  const Cuts cuts = no_cuts(g.graph, backend);
  const auto groups = group(g.graph, cuts, {});
  const std::vector<Selection> selections = {select(g.graph, groups[0], backend)};
  EXPECT_TRUE(selections[0].falls_back(backend));
  const auto stricter = split(g.graph, groups, selections, backend, cuts);
  ASSERT_TRUE(stricter);
  EXPECT_EQ(stricter->most[NodeId(0)], 4u);
  EXPECT_EQ(cuts.most[NodeId(0)], 5u) << "the given cuts have changed";
  for (const NodeId id : g.graph.nodes.ids()) EXPECT_LE(stricter->most[id], cuts.most[id]);
}

}  // namespace
}  // namespace pyflame
