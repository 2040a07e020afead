// Where the weights of recurrent layers are in a library's block: runs of bytes that are as few as the order of the gates allows, and cover both sides once.
#include <gtest/gtest.h>

#include <algorithm>

#include "pyflame/backends/gpu/libs/recurrent.h"

namespace pyflame::gpu {
namespace {

constexpr int64_t kInputs = 3, kHidden = 2, kSize = 4;

RecurrentCase layers(RecurrentMode mode, int64_t count, int64_t directions, bool biases) {
  RecurrentCase c;
  c.attrs = {static_cast<int64_t>(mode), kHidden, count, directions, biases, 1, 1, 0};
  c.dtype = DType::float32, c.steps = 5, c.batch = 7, c.inputs = kInputs;
  return c;
}

// A block with all matrices, then all biases, without gaps.
WeightPlaces one_after_the_other(const RecurrentCase& c) {
  WeightPlaces places;
  const auto gates = static_cast<size_t>(gates_of(static_cast<RecurrentMode>(c.attrs.mode)));
  size_t at = 0;
  const auto take = [&](std::vector<size_t>& list, int64_t elements) {
    for (size_t g = 0; g < gates; ++g) list.push_back(at), at += static_cast<size_t>(elements * kSize);
  };
  const int64_t all = c.attrs.layers * c.attrs.directions;
  for (int64_t layer = 0; layer < all; ++layer) {
    take(places.matrices, kHidden * (layer < c.attrs.directions ? kInputs : kHidden * c.attrs.directions));
    take(places.matrices, kHidden * kHidden);
  }
  for (int64_t layer = 0; layer < all; ++layer) take(places.biases, kHidden), take(places.biases, kHidden);
  return places;
}

// The number of bytes that pieces cover on each side; a failure where they overlap.
template <class Key>
size_t covered(std::vector<WeightPiece> pieces, Key key) {
  std::sort(pieces.begin(), pieces.end(), [&](const auto& a, const auto& b) { return key(a) < key(b); });
  size_t bytes = 0;
  for (size_t i = 0; i < pieces.size(); ++i) {
    bytes += pieces[i].bytes;
    if (i > 0 && key(pieces[i]).first == key(pieces[i - 1]).first) {
      EXPECT_GE(key(pieces[i]).second, key(pieces[i - 1]).second + pieces[i - 1].bytes);
    }
  }
  return bytes;
}

TEST(RecurrentWeights, ThoseInOneOrderAreOneRunEach) {
  const RecurrentCase c = layers(RecurrentMode::Lstm, 2, 2, true);
  const auto pieces = weight_pieces(c, one_after_the_other(c), {0, 1, 2, 3});
  ASSERT_EQ(pieces.size(), 16u);  // four weights of two layers and two directions
  for (const WeightPiece& p : pieces) EXPECT_EQ(p.from, 0u);
}

TEST(RecurrentWeights, OtherOrdersOfGates) {
  const RecurrentCase c = layers(RecurrentMode::Lstm, 1, 1, false);
  const auto pieces = weight_pieces(c, one_after_the_other(c), {0, 1, 3, 2});
  const size_t gate = kHidden * kInputs * kSize;
  ASSERT_EQ(pieces.size(), 6u);
  EXPECT_EQ(pieces[0].bytes, 2 * gate);  // i and f
  EXPECT_EQ(pieces[1].from, 3 * gate);   // o comes third
  EXPECT_EQ(pieces[1].to, 2 * gate);
  EXPECT_EQ(pieces[2].from, 2 * gate);
  EXPECT_EQ(pieces[2].to, 3 * gate);
}

TEST(RecurrentWeights, EachByteOnce) {
  for (const RecurrentMode mode : {RecurrentMode::Lstm, RecurrentMode::Gru})
    for (const bool biases : {false, true}) {
      const RecurrentCase c = layers(mode, 3, 2, biases);
      const auto pieces = weight_pieces(c, one_after_the_other(c), {1, 0, 2, 3});
      const auto gates = static_cast<size_t>(gates_of(mode));
      const size_t elements = 2 * gates * kHidden * (kInputs + kHidden + 2 * (2 * kHidden + kHidden) + 3 * 2 * biases);
      EXPECT_EQ(covered(pieces, [](const WeightPiece& p) { return std::pair(p.weight, p.from); }), elements * kSize);
      EXPECT_EQ(covered(pieces, [](const WeightPiece& p) { return std::pair(size_t{0}, p.to); }), elements * kSize);
    }
}

}  // namespace
}  // namespace pyflame::gpu
