// Transposes [batch][rows][columns] to [batch][columns][rows]: channels-first images to channels-last, and back. The
// tile goes through LDS, so that both the reads and the writes are of whole lines.
#pragma once

namespace pf {

#ifdef PF_ON_DEVICE
template <class U, int kThreads>
PF_DEVICE void transpose(const U* from, U* to, i64 batches, i64 rows, i64 columns) {
  constexpr int kSide = 32, kStep = kThreads / kSide;
  PF_SHARED U tile[kSide][kSide + 1];
  constexpr i64 kNarrow =
      16;  // such as the taps of a weight: most of a tile would be idle, and the caches absorb the unordered reads
  if (rows < kNarrow || columns < kNarrow) {
    const i64 count = batches * rows * columns;
    for (i64 e = (i64)group().x * kThreads + thread(); e < count; e += (i64)groups().x * kThreads) {
      const i64 r = e % rows, c = e / rows % columns, b = e / rows / columns;
      to[e] = from[(b * rows + r) * columns + c];
    }
    return;
  }
  const i64 across = (columns + kSide - 1) / kSide, tiles = across * ((rows + kSide - 1) / kSide);
  const int x = (int)thread() % kSide, y = (int)thread() / kSide;
  for (i64 t = group().x; t < batches * tiles; t += groups().x) {
    const i64 base = t / tiles * rows * columns, row0 = t % tiles / across * kSide, col0 = t % tiles % across * kSide;
    for (int i = y; i < kSide; i += kStep)
      if (row0 + i < rows && col0 + x < columns) tile[i][x] = from[base + (row0 + i) * columns + col0 + x];
    barrier();
    for (int i = y; i < kSide; i += kStep)
      if (col0 + i < columns && row0 + x < rows) to[base + (col0 + i) * rows + row0 + x] = tile[x][i];
    barrier();
  }
}
#endif

}  // namespace pf
