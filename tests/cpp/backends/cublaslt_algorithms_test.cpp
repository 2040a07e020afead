// The enumeration of cuBLASLt's algorithms, with a library of a few kernels in its place; and which elements of a long list are kept.
#include "pyflame/backends/cuda/cublaslt_algorithms.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <set>

#include "pyflame/backends/backend.h"
#include "pyflame/backends/cuda/libraries.h"

namespace pyflame {

namespace {

namespace few_kernels {

// Kernel 3 can split sums. Kernel 20 needs operands at multiples of 32. Kernel 66 has stages, an option, clusters
// up to number 4, a swizzle, and a tile that needs a gigabyte. Kernel 70 is of other types.
struct Configured {
  uint32_t id, tile, splits, reduction, swizzle, custom, stages;
  uint16_t inner, cluster;
};
constexpr int kFine = 0, kRefused = 15;
constexpr uint32_t kLargeTile = 21;

int ids(void*, int, int, int, int, int, int, int wanted, int* out, int* found) {
  const int all[] = {3, 20, 66, 70};
  *found = std::min(wanted, 4);
  std::copy_n(all, *found, out);
  return kFine;
}
int init(void*, int compute, int scale, int a, int b, int c, int d, int id, void* algorithm) {
  if (compute != 68 || scale != 0 || a != 14 || b != 14 || c != 14 || d != 14 || id == 70) return kRefused;
  const Configured start{static_cast<uint32_t>(id), 0, 1, 0, 0, 0, 0, 0, 0};
  std::memcpy(algorithm, &start, sizeof start);
  return kFine;
}
int capability(const void* algorithm, int which, void* value, size_t bytes, size_t* written) {
  Configured a;
  std::memcpy(&a, algorithm, sizeof a);
  std::vector<uint32_t> values;
  switch (which) {
    case 0: values = {a.id == 3 ? 1U : 0}; break;
    case 2: values = {a.id == 66 ? 1U : 0}; break;
    case 6: values = a.id == 66 ? std::vector<uint32_t>{20, kLargeTile} : std::vector<uint32_t>{5, 6}; break;
    case 7: values = {a.id == 66 ? 2U : 0}; break;
    case 13:
      if (a.id == 66) values = {35, 36};
      break;
    case 16: values = {a.id == 20 ? 32U : 2U}; break;
    case 17:
    case 18:
    case 19: values = {2}; break;
    default: return kRefused;
  }
  *written = values.size() * sizeof(uint32_t);
  if (bytes == 0) return kFine;
  if (bytes != *written) return kRefused;
  std::memcpy(value, values.data(), bytes);
  return kFine;
}
size_t offset(int attribute) {
  constexpr size_t kAt[] = {
      offsetof(Configured, id),        offsetof(Configured, tile),    offsetof(Configured, splits),
      offsetof(Configured, reduction), offsetof(Configured, swizzle), offsetof(Configured, custom),
      offsetof(Configured, stages),    offsetof(Configured, inner),   offsetof(Configured, cluster)};
  return kAt[attribute];
}
int set(void* algorithm, int attribute, const void* value, size_t bytes) {
  if (attribute < 1 || attribute > 8 || bytes != (attribute > 6 ? 2U : 4U)) return kRefused;
  std::memcpy(static_cast<char*>(algorithm) + offset(attribute), value, bytes);
  return kFine;
}
int get(const void* algorithm, int attribute, void* value, size_t bytes, size_t* written) {
  if (attribute < 0 || attribute > 8 || bytes != (attribute > 6 ? 2U : 4U)) return kRefused;
  std::memcpy(value, static_cast<const char*>(algorithm) + offset(attribute), bytes);
  *written = bytes;
  return kFine;
}
int g_checks = 0;
int check(void*, void*, void*, void*, void*, void*, const void* algorithm, void* result) {
  ++g_checks;
  Configured a;
  std::memcpy(&a, algorithm, sizeof a);
  if (a.cluster > (a.id == 66 ? 4 : 0) || (a.splits > 1) != (a.reduction == 2) || a.splits > 8) return kRefused;
  const size_t workspace = a.id == 66 && a.tile == kLargeTile ? size_t{1} << 30 : a.splits * 1024;
  std::memcpy(static_cast<char*>(result) + gpu::kCudaBlas.result_workspace_at, &workspace, sizeof workspace);
  return kFine;
}

}  // namespace few_kernels

struct FewKernels {
  gpu::CublasLtAlgorithms algorithms{{few_kernels::ids, few_kernels::init, few_kernels::capability, few_kernels::set,
                                      few_kernels::get, few_kernels::check}};
  gpu::BlasProduct product{.compute = 68, .type_a = 14, .type_b = 14, .type_c = 14, .most_workspace = size_t{32} << 20};
  std::vector<gpu::BlasResult> recommended;
  FewKernels() {
    const few_kernels::Configured best{66, 20, 1, 0, 0, 0, 36, 0, 3};
    std::memcpy(recommended.emplace_back().data(), &best, sizeof best);
  }
  std::unique_ptr<Enumeration> all() const { return algorithms.all(product, recommended); }
  // Those at the first places, up to `most` of them.
  std::vector<std::string> names(size_t most = SIZE_MAX) const {
    std::vector<std::string> names;
    const auto all_places = all();
    for (size_t i = 0; i < all_places->size() && names.size() < most; ++i)
      if (const auto name = all_places->at(i)) names.push_back(*name);
    return names;
  }
};
constexpr const char* kBest = "id=66,tile=20,stages=36,splits=1,reduction=0,swizzle=0,custom=0,inner=0,cluster=3";

TEST(CublasLtAlgorithms, ListsWhatTheLibrarySaysThatItComputes) {
  const FewKernels fake;
  const std::vector<std::string> names = fake.names();
  std::set<std::string> found(names.begin(), names.end());
  EXPECT_EQ(found.size(), names.size()) << "one is there twice";
  EXPECT_FALSE(found.contains(kBest)) << "it is recommended";
  // Around the recommended one: other stages, two options, clusters 0 to 4 without its own, the swizzle; then what is plain.
  const auto near = [](const char* stages, const char* swizzle, const char* custom, int cluster) {
    return fmt::format("id=66,tile=20,stages={},splits=1,reduction=0,swizzle={},custom={},inner=0,cluster={}", stages,
                       swizzle, custom, cluster);
  };
  std::set<std::string> expected{near("35", "0", "0", 3), near("36", "1", "0", 3), near("36", "0", "1", 3),
                                 near("36", "0", "2", 3), near("35", "0", "0", 0)};
  for (const int cluster : {0, 1, 2, 4}) expected.insert(near("36", "0", "0", cluster));
  for (const int tile : {5, 6})
    expected.insert(
        fmt::format("id=3,tile={},stages=0,splits=1,reduction=0,swizzle=0,custom=0,inner=0,cluster=0", tile));
  const std::set<std::string> first(names.begin(), names.begin() + static_cast<ptrdiff_t>(expected.size()));
  EXPECT_EQ(first, expected);
  // And all combinations: two stages, two swizzles, three options and five clusters; 3 has six numbers of splits.
  EXPECT_EQ(found.size(), size_t{2 * 2 * 3 * 5 - 1 + 2 * 6});
  EXPECT_TRUE(found.contains(near("35", "1", "2", 4)));
  EXPECT_TRUE(found.contains("id=3,tile=6,stages=0,splits=8,reduction=2,swizzle=0,custom=0,inner=0,cluster=0"));
}

TEST(CublasLtAlgorithms, EachPlaceIsTheSameInEveryProcess) {
  const FewKernels fake, again;
  const auto one = fake.all(), other = again.all();
  ASSERT_EQ(one->size(), other->size());
  for (size_t i = one->size(); i-- > 0;) EXPECT_EQ(one->at(i), other->at(i)) << i;  // in any order
}

TEST(CublasLtAlgorithms, SplitsNameHowPartsAreAdded) {
  FewKernels fake;
  const few_kernels::Configured best{3, 5, 1, 0, 0, 0, 0, 0, 0};
  std::memcpy(fake.recommended[0].data(), &best, sizeof best);
  const std::vector<std::string> names = fake.names();
  const auto split = [&](int n) {
    return fmt::format("id=3,tile=5,stages=0,splits={},reduction=2,swizzle=0,custom=0,inner=0,cluster=0", n);
  };
  for (const int n : {2, 3, 4, 6, 8}) EXPECT_EQ(std::count(names.begin(), names.end(), split(n)), 1) << n;
  EXPECT_EQ(std::count(names.begin(), names.end(), split(16)), 0) << "the library refuses it";
}

TEST(CublasLtAlgorithms, ANameSaysAll) {
  const FewKernels fake;
  for (const std::string& name : fake.names()) EXPECT_TRUE(fake.algorithms.find(fake.product, name)) << name;
  const auto best = fake.algorithms.find(fake.product, kBest);
  ASSERT_TRUE(best);
  EXPECT_EQ(std::memcmp(best->data(), fake.recommended[0].data(), sizeof(few_kernels::Configured)), 0);
  size_t workspace = 0;
  std::memcpy(&workspace, best->data() + gpu::kCudaBlas.result_workspace_at, sizeof workspace);
  EXPECT_EQ(workspace, 1024U);
  const std::string whole = kBest;
  for (const std::string& other :
       {std::string(), std::string("algorithm=3"), std::string("id=66"), whole + ",", whole + "x", "x" + whole,
        whole.substr(0, whole.size() - 1), whole.substr(0, whole.size() - 1) + "5", "id=70" + whole.substr(5),
        "id=20,tile=5" + whole.substr(13), "id=66,tile=21" + whole.substr(13)})
    EXPECT_FALSE(fake.algorithms.find(fake.product, other)) << other;
}

TEST(CublasLtAlgorithms, AsksAboutNoMoreThanIsWanted) {
  const FewKernels fake;
  few_kernels::g_checks = 0;
  const auto all = fake.all();
  EXPECT_EQ(few_kernels::g_checks, 0);
  EXPECT_TRUE(all->at(0));
  EXPECT_EQ(few_kernels::g_checks, 1);
  // Near the recommended one and plain, in turns.
  size_t plain = 0;
  for (const std::string& name : fake.names(6)) plain += name.starts_with("id=3,");
  EXPECT_EQ(plain, 2U);
}

TEST(Spread, EachPlaceComesOnceAndTheFirstOnesAreFromTheWholeList) {
  for (const uint64_t size : {1, 2, 3, 7, 8, 1000, 1024, 3412}) {
    std::set<uint64_t> some{0, size};
    const gpu::Spread order(size);
    for (uint64_t i = 0; i < size; ++i) {
      const uint64_t place = order[i];
      ASSERT_LT(place, size);
      EXPECT_EQ(some.insert(place).second, i > 0) << "0 is the first, and each comes once";
      uint64_t largest = 0, last = 0;
      if (i % 16 != 15) continue;
      for (const uint64_t at : some) largest = std::max(largest, at - last), last = at;
      EXPECT_LE(largest, 3 * size / i + 2) << i << " of " << size;
    }
  }
  const uint64_t most = (uint64_t{1} << 32) - 1;
  EXPECT_LT(gpu::Spread(most)[most - 1], most);
  EXPECT_NE(gpu::Spread(most)[most - 1], gpu::Spread(most)[most - 2]);
}

}  // namespace

}  // namespace pyflame
