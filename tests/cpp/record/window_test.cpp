// The window: cut as a pure function of the op stream, so that loops of any length settle into a few programs; nothing recorded is
// dropped; memory that somebody else can see is up to date when a call returns.
#include <gtest/gtest.h>

#include <vector>

#include "pyflame/ops/ops.h"
#include "pyflame/record/recorder.h"
#include "support/plan.h"
#include "support/tensor_values.h"

namespace pyflame {
namespace {

using testing::first;

using testing::plan_of;

// A loop body of n ops, all different by their shapes or kinds.
Tensor body(const Tensor& x, int n) {
  Tensor y = x;
  for (int i = 0; i < n; ++i) {
    switch (i % 5) {
      case 0: y = mul(y, 0.5); break;
      case 1: y = add(y, 1.0); break;
      case 2: y = i % 3 ? tanh(y) : sigmoid(y); break;
      case 3: y = i % 2 ? abs(y) : neg(y); break;
      default: y = i % 7 ? maximum(y, 0.25) : sin(y);
    }
  }
  return y;
}

class Bodies : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Lengths, Bodies, ::testing::Values(1, 7, 60, 333, 511, 512, 513, 1000));

TEST_P(Bodies, SettleIntoARepeatingSetOfPrograms) {
  SKIP_UNLESS_DEFAULT_SETTINGS();
  for (const int start : {0, 3, 250}) {  // the first round starts in mid-body
    Tensor x = zeros({17});
    synchronize();
    x = body(x, start);
    const int rounds = 1 + 40000 / GetParam();
    uint64_t early = 0;
    for (int r = 0; r < rounds; ++r) {
      x = body(x, GetParam());
      if (r == rounds / 2) early = cache_stats().misses;
    }
    EXPECT_EQ(cache_stats().misses, early) << "start " << start;
    EXPECT_FALSE(std::isnan(first(x)));
  }
}

TEST(Window, TheSameStreamIsCutAtTheSamePlaces) {
  SKIP_UNLESS_DEFAULT_SETTINGS();
  auto stream = [] {
    Tensor x = ones({9});
    for (int r = 0; r < 30; ++r) x = body(x, 47);
    return x;
  };
  synchronize();
  plan_of(stream);
  auto shape_of = [&] {  // reasons and sizes, without times
    std::string cuts;
    const std::string text = plan_of(stream).text;
    for (size_t at = 0; (at = text.find("window ", at)) != std::string::npos; ++at) {
      const size_t by = text.find("(cut by", at), ops = text.find(" op", at);
      if (by == std::string::npos || ops == std::string::npos) break;
      cuts += text.substr(by, text.find(';', by) - by) + text.substr(ops - 4, 4) + "\n";
    }
    return cuts;
  };
  const std::string once = shape_of();
  EXPECT_GT(once.size(), 20u);
  EXPECT_EQ(shape_of(), once);
}

TEST(Window, UnreadResultsAreComputed) {
  // An op whose only trace is its error shows that it ran.
  floor_divide(full({4}, 1), zeros({4}, DType::int64));
  EXPECT_THROW(synchronize(), Error);
}

TEST(Window, SyncPoints) {
  const Tensor x = ones({3});
  const Tensor s = sum(x);
  EXPECT_EQ(s.item<float>(), 3.0f);
  EXPECT_NE(add(x, 1.0).str().find("2"), std::string::npos);
  const Tensor y = mul(x, 4.0);
  EXPECT_EQ(first(y), 4.0f);
  const Tensor z = mul(y, 2.0);
  cut_window();
  EXPECT_NE(z.storage()->data, nullptr);
  const Tensor w = mul(z, 2.0);
  synchronize();
  EXPECT_NE(w.storage()->data, nullptr);
}

TEST(Window, AliveOrDroppedResultsAreRight) {
  Tensor x = full({1000}, 1.0);
  std::vector<Tensor> kept;
  for (int i = 0; i < 600; ++i) {
    x = add(x, 1.0);
    if (i % 37 == 0) kept.push_back(x);
  }
  EXPECT_EQ(first(x), 601.0f);
  for (size_t i = 0; i < kept.size(); ++i) EXPECT_EQ(first(kept[i]), 2.0f + 37.0f * static_cast<float>(i));
}

TEST(Window, EveryLivenessOfOneStreamIsRight) {
  // After a few variants, a program that was planned for more live results is used; one that was planned for fewer never is.
  for (const unsigned first_mask : {0u, 63u, 21u}) {
    for (unsigned i = 0; i < 128; ++i) {
      const unsigned mask = (first_mask + i * 37) % 128;
      Tensor x = full({50 + first_mask}, 1.0);  // a stream of its own for each first mask
      synchronize();
      std::vector<Tensor> made;
      Tensor y = x;
      for (int k = 0; k < 6; ++k) made.push_back(y = k % 2 ? softmax(y, 0) : add(y, 1.0 + k));
      if (mask >= 64) x = Tensor();  // its bytes may be taken over
      y = Tensor();
      for (size_t k = 0; k < 6; ++k)
        if (!(mask >> k & 1)) made[k] = Tensor();
      cut_window();
      EXPECT_TRUE(!x || first(x) == 1.0f);
      const float n = static_cast<float>(50 + first_mask);
      const float expected[] = {2, 1 / n, 1 / n + 3, 1 / n, 1 / n + 5, 1 / n};
      for (size_t k = 0; k < 6; ++k)
        ASSERT_NEAR(made[k] ? first(made[k]) : expected[k], expected[k], 1e-5) << "mask " << mask << ", result " << k;
    }
  }
  EXPECT_TRUE(env::window() != 0 || cache_stats().superset_hits > 0);
}

TEST(Window, ManyOperandsAndSlots) {
  std::vector<Tensor> parts;
  for (int i = 0; i < 400; ++i) parts.push_back(full({3}, i));
  const Tensor all = cat(parts);
  EXPECT_EQ(sum(all).item<float>(), 3.0f * 399 * 200);
}

TEST(Window, LongWindowsOfLargeTensorsAreCutByBytes) {
  Tensor x = ones({1 << 20});
  for (int i = 0; i < 600; ++i) x = add(x, 1.0);
  EXPECT_EQ(first(x), 601.0f);
}

// ---- escaped storages

struct Escaped {
  std::vector<float> bytes;
  Tensor tensor;
  explicit Escaped(float value) : bytes(8, value) {
    auto s = make_ref<Storage>(Device{}, bytes.size() * sizeof(float));
    s->set_data(bytes.data());
    s->foreign = true;
    s->exports = 1;
    tensor = Tensor(s, {8}, {1}, 0, DType::float32);
  }
};

TEST(Escape, AWriteIsCompleteWhenTheCallReturns) {
  Escaped e(1);
  fill_(e.tensor, 5.0);
  EXPECT_EQ(e.bytes[7], 5.0f);
  binary_(add, "add_", slice(e.tensor, 0, 2, 4), Value(1.0));
  EXPECT_EQ(e.bytes[2], 6.0f);
  EXPECT_EQ(e.bytes[4], 5.0f);
  copy_(e.tensor, add(full({8}, 1.0), 2.0));  // pending work before it is done as well
  EXPECT_EQ(e.bytes[0], 3.0f);
}

TEST(Escape, AReadHasHappenedWhenTheCallReturns) {
  Escaped e(1);
  const Tensor y = mul(e.tensor, 3.0);
  e.bytes.assign(8, 100.0f);  // a write from outside after the call must not be seen
  EXPECT_EQ(first(y), 3.0f);
  const Tensor z = mul(e.tensor, 3.0);
  EXPECT_EQ(first(z), 300.0f);
}

TEST(Escape, PendingReadsAreDoneBeforeThePointerIsGivenOut) {
  const Tensor x = full({8}, 2.0);
  synchronize();
  const Tensor y = mul(x, 3.0);
  static_cast<float*>(x.mutable_data())[0] = 50;
  EXPECT_EQ(first(y), 6.0f);
}

TEST(Escape, IsNeverDonated) {
  Escaped e(1);
  Tensor y;
  {
    Tensor x = e.tensor;
    e.tensor = Tensor();
    y = add(x, 1.0);
  }
  const Tensor z = add(y, 1.0);
  EXPECT_EQ(first(z), 3.0f);
  EXPECT_EQ(e.bytes[0], 1.0f);
}

}  // namespace
}  // namespace pyflame
