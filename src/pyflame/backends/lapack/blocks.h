// LU, Cholesky and triangular solution of one large matrix by several threads. Nearly all arithmetic is products of blocks, by the product that
// `matmul` uses; what is left is short loops (backends/cpu/vec_linalg.h). Blocks depend on the shape alone, so that results do not depend on
// the number of threads. Matrices are row-major.
#pragma once
#include <algorithm>
#include <array>
#include <cmath>
#include <complex>
#include <cstdint>
#include <vector>

#include "pyflame/backends/cpu/gemm.h"
#include "pyflame/backends/cpu/vec_linalg.h"
#include "pyflame/backends/lapack/matrices.h"
#include "pyflame/backends/lapack/routines.h"
#include "pyflame/base/threads.h"

namespace pyflame::lapack {

constexpr int64_t kPanelColumns = 64;
constexpr int64_t kTileColumns = 128;

// Whether a triangular system of n rows with k right sides is solved by blocks. LAPACK has less to set up for smaller ones.
inline bool in_blocks(int64_t n, int64_t k) { return n >= 128 && k >= 8; }

template <class T>
T conjugate(T x) {
  return x;
}
template <class R>
std::complex<R> conjugate(std::complex<R> x) {
  return std::conj(x);
}

enum class As { stored, transposed, adjoint };

// C -= op(A) B, with C [m, n].
template <class T>
void subtract_product(As op, int64_t m, int64_t n, int64_t k, const T* a, int64_t lda, const T* b, int64_t ldb, T* c,
                      int64_t ldc) {
  if (m == 0 || n == 0 || k == 0) return;
  if constexpr (std::is_floating_point_v<T>) {
    cpu::gemm(op != As::stored, false, m, n, k, T(-1), a, lda, b, ldb, T(1), c, ldc);
  } else {  // by columns, all are transposed
    const auto i = [](int64_t v) { return static_cast<int>(v); };
    const int rows = i(n), columns = i(m), inner = i(k), first = i(ldb), second = i(lda), third = i(ldc);
    const T one = 1, minus = -1;
    // The adjoint is the transpose of the conjugate, which no product by columns has here: it is copied.
    static thread_local std::vector<T> copy;
    if (op == As::adjoint) {
      copy.resize(static_cast<size_t>(k * m));
      for (int64_t r = 0; r < k; ++r)
        for (int64_t s = 0; s < m; ++s) copy[static_cast<size_t>(r * m + s)] = std::conj(a[r * lda + s]);
      Of<T>::gemm("N", "T", &rows, &columns, &inner, &minus, b, &first, copy.data(), &columns, &one, c, &third, 1, 1);
    } else {
      Of<T>::gemm("N", op == As::stored ? "N" : "T", &rows, &columns, &inner, &minus, b, &first, a, &second, &one, c,
                  &third, 1, 1);
    }
  }
}

// to[c, r] = from[r, c] of a block of rows x columns.
template <class T>
void transpose_block(int64_t rows, int64_t columns, const T* from, int64_t from_step, T* to, int64_t to_step) {
  constexpr int64_t kSquare = 16;
  for (int64_t r0 = 0; r0 < rows; r0 += kSquare)
    for (int64_t c0 = 0; c0 < columns; c0 += kSquare) {
      const int64_t r1 = std::min(rows, r0 + kSquare), c1 = std::min(columns, c0 + kSquare);
      for (int64_t c = c0; c < c1; ++c)
        for (int64_t r = r0; r < r1; ++r) to[c * to_step + r] = from[r * from_step + c];
    }
}

// f(tile) for tiles [0, count), in parallel, from `first` on and around. Tiles whose numbers differ by the number of threads are one task, so that
// call after call a tile is mostly changed by the thread whose cache has it.
template <class F>
void for_owned_tiles(int64_t count, int64_t first, F&& f) {
  const int64_t tasks = std::min<int64_t>(count, num_threads());
  parallel_for(tasks, 1, [&](int64_t from, int64_t to) {
    for (int64_t i = 0; i < count; ++i)
      if (const int64_t tile = (first + i) % count; tile % tasks >= from && tile % tasks < to) f(tile);
  });
}

// f(first column, width) for tiles of `count` columns, in parallel.
template <class F>
void for_column_tiles(int64_t count, F&& f) {
  parallel_for((count + kTileColumns - 1) / kTileColumns, 1, [&](int64_t from, int64_t to) {
    for (int64_t first = from * kTileColumns; first < std::min(count, to * kTileColumns); first += kTileColumns)
      f(first, std::min(kTileColumns, count - first));
  });
}

// Matrix b of m, of n columns; each tile of columns is read by the thread that will change it.
template <class T>
void load_column_tiles(const Matrices& m, int64_t b, T* to) {
  const int64_t n = m.columns;
  for_owned_tiles((n + kTileColumns - 1) / kTileColumns, 0, [&](int64_t tile) {
    const int64_t first = tile * kTileColumns;
    m.load_block(b, 0, m.rows, first, std::min(kTileColumns, n - first), to + first, n);
  });
}

// The lower triangle of a square one by tiles of rows, with the tiles on the diagonal, and zeros above these.
template <class T>
void load_lower_row_tiles(const Matrices& m, int64_t b, T* to) {
  const int64_t n = m.columns;
  for_owned_tiles((n + kTileColumns - 1) / kTileColumns, 0, [&](int64_t tile) {
    const int64_t first = tile * kTileColumns, end = std::min(n, first + kTileColumns);
    m.load_block(b, first, end - first, 0, end, to + first * n, n);
    for (int64_t r = first; r < end; ++r) std::fill(to + r * n + end, to + (r + 1) * n, T(0));
  });
}

// A triangular matrix T, which may be the transpose or the adjoint of what is stored.
template <class T>
struct Triangle {
  const T* a;
  int64_t step;
  As op;
  bool upper, unit;  // of T

