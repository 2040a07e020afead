// QR and the eigenvectors of one large matrix by several threads. A matrix is divided into panels, which one thread factorizes; what a
// panel changes to the right of it is divided into tiles of columns, which are independent. Tiles depend on the shape alone, so that
// results do not depend on the number of threads. Matrices are column-major.
#pragma once
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <optional>
#include <type_traits>
#include <vector>

#include "pyflame/backends/cpu/gemm.h"
#include "pyflame/backends/cpu/vec_linalg.h"
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

constexpr int kReflectors = 32;  // of one block

// Products of up to kReflectors reflectors: Q = I - V T V', with V of `high` rows in the columns of `v`, below ones on its diagonal. Real numbers are
// multiplied by the product that `matmul` uses, for which V' is copied with its ones and zeros; complex ones by larfb.
template <class T>
struct ReflectorBlock {
  int high, count;
  const T* v;
  int step;  // of v
  T *rows, *factors;

  static constexpr int64_t kFactors = int64_t{kReflectors} * kReflectors;
  static int64_t memory(int most_rows) { return kFactors + int64_t{kReflectors} * most_rows; }

  ReflectorBlock(int high_, int count_, const T* v_, int step_, const T* tau, T* memory)
      : high(high_), count(count_), v(v_), step(step_), rows(memory + kFactors), factors(memory) {
    std::fill_n(factors, kFactors, T(0));
    if constexpr (std::is_floating_point_v<T>) {
      for (int64_t i = 0; i < count; ++i) {
        T* const row = rows + i * high;
        std::fill_n(row, i, T(0));
        row[i] = T(1);
        std::copy(v + i * step + i + 1, v + i * step + high, row + i + 1);
      }
      make_factors(tau);
    } else {
      Of<T>::larft("F", "C", &high, &count, v, &step, tau, factors, &kReflectors, 1, 1);
    }
  }

  // As larft: column i of T is -tau[i] T V' v[i] above the diagonal, and tau[i] on it. Columns are kReflectors apart.
  void make_factors(const T* tau) {
    std::array<T, kFactors> products;
    cpu::gemm(false, true, count, count, high, T(1), rows, high, rows, high, T(0), products.data(), kReflectors);
    for (int64_t i = 0; i < count; ++i) {
      T* const column = factors + i * kReflectors;
      for (int64_t q = 0; q < i; ++q) {
        const T factor = -tau[i] * products[static_cast<size_t>(q * kReflectors + i)];
        for (int64_t r = 0; r <= q; ++r) column[r] += factor * factors[q * kReflectors + r];
      }
      column[i] = tau[i];
    }
  }

  // C = Q C, or Q' C if adjoint, for columns of at most kTile, c_step apart.
  void apply(bool adjoint, int width, T* c, int c_step) const {
    T* const work = scratch<T>(7, 2 * int64_t{kTile} * kReflectors);
    if constexpr (std::is_floating_point_v<T>) {  // columns of C are rows of C': C' -= C' V T' V', or with T for T'
      T* const second = work + int64_t{kTile} * kReflectors;
      cpu::gemm(false, true, width, count, high, T(1), c, c_step, rows, high, T(0), work, count);
      cpu::gemm(false, adjoint, width, count, count, T(1), work, count, factors, kReflectors, T(0), second, count);
      cpu::gemm(false, false, width, high, count, T(-1), second, count, rows, high, T(1), c, c_step);
    } else {
      Of<T>::larfb("L", adjoint ? "C" : "N", "F", "C", &high, &width, &count, v, &step, factors, &kReflectors, c,
                   &c_step, work, &width, 1, 1, 1, 1);
    }
  }
};

