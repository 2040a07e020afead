// The device allocator over a driver that counts: blocks never overlap, what is free is joined again, the smallest block that fits is
// taken, a limit holds.
#include "pyflame/runtime/segments.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <random>

#include "pyflame/base/error.h"

namespace pyflame {
namespace {

constexpr size_t kMebibyte = size_t{1} << 20;

// Addresses without memory behind them: the allocator never accesses the memory that it gives.
class CountingDriver final : public DeviceMemory {
 public:
  explicit CountingDriver(size_t total) : total_(total) {}
  void* allocate(size_t n) override {
    if (used_ + n > total_) return nullptr;
    used_ += n;
    ++calls;
    char* p = next_;
    next_ += n + 4096;
    held_[p] = n;
    return p;
  }
  void release(void* p) override {
    const auto it = held_.find(p);
    PF_CHECK(it != held_.end(), Runtime, "released twice");
    used_ -= it->second;
    held_.erase(it);
  }
  bool holds(const char* p, size_t n) const {
    for (const auto& [q, size] : held_)
      if (p >= static_cast<const char*>(q) && p + n <= static_cast<const char*>(q) + size) return true;
    return false;
  }
  size_t used() const { return used_; }
  int calls = 0;

  void from_host(void*, const void*, size_t) override {}
  void to_host(void*, const void*, size_t) override {}
  std::unique_ptr<Download> download(const void*, size_t) override { return nullptr; }
  void copy(void*, const void*, size_t) override {}
  void fill(void*, uint8_t, size_t) override {}
  bool copy_from(void*, DeviceMemory&, const void*, size_t) override { return false; }
  void wait() override {}
  void room(size_t* free, size_t* total) override { *free = total_ - used_, *total = total_; }
  void* fault() override { return nullptr; }
  void read_fault(FaultTable*) override {}
  FaultTable* pinned_report() override { return nullptr; }
  void pin_ahead(size_t) override {}
  uint64_t mark() override { return 1; }
  bool passed(uint64_t) override { return true; }
  std::unique_ptr<Moment> moment() override { return nullptr; }
  std::unique_ptr<Pause> pause() override { return nullptr; }
  std::unique_ptr<Replay> make_replay() override { return nullptr; }
  std::string replay_unsafe() const override { return "no device"; }

