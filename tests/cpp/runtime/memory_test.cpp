// Placement of bytes: intervals of the arena never overlap, a dead storage's memory is reused, and memory does not grow in a loop.
#include <gtest/gtest.h>

#include <random>

#include "pyflame/autograd/autograd.h"
#include "pyflame/compile/passes.h"
#include "pyflame/ops/ops.h"
#include "pyflame/record/recorder.h"
#include "pyflame/runtime/allocator.h"
#include "support/plan.h"
#include "support/random_program.h"

namespace pyflame {
namespace {

constexpr size_t kMiB = 1 << 20;

using testing::Plan;
using testing::plan_of;

// ---- the planner by itself

class NeedsRoom final : public Executable {
 public:
  explicit NeedsRoom(size_t bytes) : bytes_(bytes) {}
  void run(const RunContext&) override {}
  size_t workspace() const override { return bytes_; }

 private:
  size_t bytes_;
};

// Steps that touch random slots; what is not live after the window shares the arena with the steps' workspaces.
Program random_program(uint32_t seed, size_t scale) {
  std::mt19937 rng(seed);
  auto below = [&](int n) { return static_cast<int>(rng() % static_cast<uint32_t>(n)); };
  Program p;
  const int slots = 2 + below(30), steps = 1 + below(40);
  for (int s = 0; s < slots; ++s) {
    SlotInfo slot;
    slot.nbytes = scale * static_cast<size_t>(below(5) ? 1 + below(5000) : 0);
    slot.external = below(4) == 0;
    slot.live = below(4) == 0;
    slot.donatable = slot.external && !slot.live && below(2);
    p.graph.bindings.push_back({p.graph.slots.push_back(slot)});
  }
  for (int k = 0; k < steps; ++k) {
    Node n;
    n.op = OpId::add;
    for (int i = 0; i < 3; ++i) {
      Operand o;
      o.binding = BindingId(below(slots));
      (i < 2 ? n.ins : n.outs).push_back(o);
    }
    Step step;
    step.group.nodes = {p.graph.nodes.push_back(n)};
    step.group.elided.assign(p.graph.bindings.size(), false);
    if (below(3) == 0) step.executable = std::make_unique<NeedsRoom>(scale * static_cast<size_t>(1 + below(5000)));
    p.steps.push_back(std::move(step));
  }
  return p;
}

struct Users {
  Indexed<SlotId, int> first, last;
};

// Where a step's workspace lies, no slot lies that is in use during the step. Returns whether it is in a donor.
bool check_workspace(const Program& p, size_t k, const Users& users) {
  const Placement& at = p.memory.workspaces[k];
  const size_t bytes = p.steps[k].executable->workspace();
  const int step = static_cast<int>(k);
  EXPECT_EQ(at.offset % 64, 0u);
  if (at.donor.valid()) {
    EXPECT_TRUE(p.graph.slots[at.donor].donatable);
    EXPECT_LT(users.last[at.donor], step);
    EXPECT_LE(at.offset + bytes, p.graph.slots[at.donor].nbytes);
  } else {
    EXPECT_LE(at.offset + bytes, p.memory.arena_bytes);
  }
  for (const SlotId b : p.graph.slots.ids()) {
    const Placement& pb = p.memory.placements[b];
    EXPECT_FALSE(at.donor.valid() && pb.kind == Placement::Donated && pb.donor == at.donor);
    if (pb.kind != Placement::Arena || pb.donor != at.donor || users.first[b] < 0 || users.first[b] > step ||
        users.last[b] < step)
      continue;
    EXPECT_TRUE(at.offset + bytes <= pb.offset || pb.offset + p.graph.slots[b].nbytes <= at.offset)
        << "step " << k << ", slot " << b.value();
  }
  return at.donor.valid();
}

// Programs with a large arena (the scaled ones) use what died as arenas too.
void check_plans(size_t scale) {
  size_t in_donors = 0, workspaces_in_donors = 0;
  for (uint32_t seed = 0; seed < 400; ++seed) {
    Program p = random_program(seed, scale);
    p.memory = plan_memory(p.graph, p.steps, true);
    const size_t n = p.graph.slots.size();
    Users users{Indexed<SlotId, int>(n, -1), Indexed<SlotId, int>(n, -1)};
    auto& [first, last] = users;
    for (const NodeId k : p.graph.nodes.ids()) {
      const Node& node = p.graph.nodes[k];
      for (const auto* ops : {&node.ins, &node.outs})
        for (const Operand& o : *ops) {
          const SlotId s = p.graph.slot(o);
          if (first[s] < 0) first[s] = k.value();
          last[s] = k.value();
        }
    }
    SCOPED_TRACE(fmt::format("seed {}", seed));
    for (size_t k = 0; k < p.steps.size(); ++k)
      if (p.steps[k].executable) workspaces_in_donors += check_workspace(p, k, users);
    Indexed<SlotId, bool> donated(n, false);
    for (const SlotId a : p.graph.slots.ids()) {
      const Placement& pa = p.memory.placements[a];
      if (first[a] < 0) continue;
      if (pa.kind == Placement::Donated) {
        const SlotId d = pa.donor;
        EXPECT_TRUE(p.graph.slots[d].donatable && !donated[d]) << "seed " << seed;
        EXPECT_LT(last[d], first[a]) << "seed " << seed;
        EXPECT_EQ(p.graph.slots[d].nbytes, p.graph.slots[a].nbytes);
        donated[d] = true;
      }
      const bool own = pa.kind == Placement::Allocate || pa.kind == Placement::Donated;
      EXPECT_EQ(pa.kind == Placement::External, p.graph.slots[a].external);
      EXPECT_TRUE(own || p.graph.slots[a].external || !p.graph.slots[a].live);
      if (pa.kind != Placement::Arena) continue;
      EXPECT_EQ(pa.offset % 64, 0u);
      if (pa.donor.valid()) {
        const SlotId d = pa.donor;
        EXPECT_TRUE(p.graph.slots[d].donatable) << "seed " << seed;
        EXPECT_LT(last[d], first[a]) << "seed " << seed;
        EXPECT_LE(pa.offset + p.graph.slots[a].nbytes, p.graph.slots[d].nbytes);
        for (const SlotId b : p.graph.slots.ids())
          EXPECT_FALSE(p.memory.placements[b].kind == Placement::Donated && p.memory.placements[b].donor == pa.donor);
        ++in_donors;
      } else {
        EXPECT_LE(pa.offset + p.graph.slots[a].nbytes, p.memory.arena_bytes);
      }
      for (const SlotId b : IdRange{SlotId(0), a}) {
        const Placement& pb = p.memory.placements[b];
        if (pb.kind != Placement::Arena || pb.donor != pa.donor || first[b] < 0 || last[a] < first[b] ||
            last[b] < first[a])
          continue;
        const bool apart =
            pa.offset + p.graph.slots[a].nbytes <= pb.offset || pb.offset + p.graph.slots[b].nbytes <= pa.offset;
        EXPECT_TRUE(apart) << "seed " << seed << ", slots " << a.value() << " and " << b.value();
      }
    }
  }
  EXPECT_EQ(in_donors > 0, scale > 1);
  EXPECT_EQ(workspaces_in_donors > 0, scale > 1);
}

TEST(PlanMemory, LiveIntervalsNeverOverlap) { check_plans(1); }
TEST(PlanMemory, LiveIntervalsNeverOverlapInWhatDied) { check_plans(size_t{1} << 16); }

// The gradient of the logits over the logits, whoever owns them: the arena, a storage that died, one that died for a gradient that lives.
TEST(PlanMemory, AnOpThatMayOverwriteItsInput) {
  constexpr int64_t kRows = 1 << 12, kClasses = 1 << 12;
  for (const bool external : {true, false})
    for (const bool live : {true, false})
      for (const bool read_later : {true, false}) {
        Program p;
        const auto add = [&](const Dims& shape, bool outside, bool lives) {
          SlotInfo slot;
          slot.nbytes = static_cast<size_t>(shape.numel()) * 4;
          slot.external = outside;
          slot.live = lives;
          slot.donatable = outside && !lives;
          Operand o;
          o.binding = p.graph.bindings.push_back({p.graph.slots.push_back(slot)});
          o.shape = shape;
          o.strides = contiguous_strides(shape);
          o.contiguous = true;
          return o;
        };
        const Operand x = add({kRows, kClasses}, external, false), small = add({kRows}, true, true);
        const Operand dx = add({kRows, kClasses}, false, live);
        const auto step = [&](OpId op, std::vector<Operand> ins, std::vector<Operand> outs) {
          Node node;
          node.op = op;
          node.ins.assign(ins.begin(), ins.end());
          node.outs.assign(outs.begin(), outs.end());
          Step s;
          s.group.nodes = {p.graph.nodes.push_back(node)};
          p.steps.push_back(std::move(s));
        };
        if (!external) step(OpId::exp, {small}, {x});
        step(OpId::cross_entropy_grad, {small, x, small, small, small}, {dx});
        step(OpId::sum, {read_later ? x : dx}, {small});
        for (Step& s : p.steps) s.group.elided.assign(p.graph.bindings.size(), false);
        p.memory = plan_memory(p.graph, p.steps, true);
        const Placement& at = p.memory.placements[p.graph.slot(dx)];
        const bool over = !read_later && (external || !live);
        SCOPED_TRACE(fmt::format("external {} live {} read later {}", external, live, read_later));
        if (live) {
          EXPECT_EQ(at.kind, over ? Placement::Donated : Placement::Allocate);
        } else if (over && external) {
          EXPECT_EQ(at.donor, p.graph.slot(x));
          EXPECT_EQ(p.memory.arena_bytes, 0u);
        } else {
          EXPECT_EQ(p.memory.arena_bytes, p.graph.slots[SlotId(0)].nbytes * (external || over ? 1 : 2));
        }
      }
}

// ---- with real tensors

class Memory : public ::testing::Test {
 protected:
  void SetUp() override {
    SKIP_UNLESS_DEFAULT_SETTINGS();
    synchronize();
    empty_cache();
    reset_peak_memory();
    base_ = memory_stats().allocated;
  }
  size_t peak() const { return memory_stats().peak_allocated - base_; }
  uint64_t base_ = 0;
};

TEST_F(Memory, AChainAllocatesOneOutput) {
  const Tensor x = ones({4 * static_cast<int64_t>(kMiB)});  // 16 MiB
  synchronize();
  base_ = memory_stats().allocated;
  reset_peak_memory();
  Tensor y = x;
  for (int i = 0; i < 10; ++i) y = add(mul(y, 0.5), 1.0);
  synchronize();
  EXPECT_LE(peak(), 16 * kMiB + 65536);
  EXPECT_EQ(memory_stats().allocated - base_, 16 * kMiB);
}

TEST_F(Memory, RepeatedUpdatesNeedFewCopies) {
  Tensor x = ones({static_cast<int64_t>(kMiB)});  // 4 MiB
  synchronize();
  base_ = memory_stats().allocated - 4 * kMiB - memory_stats().arena;
  reset_peak_memory();
  for (int i = 0; i < 300; ++i) {
    x = mul(x, 1.0001);
    synchronize();
  }
  EXPECT_LE(peak() - memory_stats().arena, 8 * kMiB + 65536);  // the old value and the new one
  for (int i = 0; i < 300; ++i) x = mul(x, 1.0001);  // in one window the old value's bytes become the new one's
  synchronize();
  EXPECT_LE(peak(), 16 * kMiB + 65536);
  EXPECT_LE(memory_stats().allocated - base_ - memory_stats().arena, 4 * kMiB + 65536);
}

TEST_F(Memory, StorageThatDiedIsTakenOver) {
  const Device null{DeviceType::null};
  Tensor x = zeros({256, 256}, DType::float32, null);
  const Tensor w = zeros({256, 256}, DType::float32, null);
  synchronize();
  x.storage()->owned_by_allocator = true;  // as if it had been run
  Tensor y;
  const Plan p = plan_of([&] {
    y = matmul(matmul(x, w), w);  // x is last read before y is made
    x = Tensor();
    return y;
  });
  EXPECT_EQ(p.new_bytes, 0u) << p.text;
}

TEST_F(Memory, StatsAddUp) {
  const uint64_t before = memory_stats().allocated;
  {
    const Tensor x = empty({1000});
    EXPECT_EQ(memory_stats().allocated - before, 4096u);  // a size class
    EXPECT_GE(memory_stats().peak_allocated, memory_stats().allocated);
  }
  EXPECT_EQ(memory_stats().allocated, before);
  EXPECT_GE(memory_stats().cached, 4096u);
  const uint64_t calls = memory_stats().allocations;
  { const Tensor y = empty({1000}); }
  EXPECT_EQ(memory_stats().allocations, calls);  // kept for reuse
  empty_cache();
  EXPECT_EQ(memory_stats().cached, 0u);
}

TEST_F(Memory, ATrainingLoopDoesNotGrow) {
  Tensor w = mul(randn({32, 32}), 0.1), b = zeros({32});
  w.set_requires_grad(true);
  b.set_requires_grad(true);
  Tensors m{zeros_like(w), zeros_like(b)}, v{zeros_like(w), zeros_like(b)};
  const Tensor x = randn({16, 32});
  synchronize();
  uint64_t early = 0, programs = 0;
  for (int i = 1; i <= 1000; ++i) {
    w.set_grad(Tensor());
    b.set_grad(Tensor());
    const Tensor loss = mean(square(dropout(relu(linear(x, w, b)), 0.2)));
    autograd::backward({loss});
    adam_step({w, b}, {w.grad(), b.grad()}, m, v, {1e-3 / i, 0.9, 0.999, 1e-8, 0, i, false, false});
    cut_window();
    if (i % 100 == 0) loss.item<float>();
    if (i == 200) {
      reset_peak_memory();
      early = memory_stats().allocated;
      programs = cache_stats().misses;
    }
  }
  synchronize();
  EXPECT_LE(memory_stats().allocated, early + 65536);
  EXPECT_LE(memory_stats().peak_allocated, early + (1 << 20));
  EXPECT_EQ(cache_stats().misses, programs);
}

TEST_F(Memory, PlannedBytes) {
  const Device null{DeviceType::null};
  const Tensor x = zeros({256, 256}, DType::float32, null), w = zeros({256, 256}, DType::float32, null);
  synchronize();
  constexpr size_t kOne = 256 * 256 * 4;
  Plan p = plan_of([&] { return softmax(matmul(x, w), -1); });
  EXPECT_EQ(p.new_bytes, kOne) << p.text;
  EXPECT_EQ(p.arena, kOne) << p.text;
  p = plan_of([&] { return Tensors{matmul(x, w), matmul(w, x)}; });
  EXPECT_EQ(p.new_bytes, 2 * kOne);
  EXPECT_EQ(p.arena, 0u);
}

TEST_F(Memory, RandomProgramsGiveEverythingBack) {
  const uint64_t before = memory_stats().allocated - memory_stats().arena;
  for (uint64_t seed = 1; seed < 60; ++seed) {
    testing::RandomProgram program(seed, {});
    program.run();
  }
  synchronize();
  // A finished program keeps no memory. Only the arena may have grown.
  EXPECT_LE(memory_stats().allocated - memory_stats().arena, before + memory_stats().arena / 4);
}

}  // namespace
}  // namespace pyflame
