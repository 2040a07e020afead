// randperm: the positions of random keys in their order. Keys are spread evenly, so their highest bits divide them into short buckets,
// each of which is sorted by itself.
#include <algorithm>
#include <bit>
#include <utility>

#include "pyflame/backends/cpu/indexing.h"
#include "pyflame/base/philox.h"

namespace pyflame::cpu {

namespace {

class Randperm final : public Exec {
 public:
  explicit Randperm(const Node& node) : seed_(node.ins[0]), offset_(node.ins[1]), out_(node.outs[0]) {
    const auto n = static_cast<uint64_t>(out_.numel());
    bits_ = std::clamp(static_cast<int>(std::bit_width(n / kBucket)), 1, kMostBits);
    part_ = std::max<int64_t>(kPart, ceil_div(out_.numel(), kMostParts) + 1) / 2 * 2;  // a block of Philox has two keys
    parts_ = ceil_div(out_.numel(), part_);
    keys_ = ws_.take(n * sizeof(uint64_t));
    pairs_ = ws_.take(n * sizeof(Pair));
    begins_ = ws_.take(static_cast<size_t>(parts_ + 1) * buckets() * sizeof(int64_t));
  }
  void run(const RunContext& ctx) override {
    if (out_.numel() == 0) return;
    draw(ctx);
    place(at<int64_t>(ctx, begins_));
    spread(ctx);
    sort(ctx);
  }

 private:
  struct Pair {
    uint64_t key;
    int64_t position;
    bool operator<(const Pair& o) const { return key != o.key ? key < o.key : position < o.position; }
  };
  static constexpr uint64_t kBucket = 64;  // keys in a bucket, about
  static constexpr int kMostBits = 14;     // where more keys would need more, they are in cache while they are sorted
  static constexpr int64_t kPart = 1 << 14, kMostParts = 64;

  size_t buckets() const { return size_t{1} << bits_; }
  size_t bucket_of(uint64_t key) const { return key >> (64 - bits_); }
  template <class F>
  void each_part(const F& f) const {
    parallel_for(parts_, 1, [&](int64_t begin, int64_t end) {
      for (int64_t p = begin; p < end; ++p)
        f(static_cast<size_t>(p), p * part_, std::min(out_.numel(), (p + 1) * part_));
    });
  }

  // Each part counts the keys of each bucket.
  void draw(const RunContext& ctx) const {
    const auto seed = static_cast<uint64_t>(ctx.param(seed_).as_i64()),
               offset = static_cast<uint64_t>(ctx.param(offset_).as_i64());
    auto* keys = at<uint64_t>(ctx, keys_);
    auto* counts = at<int64_t>(ctx, begins_);
    each_part([&](size_t part, int64_t begin, int64_t end) {
      int64_t* count = counts + part * buckets();
      std::fill(count, count + buckets(), 0);
      for (int64_t i = begin; i < end; i += 2) {
        const PhiloxBlock block = philox(seed, offset, static_cast<uint64_t>(i / 2));
        for (int half = 0; half < 2 && i + half < end; ++half) {
          keys[i + half] = philox_word64(block, half);
          ++count[bucket_of(keys[i + half])];
        }
      }
    });
  }
  // Counts become the places where each part's keys of each bucket begin; the last row has the buckets' ends.
  void place(int64_t* begins) const {
    int64_t next = 0;
    for (size_t b = 0; b < buckets(); ++b) {
      for (size_t p = 0; p < static_cast<size_t>(parts_); ++p) {
        const int64_t count = std::exchange(begins[p * buckets() + b], next);
        next += count;
      }
      begins[static_cast<size_t>(parts_) * buckets() + b] = next;
    }
  }
  void spread(const RunContext& ctx) const {
    const auto* keys = at<uint64_t>(ctx, keys_);
    auto* pairs = at<Pair>(ctx, pairs_);
    auto* begins = at<int64_t>(ctx, begins_);
    each_part([&](size_t part, int64_t begin, int64_t end) {
      int64_t* next = begins + part * buckets();
      for (int64_t i = begin; i < end; ++i) pairs[next[bucket_of(keys[i])]++] = {keys[i], i};
    });
  }
  void sort(const RunContext& ctx) const {
    auto* pairs = at<Pair>(ctx, pairs_);
    const auto* ends = at<int64_t>(ctx, begins_) + static_cast<size_t>(parts_) * buckets();
    auto* y = ctx.ptr<int64_t>(out_);
    parallel_for(static_cast<int64_t>(buckets()), 16, [&](int64_t first, int64_t last) {
      for (int64_t b = first; b < last; ++b) {
        const int64_t begin = b == 0 ? 0 : ends[b - 1];
        std::sort(pairs + begin, pairs + ends[b]);
        for (int64_t i = begin; i < ends[b]; ++i) y[i] = pairs[i].position;
      }
    });
  }

  Operand seed_, offset_, out_;
  int bits_ = 1;
  int64_t part_ = 0, parts_ = 0;
  size_t keys_ = 0, pairs_ = 0, begins_ = 0;
};

Refusal accepts_randperm(const Problem& p) {
  if (auto r = accept_single(p)) return r;
  if (!p.root().outs[0].contiguous) return "writes contiguous positions only";
  return {};
}

}  // namespace

std::span<const Impl> randperm_impls() {
  static const Impl impl{"cpu.randperm", accepts_randperm, [](const Problem& p) -> std::unique_ptr<Executable> {
                           return std::make_unique<Randperm>(p.root());
                         }};
  return {&impl, 1};
}

}  // namespace pyflame::cpu
