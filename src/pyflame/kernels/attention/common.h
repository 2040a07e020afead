// What the attention kernels share: which rows a workgroup has, and masked scores.
//
// Scores are kept in base 2, because 2^x is one instruction: exp(x - y) = 2^(x log2 e - y log2 e).
#pragma once

namespace pf {

struct Base2 {
  static constexpr float kLog2E = 1.44269504088896340736f, kLn2 = 0.69314718055994530942f;
};

enum MaskKind { kNoMask, kBoolMask, kAddedMask };

#ifdef PF_ON_DEVICE

// The rows of a workgroup: its first row within its batch entry or sequence, whose queries begin at row q0 and whose
// keys begin at row k0.
struct Place {
  i64 b, first, q0, k0;
  i64 stats;  // where the rows of the sequence begin among the logsumexps and deltas of a head
  bool none;
};

// Sequence i has the blocks from start_of(i) on. This numbering leaves at most one block number per sequence unused,
// and it needs no running sum of the lengths.
PF_DEVICE i64 start_of(const int* from, i64 i, int each) { return each == 1 ? from[i] : from[i] / each + i; }

// The sequence that has a given block of `each` rows: the last one that starts at or before it. All lanes of a wave
// must ask for the same block.
PF_DEVICE i64 sequence_of(const int* from, i64 sequences, int each, i64 block) {
  i64 low = 0, count = sequences;
  while (count > 1) {
    const i64 step = (count + kWave - 1) / kWave, at = lane() * step;
    int before = count_bits(ballot(at < count && start_of(from, low + at, each) <= block));
    if (before == 0) before = 1;  // the offsets do not start at 0; check_offsets() reports that
    low += (before - 1) * step;
    count = count - (before - 1) * step < step ? count - (before - 1) * step : step;
  }
  return low;
}

PF_DEVICE i64 between(i64 x, i64 low, i64 high) { return x < low ? low : x > high ? high : x; }

// Restricts the problem to sequence i. Offsets come from the user, so they are clamped: no row outside the tensors is
// touched.
PF_DEVICE void take_sequence(Attention& p, Place& at, i64 i) {
  const i64 all_q = p.queries, all_k = p.keys;
  at.b = 0;
  at.q0 = between(p.packed.from_q[i], 0, all_q), at.k0 = between(p.packed.from_k[i], 0, all_k);
  p.queries = between(p.packed.from_q[i + 1], at.q0, all_q) - at.q0;
  p.keys = p.kv_length = between(p.packed.from_k[i + 1], at.k0, all_k) - at.k0;
}

constexpr int kStatsPadding = 128;  // between the logsumexps and deltas of two sequences

enum RowsOf { kQueries, kKeys };

// The block with number `block` of kRows queries or keys of some sequence. Blocks of queries are numbered from the last
// to the first, because the last queries see the most keys. With kPacked, p becomes the problem of this sequence.
template <RowsOf kOf, int kRows, bool kPacked>
PF_DEVICE Place place_of(Attention& p, i64 batch_entry, i64 block) {
  Place at = {batch_entry, 0, 0, 0, 0, false};
  if constexpr (kPacked) {
    const int* const from = kOf == kQueries ? p.packed.from_q : p.packed.from_k;
    const i64 i = sequence_of(from, p.packed.sequences, kRows, block);
    block -= start_of(from, i, kRows);
    at.stats = start_of(p.packed.from_q, i, kStatsPadding) * kStatsPadding;
    take_sequence(p, at, i);
  }
  const i64 rows = kOf == kQueries ? p.queries : p.keys, blocks = (rows + kRows - 1) / kRows;
  at.none = kPacked && (block < 0 || block >= blocks);
  at.first = (kOf == kQueries ? blocks - 1 - block : block) * kRows;
  return at;
}
// The number of blocks that place_of() numbers: per batch entry, or, with kPacked, of all sequences.
template <int kRows, bool kPacked>
PF_DEVICE unsigned blocks_of(i64 rows, const Attention& p) {
  return (unsigned)(!kPacked ? (rows + kRows - 1) / kRows : kRows == 1 ? rows : rows / kRows + p.packed.sequences);
}

// Reports bad offsets. One workgroup of a launch calls it.
PF_DEVICE void check_offsets(const int* from, i64 sequences, i64 rows, i64 longest, Fault* fault, int site) {
  for (i64 i = thread(); i < sequences; i += threads()) {
    const i64 begin = from[i], end = from[i + 1];
    if (i == 0 && begin != 0) raise(fault, site, kOffsetsMissRows, begin, 0);
    else if (i == sequences - 1 && end != rows) raise(fault, site, kOffsetsMissRows, end, rows);
    else if (end < begin) raise(fault, site, kOffsetsDecrease, end, begin);
    else if (end - begin > longest) raise(fault, site, kSequenceTooLong, end - begin, longest);
  }
}
PF_DEVICE void check_offsets(const Attention& p) {
  const Packed& a = p.packed;
  check_offsets(a.from_q, a.sequences, p.queries, a.max_q, a.fault, a.site);
  check_offsets(a.from_k, a.sequences, p.keys, a.max_k, a.fault, a.site);
}

// The score of a key that is hidden. It is not written as a quotient, because nvcc would divide at run time.
PF_DEVICE float minus_infinity() { return float_of_bits(0xff800000u); }

struct Top {  // a NaN need not win here: it reaches the result through the sum
  static PF_DEVICE float of(float a, float b) { return fmaxf(a, b); }
};

// What a row of a mask shows of a tile of keys. A boolean mask hides a key with false; one that is added hides it with
// minus infinity, and shows it with 0.
enum Shown { kShowsNone, kShowsSome, kShowsAll };

// `at`: the row's first element. Of the kKeys keys from number `key` on, those before `end` exist. All lanes of a wave
// call it with the same arguments.
template <class T, MaskKind kMask, int kKeys>
PF_DEVICE Shown shown_by(const void* mask, i64 at, i64 stride, i64 key, i64 end) {
  bool none = true, all = true;
#pragma unroll
  for (int i = 0; i < kKeys; i += kWave) {
    const i64 k = key + i + lane();
    if (i + lane() >= kKeys || k >= end) continue;
    if constexpr (kMask == kBoolMask) {
      const bool x = load((const bool8*)mask + at + k * stride);
      none &= !x, all &= x;
    } else {
      const float x = (float)load((const T*)mask + at + k * stride);
      none &= x == minus_infinity(), all &= x == 0;
    }
  }
  if (ballot(!none) == 0) return kShowsNone;
  return ballot(!all) == 0 ? kShowsAll : kShowsSome;
}

// Whether the kRows queries from `first` on are padding, which may be left out: the mask, which has one row for all
// queries, hides the keys at their positions.
template <class T, MaskKind kMask, int kRows>
PF_DEVICE bool is_padding(const void* mask, const Attention& p, i64 b, i64 h, i64 first) {
  if constexpr (kMask == kNoMask) return false;
  else
    return p.padding != 0 &&
           shown_by<T, kMask, kRows>(mask, p.mask.row(b, h, 0), p.mask.d, first, p.kv_length) == kShowsNone;
}

// The tiles of keys from `from` to `to` that a workgroup visits: all but those that its mask hides from all queries, such
// as padding. Only a mask with one row for all queries is asked (`asked`).
template <class T, MaskKind kMask, int kKeys>
struct VisibleTiles {
  const void* mask;
  i64 at, stride, end;
  bool asked;
  int to;

  PF_DEVICE Shown shown(int tile) const {
    if constexpr (kMask == kNoMask) return kShowsAll;
    else if (!asked) return kShowsSome;
    else return shown_by<T, kMask, kKeys>(mask, at, stride, (i64)tile * kKeys, end);
  }
  // The first one from `tile` on, or `to`; `what` becomes what the mask shows of it.
  PF_DEVICE int next(int tile, Shown& what) const {
    what = kShowsAll;
    for (; tile < to; ++tile)
      if ((what = shown(tile)) != kShowsNone) break;
    return tile;
  }
};

template <class T, MaskKind kMask>
PF_DEVICE float masked(float score, const void* mask, i64 at) {
  if constexpr (kMask == kBoolMask) return load((const bool8*)mask + at) ? score : minus_infinity();
  else if constexpr (kMask == kAddedMask) return fmaf((float)load((const T*)mask + at), Base2::kLog2E, score);
  else return score;
}

#endif

}  // namespace pf
