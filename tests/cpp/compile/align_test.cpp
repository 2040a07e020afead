// A node over a group's iteration space: its role, its operands, and how it changes the space and the other members.
#include "pyflame/compile/align.h"

#include <gtest/gtest.h>

#include "support/recorded_graph.h"

namespace pyflame {
namespace {

using testing::RecordedGraph;

Space loop_over(const Dims& dims) { return Space::over(dims, true); }

TEST(Align, BroadcastOperandsHaveStrideZero) {
  RecordedGraph g;
  g.op(OpId::add, {g.input({4, 5}), g.input({5})});
  const auto a = align(g.last(), loop_over({4, 5}), {});
  ASSERT_TRUE(a);
  EXPECT_EQ(a->role, Role::Map);
  EXPECT_EQ(a->node.ins[0].shape, (Dims{4, 5}));
  EXPECT_EQ(a->node.ins[1].shape, (Dims{1, 5}));
  EXPECT_EQ(a->node.ins[1].strides, (Dims{0, 1}));
  EXPECT_EQ(a->space.dims, (Dims{4, 5}));
  EXPECT_EQ(a->space.split, 2);
  EXPECT_EQ(g.last().ins[1].shape, (Dims{5})) << "the recorded node has changed";
}

TEST(Align, AnotherFactorisationOfTheSameElements) {
  RecordedGraph g;
  g.op(OpId::relu, {g.input({20})});
  const auto a = align(g.last(), loop_over({4, 5}), {});
  ASSERT_TRUE(a);
  EXPECT_EQ(a->node.outs[0].shape, (Dims{4, 5}));
  EXPECT_EQ(a->node.outs[0].strides, (Dims{5, 1}));
  EXPECT_TRUE(a->members.empty());
}

TEST(Align, OtherNumbersOfElementsDoNotFit) {
  RecordedGraph g;
  g.op(OpId::relu, {g.input({21})});
  EXPECT_FALSE(align(g.last(), loop_over({4, 5}), {}));
}

// The node's rows are apart in memory, so that (6, 4) cannot describe them; the member before it can follow.
TEST(Align, MembersFollowIntoANewSpace) {
  RecordedGraph g;
  g.op(OpId::relu, {g.input({6, 4})});
  const std::vector<Node> members = {g.last()};
  g.op(OpId::neg, {g.strided({2, 3, 4}, {100, 4, 1})});
  const auto a = align(g.last(), loop_over({6, 4}), members);
  ASSERT_TRUE(a);
  EXPECT_EQ(a->space.dims, (Dims{2, 3, 4}));
  ASSERT_EQ(a->members.size(), 1u);
  EXPECT_EQ(a->members[0].outs[0].shape, (Dims{2, 3, 4}));
  EXPECT_EQ(members[0].outs[0].shape, (Dims{6, 4})) << "a member has changed";
  EXPECT_FALSE(align(g.last(), Space::over({6, 4}, false), members)) << "a root prescribes an epilogue's space";
}

TEST(Align, ReductionOfInnerDimsAreRows) {
  RecordedGraph g;
  g.reduce(OpId::sum, g.input({4, 5, 6}), 0b110);
  const auto a = align(g.last(), loop_over({4, 5, 6}), {});
  ASSERT_TRUE(a);
  EXPECT_EQ(a->role, Role::RowReduce);
  EXPECT_EQ(a->space.split, 1);
  EXPECT_TRUE(a->space.rows && a->space.perm.empty());
  EXPECT_EQ(a->node.attrs[0], 0b110);
}

TEST(Align, ReductionOfOuterDimsAreColumns) {
  RecordedGraph g;
  g.reduce(OpId::sum, g.input({4, 5, 6}), 0b001);
  const auto a = align(g.last(), loop_over({4, 5, 6}), {});
  ASSERT_TRUE(a);
  EXPECT_EQ(a->role, Role::ColReduce);
  EXPECT_EQ(a->space.split, 1);
  EXPECT_TRUE(a->space.columns);
}

// What is reduced in the middle comes first, and the members' operands with it.
TEST(Align, ReductionOfAMiddleDimOrdersTheDims) {
  RecordedGraph g;
  const Operand y = g.op(OpId::relu, {g.input({4, 5, 6})});
  const std::vector<Node> members = {g.last()};
  g.reduce(OpId::sum, y, 0b010);
  const auto a = align(g.last(), loop_over({4, 5, 6}), members);
  ASSERT_TRUE(a);
  EXPECT_EQ(a->role, Role::ColReduce);
  EXPECT_EQ(a->space.dims, (Dims{5, 4, 6}));
  EXPECT_EQ(a->space.split, 1);
  EXPECT_EQ(a->node.attrs[0], 0b001);
  EXPECT_EQ(a->node.ins[0].strides, (Dims{6, 30, 1}));
  ASSERT_EQ(a->members.size(), 1u);
  EXPECT_TRUE(same_geometry(a->members[0].outs[0], a->node.ins[0]));
  // A second reduction has to agree with that order.
  g.reduce(OpId::sum, y, 0b001);
  EXPECT_FALSE(align(g.last(), a->space, a->members));
  g.reduce(OpId::amax, y, 0b010);
  EXPECT_TRUE(align(g.last(), a->space, a->members));
}

TEST(Align, WorkOnRowsHasSizeOneInTheInnerDims) {
  RecordedGraph g;
  const Operand sum = g.reduce(OpId::sum, g.input({4, 5}), 0b10);
  const auto reduced = align(g.last(), loop_over({4, 5}), {});
  ASSERT_TRUE(reduced);
  const std::vector<Node> members = {reduced->node};
  g.op(OpId::reciprocal, {sum});
  const auto a = align(g.last(), reduced->space, members);
  ASSERT_TRUE(a);
  EXPECT_EQ(a->role, Role::RowMap);
  EXPECT_EQ(a->node.outs[0].shape, (Dims{4, 1}));
  EXPECT_FALSE(align(g.last(), loop_over({4, 5}), members)) << "nothing reduces rows";
}

TEST(Align, WhatDependsOnTheIndexKeepsItsOrder) {
  RecordedGraph g;
  const Operand r = g.op(OpId::rand_uniform, {}, {4, 5, 6});
  const auto source = align(g.last(), loop_over({4, 5, 6}), {});
  ASSERT_TRUE(source);
  EXPECT_TRUE(source->space.indexed);
  const std::vector<Node> members = {source->node};
  g.reduce(OpId::sum, r, 0b010);
  EXPECT_FALSE(align(g.last(), source->space, members));
  g.reduce(OpId::sum, r, 0b100);
  EXPECT_TRUE(align(g.last(), source->space, members));
}

TEST(Align, ABroadcastInputIsReducedInFull) {
  RecordedGraph g;
  g.reduce(OpId::sum, g.strided({4, 5}, {1, 0}), 0b10);
  const auto a = align(g.last(), loop_over({4, 5}), {});
  ASSERT_TRUE(a);
  EXPECT_EQ(a->node.ins[0].shape, (Dims{4, 5}));
}

}  // namespace
}  // namespace pyflame
