// Factorizations of one large matrix by several threads. A matrix is divided into panels, which LAPACK factorizes on one thread; what a
// panel changes to the right of it is divided into tiles of columns, which are independent. Tiles depend on the shape alone, so that
// results do not depend on the number of threads. Matrices are column-major.
#pragma once
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>

#include "pyflame/backends/lapack/matrices.h"
#include "pyflame/backends/lapack/routines.h"
#include "pyflame/base/threads.h"

namespace pyflame::lapack {

constexpr int kBlockedFrom = 192;  // rows or columns; smaller matrices are one call
constexpr int kTile = 64;          // columns

// f(first column, number of columns) for the tiles of columns [begin, end), in parallel.
template <class F>
void for_tiles(int begin, int end, F&& f) {
  const int tiles = (end - begin + kTile - 1) / kTile;
  parallel_for(tiles, 1, [&](int64_t from, int64_t to) {
    for (int64_t t = from; t < to; ++t) {
      const int first = begin + static_cast<int>(t) * kTile;
      f(first, std::min(kTile, end - first));
    }
  });
}

// A = Q R, as geqrf.
template <class T>
void blocked_qr(int m, int n, T* a, T* tau) {
  using L = Of<T>;
  constexpr int kPanel = 32;
  const int few = std::min(m, n);
  for (int k = 0; k < few; k += kPanel) {
    const int p = std::min(kPanel, few - k), below = m - k;
    T* const panel = a + int64_t{k} * m + k;
    int bad = 0, length = kPanel * kPanel;
    T* const t = scratch<T>(6, kPanel * kPanel);
    L::geqrf(&below, &p, panel, &m, tau + k, t, &length, &bad);
    if (k + p >= n) break;
    L::larft("F", "C", &below, &p, panel, &m, tau + k, t, &p, 1, 1);
    for_tiles(k + p, n, [&](int first, int width) {
      T* const work = scratch<T>(7, kTile * kPanel);
      L::larfb("L", "C", "F", "C", &below, &width, &p, panel, &m, t, &p, a + int64_t{first} * m + k, &m, work, &width,
               1, 1, 1, 1);
    });
  }
}

// The first columns of the product of k reflectors, which geqrf gave, as orgqr. Panel after panel changes the columns of the identity, the
// last one first; a column is not changed by the panels behind it.
template <class T>
void blocked_reflector_product(int m, int columns, int k, const T* a, const T* tau, T* q) {
  using L = Of<T>;
  constexpr int kPanel = 32;
  const int panels = (k + kPanel - 1) / kPanel;
  T* const t = scratch<T>(5, int64_t{panels} * kPanel * kPanel);
  const auto panel = [&](int p) { return a + int64_t{p} * kPanel * (m + 1); };
  const auto factors = [&](int p) { return t + int64_t{p} * kPanel * kPanel; };
  parallel_for(panels, 1, [&](int64_t from, int64_t last) {
    for (auto p = static_cast<int>(from); p < last; ++p) {
      const int below = m - p * kPanel, width = std::min(kPanel, k - p * kPanel), size = kPanel;
      L::larft("F", "C", &below, &width, panel(p), &m, tau + int64_t{p} * kPanel, factors(p), &size, 1, 1);
    }
  });
  for_tiles(0, columns, [&](int first, int width) {
    T* const work = scratch<T>(6, kTile * kPanel);
    T* const to = q + int64_t{first} * m;
    std::fill_n(to, int64_t{width} * m, T(0));
    for (int c = 0; c < width; ++c) to[int64_t{c} * m + first + c] = T(1);
    for (int p = std::min(panels - 1, (first + width - 1) / kPanel); p >= 0; --p) {
      const int row = p * kPanel, below = m - row, reflectors = std::min(kPanel, k - row), size = kPanel;
      L::larfb("L", "N", "F", "C", &below, &width, &reflectors, panel(p), &m, factors(p), &size, to + row, &m, work,
               &width, 1, 1, 1, 1);
    }
  });
}

// The eigenvalues d (ascending) and eigenvectors z of a symmetric tridiagonal matrix with the diagonal d and the elements e beside it, as
// stedc with one more division: the matrix is two tridiagonal ones and a correction of rank 1. False where LAPACK fails.
template <class T>
bool halved_tridiagonal(int n, T* d, T* e, T* z, int* order) {
  using L = Of<T>;
  const int half = n / 2;
  const T between = e[half - 1];
  d[half - 1] -= std::abs(between), d[half] -= std::abs(between);
  std::fill_n(z, int64_t{n} * n, T(0));
  std::array<int, 2> bad{};
  parallel_for(2, 1, [&](int64_t from, int64_t to) {
    for (auto i = static_cast<int>(from); i < to; ++i) {
      const int first = i * half, m = i ? n - half : half, length = 1 + 4 * m + m * m, whole_length = 3 + 5 * m;
      L::stedc("I", &m, d + first, e + first, z + int64_t{first} * n + first, &n, scratch<T>(6, length), &length,
               scratch<int>(1, whole_length), &whole_length, &bad[static_cast<size_t>(i)], 1);
      for (int k = 0; k < m; ++k) order[first + k] = k + 1;
    }
  });
  if (bad[0] || bad[1]) return false;
  L::laed1(&n, d, z, &n, order, &between, &half, scratch<T>(5, 4 * int64_t{n} + int64_t{n} * n),
           scratch<int>(1, 4 * int64_t{n}), bad.data());
  return bad[0] == 0;
}

// Multiplies the columns of z, in this order, by the reflectors of sytrd("L"): as ormtr, to `to`.
template <class T>
void apply_reflectors(int n, const T* a, const T* tau, const T* z, const int* order, T* to) {
  using L = Of<T>;
  constexpr int kPanel = 32;
  const int all = n - 1, panels = (all + kPanel - 1) / kPanel;
  T* const t = scratch<T>(5, int64_t{panels} * kPanel * kPanel);
  const auto panel = [&](int p) { return a + int64_t{p} * kPanel * (n + 1) + 1; };
  parallel_for(panels, 1, [&](int64_t from, int64_t last) {
    for (auto p = static_cast<int>(from); p < last; ++p) {
      const int below = all - p * kPanel, width = std::min(kPanel, below), size = kPanel;
      L::larft("F", "C", &below, &width, panel(p), &n, tau + int64_t{p} * kPanel, t + int64_t{p} * kPanel * kPanel,
               &size, 1, 1);
    }
  });
  for_tiles(0, n, [&](int first, int columns) {
    T* const work = scratch<T>(6, kTile * kPanel);
    for (int k = first; k < first + columns; ++k) std::copy_n(z + int64_t{order[k] - 1} * n, n, to + int64_t{k} * n);
    for (int p = panels - 1; p >= 0; --p) {
      const int below = all - p * kPanel, width = std::min(kPanel, below), size = kPanel;
      L::larfb("L", "N", "F", "C", &below, &columns, &width, panel(p), &n, t + int64_t{p} * kPanel * kPanel, &size,
               to + int64_t{first} * n + p * kPanel + 1, &n, work, &columns, 1, 1, 1, 1);
    }
  });
}

// Eigenvalues and eigenvectors as syevd("L"), for a matrix of moderate numbers. The vectors, in scratch memory, or null where LAPACK fails.
template <class T>
T* blocked_eigh(int n, T* a, T* values) {
  using L = Of<T>;
  T *const e = scratch<T>(2, 4 * int64_t{n}), *const tau = e + n, *const d = tau + n;
  T *const z = scratch<T>(3, int64_t{n} * n), *const vectors = scratch<T>(4, int64_t{n} * n);
  int* const order = scratch<int>(0, n);
  int bad = 0;
  const int most = 64 * n;
  L::sytrd("L", &n, a, &n, d, e, tau, scratch<T>(5, most), &most, &bad, 1);
  if (bad || !halved_tridiagonal(n, d, e, z, order)) return nullptr;
  for (int k = 0; k < n; ++k) values[k] = d[order[k] - 1];
  apply_reflectors(n, a, tau, z, order, vectors);
  return vectors;
}

}  // namespace pyflame::lapack
