// scatter and index_put without a sort. Where the last source of a destination is written, the sources first leave their numbers at the
// destinations, of which the largest stays; then each source that finds its own number writes. Sums of integers are atomic additions, whose
// order is of no importance. The layout is that of kernels/index/sum.h. With kAcross, sources have one element, and neighbouring threads take the
// same source of neighbouring lines: where these are adjacent in memory.
#pragma once

namespace pf {

#ifdef PF_ON_DEVICE

// Element e of all elements of the sources: its line, its source in the line, its place in the source.
struct Source {
  i64 line, i, column;
};
template <bool kAcross>
PF_DEVICE Source source_of(i64 e, i64 all, const SumShape& p) {
  const bool narrow = all < (i64)1 << 31;
  if constexpr (kAcross) {
    const Division source = divided(e, p.lines, narrow);
    return {source.rest, source.quotient, 0};
  }
  const Division element = divided(e, p.width, narrow), source = divided(element.quotient, p.count, narrow);
  return {source.quotient, source.rest, element.rest};
}

// last[line][destination]: the number of the last source of each destination, counted from 1. It must be 0 before.
template <int kThreads, bool kAcross>
PF_DEVICE void find_last(const IndexKeys& keys, u32* last, i64 lines, i64 count) {
  const i64 all = lines * count;
  const bool narrow = all < (i64)1 << 31;
  for (i64 e = (i64)group().x * kThreads + thread(); e < all; e += (i64)groups().x * kThreads) {
    const Division d = divided(e, kAcross ? lines : count, narrow);
    const i64 line = kAcross ? d.rest : d.quotient;
    u32 key, id;
    keys.line(line, narrow).get(kAcross ? d.quotient : d.rest, key, id);
    if (key != kNowhere) atomic_max(last + line * keys.size + key, id + 1);
  }
}

template <class W, int kThreads, bool kAcross>
PF_DEVICE void put_last(const IndexKeys& keys, const u32* last, const W* from, W* to, const SumShape& p) {
  const i64 all = p.lines * p.count * p.width;
  const bool narrow = all < (i64)1 << 31;
  for (i64 e = (i64)group().x * kThreads + thread(); e < all; e += (i64)groups().x * kThreads) {
    const Source s = source_of<kAcross>(e, all, p);
    const i64 line = p.shared_keys ? 0 : s.line;
    const i64 at = keys.index[keys.lines.at(line, narrow) + s.i * keys.stride];
    if (at < 0 || at >= keys.size || last[line * keys.size + at] != (u32)s.i + 1) continue;
    to[p.to_lines.at(s.line, narrow) + at * p.to_stride + s.column * p.to_step] =
        from[p.from_lines.at(s.line, narrow) + s.i * p.from_stride + s.column * p.from_step];
  }
}

// Both steps for short lines of sources with one element: the numbers stay in shared memory. A workgroup has kLines adjacent lines with at most
// kMost destinations together, and kLines divides kThreads, so that a thread stays in its line.
template <class W, int kThreads, int kLines, int kMost>
PF_DEVICE void put_last_in_groups(const IndexKeys& keys, const W* from, W* to, const SumShape& p) {
  PF_SHARED u32 last[kMost];
  constexpr int kTogether = 4, kStep = kThreads / kLines;  // loads that do not wait for each other
  const int column = (int)thread() % kLines, first = (int)thread() / kLines;
  const i64 line = (i64)group().x * kLines + column;
  const i64 count = line < p.lines ? p.count : 0;
  for (i64 i = thread(); i < keys.size * kLines; i += kThreads) last[i] = 0;
  barrier();
  const IndexKeys::Line index = keys.line(line < p.lines ? line : 0, true);
  for (i64 i = first; i < count; i += kTogether * kStep) {
    u32 key[kTogether];
#pragma unroll
    for (int k = 0; k < kTogether; ++k) {
      u32 id;
      key[k] = kNowhere;
      if (i + k * kStep < count) index.get(i + k * kStep, key[k], id);
    }
#pragma unroll
    for (int k = 0; k < kTogether; ++k)
      if (key[k] != kNowhere) atomic_max(last + key[k] * kLines + column, (u32)(i + k * kStep) + 1);
  }
  barrier();
  if (count == 0) return;
  const W* source = from + p.from_lines.at(line, true);
  W* target = to + p.to_lines.at(line, true);
  for (i64 i = first; i < count; i += kTogether * kStep) {
    i64 at[kTogether];
    W value[kTogether];
#pragma unroll
    for (int k = 0; k < kTogether; ++k) {
      const i64 e = i + k * kStep;
      at[k] = e < count ? index.index[e * index.stride] : -1;
      if (e < count) value[k] = source[e * p.from_stride];
    }
#pragma unroll
    for (int k = 0; k < kTogether; ++k)
      if (at[k] >= 0 && at[k] < keys.size && last[at[k] * kLines + column] == (u32)(i + k * kStep) + 1)
        target[at[k] * p.to_stride] = value[k];
  }
}

// Sums of integers for one line with few destinations, of one element each: each workgroup adds in shared memory first.
template <class W, int kThreads, int kMost>
PF_DEVICE void add_in_groups(const IndexKeys& keys, const W* from, W* to, const SumShape& p) {
  PF_SHARED W sums[kMost];
  for (i64 i = thread(); i < keys.size; i += kThreads) sums[i] = 0;
  barrier();
  const auto line = keys.line(0);
  for (i64 e = (i64)group().x * kThreads + thread(); e < p.count; e += (i64)groups().x * kThreads) {
    u32 key, id;
    line.get(e, key, id);
    if (key != kNowhere) atomic_add(&sums[key], from[p.from_lines.at(0) + e * p.from_stride]);
  }
  barrier();
  for (i64 i = thread(); i < keys.size; i += kThreads)
    if (sums[i] != 0) atomic_add(to + p.to_lines.at(0) + i * p.to_stride, sums[i]);
}

template <class W, int kThreads, bool kAcross>
PF_DEVICE void add_atomically(const IndexKeys& keys, const W* from, W* to, const SumShape& p) {
  const i64 all = p.lines * p.count * p.width;
  const bool narrow = all < (i64)1 << 31;
  for (i64 e = (i64)group().x * kThreads + thread(); e < all; e += (i64)groups().x * kThreads) {
    const Source s = source_of<kAcross>(e, all, p);
    u32 key, id;
    keys.line(p.shared_keys ? 0 : s.line, narrow).get(s.i, key, id);
    if (key == kNowhere) continue;
    atomic_add(to + p.to_lines.at(s.line, narrow) + (i64)key * p.to_stride + s.column * p.to_step,
               from[p.from_lines.at(s.line, narrow) + s.i * p.from_stride + s.column * p.from_step]);
  }
}

#endif

}  // namespace pf
