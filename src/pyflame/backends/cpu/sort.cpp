// sort and topk. An element becomes a key whose order is that of sorting (kernels/order/keys.h), with its position in the low bits, so keys
// are all different, and any way to sort them gives the stable order. Values come back from the keys. Keys of integers begin at the least one
// of the row: if they and the positions fit into fewer bits, smaller words are sorted.
#include <algorithm>
#include <array>
#include <bit>
#include <limits>

#include "pyflame/backends/cpu/indexing.h"
#include "pyflame/backends/cpu/vec_order.h"
#include "pyflame/kernels/device/launch.h"

#include "pyflame/kernels/device/scalar.h"  // after launch.h

#include "pyflame/kernels/order/keys.h"

namespace pyflame::cpu {

namespace {

using vec::Key128;

// The kernels' name for a type.
template <class S>
struct Stored {
  using type = S;
};
template <>
struct Stored<int64_t> {
  using type = pf::i64;
};
template <>
struct Stored<float16> {
  using type = pf::f16;
};
template <>
struct Stored<bfloat16> {
  using type = pf::bf16;
};
template <>
struct Stored<bool> {
  using type = pf::bool8;
};

template <class W>
bool before(W a, W b) {
  return a < b;
}
bool before(const Key128& a, const Key128& b) { return a.high < b.high || (a.high == b.high && a.low < b.low); }

// Merges two sorted runs.
template <class P>
void merge(const P* a, int64_t n, const P* b, int64_t m, P* to) {
  const P *a_end = a + n, *b_end = b + m;
  while (a != a_end && b != b_end) {
    const bool second = before(*b, *a);
    *to++ = second ? *b : *a;
    a += !second, b += second;
  }
  to = std::copy(a, a_end, to);
  std::copy(b, b_end, to);
}

// Sorts one long row: halves at the same time, which are then merged from both ends of the result.
template <class P>
void sort_long(P* keys, int64_t n, P* space) {
  const int64_t half = n / 2;
  parallel_for(2, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) vec::sort_keys(keys + i * half, i ? n - half : half);
  });
  // How many of the first `half` results come from the first run.
  int64_t low = 0, high = half;
  while (low < high) {
    const int64_t mid = (low + high) / 2;
    if (before(keys[mid], keys[half + (half - mid) - 1])) low = mid + 1;
    else high = mid;
  }
  const int64_t first = low, second = half - low;
  parallel_for(2, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      if (i == 0) merge(keys, first, keys + half, second, space);
      else merge(keys + first, half - first, keys + half + second, n - half - second, space + half);
    }
  });
}

constexpr int64_t kLongRow = 65536;  // for longer ones, merging pays off

// The first `k` elements of each row in the wanted order, with their positions unless nobody wants them. Sorting is k == n.
template <class S>
class Leading : public Exec {
  using T = typename Stored<S>::type;
  using Key = typename pf::Key<T>::type;
  static constexpr bool kWide = sizeof(Key) == 8;
  using Packed = std::conditional_t<kWide, Key128, uint64_t>;

