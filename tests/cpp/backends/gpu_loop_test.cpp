// Fused groups: the text of their kernels (everywhere), and what they compute (on 'cuda' or 'rocm' where there is one): against the
// reference, and bit for bit the same fused or not.
#include <fmt/core.h>

#include <bit>
#include <set>

#include "gpu_case.h"
#include "gpu_forced.h"
#include "pyflame/autograd/autograd.h"
#include "pyflame/backends/gpu/driver/device.h"
#include "pyflame/backends/gpu/loops/interpret.h"
#include "pyflame/backends/gpu/loops/loop.h"
#include "pyflame/backends/gpu/loops/loop_shape.h"
#include "pyflame/record/recorder.h"

namespace pyflame {
namespace {

// These tests are about the generated kernels, from their first run on.
[[maybe_unused]] const int kNoInterpreter = setenv("PYFLAME_INTERPRET", "0", 0);

// A graph of one group, made by hand: no device is needed to write its kernels.
struct LoopByHand {
  Graph graph;
  Group group;
  LoopByHand(const Dims& space, int split) {
    graph.device = {DeviceType::rocm, 0};
    group.kind = GroupKind::Loop;
    group.space = space;
    group.split = split;
  }
  Operand tensor(DType dtype, const Dims& shape) { return strided(dtype, shape, contiguous_strides(shape)); }
  Operand strided(DType dtype, const Dims& shape, const Dims& strides) {
    group.elided.push_back(false);
    Operand o;
    o.dtype = dtype;
    o.shape = shape;
    o.strides = strides;
    o.binding = graph.bindings.push_back({graph.slots.push_back({o.nbytes(), true, true, false})});
    return o;
  }
  Operand param(DType dtype) {
    Operand o;
    o.is_param = true;
    o.dtype = dtype;
    o.param = ParamId(graph.params++);
    return o;
  }
  Operand add(OpId op, Role role, std::vector<Operand> ins, const Operand& out) {
    Node n;
    n.op = op;
    n.ins = std::move(ins);
    n.outs = {out};
    group.nodes.push_back(graph.nodes.push_back(n));
    group.roles.push_back(role);
    return out;
  }
  Operand inner(OpId op, Role role, std::vector<Operand> ins, const Operand& out) {
    group.elided[out.binding] = true;
    return add(op, role, std::move(ins), out);
  }
  gpu::LoopPlan plan(bool vectors = true) const { return gpu::plan_loop({graph, group}, vectors); }
  std::vector<gpu::NamedShape> others() const { return gpu::other_shapes({graph, group}); }
  bool worth_measuring() const { return gpu::worth_measuring({graph, group}); }
};

// gelu(x * w + b) + r with w and b of the last dim.
LoopByHand chain_loop(DType dtype, const Dims& shape) {
  LoopByHand h(shape, 2);
  const Operand x = h.tensor(dtype, shape), r = h.tensor(dtype, shape), w = h.tensor(dtype, {1, shape[1]}),
                b = h.tensor(dtype, {1, shape[1]});
  Operand y = h.inner(OpId::mul, Role::Map, {x, w}, h.tensor(dtype, shape));
  y = h.inner(OpId::add, Role::Map, {y, b}, h.tensor(dtype, shape));
  y = h.inner(OpId::gelu, Role::Map, {y}, h.tensor(dtype, shape));
  h.add(OpId::add, Role::Map, {y, r}, h.tensor(dtype, shape));
  return h;
}
gpu::LoopPlan chain(DType dtype, const Dims& shape, bool vectors = true) {
  return chain_loop(dtype, shape).plan(vectors);
}

LoopByHand copy_loop(DType from, DType to, const Dims& shape, const Dims& strides) {
  LoopByHand h(shape, shape.size());
  h.add(OpId::cast, Role::Map, {h.strided(from, shape, strides)}, h.tensor(to, shape));
  return h;
}
gpu::LoopPlan copy(DType from, DType to, const Dims& shape, const Dims& strides) {
  return copy_loop(from, to, shape, strides).plan();
}

// x minus its row's mean, scaled: two levels.
LoopByHand centred_loop(DType dtype, const Dims& shape) {
  const Dims row{shape[0], 1};
  LoopByHand h(shape, 1);
  const Operand x = h.tensor(dtype, shape);
  const Operand sum = h.inner(OpId::sum, Role::RowReduce, {x}, h.tensor(dtype, row));
  const Operand mean = h.add(OpId::mul, Role::RowMap, {sum, h.param(dtype)}, h.tensor(dtype, row));
  h.add(OpId::sub, Role::Map, {x, mean}, h.tensor(dtype, shape));
  return h;
}
gpu::LoopPlan centred(DType dtype, const Dims& shape, bool vectors = true) {
  return centred_loop(dtype, shape).plan(vectors);
}

// A gradient through relu, and the bias's.
LoopByHand bias_gradient_loop(DType dtype, const Dims& shape) {
  const Dims columns{1, shape[1]};
  LoopByHand h(shape, 1);
  const Operand x = h.tensor(dtype, shape), g = h.tensor(dtype, shape);
  const Operand on = h.inner(OpId::gt, Role::Map, {x, h.param(dtype)}, h.tensor(DType::bool_, shape));
  const Operand d = h.add(OpId::where, Role::Map, {on, g, h.param(dtype)}, h.tensor(dtype, shape));
  h.add(OpId::sum, Role::ColReduce, {d}, h.tensor(dtype, columns));
  return h;
}
gpu::LoopPlan bias_gradient(DType dtype, const Dims& shape, bool vectors = true) {
  return bias_gradient_loop(dtype, shape).plan(vectors);
}

// Row and column reductions of the same elements in one group.
LoopByHand both_loop(DType dtype, const Dims& shape) {
  const Dims columns{1, shape[1]}, row{shape[0], 1};
  LoopByHand h(shape, 1);
  const Operand x = h.tensor(dtype, shape);
  const Operand most = h.add(OpId::amax, Role::RowReduce, {x}, h.tensor(dtype, row));
  const Operand y = h.add(OpId::div, Role::Map, {x, most}, h.tensor(dtype, shape));
  h.add(OpId::prod, Role::ColReduce, {y}, h.tensor(dtype, columns));
  return h;
}
gpu::LoopPlan both(DType dtype, const Dims& shape) { return both_loop(dtype, shape).plan(); }

gpu::LoopPlan reduction(OpId op, DType from, DType to, const Dims& shape, int split, bool rows) {
  LoopByHand h(shape, split);
  Dims out = shape;
  for (int d = 0; d < shape.size(); ++d)
    if ((d >= split) == rows) out[d] = 1;
  h.add(op, rows ? Role::RowReduce : Role::ColReduce, {h.tensor(from, shape)}, h.tensor(to, out));
  return h.plan();
}

TEST(GpuLoop, OneKernelForEveryShapeAndValue) {
  const auto source = [](const gpu::LoopPlan& p) { return p.kernels.at(0).source; };
  EXPECT_EQ(source(chain(DType::float32, {64, 1000})), source(chain(DType::float32, {3, 20})));
  EXPECT_EQ(source(centred(DType::float32, {64, 1000})), source(centred(DType::float32, {5, 904})));
  EXPECT_EQ(source(centred(DType::float32, {64, 4000})), source(centred(DType::float32, {9999, 2056})));
  EXPECT_EQ(source(bias_gradient(DType::float32, {4096, 1000})), source(bias_gradient(DType::float32, {12345, 8})));
  EXPECT_EQ(source(copy(DType::float32, DType::float16, {4096}, {1})),
            source(copy(DType::float32, DType::float16, {7}, {1})));
}

TEST(GpuLoop, ABiasGradientIsOnePassOverItsInputs) {
  const gpu::LoopPlan p = bias_gradient(DType::float32, {16384, 768});
  ASSERT_EQ(p.kernels.size(), 2u);  // and one over the segments
  EXPECT_LE(p.workspace, 16384u * 768 * 4 / 32);
  EXPECT_EQ(bias_gradient(DType::float32, {32, 768}).kernels.size(), 1u);
}

int values(const gpu::LoopKernel& k) {
  int n = 0;
  for (const gpu::LoopArgument& a : k.arguments) n += a.kind == gpu::LoopArgument::Value;
  return n;
}

TEST(GpuLoop, EqualStridesAreOneArgument) {
  const auto add = [](const Dims& second) {
    LoopByHand h({6, 10, 32}, 3);
    const Operand x = h.strided(DType::float32, {6, 10, 32}, {2000, 100, 2}),
                  y = h.strided(DType::float32, {6, 10, 32}, second);
    h.add(OpId::add, Role::Map, {x, y}, h.tensor(DType::float32, {6, 10, 32}));
    return values(h.plan().kernels.at(0));
  };
  EXPECT_EQ(add({2000, 100, 2}) + 3, add({3000, 150, 3}));
}

// Two strided inputs of 8 bytes and an output of 1: a vector of 16 elements, of which a lane holds one and not four.
TEST(GpuLoop, ALaneHoldsNoMoreThanItsRegisters) {
  LoopByHand h({4096}, 1);
  const Operand x = h.strided(DType::float64, {4096}, {3}), y = h.strided(DType::float64, {4096}, {3});
  h.add(OpId::lt, Role::Map, {x, y}, h.tensor(DType::bool_, {4096}));
  EXPECT_NE(h.plan().kernels.at(0).source.find("V = 16, K = 1,"), std::string::npos);
}

// A chain of additions whose inputs are all strided in their own way, with a sum at its end or not.
LoopByHand strided_sum(int inputs, bool sum) {
  const Dims shape{6, 10, 32}, row{6, 10, 1};
  LoopByHand h(shape, sum ? 2 : 3);
  Operand y = h.tensor(DType::float32, shape);
  for (int i = 1; i <= inputs; ++i)
    y = h.inner(OpId::add, Role::Map, {y, h.strided(DType::float32, shape, {2000 * i, 100 * i, 2 * i})},
                h.tensor(DType::float32, shape));
  if (sum) h.add(OpId::sum, Role::RowReduce, {y}, h.tensor(DType::float32, row));
  else h.group.elided[y.binding] = false;
  return h;
}

TEST(GpuLoop, ALoopIsCutBeforeItsArgumentsNeedMoreRegistersThanThereAre) {
  const auto most = [](const LoopByHand& h) { return gpu::most_nodes({h.graph, h.group}); };
  EXPECT_EQ(most(strided_sum(6, true)), 7u);
  EXPECT_EQ(most(strided_sum(10, false)), 10u);
  EXPECT_EQ(most(strided_sum(10, true)),
            10u);  // a loop over rows needs more registers for itself: the sum is not in it
  EXPECT_LT(most(strided_sum(30, false)), 30u);
}

// 16-bit and 32-bit training is far from the limits, and stays fused.
TEST(GpuLoop, TypicalLoopsAreWhole) {
  for (const DType d : {DType::float32, DType::bfloat16}) {
    LoopByHand h({64, 1024}, 1);
    const Dims shape{64, 1024}, row{64, 1}, columns{1, 1024};
    const Operand x = h.tensor(d, shape), w = h.tensor(d, columns), b = h.tensor(d, columns), r = h.tensor(d, shape);
    Operand y = h.add(OpId::add, Role::Map, {x, r}, h.tensor(d, shape));
    const Operand sum = h.inner(OpId::sum, Role::RowReduce, {y}, h.tensor(d, row));
    const Operand mean = h.add(OpId::mul, Role::RowMap, {sum, h.param(d)}, h.tensor(d, row));
    y = h.inner(OpId::sub, Role::Map, {y, mean}, h.tensor(d, shape));
    const Operand square = h.inner(OpId::mul, Role::Map, {y, y}, h.tensor(d, shape));
    const Operand squares = h.inner(OpId::sum, Role::RowReduce, {square}, h.tensor(d, row));
    const Operand scale = h.add(OpId::rsqrt, Role::RowMap, {squares}, h.tensor(d, row));
    y = h.inner(OpId::mul, Role::Map, {y, scale}, h.tensor(d, shape));
    y = h.inner(OpId::mul, Role::Map, {y, w}, h.tensor(d, shape));
    y = h.inner(OpId::add, Role::Map, {y, b}, h.tensor(d, shape));
    h.add(OpId::gelu, Role::Map, {y}, h.tensor(d, shape));
    EXPECT_EQ(gpu::most_nodes({h.graph, h.group}), h.group.nodes.size());
  }
}

// Doubles and pow: the power is computed on its own, and the sum reads it.
TEST(GpuLoop, APowerOfDoublesIsNotInsideAReduction) {
  const Dims shape{64, 1024}, row{64, 1};
  for (const DType d : {DType::float32, DType::float64}) {
    LoopByHand h(shape, 1);
    const Operand y = h.inner(OpId::pow, Role::Map, {h.tensor(d, shape), h.param(d)}, h.tensor(d, shape));
    h.add(OpId::sum, Role::RowReduce, {y}, h.tensor(d, row));
    EXPECT_EQ(gpu::most_nodes({h.graph, h.group}), d == DType::float64 ? 1u : 2u);
  }
}

// Whatever the cut, it covers each element once, and depends on the shape alone.
TEST(GpuLoop, CutsCoverTheirShape) {
  for (const int64_t rows : {1, 2, 3, 31, 511, 512, 16384})
    for (const int64_t n : {1, 7, 8, 9, 255, 256, 257, 1024, 1025, 32767, 32768, 100003, 1 << 26}) {
      const gpu::RowCut r = gpu::cut_rows(rows, n);
      EXPECT_GE(r.segment * r.segments, n);
      EXPECT_LT(r.segment * (r.segments - 1), n);
      EXPECT_LE(r.segments, 2048);
      EXPECT_TRUE(r.lanes == 256 || r.lanes <= 32);
      EXPECT_TRUE(r.segments == 1 || r.segment % 2048 == 0);
      const gpu::ColumnCut c = gpu::cut_columns(n, rows);
      EXPECT_GE(c.segment * c.segments, n);
      EXPECT_LT(c.segment * (c.segments - 1), n);
      EXPECT_LE(c.segments, 512);
      EXPECT_EQ(c.across * c.lanes, 256);
    }
}

// --- the shapes that tuning may try

// Each name says how its shape differs from the own one, and each cut covers its rows or columns once.
void expect_shapes(const LoopByHand& h) {
  const Problem p{h.graph, h.group};
  const gpu::LoopShape own = gpu::own_shape(p);
  std::set<std::string> names;
  int64_t rows = 1, columns = 1;
  for (int d = 0; d < h.group.space.size(); ++d) (d < h.group.split ? rows : columns) *= h.group.space[d];
  const auto covers = [](int64_t n, int64_t segments, int64_t segment) {
    return segment * segments >= n && segment * (segments - 1) < n;
  };
  for (const gpu::NamedShape& s : h.others()) {
    SCOPED_TRACE(s.name);
    EXPECT_TRUE(names.insert(s.name).second);
    const gpu::RowCut& r = s.shape.rows;
    const gpu::ColumnCut& c = s.shape.columns;
    EXPECT_EQ((r != own.rows) + (c != own.columns) + (s.shape.flat != own.flat), 1);
    if (r != own.rows) {
      EXPECT_TRUE(covers(columns, r.segments, r.segment));
      EXPECT_TRUE(r.lanes == 256 || (r.lanes <= 32 && std::has_single_bit(static_cast<uint64_t>(r.lanes))));
      EXPECT_TRUE(r.segments == 1 || (r.lanes == 256 && r.segment % 2048 == 0 && rows <= 65535));
      EXPECT_EQ(s.name, r.segments > 1 ? fmt::format("segments={}", r.segments) : fmt::format("lanes={}", r.lanes));
    }
    if (c != own.columns) {
      EXPECT_TRUE(covers(rows, c.segments, c.segment));
      EXPECT_LE(c.segments, 1024);
      EXPECT_EQ(c.across * c.lanes, 256);
      EXPECT_EQ(s.name, fmt::format("across={},column_segments={}", c.across, c.segments));
    }
  }
  EXPECT_LE(names.size(), 8u);
}

TEST(GpuLoopShapes, OthersCoverTheirLoop) {
  for (const int64_t rows : {1, 2, 31, 511, 512, 16384, 100000})
    for (const int64_t n : {1, 8, 100, 255, 257, 1024, 1025, 32768, 100003}) {
      SCOPED_TRACE(fmt::format("{} x {}", rows, n));
      for (const DType d : {DType::float32, DType::bfloat16}) {
        expect_shapes(centred_loop(d, {rows, n}));
        expect_shapes(bias_gradient_loop(d, {rows, n}));
        expect_shapes(both_loop(d, {rows, n}));
        expect_shapes(chain_loop(d, {rows, n}));
      }
    }
}

std::vector<std::string> names_of(const LoopByHand& h, const gpu::Figures& f = {}) {
  std::vector<std::string> names;
  for (const gpu::NamedShape& s : gpu::other_shapes({h.graph, h.group}, f)) names.push_back(s.name);
  return names;
}
using Names = std::vector<std::string>;

TEST(GpuLoopShapes, OthersAreFew) {
  EXPECT_EQ(names_of(centred_loop(DType::float32, {64, 1000})), (Names{"lanes=256", "lanes=16", "lanes=8"}));
  EXPECT_EQ(names_of(centred_loop(DType::float32, {65536, 1000})), (Names{"lanes=8", "lanes=16", "lanes=256"}));
  EXPECT_EQ(names_of(centred_loop(DType::float32, {4, 70000})),
            (Names{"segments=35", "segments=18", "segments=4", "segments=2", "lanes=256"}));
  EXPECT_EQ(names_of(centred_loop(DType::bfloat16, {4096, 4096})), (Names{"lanes=32", "segments=2", "lanes=16"}));
  EXPECT_EQ(names_of(bias_gradient_loop(DType::float32, {16384, 768})),
            (Names{"across=32,column_segments=64", "across=32,column_segments=128", "across=64,column_segments=256",
                   "across=16,column_segments=256", "across=32,column_segments=512"}));
  EXPECT_EQ(names_of(copy_loop(DType::float32, DType::float32, {1024, 512}, {1, 1024})), Names{"side=32"});
  EXPECT_EQ(names_of(copy_loop(DType::float32, DType::float32, {1 << 24}, {1})),
            (Names{"vector=4,each=8", "vector=8,each=2", "vector=8,each=4", "vector=4,each=2", "vector=4,each=1",
                   "vector=8,each=1"}));
  EXPECT_EQ(names_of(copy_loop(DType::bfloat16, DType::float32, {1 << 18}, {1})),
            (Names{"vector=4,each=2", "vector=8,each=2", "vector=4,each=1", "vector=8,each=1", "vector=8,each=4",
                   "vector=4,each=8"}));
  EXPECT_TRUE(names_of(centred_loop(DType::float32, {0, 100})).empty());
}

// A device that is made up, with 300 compute units.
gpu::Figures device_for_loops() {
  gpu::Figures f;
  f.units = 300, f.bandwidth = 4e6, f.unit_caches = 2 * f.bandwidth / f.units;
  f.wave = 64, f.most_waves = 8;
  return f;
}

TEST(GpuLoopShapes, TheShortestEstimatesComeFirst) {
  const gpu::Figures f = device_for_loops();
  const auto us = [&](const LoopByHand& h, const std::string& name) {
    const Problem p{h.graph, h.group};
    for (const gpu::NamedShape& s : h.others())
      if (s.name == name) return gpu::shape_us(p, s.shape, f);
    ADD_FAILURE() << "there is no " << name;
    return 0.0;
  };
  for (const LoopByHand& h :
       {centred_loop(DType::float32, {4, 1 << 20}), bias_gradient_loop(DType::float32, {16384, 768}),
        copy_loop(DType::float32, DType::float32, {1 << 24}, {1})}) {
    const std::vector<std::string> names = names_of(h, f);
    ASSERT_GT(names.size(), 2U);
    for (size_t i = 1; i < names.size(); ++i) EXPECT_LE(us(h, names[i - 1]), us(h, names[i])) << names[i];
  }
  // Four workgroups on a large device: the last one.
  EXPECT_EQ(names_of(centred_loop(DType::float32, {4, 1 << 20}), f).back(), "lanes=256");
  // Few rows: many short loads are better than few lanes.
  EXPECT_EQ(names_of(bias_gradient_loop(DType::float32, {16384, 768}), f).back(), "across=32,column_segments=64");
}

// The texts of elementwise loops have the numbers in them.
TEST(GpuLoopShapes, TheTextFollowsTheShape) {
  const LoopByHand h = copy_loop(DType::float32, DType::float32, {1 << 20}, {1});
  for (const gpu::NamedShape& s : h.others()) {
    const gpu::LoopPlan plan = gpu::plan_loop({h.graph, h.group}, true, s.shape);
    EXPECT_NE(plan.kernels.at(0).source.find(fmt::format("V = {}, K = {},", s.shape.flat.vector, s.shape.flat.each)),
              std::string::npos)
        << s.name;
  }
}

// A vector that does not divide the rows would make the loop read element by element.
TEST(GpuLoopShapes, VectorsFitTheRows) {
  const auto vectors = [](int64_t row) {
    LoopByHand h({4096, row}, 2);
    h.add(OpId::neg, Role::Map, {h.strided(DType::float32, {4096, row}, {2 * row, 1})},
          h.tensor(DType::float32, {4096, row}));
    std::set<int64_t> all;
    for (const gpu::NamedShape& s : h.others()) all.insert(s.shape.flat.vector);
    return all;
  };
  EXPECT_EQ(vectors(64), (std::set<int64_t>{4, 8}));
  EXPECT_EQ(vectors(60), (std::set<int64_t>{4}));
}

TEST(GpuLoopShapes, OnlyLargeLoopsAreMeasured) {
  EXPECT_FALSE(chain_loop(DType::float32, {64, 1000}).worth_measuring());
  EXPECT_TRUE(chain_loop(DType::float32, {1024, 1000}).worth_measuring());
  EXPECT_FALSE(copy_loop(DType::float32, DType::float32, {131071}, {1}).worth_measuring());
  EXPECT_TRUE(copy_loop(DType::float32, DType::float32, {131072}, {1}).worth_measuring());
  EXPECT_FALSE(centred_loop(DType::float32, {1, 32767}).worth_measuring());
  EXPECT_TRUE(centred_loop(DType::float32, {1, 32768}).worth_measuring());
  EXPECT_TRUE(bias_gradient_loop(DType::bfloat16, {32768, 2}).worth_measuring());
}

// For the build that compiles kernels for AMD GPUs: PYFLAME_DUMP_KERNELS names the folder.
TEST(GpuLoop, SourcesForOtherCompilers) {
  if (!std::getenv("PYFLAME_DUMP_KERNELS")) GTEST_SKIP() << "PYFLAME_DUMP_KERNELS names no folder";
  const auto write = [&](const std::string& name, const gpu::LoopPlan& plan) {
    for (size_t i = 0; i < plan.kernels.size(); ++i)
      write_text(fmt::format("loop_{}{}", name, plan.kernels.size() > 1 ? fmt::format("_{}", i) : ""),
                 plan.kernels[i].source);
  };
  for (const DType d : {DType::float32, DType::float16, DType::bfloat16, DType::float64}) {
    const std::string name(dtype_name(d));
    write("chain_" + name, chain(d, {64, 1000}));
    write("chain_odd_" + name, chain(d, {64, 999}));
    write("chain_scalar_" + name, chain(d, {64, 1000}, false));
    write("copy_" + name, copy(d, d, {1 << 20}, {1}));
    write("transpose_" + name, copy(d, d, {1024, 512}, {1, 1024}));
    write("centred_wave_" + name, centred(d, {64, 1000}));
    write("centred_group_" + name, centred(d, {64, 4096}));
    write("centred_long_" + name, centred(d, {4, 1 << 20}));
    write("bias_gradient_" + name, bias_gradient(d, {16384, 768}));
    write("both_" + name, both(d, {4096, 768}));
  }
  // Texts of other shapes that differ from those above.
  const auto write_shapes = [&](const std::string& name, const LoopByHand& h) {
    std::set<std::string> seen;
    for (const gpu::LoopKernel& k : h.plan().kernels) seen.insert(k.source);
    for (const gpu::NamedShape& s : h.others()) {
      std::string stem = name + "_" + s.name;
      std::replace_if(
          stem.begin(), stem.end(), [](char c) { return c == '=' || c == ','; }, '_');
      gpu::LoopPlan plan = gpu::plan_loop({h.graph, h.group}, true, s.shape);
      std::erase_if(plan.kernels, [&](const gpu::LoopKernel& k) { return !seen.insert(k.source).second; });
      write(stem, plan);
    }
  };
  for (const DType d : {DType::float32, DType::bfloat16}) {
    const std::string name(dtype_name(d));
    write_shapes("chain_" + name, chain_loop(d, {8192, 1000}));
    write_shapes("copy_" + name, copy_loop(d, d, {1 << 24}, {1}));
    write_shapes("transpose_" + name, copy_loop(d, d, {1024, 512}, {1, 1024}));
    write_shapes("centred_wave_" + name, centred_loop(d, {64, 1000}));
    write_shapes("centred_group_" + name, centred_loop(d, {4096, 4096}));
  }
  write_text("interpreter", gpu::interpreter_source());
  write("transpose_uint8", copy(DType::uint8, DType::uint8, {1024, 512}, {1, 1024}));
  for (const OpId op :
       {OpId::to_float8_e4m3fn, OpId::to_float8_e5m2, OpId::to_float8_e4m3fnuz, OpId::to_float8_e5m2fnuz}) {
    LoopByHand codes({1 << 20}, 1);
    codes.add(op, Role::Map, {codes.tensor(DType::float32, {1 << 20})}, codes.tensor(DType::uint8, {1 << 20}));
    write(std::string(op_name(op)), codes.plan());
  }
  write("cast_float32_bfloat16", copy(DType::float32, DType::bfloat16, {1 << 20}, {1}));
  write("sum_int8", reduction(OpId::sum, DType::int8, DType::int64, {64, 1 << 20}, 1, true));
  write("any_columns", reduction(OpId::any, DType::bool_, DType::bool_, {4096, 100}, 1, false));
  write("amax_int64", reduction(OpId::amax, DType::int64, DType::int64, {64, 3, 5, 1000}, 2, true));
}

// Which groups the interpreter takes.
TEST(GpuInterpreter, TakesMapsOnly) {
  LoopByHand maps({8, 8}, 2);
  maps.add(OpId::gelu, Role::Map, {maps.tensor(DType::bfloat16, {8, 8})}, maps.tensor(DType::bfloat16, {8, 8}));
  EXPECT_TRUE(gpu::interpreter({maps.graph, maps.group}));
  LoopByHand rows({8, 8}, 1);
  rows.add(OpId::sum, Role::RowReduce, {rows.tensor(DType::float32, {8, 8})}, rows.tensor(DType::float32, {8, 1}));
  EXPECT_FALSE(gpu::interpreter({rows.graph, rows.group}));
  LoopByHand kinds({8, 8}, 2);
  kinds.add(OpId::cast, Role::Map, {kinds.tensor(DType::float64, {8, 8})}, kinds.tensor(DType::float32, {8, 8}));
  EXPECT_FALSE(gpu::interpreter({kinds.graph, kinds.group}));
}

// --- on a device

class GpuLoopOnDevice : public GpuCase {};

TEST_F(GpuLoopOnDevice, MapsOfEveryAlignment) {
  for (const DType d : {DType::float32, DType::float16, DType::bfloat16, DType::float64})
    for (const int64_t n : {1, 3, 64, 255, 1000, 4099}) {
      SCOPED_TRACE(fmt::format("{} {}", dtype_name(d), n));
      const double tolerance = d == DType::float64 ? 1e-12 : d == DType::float32 ? 2e-6 : 1e-2;
      const Tensor hx = cast(randn({37, n}, DType::float32, Device{}), d),
                   hb = cast(randn({n}, DType::float32, Device{}), d);
      const Tensor x = to_device(hx, gpu_), b = to_device(hb, gpu_);
      expect_near(gelu(add(mul(x, b), b)), gelu(add(mul(hx, hb), hb)), tolerance);
      expect_near(add(slice(x, 1, n > 1, n), 1.0), add(slice(hx, 1, n > 1, n), 1.0), tolerance);  // an odd offset
      expect_near(add(transpose(x, 0, 1), transpose(x, 0, 1)), add(transpose(hx, 0, 1), transpose(hx, 0, 1)),
                  tolerance);
      expect_same(contiguous(transpose(x, 0, 1)), contiguous(transpose(hx, 0, 1)));
      expect_same(contiguous(x), hx);
    }
}

// Bit for bit what the generated kernel computes.
TEST_F(GpuLoopOnDevice, TheInterpreterIsTheKernel) {
  gpu::GpuDevice& device = gpu::device(gpu_.type, 0);
  constexpr int64_t kRows = 37, kColumns = 53, kCount = kRows * kColumns;
  for (const DType d : {DType::float32, DType::float16, DType::bfloat16, DType::int32, DType::uint8})
    for (int op = 0; op < kNumOps; ++op) {
      const auto id = static_cast<OpId>(op);
      const OpClass cls = op_info(id).cls;
      if (cls != OpClass::Unary && cls != OpClass::Binary) continue;
      const bool real = is_float(d);
      const bool truth = id == OpId::isnan || id == OpId::isinf || id == OpId::logical_not ||
                         (id >= OpId::eq && id <= OpId::logical_xor);
      if (!real && !truth && id != OpId::add && id != OpId::mul && id != OpId::neg && id != OpId::maximum) continue;
      SCOPED_TRACE(fmt::format("{} {}", dtype_name(d), op_name(id)));
      LoopByHand h({kRows, kColumns}, 2);
      h.graph.device = gpu_;
      const Dims shape{kRows, kColumns};
      std::vector<Operand> ins{h.strided(d, shape, {1, kRows})};
      if (cls == OpClass::Binary) ins.push_back(h.tensor(d, {1, kColumns}));
      if (id == OpId::softplus) ins.push_back(h.param(d)), ins.push_back(h.param(d));
      if (id == OpId::leaky_relu) ins.push_back(h.param(d));
      Operand y = h.inner(id, Role::Map, ins, h.tensor(truth ? DType::bool_ : d, shape));
      y = h.add(OpId::cast, Role::Map, {y}, h.tensor(real ? d : DType::int64, shape));
      const Problem problem{h.graph, h.group};
      const auto interpreted = gpu::interpreter(problem);
      ASSERT_TRUE(interpreted);
      const Tensor x = contiguous(cast(mul(randn({kCount}, DType::float32, Device{}), 20.0), d));
      const Tensor gx = to_device(x, gpu_);
      gx.data();
      const int64_t bytes = kCount * 8;
      void* out[2] = {device.allocate(static_cast<size_t>(bytes)), device.allocate(static_cast<size_t>(bytes))};
      std::vector<char> results[2];
      const std::vector<Param> params{Param(Scalar(1.5)), Param(Scalar(20.0))};
      const auto generated = gpu::kLoop.make(problem);
      for (int k = 0; k < 2; ++k) {
        Indexed<BindingId, void*> bindings(h.graph.bindings.size(),
                                           const_cast<void*>(static_cast<const void*>(gx.data())));
        bindings[y.binding] = out[k];
        const RunContext ctx{bindings.data(), params.data(), nullptr};
        k == 0 ? interpreted->run(ctx) : generated->run(ctx);
        results[k].resize(static_cast<size_t>(kCount * dtype_size(y.dtype)));
        device.to_host(results[k].data(), out[k], results[k].size());
        device.release(out[k]);
      }
      EXPECT_TRUE(results[0] == results[1]);
    }
}

TEST_F(GpuLoopOnDevice, ReductionsOverNothing) {
  const Tensor hx = zeros({3, 0}, DType::float32, Device{}), x = zeros({3, 0}, DType::float32, gpu_);
  expect_same(sum(x, {1}), sum(hx, {1}));
  expect_same(prod(x, {1}), prod(hx, {1}));
  expect_same(sum(x, {0}), sum(hx, {0}));
  EXPECT_THROW(on_host(amax(x, {1})), Error);
}

// Reduced dims that are not neighbours, and inputs that are permuted, broadcast or both.
TEST_F(GpuLoopOnDevice, ReductionsOfAnyDims) {
  const Tensor hx = randn({6, 5, 16, 24}, DType::float32, Device{}), x = to_device(hx, gpu_);
  for (const Dims& dims : {Dims{0, 2}, Dims{1, 3}, Dims{0, 2, 3}, Dims{0, 1}, Dims{1, 2}, Dims{0, 3}}) {
    SCOPED_TRACE(dims.str());
    expect_near(sum(x, dims), sum(hx, dims), 1e-4);
    expect_near(sum(permute(x, {2, 0, 3, 1}), dims), sum(permute(hx, {2, 0, 3, 1}), dims), 1e-4);
    expect_same(amax(x, dims), amax(hx, dims));
    const Tensor hc = sub(hx, mean(hx, dims, true)), c = sub(x, mean(x, dims, true));
    expect_near(mul(c, c), mul(hc, hc), 1e-4);
  }
}

TEST_F(GpuLoopOnDevice, PermutedCopies) {
  for (const DType d : {DType::float32, DType::bfloat16, DType::float64, DType::uint8}) {
    const Tensor hx = cast(mul(rand({3, 70, 5, 66}, DType::float32, Device{}), 200.0), d), x = to_device(hx, gpu_);
    for (const Dims& order : {Dims{0, 3, 2, 1}, {3, 2, 1, 0}, {1, 0, 3, 2}, {0, 2, 3, 1}, {2, 3, 0, 1}}) {
      expect_same(contiguous(permute(x, order)), contiguous(permute(hx, order)));
      expect_same(cast(permute(x, order), DType::float16), cast(permute(hx, order), DType::float16));
      expect_same(mul(permute(x, order), permute(x, order)), mul(permute(hx, order), permute(hx, order)));
    }
  }
}

// A group and its parts, bit for bit: the order of a reduction is its shape's.
TEST_F(GpuLoopOnDevice, FusedIsUnfused) {
  for (const auto& [rows, n] :
       {std::pair<int64_t, int64_t>{7, 40}, {300, 33}, {64, 1000}, {40, 3000}, {3, 40000}, {2000, 24}}) {
    SCOPED_TRACE(fmt::format("{} x {}", rows, n));
    const Tensor x = randn({rows, n}, DType::float32, gpu_), g = randn({rows, n}, DType::float32, gpu_);
    synchronize();
    const Tensor d = where(gt(x, 0.0), g, zeros({}, DType::float32, gpu_)), b = sum(d, {0}), r = sum(d, {1}),
                 c = sub(x, reshape(mul(r, 0.25), {rows, 1}));
    synchronize();
    const Tensor m = gt(x, 0.0);
    synchronize();
    const Tensor d1 = where(m, g, zeros({}, DType::float32, gpu_));
    synchronize();
    const Tensor b1 = sum(d1, {0});
    synchronize();
    const Tensor r1 = sum(d1, {1});
    synchronize();
    const Tensor s1 = mul(r1, 0.25);
    synchronize();
    const Tensor c1 = sub(x, reshape(s1, {rows, 1}));
    expect_same(b, b1);
    expect_same(r, r1);
    expect_same(c, c1);
  }
}

TEST_F(GpuLoopOnDevice, ReductionsOfEveryShape) {
  for (const int64_t rows : {1, 2, 5, 300})
    for (const int64_t n : {1, 3, 8, 9, 250, 1000, 1025, 5000, 70000}) {
      if (rows * n > 1'000'000) continue;
      SCOPED_TRACE(fmt::format("{} x {}", rows, n));
      const Tensor hx = randn({rows, n}, DType::float32, Device{});
      const Tensor x = to_device(hx, gpu_);
      expect_near(sum(x, {1}), sum(hx, {1}), 1e-4);
      expect_near(sum(x, {0}), sum(hx, {0}), 1e-4);
      expect_near(sum(transpose(x, 0, 1), {0}), sum(hx, {1}), 1e-4);
      expect_near(sum(transpose(x, 0, 1), {1}), sum(hx, {0}), 1e-4);
      expect_near(sum(x), sum(hx), 1e-3);
      expect_same(amax(x, {1}), amax(hx, {1}));
      expect_same(amin(x, {0}), amin(hx, {0}));
      expect_near(sub(x, mean(x, {1}, true)), sub(hx, mean(hx, {1}, true)), 1e-4);
      expect_near(prod(slice(x, 1, 0, std::min<int64_t>(n, 20)), {1}),
                  prod(slice(hx, 1, 0, std::min<int64_t>(n, 20)), {1}), 1e-5);
      expect_same(any(gt(x, 3.0), {1}), any(gt(hx, 3.0), {1}));
      expect_same(all(gt(x, -3.0), {0}), all(gt(hx, -3.0), {0}));
      expect_same(sum(cast(mul(x, 100.0), DType::int32), {0}), sum(cast(mul(hx, 100.0), DType::int32), {0}));
    }
}

// --- the configurations that tuning may try
class LoopConfigurationsOnGpu : public GpuCase {
 protected:
  using Tensors = std::vector<Tensor>;
  // Every configuration of a loop that begins with `op` computes what the CPU does, and has the same bits in two runs. Maps: also those of
  // the own choice. Returns the names.
  template <class Compute>
  std::set<std::string> check(const std::string& op, const Tensors& host, double tolerance, bool maps,
                              Compute&& compute) {
    Tensors on_gpu;
    for (const Tensor& t : host) on_gpu.push_back(to_device(t, gpu_));
    synchronize();
    const auto run = [&] {
      Tensors results = compute(on_gpu);
      for (Tensor& t : results) t = on_host(t);
      return results;
    };
    const Tensors own = run(), expected = compute(host);
    const std::vector<std::string> all = named_by_error(op, "gpu.loop", run);
    for (const std::string& name : all) {
      SCOPED_TRACE(name);
      Tensors first, second;
      {
        const Forced forced(op, "gpu.loop:" + name);
        first = run(), second = run();
      }
      for (size_t i = 0; i < first.size(); ++i) {
        expect_near(first[i], expected[i], tolerance);
        expect_same(first[i], second[i]);
        if (maps) expect_same(first[i], own[i]);
      }
    }
    return {all.begin(), all.end()};
  }
  static Tensor random(const Dims& shape, DType d) { return cast(randn(shape, DType::float32, Device{}), d); }
  static constexpr std::pair<DType, double> kTypes[] = {{DType::float32, 1e-4}, {DType::bfloat16, 1e-2}};
};

TEST_F(LoopConfigurationsOnGpu, MapsHaveTheSameBits) {
  for (const auto& [d, tolerance] : kTypes) {
    SCOPED_TRACE(dtype_name(d));
    const auto affine = [](const Tensors& x) { return Tensors{add(gelu(mul(x[0], x[1])), x[2])}; };
    for (const int64_t n : {1000, 999}) {  // rows of whole vectors, and others
      const auto names =
          check("mul", {random({97, n}, d), random({n}, d), random({97, n}, d)}, tolerance, true, affine);
      EXPECT_GE(names.size(), 2u);
    }
    const auto strided = [](const Tensors& x) { return Tensors{mul(slice(x[0], 1, 0, 1300, 2), x[1])}; };
    EXPECT_GE(check("mul", {random({60, 1300}, d), random({60, 650}, d)}, tolerance, true, strided).size(), 2u);
    const auto turned = [](const Tensors& x) { return Tensors{add(transpose(x[0], 0, 1), x[1])}; };
    EXPECT_EQ(check("add", {random({130, 72}, d), random({72, 130}, d)}, tolerance, true, turned),
              std::set<std::string>{"side=32"});
    const DType other = d == DType::float32 ? DType::bfloat16 : DType::float32;
    const auto converted = [other](const Tensors& x) { return Tensors{cast(x[0], other)}; };
    EXPECT_GE(check("cast", {random({70001}, d)}, tolerance, true, converted).size(), 4u);
  }
}

TEST_F(LoopConfigurationsOnGpu, RandomNumbersAreTheSame) {
  const auto numbers = [](const Tensors& x) {
    manual_seed(7);
    return Tensors{rand({70001}, DType::float32, x[0].device())};
  };
  EXPECT_GE(check("rand_uniform", {random({1}, DType::float32)}, 0, true, numbers).size(), 2u);
}

TEST_F(LoopConfigurationsOnGpu, RowsOfEveryCut) {
  const auto softmax_of_rows = [](const Tensors& x) {
    const Tensor e = exp(sub(x[0], amax(x[0], {1}, true)));
    return Tensors{div(e, sum(e, {1}, true))};
  };
  const auto sums = [](const Tensors& x) { return Tensors{sum(x[0], {1})}; };
  for (const auto& [d, tolerance] : kTypes) {
    SCOPED_TRACE(dtype_name(d));
    EXPECT_EQ(check("amax", {random({64, 1000}, d)}, tolerance, false, softmax_of_rows),
              (std::set<std::string>{"lanes=8", "lanes=16", "lanes=256"}));
    EXPECT_EQ(check("amax", {random({4, 70000}, d)}, tolerance, false, softmax_of_rows),
              (std::set<std::string>{"segments=2", "segments=4", "segments=18", "segments=35", "lanes=256"}));
    EXPECT_EQ(check("sum", {random({40, 5001}, d)}, tolerance, false, sums),
              (std::set<std::string>{"segments=2", "segments=3", "lanes=32"}));
  }
}

TEST_F(LoopConfigurationsOnGpu, ColumnsOfEveryCut) {
  const auto sums = [](const Tensors& x) { return Tensors{sum(x[0], {0})}; };
  const auto both = [](const Tensors& x) {
    const Tensor squares = mul(x[0], x[0]);
    return Tensors{sum(squares, {0}), sum(squares, {1})};
  };
  for (const auto& [d, tolerance] : kTypes) {
    SCOPED_TRACE(dtype_name(d));
    EXPECT_GE(check("sum", {random({3000, 200}, d)}, tolerance, false, sums).size(), 4u);
    EXPECT_GE(check("sum", {random({9000, 33}, d)}, tolerance, false, sums).size(), 4u);
    const auto names = check("mul", {random({700, 300}, d)}, tolerance, false, both);
    EXPECT_TRUE(names.count("lanes=16")) << "a cut of rows is among them";
    EXPECT_TRUE(std::any_of(names.begin(), names.end(), [](const std::string& n) { return n.starts_with("across="); }));
  }
}

// A loop that is too small to be measured can be forced all the same; one without other shapes says so.
TEST_F(LoopConfigurationsOnGpu, AConfigurationThatDoesNotExistIsAnError) {
  const Tensor x = to_device(random({40, 600}, DType::float32), gpu_),
               one = to_device(random({1}, DType::float32), gpu_);
  synchronize();
  const auto message = [](const char* configuration, const Tensor& t) {
    const Forced forced("neg", std::string("gpu.loop:") + configuration);
    try {
      on_host(neg(t));
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  EXPECT_NE(message("vector=5", x)
                .find("neg: no such configuration of a loop that begins with it; got 'vector=5'; expected "
                      "one of vector=4,each=2 "),
            std::string::npos)
      << message("vector=5", x);
  EXPECT_EQ(message("vector=4,each=2", x), "");
}

}  // namespace
}  // namespace pyflame