// The reflectors of a panel of float32 numbers, as geqr2. Sums of squares are float64, in which they neither overflow nor vanish.
inline void panel_qr(int m, int n, float* a, int step, float* tau) {
  for (int j = 0; j < std::min(m, n); ++j) {
    float* const x = a + int64_t{j} * step + j;
    const int64_t below = m - j - 1;
    const double squares = cpu::vec::sum_of_products(below, x + 1, x + 1);
    tau[j] = 0;
    if (squares == 0) continue;
    const double first = x[0], beta = -std::copysign(std::sqrt(first * first + squares), first);
    tau[j] = static_cast<float>((beta - first) / beta);
    cpu::vec::divide(below, first - beta, x + 1);
    x[0] = static_cast<float>(beta);
    for (int c = j + 1; c < n; ++c) {
      float* const y = a + int64_t{c} * step + j;
      const auto factor = static_cast<float>(tau[j] * (y[0] + cpu::vec::sum_of_products(below, x + 1, y + 1)));
      y[0] -= factor;
      cpu::vec::subtract_multiple(below, factor, x + 1, y + 1);
    }
  }
}
template <class T>
void panel_qr(int m, int n, T* a, int step, T* tau) {
  int bad = 0, length = kReflectors * kReflectors;
  Of<T>::geqrf(&m, &n, a, &step, tau, scratch<T>(7, length), &length, &bad);
}

// A = Q R, as geqrf.
template <class T>
void blocked_qr(int m, int n, T* a, T* tau) {
  const int few = std::min(m, n);
  T* const memory = scratch<T>(6, ReflectorBlock<T>::memory(m));
  for (int k = 0; k < few; k += kReflectors) {
    const int p = std::min(kReflectors, few - k), below = m - k;
    T* const panel = a + int64_t{k} * m + k;
    panel_qr(below, p, panel, m, tau + k);
    if (k + p >= n) break;
    const ReflectorBlock<T> block(below, p, panel, m, tau + k, memory);
    for_tiles(k + p, n, [&](int first, int width) { block.apply(true, width, a + int64_t{first} * m + k, m); });
  }
}

// The blocks of k reflectors, of `high` rows from v on: in parallel, in scratch memory 5.
template <class T>
std::vector<ReflectorBlock<T>> reflector_blocks(int high, int k, const T* v, int step, const T* tau) {
  const int count = (k + kReflectors - 1) / kReflectors;
  const int64_t size = ReflectorBlock<T>::memory(high);
  T* const memory = scratch<T>(5, count * size);
  std::vector<std::optional<ReflectorBlock<T>>> made(static_cast<size_t>(count));
  parallel_for(count, 1, [&](int64_t from, int64_t to) {
    for (auto b = static_cast<int>(from); b < to; ++b) {
      const int row = b * kReflectors;
      made[static_cast<size_t>(b)].emplace(high - row, std::min(kReflectors, k - row), v + int64_t{row} * (step + 1),
                                           step, tau + row, memory + b * size);
    }
  });
  std::vector<ReflectorBlock<T>> blocks;
  for (const auto& b : made) blocks.push_back(*b);
  return blocks;
}

// The first columns of the product of k reflectors, which geqrf gave, as orgqr. Panel after panel changes the columns of the identity, the
// last one first; a column is not changed by the panels behind it.
template <class T>
void blocked_reflector_product(int m, int columns, int k, const T* a, const T* tau, T* q) {
  const auto blocks = reflector_blocks(m, k, a, m, tau);
  for_tiles(0, columns, [&](int first, int width) {
    T* const to = q + int64_t{first} * m;
    std::fill_n(to, int64_t{width} * m, T(0));
    for (int c = 0; c < width; ++c) to[int64_t{c} * m + first + c] = T(1);
    for (int b = std::min(static_cast<int>(blocks.size()) - 1, (first + width - 1) / kReflectors); b >= 0; --b)
      blocks[static_cast<size_t>(b)].apply(false, width, to + b * kReflectors, m);
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
  const auto blocks = reflector_blocks(n - 1, n - 1, a + 1, n, tau);
  for_tiles(0, n, [&](int first, int columns) {
    for (int k = first; k < first + columns; ++k) std::copy_n(z + int64_t{order[k] - 1} * n, n, to + int64_t{k} * n);
    for (int b = static_cast<int>(blocks.size()) - 1; b >= 0; --b)
      blocks[static_cast<size_t>(b)].apply(false, columns, to + int64_t{first} * n + b * kReflectors + 1, n);
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
