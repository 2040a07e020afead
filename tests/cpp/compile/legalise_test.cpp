// legalise rewrites each node separately and changes nothing else in the graph.
#include <gtest/gtest.h>

#include "pyflame/compile/passes.h"
#include "support/recorded_graph.h"

namespace pyflame {
namespace {

using testing::RecordedGraph;

constexpr Rules kPlain{true, false}, kMemoryOrder{true, true};
constexpr NodeId kFirst{0};

Operand channels_last_image(RecordedGraph& g) { return g.strided({2, 3, 4, 5}, {60, 1, 15, 3}); }

TEST(Legalise, AReductionOverDimsOfSizeOneIsACast) {
  RecordedGraph g;
  g.reduce(OpId::sum, g.input({4, 1, 5}), 0b010);
  const Graph legal = legalise(g.graph, kPlain);
  EXPECT_EQ(legal.nodes[kFirst].op, OpId::cast);
  EXPECT_TRUE(legal.nodes[kFirst].attrs.empty());
  EXPECT_EQ(g.last().op, OpId::sum) << "the recorded graph has changed";
}

TEST(Legalise, AReductionOverMoreStays) {
  RecordedGraph g;
  g.reduce(OpId::sum, g.input({4, 1, 5}), 0b110);
  g.reduce(OpId::sum, g.input({0, 1}), 0b010);  // of nothing: the op knows what that is
  const Graph legal = legalise(g.graph, kPlain);
  for (const Node& n : legal.nodes) EXPECT_EQ(n.op, OpId::sum);
}

TEST(Legalise, ImagesInTheOrderOfMemory) {
  RecordedGraph g;
  const Operand x = channels_last_image(g), bias = g.input({1, 3, 1, 1});
  g.into(OpId::add, {x, bias}, channels_last_image(g));
  const Graph legal = legalise(g.graph, kMemoryOrder);
  const Node& n = legal.nodes[kFirst];
  for (const Operand& o : {n.ins[0], n.outs[0]}) {
    EXPECT_EQ(o.shape, (Dims{2, 4, 5, 3}));
    EXPECT_EQ(o.strides, (Dims{60, 15, 3, 1}));
    EXPECT_TRUE(o.contiguous);
  }
  EXPECT_EQ(n.ins[1].shape, (Dims{1, 1, 1, 3}));
  EXPECT_EQ(n.ins[1].strides[3], 1);
}

TEST(Legalise, AxesOfAReductionFollowItsDims) {
  for (const auto& [recorded, legal] : {std::pair{0b1101, 0b0111}, {0b0010, 0b1000}, {0b0001, 0b0001}}) {
    RecordedGraph g;
    g.reduce(OpId::sum, channels_last_image(g), recorded);
    EXPECT_EQ(legalise(g.graph, kMemoryOrder).nodes[kFirst].attrs[0], legal);
    EXPECT_EQ(legalise(g.graph, kPlain).nodes[kFirst].attrs[0], recorded);
  }
}

TEST(Legalise, OtherOpsAndOtherLayoutsStay) {
  RecordedGraph g;
  g.into(OpId::max_pool2d, {channels_last_image(g)}, channels_last_image(g));
  g.op(OpId::relu, {g.input({2, 3, 4, 5})});
  const Graph legal = legalise(g.graph, kMemoryOrder);
  for (const NodeId id : legal.nodes.ids()) EXPECT_EQ(legal.nodes[id].outs[0].shape, g.graph.nodes[id].outs[0].shape);
}

}  // namespace
}  // namespace pyflame