  T at(int64_t r, int64_t c) const {
    if (op == As::stored) return a[r * step + c];
    const T x = a[c * step + r];
    return op == As::adjoint ? conjugate(x) : x;
  }
  const T* block(int64_t r, int64_t c) const { return op == As::stored ? a + r * step + c : a + c * step + r; }

  // X = inv(T) X for rows [begin, end) of T and `width` columns of X.
  void solve(int64_t begin, int64_t end, int64_t width, T* x, int64_t x_step) const {
    const int64_t n = end - begin;
    if (n > cpu::vec::kMostSolvedRows) {
      constexpr int64_t kUnit = cpu::vec::kMostSolvedRows;
      const int64_t middle = begin + (n / 2 + kUnit - 1) / kUnit * kUnit;
      const auto half = [&](int64_t from, int64_t to) { solve(from, to, width, x, x_step); };
      if (upper) {
        half(middle, end);
        subtract_product(op, middle - begin, width, end - middle, block(begin, middle), step, x + middle * x_step,
                         x_step, x + begin * x_step, x_step);
        half(begin, middle);
      } else {
        half(begin, middle);
        subtract_product(op, end - middle, width, middle - begin, block(middle, begin), step, x + begin * x_step,
                         x_step, x + middle * x_step, x_step);
        half(middle, end);
      }
      return;
    }
    // Of an upper triangle the last row is the first one.
    std::array<T, cpu::vec::kMostSolvedRows * cpu::vec::kMostSolvedRows> c;
    const auto place = [&](int64_t i) { return upper ? end - 1 - i : begin + i; };
    for (int64_t i = 0; i < n; ++i)
      for (int64_t j = 0; j <= i; ++j) c[static_cast<size_t>(i * n + j)] = at(place(i), place(j));
    cpu::vec::substitute(n, c.data(), unit, width, x + place(0) * x_step, upper ? -x_step : x_step);
  }
};

// Two rows of `width` elements change places. Copies of known size are faster than a loop of exchanges.
template <class T>
void exchange(T* x, T* y, int64_t width) {
  std::array<T, kTileColumns> kept;
  for (int64_t c = 0; c < width; c += kTileColumns) {
    const int64_t n = std::min(kTileColumns, width - c);
    std::copy_n(x + c, n, kept.data());
    std::copy_n(y + c, n, x + c);
    std::copy_n(kept.data(), n, y + c);
  }
}

// Rows i and pivots[i] (from 1 on) of `width` columns change places, for i in [begin, end).
template <class T>
void exchange_rows(int64_t begin, int64_t end, const int* pivots, int64_t width, T* x, int64_t step) {
  for (int64_t i = begin; i < end; ++i)
    if (const int64_t other = pivots[i] - 1; other != i) exchange(x + i * step, x + other * step, width);
}

// The inverse of exchange_rows for all n rows.
template <class T>
void exchange_rows_back(int64_t n, const int* pivots, int64_t width, T* x, int64_t step) {
  for (int64_t i = n - 1; i >= 0; --i)
    if (const int64_t other = pivots[i] - 1; other != i) exchange(x + i * step, x + other * step, width);
}

// LU of a panel whose columns are rows of p: element (r, c) is p[c * step + r]. pivots count from 1 on. The first zero pivot goes to info.
template <class T>
void factor_panel(int64_t rows, int64_t begin, int64_t end, T* p, int64_t step, int* pivots, int* info) {
  constexpr int64_t kBase = 16;
  const auto exchange_in = [&](int64_t column, int64_t from, int64_t to) {
    for (int64_t i = from; i < to; ++i) std::swap(p[column * step + i], p[column * step + pivots[i] - 1]);
  };
  if (end - begin > kBase) {
    const int64_t middle = begin + ((end - begin) / 2 + kBase - 1) / kBase * kBase;
    factor_panel(rows, begin, middle, p, step, pivots, info);
    for (int64_t c = middle; c < end; ++c) {
      exchange_in(c, begin, middle);
      T* const column = p + c * step;
      for (int64_t j = begin; j < middle; ++j)
        cpu::vec::subtract_multiple(middle - j - 1, column[j], p + j * step + j + 1, column + j + 1);
    }
    subtract_product(As::stored, end - middle, rows - middle, middle - begin, p + middle * step + begin, step,
                     p + begin * step + middle, step, p + middle * step + middle, step);
    factor_panel(rows, middle, end, p, step, pivots, info);
    for (int64_t c = begin; c < middle; ++c) exchange_in(c, middle, end);
    return;
  }
  for (int64_t j = begin; j < end; ++j) {
    T* const column = p + j * step;
    const int64_t at = j + cpu::vec::place_of_largest(rows - j, column + j);
    pivots[j] = static_cast<int>(at) + 1;
    for (int64_t c = begin; at != j && c < end; ++c) std::swap(p[c * step + j], p[c * step + at]);
    if (column[j] == T(0)) {
      if (*info == 0) *info = static_cast<int>(j) + 1;
      continue;
    }
    cpu::vec::divide(rows - j - 1, column[j], column + j + 1);
    for (int64_t c = j + 1; c < end; ++c)
      cpu::vec::subtract_multiple(rows - j - 1, p[c * step + j], column + j + 1, p + c * step + j + 1);
  }
}

// P A = L U, as getrf. While the columns behind a panel are changed, one thread changes those of the next panel first and factorizes it.
template <class T>
void factor_lu(int64_t m, int64_t n, T* a, int* pivots, int* info) {
  const int64_t few = std::min(m, n), step = m + 16;
  std::array<T*, 2> panels{scratch<T>(6, 2 * kPanelColumns * step), nullptr};
  panels[1] = panels[0] + kPanelColumns * step;
  *info = 0;
  const auto panel_at = [&](int64_t k) { return panels[static_cast<size_t>(k / kPanelColumns % 2)]; };
  const auto factor = [&](int64_t k, int64_t p) {
    T* const panel = panel_at(k);
    transpose_block(m - k, p, a + k * n + k, n, panel, step);
    int bad = 0;
    factor_panel(m - k, 0, p, panel, step, pivots + k, &bad);
    if (bad != 0 && *info == 0) *info = bad + static_cast<int>(k);
    for (int64_t i = k; i < k + p; ++i) pivots[i] += static_cast<int>(k);
    transpose_block(p, m - k, panel, step, a + k * n + k, n);
  };
  factor(0, std::min(kPanelColumns, few));
  for (int64_t k = 0; k < few; k += kPanelColumns) {
    const int64_t next = std::min(k + kPanelColumns, few), p = next - k,
                  next_width = std::min(kPanelColumns, few - next);
    const T* const panel = panel_at(k);
    const auto update = [&](int64_t begin, int64_t width) {
      T* const top = a + begin;
      exchange_rows(k, next, pivots, width, top, n);
      Triangle<T>{a + k * n + k, n, As::stored, false, true}.solve(0, p, width, top + k * n, n);
      subtract_product(As::transposed, m - next, width, p, panel + p, step, top + k * n, n, top + next * n, n);
    };
    for_owned_tiles((n + kTileColumns - 1) / kTileColumns, next / kTileColumns, [&](int64_t tile) {
      const int64_t begin = tile * kTileColumns, end = std::min(n, begin + kTileColumns);
      int64_t after = std::max(begin, next);
      if (after == next && next_width > 0 && next < end) {
        update(next, next_width);
        factor(next, next_width);
        after = next + next_width;
      }
      if (after < end) update(after, end - after);
      if (begin < k) exchange_rows(k, next, pivots, std::min(k, end) - begin, a + begin, n);
    });
  }
}

// Cholesky of one small matrix by its upper triangle U, with A = U' U. The order of the first minor that is not positive, or 0.
template <class T>
int factor_small_cholesky(int64_t n, T* u, int64_t step) {
  for (int64_t j = 0; j < n; ++j) {
    T* const row = u + j * step;
    const auto pivot = std::real(row[j]);
    if (!(pivot > 0)) return static_cast<int>(j) + 1;
    const auto root = std::sqrt(pivot);
    row[j] = root;
    cpu::vec::divide(n - j - 1, T(root), row + j + 1);
    for (int64_t i = j + 1; i < n; ++i)
      cpu::vec::subtract_multiple(n - i, conjugate(row[i]), row + i, u + i * step + i);
  }
  return 0;
}

// A = L L', of the lower triangle; what is above the tile of a row's diagonal element is zero already. A panel of L is kept as its adjoint, whose rows are long.
template <class T>
void factor_cholesky(int64_t n, T* a, int* info) {
  const int64_t step = n + 16;
  T *const panel = scratch<T>(6, kPanelColumns * step), *const diagonal = scratch<T>(7, kPanelColumns * kPanelColumns);
  *info = 0;
  const auto adjoint = [&](int64_t rows, int64_t columns, const T* from, int64_t from_step, T* to, int64_t to_step) {
    transpose_block(rows, columns, from, from_step, to, to_step);
    if constexpr (!std::is_floating_point_v<T>)
      for (int64_t c = 0; c < columns; ++c)
        std::transform(to + c * to_step, to + c * to_step + rows, to + c * to_step, [](T x) { return std::conj(x); });
  };
  const auto zero_above = [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r)
      std::fill(a + r * n + r + 1, a + r * n + std::min(n, (r / kTileColumns + 1) * kTileColumns), T(0));
  };
  for (int64_t k = 0; k < n; k += kPanelColumns) {
    const int64_t p = std::min(kPanelColumns, n - k), next = k + p;
    adjoint(p, p, a + k * n + k, n, diagonal, p);
    if (const int bad = factor_small_cholesky(p, diagonal, p)) {
      *info = bad + static_cast<int>(k);
      return zero_above(k, n);
    }
    adjoint(p, p, diagonal, p, a + k * n + k, n);
    zero_above(k, next);
    const Triangle<T> factor{diagonal, p, As::adjoint, false, false};
    // Rows from `next` on, of tiles that begin at multiples of their size.
    const auto for_rows = [&](const auto& f) {
      for_owned_tiles((n + kTileColumns - 1) / kTileColumns, next / kTileColumns, [&](int64_t tile) {
        const int64_t first = std::max(next, tile * kTileColumns), end = std::min(n, (tile + 1) * kTileColumns);
        if (first < end) f(first, end - first);
      });
    };
    for_rows([&](int64_t first, int64_t rows) {
      T* const to = panel + first - next;
      adjoint(rows, p, a + first * n + k, n, to, step);
      factor.solve(0, p, rows, to, step);
      adjoint(p, rows, to, step, a + first * n + k, n);
    });
    for_rows([&](int64_t first, int64_t rows) {
      subtract_product(As::adjoint, rows, first + rows - next, p, panel + first - next, step, panel, step,
                       a + first * n + next, n);
    });
  }
}

}  // namespace pyflame::lapack
