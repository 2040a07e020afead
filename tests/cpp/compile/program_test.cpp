// A program never changes: another implementation in one of its steps makes another program. And what the passes return, as text.
#include <gtest/gtest.h>

#include "pyflame/compile/passes.h"
#include "support/recorded_graph.h"

namespace pyflame {
namespace {

using testing::RecordedGraph;

class WithWorkspace : public Executable {
 public:
  explicit WithWorkspace(size_t bytes) : bytes_(bytes) {}
  void run(const RunContext&) override {}
  size_t workspace() const override { return bytes_; }

 private:
  size_t bytes_;
};

class Quiet : public Backend {
 public:
  const char* name() const override { return "quiet"; }
  std::span<const Impl> impls(const Problem&) const override { return {}; }
};

// Two products in a row, each a step of its own.
Program two_products() {
  Program p;
  RecordedGraph g;
  const Operand x = g.input({4, 4});
  g.keep(g.op(OpId::matmul, {g.op(OpId::matmul, {x, x}), x}));
  p.graph = g.graph;
  for (Group& one : group(p.graph, no_cuts(p.graph, Quiet()), {})) {
    Step& step = p.steps.emplace_back();
    step.group = std::move(one);
    step.impl = "first";
    step.executable = std::make_shared<WithWorkspace>(64);
  }
  p.memory = plan_memory(p.graph, p.steps, true);
  return p;
}

TEST(Program, AReplacementMakesAnotherProgram) {
  const Program p = two_products();
  ASSERT_EQ(p.steps.size(), 2u);
  const auto other = std::make_shared<WithWorkspace>(4096);
  const Impl second{"second", nullptr, nullptr};
  const auto q = with_replacements(p, {{1, {&second, "tile=8x8"}, other}});
  EXPECT_STREQ(q->steps[0].impl, "first");
  EXPECT_STREQ(q->steps[1].impl, "second");
  EXPECT_EQ(q->steps[1].configuration, "tile=8x8");
  EXPECT_EQ(q->steps[0].executable, p.steps[0].executable);
  EXPECT_EQ(q->steps[1].executable, other);
  EXPECT_EQ(q->memory.arena_bytes, 4096u + 64u) << "the workspace and what is between the two products";
  EXPECT_STREQ(p.steps[1].impl, "first");
  EXPECT_EQ(p.memory.arena_bytes, 128u);
}

TEST(Program, EachPassIsDescribed) {
  const Program p = two_products();
  const Graph& g = p.graph;
  EXPECT_NE(describe_graph(g).find("node 1: matmul("), std::string::npos);
  EXPECT_NE(describe_graph(g).find("; slots 1 0 -> 2"), std::string::npos) << describe_graph(g);
  std::vector<Group> groups;
  for (const Step& s : p.steps) groups.push_back(s.group);
  EXPECT_EQ(describe_groups(g, groups).rfind("  group 0: single\n    node 0: matmul(", 0), 0u);
  const std::vector<Selection> none(2);
  EXPECT_EQ(describe_selections(g, groups, none),
            "  group 0 of matmul: no implementation\n  group 1 of matmul: no implementation\n");
  const Cuts before = no_cuts(g, Quiet());
  Cuts after = before;
  after.most[NodeId(0)] = 1;
  EXPECT_EQ(describe_cuts(g, before, after), "  node 0 (matmul) opens a group of at most 1 node\n");
  EXPECT_EQ(describe_memory(g, p.steps, p.memory),
            "  arena 128 bytes, new memory 64 bytes\n"
            "  slot 0: 64 bytes, external\n"
            "  slot 1: 64 bytes, in the arena at 0\n"
            "  slot 2: 64 bytes, new memory\n"
            "  step 0: 64 bytes of workspace, in the arena at 64\n"
            "  step 1: 64 bytes of workspace, in the arena at 64\n");
}

}  // namespace
}  // namespace pyflame
