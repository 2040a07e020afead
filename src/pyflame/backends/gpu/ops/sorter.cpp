// Launches the sorting kernels.
#include "pyflame/backends/gpu/ops/sorter.h"

#include "pyflame/base/error.h"

namespace pyflame::gpu {

namespace {

constexpr unsigned kSumThreads = 256;

// The smallest tile that holds a row.
struct TileSize {
  unsigned threads;
  int items;
};
TileSize tile_for(int64_t n) {
  for (const TileSize t : {TileSize{64, 1}, {64, 4}, {128, 8}})
    if (n <= static_cast<int64_t>(t.threads) * t.items) return t;
  return {512, 8};
}
// For long rows.
TileSize pass_tile(bool wide) { return {512, wide ? 4 : 8}; }

}  // namespace

Sorter::Sorter(const Spec& spec) : spec_(spec) {
  if (spec.rows == 0 || spec.n == 0 || spec.keep == 0) return;
  PF_CHECK(spec.n < int64_t{1} << 32, NotImplemented,
           "sort: a row is too long; got {} elements; expected less than 2^32", spec.n);
  const char* key = spec.wide ? "pf::u64" : "pf::u32";
  const auto kernel = [&](unsigned threads, const std::string& body) {
    return std::make_unique<Kernel>(spec.type, threads,
                                    kernel_source({"order/keys.h", "order/radix.h", spec.file}, threads, body));
  };
  if (spec.n <= kTile) {
    const TileSize t = tile_for(spec.n);
    tile_ = kernel(
        t.threads,
        fmt::format("({0} source, {1} sink, pf::SortShape p) {{ pf::sort_tile<{2}, {3}, {4}>(source, sink, p); }}",
                    spec.source, spec.sink, t.threads, t.items, key));
    return;
  }
  const TileSize t = pass_tile(spec.wide);
  const auto each = static_cast<int64_t>(t.threads) * t.items;
  passes_ = (spec.bits + 7) / 8;
  tiles_ = (spec.n + each - 1) / each;
  const int64_t all = spec.rows * spec.n;
  for (int i = 0; i < std::min(passes_ - 1, 2); ++i) {
    keys_[i] = parts_.take(all * (spec.wide ? 8 : 4));
    ids_[i] = parts_.take(all * 4);
  }
  counts_ = parts_.take(spec.rows * 256 * tiles_ * 4);
  totals_ = parts_.take(spec.rows * 256 * 4);

  const std::string pairs = fmt::format("pf::Pairs<{}>", key);
  const auto count = [&](const std::string& source) {
    return kernel(t.threads, fmt::format("({0} source, pf::u32* counts, pf::SortShape p) "
                                         "{{ pf::count_digits<{1}, {2}, {3}>(source, counts, p); }}",
                                         source, t.threads, t.items, key));
  };
  const auto move = [&](const std::string& source, const std::string& sink) {
    return kernel(t.threads,
                  fmt::format("({0} source, {1} sink, const pf::u32* counts, const pf::u32* totals, pf::SortShape p) "
                              "{{ pf::move_items<{2}, {3}, {4}>(source, sink, counts, totals, p); }}",
                              source, sink, t.threads, t.items, key));
  };
  sum_ = kernel(kSumThreads, fmt::format("(pf::u32* counts, pf::u32* totals, pf::i64 lines, pf::i64 tiles) "
                                         "{{ pf::sum_counts<{}>(counts, totals, lines, tiles); }}",
                                         kSumThreads));
  count_source_ = count(spec.source);
  if (passes_ == 1) {
    source_to_sink_ = move(spec.source, spec.sink);
    return;
  }
  source_to_pairs_ = move(spec.source, pairs);
  count_pairs_ = count(pairs);
  pairs_to_sink_ = move(pairs, spec.sink);
  if (passes_ > 2) pairs_to_pairs_ = move(pairs, pairs);
}

Pairs Sorter::pairs(void* workspace, int pass) const {
  const auto i = static_cast<size_t>(pass % 2);
  return {bytes_at(workspace, keys_[i]), reinterpret_cast<uint32_t*>(part_of(workspace, ids_[i])), spec_.n};
}

}  // namespace pyflame::gpu
