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

// kTeam lanes (a power of two, at most the workgroup) reduce kLines lines together. They issue the loads of kAhead
// steps of each line at once.
template <class S, int kVectors, int kTeam, int kLines, int kAhead, int kThreads, int kVec, class Out,
          class Matrix = OwnMatrix>
PF_DEVICE void gemv_along(const S* w, const S* x, const GemvShape& p, const Out& out, const Matrix& matrix = {}) {
  using T = C<S>;
  constexpr int kTeams = kThreads / kTeam;
  PF_SHARED T shared[kTeam > 32 ? kThreads : 1];
  const int team = (int)thread() / kTeam, me = (int)thread() % kTeam;
  const u32 blocks = (u32)((p.n + kTeams * kLines - 1) / (kTeams * kLines));
  const i64 split = group().x / blocks, line0 = ((i64)(group().x % blocks) * kTeams + team) * kLines;
  const i64 begin = split * p.depth, end = begin + p.depth < p.k ? begin + p.depth : p.k;
  constexpr int kStep = kTeam * kVec * kAhead;
  const i64 w_depth = kVec > 1 ? 1 : p.w_depth, x_depth = kVec > 1 ? 1 : p.x_depth;
  bool first = true;
  for (i64 z = group().y; z < p.batches; z += groups().y) {
    const S* const from_x = x + p.x_batch.at(z);
    const S* from_w[kLines];
#pragma unroll
    for (int l = 0; l < kLines; ++l)  // lines beyond the last one read it, and nobody stores them
      from_w[l] = w + p.w_batch.at(matrix.of(z)) + (line0 + l < p.n ? line0 + l : p.n - 1) * p.w_line;
    if (first) {
      if constexpr (kVec * sizeof(S) == 16) {
        const i64 count = end - begin < kStep ? end - begin : kStep;
#pragma unroll
        for (int l = 0; l < kLines; ++l)
          if (me == 0 && count > 0) bring_near(from_w[l] + begin, (unsigned)(count * sizeof(S)));
      }
      await_earlier_kernels();
      first = false;
    }
    T sums[kLines][kVectors] = {};
    // kSteps steps from k on, which the end does not cut.
    const auto steps = [&](i64 k, auto count) {
      constexpr int kSteps = decltype(count)::kValue;
      InFlight<S, kVec> matrix[kSteps][kLines];
#pragma unroll
      for (int h = 0; h < kSteps; ++h)
#pragma unroll
        for (int l = 0; l < kLines; ++l) matrix[h][l].once(from_w[l] + (k + h * kTeam * kVec) * w_depth);
#pragma unroll
      for (int h = 0; h < kSteps; ++h)
#pragma unroll
        for (int f = 0; f < kVectors; ++f) {
          const Vec<S, kVec> v = load_vec<kVec>(from_x + f * p.x_line + (k + h * kTeam * kVec) * x_depth);
#pragma unroll
          for (int l = 0; l < kLines; ++l)
#pragma unroll
            for (int i = 0; i < kVec; ++i) sums[l][f] = multiply_add(load(&matrix[h][l][i]), load(&v.v[i]), sums[l][f]);
        }
    };
    i64 k = begin + me * kVec;
    for (; k + (kAhead - 1) * kTeam * kVec < end; k += kStep) steps(k, Count<kAhead>());
#pragma unroll 1
    for (; k < end; k += kTeam * kVec) steps(k, Count<1>());
    let_later_kernels_start();
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