 public:
  Leading(const Node& node, bool descending)
      : x_(node.ins[0], ws_), y_(node.outs[0]), positions_(node.outs.size() > 1), descending_(descending) {
    if (positions_) index_ = node.outs[1];
    n_ = node.ins[0].shape.empty() ? 1 : node.ins[0].shape.back();
    k_ = node.outs[0].shape.empty() ? 1 : node.outs[0].shape.back();
    rows_ = k_ > 0 ? y_.numel() / k_ : 0;
    flip_ = descending ? static_cast<Key>(~Key{0}) >> (8 * sizeof(Key) - pf::Key<T>::kBits) : 0;
    if (rows_ == 1 && n_ >= kLongRow) space_ = ws_.take(static_cast<size_t>(2 * n_) * sizeof(Packed));
  }
  void run(const RunContext& ctx) override {
    if (y_.numel() == 0) return;
    const T* x = reinterpret_cast<const T*>(x_.get(ctx));
    T* y = ctx.ptr<T>(y_);
    int64_t* index = positions_ ? ctx.ptr<int64_t>(index_) : nullptr;
    if (rows_ == 1 && n_ >= kLongRow && k_ == n_) return long_row(x, y, index, at<void>(ctx, space_));
    parallel_for(rows_, std::max<int64_t>(1, kGrainElements / (8 * n_)), [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) row(x + r * n_, y + r * k_, index ? index + r * k_ : nullptr);
    });
  }

 private:
  Key key_of(T x) const { return pf::Key<T>::of(x) ^ flip_; }
  // Words with a whole key and a position.
  struct Whole {
    using Word = Packed;
    Packed pack(Key key, int64_t i) const {
      if constexpr (kWide) return {static_cast<uint64_t>(i), key};
      else return static_cast<uint64_t>(key) << 32 | static_cast<uint64_t>(i);
    }
    Key key(const Packed& p) const {
      if constexpr (kWide) return p.high;
      else return static_cast<Key>(p >> 32);
    }
    int64_t position(const Packed& p) const {
      if constexpr (kWide) return static_cast<int64_t>(p.low);
      else return static_cast<int64_t>(p & 0xffffffffu);
    }
  };
  // Words with the difference from the least key, and a position of some bits.
  template <class W>
  struct Narrow {
    using Word = W;
    Key least;
    int bits;
    W pack(Key key, int64_t i) const { return static_cast<W>(static_cast<W>(key - least) << bits | static_cast<W>(i)); }
    Key key(W p) const { return static_cast<Key>(static_cast<Key>(p >> bits) + least); }
    int64_t position(W p) const { return static_cast<int64_t>(p & ((W{1} << bits) - 1)); }
  };
  template <class Words>
  void pack_all(const Words& words, const T* x, typename Words::Word* keys, int64_t begin, int64_t end) const {
    for (int64_t i = begin; i < end; ++i) keys[i] = words.pack(key_of(x[i]), i);
  }
  template <class Words>
  void put_all(const Words& words, const typename Words::Word* keys, const T* x, T* y, int64_t* index, int64_t begin,
               int64_t end) const {
    for (int64_t i = begin; i < end; ++i) {
      const Key key = words.key(keys[i]) ^ flip_;
      const int64_t at = words.position(keys[i]);
      y[i] = pf::Key<T>::exact(key) ? pf::Key<T>::back(key) : x[at];
      if (index) index[i] = at;
    }
  }

  // The least and the largest key of the row.
  std::pair<Key, Key> bounds(const T* x) const {
    constexpr int64_t kParts = 16;
    std::array<std::pair<Key, Key>, kParts> parts;
    const int64_t per = ceil_div(n_, kParts);
    parallel_for(kParts, std::max<int64_t>(1, kGrainElements / per), [&](int64_t begin, int64_t end) {
      for (int64_t k = begin; k < end; ++k) {
        T low = x[0], high = x[0];
        for (int64_t i = k * per; i < std::min(n_, (k + 1) * per); ++i)
          low = std::min(low, x[i]), high = std::max(high, x[i]);
        parts[static_cast<size_t>(k)] = {key_of(flip_ ? high : low), key_of(flip_ ? low : high)};
      }
    });
    auto [low, high] = parts[0];
    for (const auto& [l, h] : parts) low = std::min(low, l), high = std::max(high, h);
    return {low, high};
  }
  // Calls f with the kind of words that the row needs.
  template <class F>
  void with_words(const T* x, const F& f) const {
    const int bits = std::bit_width(static_cast<uint64_t>(n_ - 1));
    if constexpr (pf::Key<T>::kBits <= 16) {
      if (bits <= 16) return f(Narrow<uint32_t>{0, 16});
    } else if constexpr (std::is_integral_v<T>) {
      const auto [low, high] = bounds(x);
      const int all = bits + std::bit_width(static_cast<uint64_t>(high - low));
      if (all <= 32 && bits < 32) return f(Narrow<uint32_t>{low, bits});
      if (kWide && all <= 64) return f(Narrow<uint64_t>{low, bits});
    }
    f(Whole());
  }
  void long_row(const T* x, T* y, int64_t* index, void* workspace) const {
    with_words(x, [&](const auto& words) {
      using Word = typename std::decay_t<decltype(words)>::Word;
      Word* space = static_cast<Word*>(workspace);
      Word* keys = space + n_;
      parallel_for(n_, kGrainElements, [&](int64_t begin, int64_t end) { pack_all(words, x, keys, begin, end); });
      sort_long(keys, n_, space);
      parallel_for(n_, kGrainElements,
                   [&](int64_t begin, int64_t end) { put_all(words, space, x, y, index, begin, end); });
    });
  }
  void row(const T* x, T* y, int64_t* index) const {
    if (4 * k_ < n_ && (pf::Key<T>::kBits > 16 || n_ >= 65536)) return some(x, y, index);
    with_words(x, [&](const auto& words) {
      auto* keys = scratch<typename std::decay_t<decltype(words)>::Word>(0, n_);
      pack_all(words, x, keys, 0, n_);
      vec::sort_keys(keys, n_);
      put_all(words, keys, x, y, index, 0, k_);
    });
  }
  // Collects the elements that come before the last of the best ones so far, and drops the others when there are too many.
  void some(const T* x, T* y, int64_t* index) const {
    const int64_t most = 2 * k_ + 256;
    Packed* kept = scratch<Packed>(0, most);
    int64_t i = std::min(most, n_), count = i;
    pack_all(Whole(), x, kept, 0, i);
    while (true) {
      if (count > k_)
        std::nth_element(kept, kept + k_ - 1, kept + count, [](auto& a, auto& b) { return before(a, b); });
      count = k_;
      if (i == n_) break;
      i += collect(x, i, kept, k_, most, &count);
    }
    vec::sort_keys(kept, k_);
    put_all(Whole(), kept, x, y, index, 0, k_);
  }
  // Adds the elements from i on that come before the bound, kept[k - 1], until there is little room for more. Of equals, the earlier ones
  // are kept. Returns how many elements were looked at.
  int64_t collect(const T* x, int64_t i, Packed* kept, int64_t k, int64_t most, int64_t* count) const {
    const Whole words;
    const Key bound = words.key(kept[k - 1]);
    const int64_t where = words.position(kept[k - 1]);
    if constexpr (std::is_arithmetic_v<T>) {
      using V = std::conditional_t<std::is_same_v<T, pf::i64>, int64_t, T>;
      int64_t* at = scratch<int64_t>(1, most);
      int64_t scanned = 0;
      const int64_t found = vec::candidates(reinterpret_cast<const V*>(x + i), n_ - i, static_cast<V>(x[where]),
                                            descending_, most - *count, at, &scanned);
      for (int64_t j = 0; j < found; ++j) {  // without a branch
        const Key key = key_of(x[i + at[j]]);
        kept[*count] = words.pack(key, i + at[j]);
        *count += key < bound;
      }
      return scanned;
    } else {
      int64_t j = i;
      for (; j < n_ && *count < most; ++j) {
        const Key key = key_of(x[j]);
        if (key < bound) kept[(*count)++] = words.pack(key, j);
      }
      return j - i;
    }
  }
  InBytes x_;
  Operand y_, index_;
  bool positions_, descending_;
  int64_t n_ = 1, k_ = 1, rows_ = 0;
  Key flip_ = 0;
  size_t space_ = 0;
};

