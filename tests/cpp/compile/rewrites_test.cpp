// What depends on lasting values alone is separated from the rest, and weights of several products are joined.
#include <gtest/gtest.h>

#include "pyflame/compile/constants.h"
#include "support/recorded_graph.h"

namespace pyflame {
namespace {

using testing::RecordedGraph;

constexpr uint32_t kKept = 1u << static_cast<int>(Rewrite::KeptValues);
constexpr uint32_t kMerged = kKept | 1u << static_cast<int>(Rewrite::MergedProducts);

Operand transposed(const Operand& o) {
  return with_geometry(o, {o.shape[1], o.shape[0]}, {o.strides[1], o.strides[0]});
}

std::optional<Separated> separated(RecordedGraph& g, const std::vector<Operand>& weights, uint32_t active = kKept) {
  Indexed<SlotId, Origin> origins(g.graph.slots.size(), Origin::Other);
  for (const Operand& w : weights) origins[g.graph.slot(w)] = Origin::Lasting;
  return separate({g.graph, {}}, origins, active);
}

TEST(Separate, ACastWeightIsComputedOnce) {
  RecordedGraph g;
  const Operand x = g.input({4, 8}, DType::bfloat16), w = g.input({16, 8});
  const Operand cast = g.op(OpId::cast, {w}, {16, 8}, DType::bfloat16);
  g.keep(g.op(OpId::matmul, {x, transposed(cast)}, {4, 16}, DType::bfloat16));
  const auto parts = separated(g, {w});
  ASSERT_TRUE(parts);
  EXPECT_EQ(count_ops(parts->first.graph), 1u);
  EXPECT_EQ(count_ops(parts->rest.graph), 1u);
  EXPECT_EQ(parts->kept, std::vector{g.graph.slot(cast)});
  EXPECT_EQ(parts->roots, std::vector{g.graph.slot(w)});
  EXPECT_TRUE(parts->first.graph.slot_info(cast).live);
  EXPECT_TRUE(parts->rest.graph.slot_info(cast).external);
}

TEST(Separate, NothingIfTheWeightIsWritten) {
  RecordedGraph g;
  const Operand x = g.input({4, 8}), w = g.input({8, 8});
  const Operand twice = g.op(OpId::add, {w, w});
  g.keep(g.op(OpId::matmul, {x, twice}, {4, 8}));
  g.into(OpId::add, {w, w}, w);
  EXPECT_FALSE(separated(g, {w}));
}

TEST(Separate, NothingIfTheValueIsSeen) {
  RecordedGraph g;
  const Operand x = g.input({4, 8}), w = g.input({8, 8});
  const Operand twice = g.keep(g.op(OpId::add, {w, w}));
  g.keep(g.op(OpId::matmul, {x, twice}, {4, 8}));
  EXPECT_FALSE(separated(g, {w}));
}

TEST(Separate, NothingIfALoopReadsAsManyBytes) {
  RecordedGraph g;
  const Operand x = g.input({8, 8}), w = g.input({8, 8});
  g.keep(g.op(OpId::mul, {x, g.op(OpId::add, {w, w})}));
  EXPECT_FALSE(separated(g, {w}));
}

TEST(Separate, NothingWithoutLastingValuesOrTheSwitch) {
  RecordedGraph g;
  const Operand x = g.input({4, 8}), w = g.input({8, 8});
  g.keep(g.op(OpId::matmul, {x, g.op(OpId::add, {w, w})}, {4, 8}));
  EXPECT_FALSE(separated(g, {}));
  EXPECT_FALSE(separated(g, {w}, 0));
  EXPECT_TRUE(separated(g, {w}));
}

TEST(MergedProducts, WeightsAreSideBySide) {
  RecordedGraph g;
  const Operand x = g.input({4, 8}), a = g.input({16, 8}), b = g.input({24, 8});
  RecordedGraph* graph = &g;
  const auto product = [&](const Operand& w) {
    Operand out = graph->op(OpId::matmul, {x, transposed(w)}, {4, w.shape[0]});
    graph->graph.nodes[NodeId(graph->graph.nodes.size() - 1)].attrs = {0};
    return out;
  };
  const Operand y = product(a), z = product(b);
  g.keep(g.op(OpId::relu, {y}));
  g.keep(g.op(OpId::relu, {z}));
  const auto parts = separated(g, {a, b}, kMerged);
  ASSERT_TRUE(parts);
  const Graph& rest = parts->rest.graph;
  EXPECT_EQ(count_ops(rest), 3u);
  const Node& joint = rest.nodes[NodeId(0)];
  EXPECT_EQ(joint.outs[0].shape, (Dims{4, 40}));
  EXPECT_EQ(joint.ins[1].shape, (Dims{8, 40}));
  const Node& second = rest.nodes[NodeId(3)];
  EXPECT_EQ(second.ins[0].strides, (Dims{40, 1}));
  EXPECT_EQ(parts->rest.added.bindings.back().byte_offset, 16 * 4);
  EXPECT_EQ(count_ops(parts->first.graph), 2u);
  EXPECT_EQ(parts->notes.size(), 2u);
  EXPECT_FALSE(separated(g, {a, b}));  // no weight is computed
}

TEST(MergedProducts, NotIfAResultIsSeen) {
  RecordedGraph g;
  const Operand x = g.input({4, 8}), a = g.input({16, 8}), b = g.input({24, 8});
  g.keep(g.op(OpId::matmul, {x, transposed(a)}, {4, 16}));
  g.keep(g.op(OpId::relu, {g.op(OpId::matmul, {x, transposed(b)}, {4, 24})}));
  EXPECT_FALSE(separated(g, {a, b}, kMerged));
}

}  // namespace
}  // namespace pyflame
