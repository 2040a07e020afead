// Tensors as static objects: the runtime hooks work before the first constructor runs and after the last destructor.
#include <gtest/gtest.h>

#include "pyflame/ops/ops.h"
#include "pyflame/tensor/runtime_hooks.h"

namespace pyflame {
namespace {

const Tensor g_recorded = add(arange(0, 4, 1, DType::float32), 1.0);
const double g_read = sum(g_recorded).item<double>();

TEST(StaticOrder, TensorsWorkBeforeMain) {
  EXPECT_EQ(g_read, 10);
  EXPECT_EQ(sum(mul(g_recorded, g_recorded)).item<double>(), 30);
}

TEST(StaticOrder, EveryHookIsFilledIn) {
  const auto* words = reinterpret_cast<void* const*>(&runtime_hooks);
  for (size_t i = 0; i < sizeof(runtime_hooks) / sizeof(void*); ++i) EXPECT_NE(words[i], nullptr) << i;
}

}  // namespace
}  // namespace pyflame
