// scatter and index_put without a sort. Where the last source of a destination is written, the sources first leave their numbers at the
// destinations, of which the largest stays; then each source that finds its own number writes. Sums of integers are atomic additions, whose
// order is of no importance. The layout is that of kernels/index/sum.h.
#pragma once

namespace pf {

#ifdef PF_ON_DEVICE

// Element e of all elements of the sources: its line, its source in the line, its place in the source.
struct Source {
  i64 line, i, column;
};
PF_DEVICE Source source_of(i64 e, i64 all, const SumShape& p) {
  if (all < (i64)1 << 31) {
    const u32 rest = (u32)e / (u32)p.width, line = rest / (u32)p.count;
    return {line, rest - line * (u32)p.count, (u32)e - rest * (u32)p.width};
  }
  const i64 rest = e / p.width, line = rest / p.count;
  return {line, rest - line * p.count, e - rest * p.width};
}

// last[line][destination]: the number of the last source of each destination, counted from 1. It must be 0 before.
template <int kThreads>
PF_DEVICE void find_last(const IndexKeys& keys, u32* last, i64 lines, i64 count) {
  for (i64 e = (i64)group().x * kThreads + thread(); e < lines * count; e += (i64)groups().x * kThreads) {
    const i64 line = e / count;
    u32 key, id;
    keys.line(line).get(e - line * count, key, id);
    if (key != kNowhere) atomic_max(last + line * keys.size + key, id + 1);
  }
}

template <class W, int kThreads>
PF_DEVICE void put_last(const IndexKeys& keys, const u32* last, const W* from, W* to, const SumShape& p) {
  const i64 all = p.lines * p.count * p.width;
  for (i64 e = (i64)group().x * kThreads + thread(); e < all; e += (i64)groups().x * kThreads) {
    const Source s = source_of(e, all, p);
    const i64 line = p.shared_keys ? 0 : s.line;
    const i64 at = keys.index[keys.lines.at(line) + s.i * keys.stride];
    if (at < 0 || at >= keys.size || last[line * keys.size + at] != (u32)s.i + 1) continue;
    to[p.to_lines.at(s.line) + at * p.to_stride + s.column * p.to_step] =
        from[p.from_lines.at(s.line) + s.i * p.from_stride + s.column * p.from_step];
  }
}

template <class W, int kThreads>
PF_DEVICE void add_atomically(const IndexKeys& keys, const W* from, W* to, const SumShape& p) {
  const i64 all = p.lines * p.count * p.width;
  for (i64 e = (i64)group().x * kThreads + thread(); e < all; e += (i64)groups().x * kThreads) {
    const Source s = source_of(e, all, p);
    u32 key, id;
    keys.line(p.shared_keys ? 0 : s.line).get(s.i, key, id);
    if (key == kNowhere) continue;
    atomic_add(to + p.to_lines.at(s.line) + (i64)key * p.to_stride + s.column * p.to_step,
               from[p.from_lines.at(s.line) + s.i * p.from_stride + s.column * p.from_step]);
  }
}

#endif

}  // namespace pf