std::unique_ptr<Executable> make_leading(const Node& node, bool descending) {
  return dispatch(node.ins[0].dtype, [&]<class S>() -> std::unique_ptr<Executable> {
    return std::make_unique<Leading<S>>(node, descending);
  });
}

Refusal accept_sort(const Problem& p) {
  if (auto r = accept_single(p)) return r;
  for (const Operand& o : p.root().outs)
    if (!o.contiguous) return "writes contiguous outputs only";
  const Dims& x = p.root().ins[0].shape;
  if (!x.empty() && x.back() > std::numeric_limits<uint32_t>::max()) return "a row has fewer than 2^32 elements";
  return {};
}

std::unique_ptr<Executable> make_topk(const Problem& p) {
  return make_leading(p.root(), p.root().attr<TopkAttrs>().largest != 0);
}
std::unique_ptr<Executable> make_sort(const Problem& p) {
  return make_leading(p.root(), p.root().attr<SortAttrs>().descending != 0);
}

}  // namespace

std::span<const Impl> topk_impls() {
  static const Impl impl{"cpu.sort", accept_sort, make_topk};
  return {&impl, 1};
}
std::span<const Impl> sort_impls() {
  static const Impl impl{"cpu.sort", accept_sort, make_sort};
  return {&impl, 1};
}

}  // namespace pyflame::cpu
