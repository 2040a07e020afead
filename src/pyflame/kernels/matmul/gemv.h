// A matrix times kVectors vectors. The time goes into reading the matrix, so each of its elements is read once, 16 bytes at
// a time. There are two kernels: for matrices that are contiguous along the sum (a team of lanes reduces a line), and
// for matrices that are contiguous along the outputs (a thread owns columns). The matrix is [n, k], the vectors are
// [kVectors, k]. out(batch, line, vector, sum) is called once for each output (and each split).
#pragma once

namespace pf {

#ifdef PF_ON_DEVICE
// Which matrix the vectors of a batch entry are multiplied with.
struct OwnMatrix {
  PF_DEVICE i64 of(i64 z) const { return z; }
};

// What gemv_along can do before the kernels in front have ended: it has the first elements of its lines brought near.
template <class S, int kTeam, int kLines, int kAhead, int kThreads, int kVec>
PF_DEVICE void gemv_along_early(const S* w, const GemvShape& p) {
  constexpr int kTeams = kThreads / kTeam;
  if constexpr (kVec * sizeof(S) < 16) return;
  const int team = (int)thread() / kTeam, me = (int)thread() % kTeam;
  const i64 blocks = (p.n + kTeams * kLines - 1) / (kTeams * kLines),
            line = (group().x % blocks * kTeams + team) * kLines + me;
  const i64 begin = group().x / blocks * p.depth, most = kTeam * kVec * kAhead;
  const i64 end = begin + p.depth < p.k ? begin + p.depth : p.k;
  const i64 count = end - begin < most ? end - begin : most;
  if (me < kLines && line < p.n && count > 0)
    bring_near(w + p.w_batch.at(group().y) + line * p.w_line + begin * p.w_depth, (unsigned)(count * sizeof(S)));
}

// kTeam lanes (a power of two, at most the workgroup) reduce kLines lines together. They issue the loads of kAhead
// steps of each line at once.
template <class S, int kVectors, int kTeam, int kLines, int kAhead, int kThreads, int kVec, class Out,
          class Matrix = OwnMatrix>
PF_DEVICE void gemv_along(const S* w, const S* x, const GemvShape& p, const Out& out, const Matrix& matrix = {}) {
  using T = C<S>;
  constexpr int kTeams = kThreads / kTeam;
  PF_SHARED T shared[kTeam > 32 ? kThreads : 1];
  const int team = (int)thread() / kTeam, me = (int)thread() % kTeam;
  const i64 blocks = (p.n + kTeams * kLines - 1) / (kTeams * kLines);
  const i64 split = group().x / blocks, line0 = (group().x % blocks * kTeams + team) * kLines;
  const i64 begin = split * p.depth, end = begin + p.depth < p.k ? begin + p.depth : p.k;
  for (i64 z = group().y; z < p.batches; z += groups().y) {
    const S* from_w = w + p.w_batch.at(matrix.of(z));
    const S* from_x = x + p.x_batch.at(z);
    T sums[kLines][kVectors] = {};
    for (i64 k = begin + me * kVec; k < end; k += kTeam * kVec * kAhead) {
      InFlight<S, kVec> matrix[kAhead][kLines];
#pragma unroll
      for (int h = 0; h < kAhead; ++h)
#pragma unroll
        for (int l = 0; l < kLines; ++l) {
          const i64 at = k + h * kTeam * kVec;
          if (at < end && line0 + l < p.n) matrix[h][l].once(from_w + (line0 + l) * p.w_line + at * p.w_depth);
        }
#pragma unroll
      for (int h = 0; h < kAhead; ++h) {
        const i64 at = k + h * kTeam * kVec;
        if (at < end) {
#pragma unroll
          for (int f = 0; f < kVectors; ++f) {
            const Vec<S, kVec> v = load_vec<kVec>(from_x + f * p.x_line + at * p.x_depth);
#pragma unroll
            for (int l = 0; l < kLines; ++l)
#pragma unroll
              for (int i = 0; i < kVec; ++i)
                sums[l][f] = multiply_add(load(&matrix[h][l][i]), load(&v.v[i]), sums[l][f]);
          }
        }
      }
    }
    // Every lane of the team has every sum. Each lane keeps one of them, so that `out` runs for all of them in
    // parallel.
    static_assert(kLines * kVectors <= kTeam);
    T mine = 0;
#pragma unroll
    for (int l = 0; l < kLines; ++l)
#pragma unroll
      for (int f = 0; f < kVectors; ++f) {
        T sum;
        if constexpr (kTeam > 32) sum = over_group<Sum, kThreads>(sums[l][f], shared);
        else sum = over_lanes<Sum, kTeam>(sums[l][f]);
        if (me == l * kVectors + f) mine = sum;
      }
    const i64 line = line0 + me / kVectors;
    if (me < kLines * kVectors && line < p.n) out(split * p.batches + z, line, me % kVectors, mine);
  }
}

// kWide threads own kVec adjacent lines each; the other threads of the workgroup take other depths. The vectors are
// copied to shared memory kStep depths at a time.
template <class S, int kVectors, int kWide, int kThreads, int kVec, class Out>
PF_DEVICE void gemv_across(const S* w, const S* x, const GemvShape& p, const Out& out) {
  using T = C<S>;
  constexpr int kSlices = kThreads / kWide, kAhead = 4, kStep = kSlices * kAhead, kLines = kWide * kVec;
  constexpr int kStaged = kStep * kVectors, kParts = (kSlices + kVectors) * kLines;
  PF_SHARED __attribute__((aligned(32))) T shared[kStaged > kParts ? kStaged : kParts];
  const int slice = (int)thread() / kWide, column = (int)thread() % kWide * kVec;
  const i64 blocks = (p.n + kLines - 1) / kLines, split = group().x / blocks, line0 = group().x % blocks * kLines;
  const i64 begin = split * p.depth, end = begin + p.depth < p.k ? begin + p.depth : p.k;
  for (i64 z = group().y; z < p.batches; z += groups().y) {
    const S* from_w = w + p.w_batch.at(z) + (line0 + column) * p.w_line;
    const S* from_x = x + p.x_batch.at(z);
    T sums[kVectors][kVec] = {};
    for (i64 k = begin; k < end; k += kStep) {
      InFlight<S, kVec> matrix[kAhead];
#pragma unroll
      for (int h = 0; h < kAhead; ++h) {
        const i64 at = k + h * kSlices + slice;
        if (at < end && line0 + column < p.n) matrix[h].load(from_w + at * p.w_depth);
      }
      for (int e = (int)thread(); e < kStep * kVectors; e += kThreads) {
        const int d = e % kStep, f = e / kStep;
        shared[d * kVectors + f] = k + d < end ? load(from_x + f * p.x_line + (k + d) * p.x_depth) : T(0);
      }
      barrier();
#pragma unroll
      for (int h = 0; h < kAhead; ++h)
#pragma unroll
        for (int f = 0; f < kVectors; ++f) {
          const T v = shared[(h * kSlices + slice) * kVectors + f];
#pragma unroll
          for (int i = 0; i < kVec; ++i) sums[f][i] = multiply_add(load(&matrix[h][i]), v, sums[f][i]);
        }
      barrier();
    }
#pragma unroll
    for (int f = 0; f < kVectors; ++f) {
#pragma unroll
      for (int i = 0; i < kVec; ++i) shared[slice * kLines + column + i] = sums[f][i];
      barrier();
      for (int e = (int)thread(); e < kLines; e += kThreads) {
        T sum = shared[e];
        for (int s = 1; s < kSlices; ++s) sum = add<T>(sum, shared[s * kLines + e]);
        shared[(kSlices + f) * kLines + e] = sum;
      }
      barrier();
    }
#pragma unroll 1
    for (int e = (int)thread(); e < kLines * kVectors; e += kThreads)
      if (line0 + e % kLines < p.n)
        out(split * p.batches + z, line0 + e % kLines, e / kLines, shared[kSlices * kLines + e]);
    barrier();
  }
}
#endif

}  // namespace pf