 private:
  size_t total_, used_ = 0;
  char* next_ = reinterpret_cast<char*>(uintptr_t{1} << 40);
  std::map<void*, size_t> held_;
};

TEST(Segments, BlocksNeverOverlapAndComeBack) {
  for (uint32_t seed = 0; seed < 20; ++seed) {
    CountingDriver driver(size_t{1} << 34);
    Segments segments(driver);
    std::mt19937_64 rng(seed);
    std::map<char*, size_t> live;
    uint64_t bytes = 0;
    for (int i = 0; i < 4000; ++i) {
      if (live.empty() || rng() % 5 < 3) {
        const size_t n = rng() % 3 == 0 ? 1 + rng() % (40 * kMebibyte) : 1 + rng() % (rng() % 2 ? 3000 : 2 * kMebibyte);
        auto* p = static_cast<char*>(segments.get(n));
        if (!p) continue;
        EXPECT_EQ(reinterpret_cast<uintptr_t>(p) % 512, 0u);
        EXPECT_GE(segments.size_of(p), n);
        ASSERT_TRUE(driver.holds(p, n));
        const auto after = live.lower_bound(p);
        if (after != live.end()) {
          ASSERT_LE(p + n, after->first) << "seed " << seed;
        }
        if (after != live.begin()) {
          ASSERT_LE(std::prev(after)->first + std::prev(after)->second, p) << "seed " << seed;
        }
        live[p] = n;
        bytes += segments.size_of(p);
      } else {
        auto it = live.begin();
        std::advance(it, static_cast<long>(rng() % live.size()));
        bytes -= segments.size_of(it->first);
        segments.put(it->first);
        live.erase(it);
      }
      ASSERT_EQ(segments.stats().active, bytes);
    }
    for (const auto& [p, n] : live) segments.put(p);
    segments.trim();
    EXPECT_EQ(driver.used(), 0u) << "seed " << seed << ": free neighbours were not joined";
    EXPECT_EQ(segments.stats().reserved, 0u);
    EXPECT_EQ(segments.stats().blocks, 0u);
  }
}

TEST(Segments, ALoopAsksTheDriverOnceAndGetsTheSameAddresses) {
  CountingDriver driver(size_t{1} << 34);
  Segments segments(driver);
  const size_t sizes[] = {100, 5000, 4 * kMebibyte, 30 * kMebibyte, 700 * 1024, 100};
  std::vector<void*> first;
  for (int round = 0; round < 10; ++round) {
    std::vector<void*> now;
    for (const size_t n : sizes) now.push_back(segments.get(n));
    for (size_t i = now.size(); i-- > 0;) segments.put(now[i]);
    if (round == 1) first = now;
    if (round > 1) {
      EXPECT_EQ(now, first);
    }
  }
  EXPECT_LE(driver.calls, 3);
}

TEST(Segments, ABlockAboveTheSplitSizeIsKeptWhole) {
  CountingDriver driver(size_t{1} << 34);
  Segments segments(driver);
  segments.set_split_size(32 * kMebibyte);
  void* large = segments.get(100 * kMebibyte);
  segments.put(large);
  segments.get(12 * kMebibyte);  // would break the large block up
  EXPECT_EQ(segments.stats().largest_hole, 100 * kMebibyte);
  EXPECT_NE(segments.get(50 * kMebibyte), large) << "half of the block would be wasted";
  EXPECT_EQ(segments.get(90 * kMebibyte), large);
  EXPECT_EQ(segments.stats().split, 0u);
  EXPECT_EQ(segments.size_of(large), 100 * kMebibyte);
}

TEST(Segments, TheLayoutNamesWhatIsUsedAndWhatIsFree) {
  CountingDriver driver(size_t{1} << 34);
  Segments segments(driver);
  void* first = segments.get(12 * kMebibyte);
  void* large = segments.get(100 * kMebibyte);
  segments.get(1000);
  segments.put(large);
  void* half = segments.get(40 * kMebibyte);
  EXPECT_EQ(half, large);
  const std::vector<SegmentLayout> layout = segments.layout();
  ASSERT_EQ(layout.size(), 3u);
  EXPECT_EQ(layout[0].data, first);
  EXPECT_FALSE(layout[0].small);
  EXPECT_TRUE(layout[2].small);
  ASSERT_EQ(layout[1].parts.size(), 2u);
  EXPECT_EQ(layout[1].parts[0].bytes, 40 * kMebibyte);
  EXPECT_TRUE(layout[1].parts[0].used);
  EXPECT_EQ(layout[1].parts[1].bytes, 60 * kMebibyte);
  EXPECT_FALSE(layout[1].parts[1].used);
  uint64_t used = 0;
  for (const SegmentLayout& s : layout)
    for (const SegmentLayout::Part& p : s.parts) used += p.used ? p.bytes : 0;
  EXPECT_EQ(used, segments.stats().active);
}

TEST(Segments, ThePeakOfReservedMemoryCanStartAnew) {
  CountingDriver driver(size_t{1} << 34);
  Segments segments(driver);
  segments.put(segments.get(100 * kMebibyte));
  segments.trim();
  EXPECT_EQ(segments.stats().peak_reserved, 100 * kMebibyte);
  segments.reset_peak();
  EXPECT_EQ(segments.stats().peak_reserved, 0u);
}

// A loop that keeps the previous round's block while it allocates this round's alternates between two sets of addresses.
TEST(Segments, ALoopThatOverlapsItselfAlternates) {
  CountingDriver driver(size_t{1} << 34);
  Segments segments(driver);
  void* loss = nullptr;
  std::vector<void*> gradients;
  std::vector<std::vector<void*>> seen;
  for (int round = 0; round < 20; ++round) {
    for (void* p : gradients) segments.put(p);
    void* next = segments.get(4);
    gradients = {segments.get(40), segments.get(512), segments.get(100)};
    if (loss) segments.put(loss);
    loss = next;
    seen.push_back({loss, gradients[0], gradients[1], gradients[2]});
    if (round >= 6) {
      EXPECT_EQ(seen[static_cast<size_t>(round)], seen[static_cast<size_t>(round - 2)]);
    }
  }
}

TEST(Segments, TheSmallestBlockThatFitsIsTaken) {
  CountingDriver driver(size_t{1} << 34);
  Segments segments(driver);
  void* big = segments.get(64 * kMebibyte);
  void* small = segments.get(32 * kMebibyte);
  segments.put(big);
  segments.put(small);
  EXPECT_EQ(segments.get(31 * kMebibyte), small);
  EXPECT_EQ(segments.get(40 * kMebibyte), big);  // what is left of it is a hole
  EXPECT_EQ(segments.stats().largest_hole, 24 * kMebibyte);
  EXPECT_EQ(driver.calls, 2);
}

TEST(Segments, WhereLittleIsLeftNoMoreThanNeededIsTaken) {
  CountingDriver driver(10 * kMebibyte);
  Segments segments(driver);
  EXPECT_NE(segments.get(4 * kMebibyte), nullptr);  // not a segment of 20 MiB
  EXPECT_EQ(segments.get(8 * kMebibyte), nullptr);
  segments.set_limit(6 * kMebibyte);
  EXPECT_EQ(segments.get(4 * kMebibyte), nullptr);
  EXPECT_NE(segments.get(2 * kMebibyte), nullptr);
}

}  // namespace
}  // namespace pyflame
