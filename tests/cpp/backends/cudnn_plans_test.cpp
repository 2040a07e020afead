// Which of cuDNN's engines are taken, by what they say of themselves: no rounded operands or sums, no transforms, and an order that varies
// only where any order will do. cuDNN is not here: a function table in its place lists engines with notes.
#include <gtest/gtest.h>

#include "pyflame/backends/cuda/cudnn.h"

namespace pyflame::gpu::cudnn_graph {
namespace {

enum Note { matrix_units, rounded_operands, rounded_sums, fourier, any, winograd };
const std::vector<std::vector<int>> kEngines = {{any},      {matrix_units},     {any, rounded_sums},
                                                {},         {fourier, any},     {matrix_units, any},
                                                {winograd}, {rounded_operands}, {rounded_sums}};

struct Made {
  size_t engine = 0;
};
Made& made(Descriptor d) { return *static_cast<Made*>(d); }

int make(int, Descriptor* d) {
  *d = new Made;
  return 0;
}
int destroy(Descriptor d) {
  delete static_cast<Made*>(d);
  return 0;
}
int finalize(Descriptor) { return 0; }
int set(Descriptor d, int name, int, int64_t, const void* values) {
  if (name == attribute::plan_config) made(d) = made(*static_cast<const Descriptor*>(values));
  return 0;
}
int get(Descriptor d, int name, int, int64_t, int64_t* count, void* values) {
  auto* const descriptors = static_cast<Descriptor*>(values);
  switch (name) {
    case attribute::heuristic_results:
      for (size_t i = 0; i < kEngines.size(); ++i) made(descriptors[i]).engine = i;
      *count = static_cast<int64_t>(kEngines.size());
      return 0;
    case attribute::config_engine: made(descriptors[0]) = made(d); return 0;
    case attribute::engine_note: {
      const std::vector<int>& notes = kEngines[made(d).engine];
      std::copy(notes.begin(), notes.end(), static_cast<int*>(values));
      *count = static_cast<int64_t>(notes.size());
      return 0;
    }
    case attribute::plan_workspace: *static_cast<int64_t*>(values) = static_cast<int64_t>(made(d).engine); return 0;
    default: return 1;
  }
}

// Engines in the order of preference. For each one: whether its results repeat bit for bit.
using Taken = std::vector<std::pair<size_t, bool>>;
Taken taken(DType dtype, int most, bool any_order, bool tf32 = false) {
  Functions f;
  f.make = make, f.destroy = destroy, f.finalize = finalize, f.set = set, f.get = get;
  Taken all;
  for (const auto& e : plans(f, nullptr, {}, dtype, kHeuristicA, most, {any_order, tf32}))
    all.emplace_back(e->workspace(), e->repeats());
  return all;
}

TEST(CudnnPlans, DeterministicUnlessAnyOrderWillDo) {
  EXPECT_EQ(taken(DType::bfloat16, 9, false), (Taken{{1, true}, {3, true}}));
  EXPECT_EQ(taken(DType::bfloat16, 9, true), (Taken{{0, false}, {1, true}, {3, true}, {5, false}}));
}

TEST(CudnnPlans, Float32IsNotRoundedInEitherMode) {
  EXPECT_EQ(taken(DType::float32, 9, false), (Taken{{3, true}}));
  EXPECT_EQ(taken(DType::float32, 9, true), (Taken{{0, false}, {3, true}}));
}

TEST(CudnnPlans, Float32MayBeRoundedToTF32WhereThatIsAllowed) {
  EXPECT_EQ(taken(DType::float32, 9, false, true), (Taken{{1, true}, {3, true}}));
  EXPECT_EQ(taken(DType::float32, 9, true, true), (Taken{{0, false}, {1, true}, {3, true}, {5, false}}));
}

TEST(CudnnPlans, NoMoreThanAreWanted) {
  EXPECT_EQ(taken(DType::bfloat16, 1, false), (Taken{{1, true}}));
  EXPECT_EQ(taken(DType::bfloat16, 1, true), (Taken{{0, false}}));
}

}  // namespace
}  // namespace pyflame::gpu::cudnn_graph
