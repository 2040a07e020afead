// Each function computes one matrix of a batch. Where rows and columns change places, the triangle, or the sides of a product, do as well,
// so that most matrices need no transposition.
#include "pyflame/backends/lapack/lapack.h"

#include <algorithm>
#include <cmath>
#include <complex>
#include <limits>

#include "pyflame/backends/lapack/blocked.h"
#include "pyflame/backends/lapack/blocks.h"
#include "pyflame/backends/lapack/matrices.h"
#include "pyflame/backends/lapack/routines.h"
#include "pyflame/base/error.h"
#include "pyflame/base/threads.h"

extern "C" void openblas_set_num_threads(int);

namespace pyflame::lapack {

namespace {

template <class T>
struct Number {
  using Real = T;
  static constexpr bool kComplex = false;
};
template <class T>
struct Number<std::complex<T>> {
  using Real = T;
  static constexpr bool kComplex = true;
};

// LAPACK may not end for a matrix with NaN.
template <class T>
bool finite(const T* x, int64_t n) {
  T sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += x[i] * T(0);
  return sum == T(0);
}
template <class T>
bool finite(const std::complex<T>* x, int64_t n) {
  return finite(reinterpret_cast<const T*>(x), 2 * n);
}

// Whether squares of the largest element, and of what is small next to it, neither overflow nor vanish.
template <class T>
bool moderate(const T* x, int64_t n) {
  T most = 0;
  for (int64_t i = 0; i < n; ++i) most = std::max(most, std::abs(x[i]));
  return most > T(1e-8) && most < T(1e8);
}

int whole(int64_t n) {
  PF_CHECK(n <= std::numeric_limits<int>::max(), Runtime, "linalg: a matrix is too large for LAPACK; got {}", n);
  return static_cast<int>(n);
}

template <class T>
class Routines {
  using L = Of<T>;
  using R = typename Number<T>::Real;
  using C = std::complex<R>;
  static constexpr bool kComplex = Number<T>::kComplex;

 public:
  Routines(const Node& node, void* const* ins, void* const* outs, Params params)
      : node_(node), ins_(ins), outs_(outs), params_(params) {}
  void run();

 private:
  Matrices in(size_t i, int dims = 2) const { return {node_.ins[i], ins_[i], dims}; }
  Matrices out(size_t i, int dims = 2) const { return {node_.outs[i], outs_[i], dims}; }
  // f(b) for each matrix; a chunk has at least about 100 microseconds of work.
  template <class F>
  void each(int64_t count, double flops, F&& f) const {
    if (count == 1) return f(0);  // which may use all threads itself
    const auto grain = static_cast<int64_t>(std::clamp(1e5 / std::max(flops, 1.0), 1.0, 1e6));
    parallel_for(count, grain, [&](int64_t begin, int64_t end) {
      for (int64_t b = begin; b < end; ++b) f(b);
    });
  }
  static double cube(int64_t n) { return static_cast<double>(n) * static_cast<double>(n) * static_cast<double>(n); }
  // Calls f(work, length) twice: for the best length, which the routine writes to work[0], and to compute.
  template <class F>
  static void with_work(size_t slot, F&& f) {
    T best = 0;
    f(&best, -1);
    const int length =
        std::max(1, static_cast<int>(std::real(best) * R(1.0001)));  // large numbers were rounded to float
    f(scratch<T>(slot, length), length);
  }

  static constexpr DType kType = kComplex ? (std::is_same_v<R, double> ? DType::complex128 : DType::complex64)
                                          : (std::is_same_v<R, double> ? DType::float64 : DType::float32);
  struct InRows;
  void cholesky();
  void triangular_solve();
  void lu_factor();
  static void solve_in_blocks(const Matrices& lu, const Matrices& rhs, const Matrices& x, int64_t b, const int* pivots,
                              bool adjoint);
  void lu_solve();
  void row_order();
  void geqrf();
  void orgqr();
  static void syevd(const char* job, int n, T* x, R* w, int* bad);
  void eigh();
  static void geev(bool vectors, int n, T* x, C* w, C* v, int* bad);
  void eig();
  void svd();
  bool is_hermitian(size_t param) const { return params_[node_.ins[param].param].as_i64() != 0; }
  void ldl_factor();
  void ldl_solve();
  void lstsq();

  const Node& node_;
  void* const* ins_;
  void* const* outs_;
  Params params_;
};

// Matrix b of an output by rows: where it is if it has no gaps, else in scratch memory until store().
template <class T>
struct Routines<T>::InRows {
  InRows(const Matrices& matrices, int64_t b, size_t slot) : out(matrices), place(b) {
    direct = out.dtype() == kType && out.column_stride() == 1 && out.row_stride() == out.columns;
    data = direct ? out.template direct<T>(b) : scratch<T>(slot, out.rows * out.columns);
  }
  void store() const {
    if (!direct) out.store(place, data, Order::rows);
  }
  const Matrices& out;
  int64_t place;
  bool direct;
  T* data;
};

// A symmetric matrix by rows is the same by columns, with the other triangle: L by rows is the upper factor by columns.
template <class T>
void Routines<T>::cholesky() {
  const Matrices a = in(0), l = out(0), info = out(1, 0);
  const int n = whole(a.rows);
  each(a.count, cube(n) / 3, [&](int64_t b) {
    const InRows x(l, b, 0);
    int bad = 0;
    if (n >= kBlockedFrom) {
      load_lower_row_tiles(a, b, x.data);
      factor_cholesky(n, x.data, &bad);
    } else {
      a.load(b, x.data, Order::rows);
      if (n > 0) L::potrf("U", &n, x.data, &n, &bad, 1);
      for (int r = 0; r < n; ++r) std::fill(x.data + int64_t{r} * n + r + 1, x.data + int64_t{r + 1} * n, T(0));
    }
    x.store();
    info.store(b, &bad);
  });
}

// X by rows is X transposed by columns: X' A' = B'.
template <class T>
void Routines<T>::triangular_solve() {
  const auto attrs = node_.attr<TriangularAttrs>();
  const Matrices a = in(0), rhs = in(1), x = out(0);
  const int n = whole(x.rows), k = whole(x.columns);
  if (x.count * n * k == 0) return;
  each(x.count, static_cast<double>(n) * n * k, [&](int64_t b) {
    const int64_t rs = a.row_stride(), cs = a.column_stride();
    const bool same = a.dtype() == kType;
    const bool by_rows = cs == 1 && rs >= n, by_columns = rs == 1 && cs >= n;
    const T* m = a.template direct<T>(b);
    int lead = whole(std::max<int64_t>(by_rows ? rs : cs, 1));
    bool transposed = by_columns && !by_rows;  // of what BLAS sees by columns
    if (!same || (!by_rows && !by_columns)) {
      T* copy = scratch<T>(0, int64_t{n} * n);
      a.load(b, copy, Order::rows);
      m = copy, lead = n, transposed = false;
    }
    const InRows y(x, b, 1);
    if (in_blocks(n, k)) {
      const Triangle<T> t{m, lead, transposed ? As::transposed : As::stored, attrs.upper != 0, attrs.unit != 0};
      for_column_tiles(k, [&](int64_t first, int64_t width) {
        rhs.load_block(b, 0, n, first, width, y.data + first, k);
        t.solve(0, n, width, y.data + first, k);
      });
    } else {
      rhs.load(b, y.data, Order::rows);
      const bool upper = (attrs.upper != 0) == transposed;
      const T one = 1;
      L::trsm("R", upper ? "U" : "L", transposed ? "T" : "N", attrs.unit ? "U" : "N", &k, &n, &one, m, &lead, y.data,
              &k, 1, 1, 1, 1);
    }
    y.store();
  });
}

template <class T>
void Routines<T>::lu_factor() {
  const Matrices a = in(0), lu = out(0), pivots = out(1, 1), info = out(2, 0);
  const int m = whole(a.rows), n = whole(a.columns), k = std::min(m, n);
  each(a.count, 0.67 * m * n * k, [&](int64_t b) {
    int* p = scratch<int>(0, k);
    int bad = 0;
    if (k >= kBlockedFrom) {
      const InRows x(lu, b, 0);
      load_column_tiles(a, b, x.data);
      factor_lu(m, n, x.data, p, &bad);
      x.store();
    } else {
      T* x = scratch<T>(0, int64_t{m} * n);
      a.load(b, x);
      if (k > 0) L::getrf(&m, &n, x, &m, p, &bad);
      lu.store(b, x);
    }
    pivots.store(b, p);
    info.store(b, &bad);
  });
}

// P L U X = B, or U' L' P' X = B.
template <class T>
void Routines<T>::solve_in_blocks(const Matrices& lu, const Matrices& rhs, const Matrices& x, int64_t b,
                                  const int* pivots, bool adjoint) {
  const int64_t n = x.rows, k = x.columns;
  const bool by_rows = lu.dtype() == kType && lu.column_stride() == 1 && lu.row_stride() >= n;
  const T* m = lu.template direct<T>(b);
  if (!by_rows) {
    T* const copy = scratch<T>(0, n * n);
    lu.load(b, copy, Order::rows);
    m = copy;
  }
  const int64_t step = by_rows ? lu.row_stride() : n;
  const InRows y(x, b, 1);
  const As as = adjoint ? As::adjoint : As::stored;
  const Triangle<T> lower{m, step, as, adjoint, true}, upper{m, step, as, !adjoint, false};
  for_column_tiles(k, [&](int64_t first, int64_t width) {
    T* const columns = y.data + first;
    rhs.load_block(b, 0, n, first, width, columns, k);
    if (!adjoint) exchange_rows(0, n, pivots, width, columns, k);
    (adjoint ? upper : lower).solve(0, n, width, columns, k);
    (adjoint ? lower : upper).solve(0, n, width, columns, k);
    if (adjoint) exchange_rows_back(n, pivots, width, columns, k);
  });
  y.store();
}

template <class T>
void Routines<T>::lu_solve() {
  const auto attrs = node_.attr<AdjointAttrs>();
  const Matrices lu = in(0), pivots = in(1, 1), rhs = in(2), x = out(0);
  const int n = whole(x.rows), k = whole(x.columns);
  if (x.count * n * k == 0) return;
  each(x.count, 2.0 * n * n * k, [&](int64_t b) {
    int* p = scratch<int>(0, n);
    pivots.load(b, p);
    for (int i = 0; i < n; ++i)  // rows that do not exist would be written
      PF_CHECK(p[i] >= 1 && p[i] <= n, Index, "linalg.lu_solve: a pivot is out of range; got {}; expected 1 to {}",
               p[i], n);
    if (in_blocks(n, k)) return solve_in_blocks(lu, rhs, x, b, p, attrs.adjoint != 0);
    T* m = scratch<T>(0, int64_t{n} * n);
    T* y = scratch<T>(1, int64_t{n} * k);
    lu.load(b, m);
    rhs.load(b, y);
    int bad = 0;
    L::getrs(attrs.adjoint ? "C" : "N", &n, &k, m, &n, p, y, &n, &bad, 1);
    x.store(b, y);
  });
}

// Pivots say which rows change places, one after the other. The result says which row of the matrix is at each place.
template <class T>
void Routines<T>::row_order() {
  const auto attrs = node_.attr<RowOrderAttrs>();
  const Matrices pivots = in(0, 1), order = out(0, 1);
  const int64_t k = pivots.rows, n = order.rows;
  each(order.count, static_cast<double>(n), [&](int64_t b) {
    int* p = scratch<int>(0, k);
    int* at = scratch<int>(1, n);
    int* place = scratch<int>(2, n);
    pivots.load(b, p);
    for (int i = 0; i < n; ++i) at[i] = i;
    for (int64_t i = 0; i < k; ++i) {
      PF_CHECK(p[i] >= 1 && p[i] <= n, Index, "lu: a pivot is out of range; got {}; expected 1 to {}", p[i], n);
      std::swap(at[i], at[p[i] - 1]);
    }
    for (int i = 0; i < n; ++i) place[at[i]] = i;
    order.store(b, attrs.inverse ? place : at);
  });
}

template <class T>
void Routines<T>::geqrf() {
  const Matrices a = in(0), qr = out(0), tau = out(1, 1);
  const int m = whole(a.rows), n = whole(a.columns), k = std::min(m, n);
  each(a.count, 2.0 * m * n * k, [&](int64_t b) {
    T* x = scratch<T>(0, int64_t{m} * n);
    T* t = scratch<T>(1, k);
    a.load(b, x);
    int bad = 0;
    if (n >= kBlockedFrom) blocked_qr(m, n, x, t);
    else if (k > 0) with_work(2, [&](T* work, int length) { L::geqrf(&m, &n, x, &m, t, work, &length, &bad); });
    qr.store(b, x);
    tau.store(b, t);
  });
}

template <class T>
void Routines<T>::orgqr() {
  const Matrices a = in(0), tau = in(1, 1), q = out(0);
  const int m = whole(a.rows), n = whole(a.columns), k = whole(tau.rows), columns = whole(q.columns);
  each(q.count, 2.0 * m * columns * k, [&](int64_t b) {
    T* reflectors = scratch<T>(0, int64_t{m} * std::max(n, columns));
    T* t = scratch<T>(1, k);
    a.load(b, reflectors);
    tau.load(b, t);
    T* x = reflectors;
    int bad = 0;
    if (columns >= kBlockedFrom) {
      blocked_reflector_product(m, columns, k, reflectors, t, x = scratch<T>(2, int64_t{m} * columns));
    } else if (m > 0 && columns > 0) {
      with_work(2, [&](T* work, int length) { L::orgqr(&m, &columns, &k, x, &m, t, work, &length, &bad); });
    }
    q.store(b, x);
  });
}

template <class T>
void Routines<T>::syevd(const char* job, int n, T* x, R* w, int* bad) {
  int least = 0;
  R least_real = 0;
  with_work(2, [&](T* work, int length) {
    const bool asks = length < 0;
    const int whole_length = asks ? -1 : std::max(1, least);
    int* const whole_work = asks ? &least : scratch<int>(0, whole_length);
    if constexpr (kComplex) {
      const int real_length = asks ? -1 : std::max(1, static_cast<int>(least_real * R(1.0001)));
      R* const real_work = asks ? &least_real : scratch<R>(3, real_length);
      L::heevd(job, "L", &n, x, &n, w, work, &length, real_work, &real_length, whole_work, &whole_length, bad, 1, 1);
    } else {
      L::syevd(job, "L", &n, x, &n, w, work, &length, whole_work, &whole_length, bad, 1, 1);
    }
  });
}

// Eigenvalues in ascending order, with their vectors (columns) unless these are null. A merge of divide and conquer may leave two that are equal but for
// rounding in the other order, so that few places change.
template <class T, class R>
void put_in_order(int n, R* values, T* vectors) {
  for (int64_t end = 1; end < n; ++end)
    for (int64_t k = end; k > 0 && values[k] < values[k - 1]; --k) {
      std::swap(values[k], values[k - 1]);
      if (vectors) std::swap_ranges(vectors + k * n, vectors + (k + 1) * n, vectors + (k - 1) * n);
    }
}

// By rows, the upper triangle of a matrix is the lower one of its transpose, which for complex numbers is its conjugate.
template <class T>
void Routines<T>::eigh() {
  const auto attrs = node_.attr<EighAttrs>();
  const Matrices a = in(0), values = out(0, 1), vectors = out(1), info = out(2, 0);
  const int n = whole(a.rows);
  const int64_t all = int64_t{n} * n;
  const auto load = [&](int64_t b, T* x) {
    a.load(b, x, attrs.upper ? Order::rows : Order::columns);
    if constexpr (kComplex)
      if (attrs.upper) std::transform(x, x + all, x, [](const T& e) { return std::conj(e); });
  };
  each(a.count, 4 * cube(n), [&](int64_t b) {
    T* x = scratch<T>(0, all);
    R* w = scratch<R>(1, n);
    load(b, x);
    int bad = 0;
    T* v = x;
    if (!finite(x, all)) {
      std::fill_n(w, n, std::numeric_limits<R>::quiet_NaN());
      std::fill_n(x, all, T(std::numeric_limits<R>::quiet_NaN()));
    } else if (n > 0) {
      v = nullptr;
      if constexpr (!kComplex)
        if (attrs.vectors && n >= kBlockedFrom && moderate(x, all)) {
          v = blocked_eigh(n, x, w);
          if (!v) load(b, x);  // what failed has overwritten it
        }
      if (!v) syevd(attrs.vectors ? "V" : "N", n, v = x, w, &bad);
      if (bad == 0) put_in_order(n, w, attrs.vectors ? v : nullptr);
    }
    values.store(b, w);
    if (attrs.vectors) vectors.store(b, v);
    info.store(b, &bad);
  });
}

// LAPACK writes the vectors of a complex pair of values of a real matrix as their real parts, then their imaginary parts.
template <class T>
void Routines<T>::geev(bool vectors, int n, T* x, C* w, C* v, int* bad) {
  const char* const what = vectors ? "V" : "N";
  if constexpr (kComplex) {
    R* const real_work = scratch<R>(4, 2 * int64_t{n});
    with_work(3, [&](T* work, int length) {
      L::geev("N", what, &n, x, &n, w, nullptr, &n, v, &n, work, &length, real_work, bad, 1, 1);
    });
  } else {
    T *const re = scratch<T>(1, 2 * int64_t{n}), *const im = re + n, *const parts = scratch<T>(2, int64_t{n} * n);
    with_work(3, [&](T* work, int length) {
      L::geev("N", what, &n, x, &n, re, im, nullptr, &n, parts, &n, work, &length, bad, 1, 1);
    });
    for (int64_t c = 0; c < n; ++c) {
      w[c] = {re[c], im[c]};
      const bool pair = im[c] != 0 && c + 1 < n;
      for (int64_t r = 0; vectors && r < n; ++r) {
        const T first = parts[c * n + r], second = pair ? parts[(c + 1) * n + r] : T(0);
        v[c * n + r] = {first, second};
        if (pair) v[(c + 1) * n + r] = {first, -second};
      }
      if (pair) ++c, w[c] = {re[c], im[c]};
    }
  }
}

template <class T>
void Routines<T>::eig() {
  const bool vectors = node_.attr<EigAttrs>().vectors;
  const Matrices a = in(0), values = out(0, 1), v_out = out(1), info = out(2, 0);
  const int n = whole(a.rows);
  const int64_t all = int64_t{n} * n;
  each(a.count, 25 * cube(n), [&](int64_t b) {
    T* x = scratch<T>(0, all);
    C* w = scratch<C>(1, n);
    C* v = scratch<C>(2, all);
    a.load(b, x);
    int bad = 0;
    if (!finite(x, all)) bad = -1;
    else if (n > 0) geev(vectors, n, x, w, v, &bad);
    values.store(b, w);
    if (vectors) v_out.store(b, v);
    info.store(b, &bad);
  });
}

template <class T>
void Routines<T>::svd() {
  const auto attrs = node_.attr<SvdAttrs>();
  const Matrices a = in(0), u = out(0), s = out(1, 1), v = out(2), info = out(3, 0);
  const int m = whole(a.rows), n = whole(a.columns), k = std::min(m, n);
  const int wide = attrs.full ? m : k, high = attrs.full ? n : k;
  const char* const what = !attrs.vectors ? "N" : attrs.full ? "A" : "S";
  each(a.count, 10.0 * m * n * k, [&](int64_t b) {
    T* x = scratch<T>(0, int64_t{m} * n);
    R* values = scratch<R>(1, k);
    T* left = scratch<T>(2, int64_t{m} * wide);
    T* right = scratch<T>(3, int64_t{high} * n);
    int* whole_work = scratch<int>(0, 8 * int64_t{k});
    a.load(b, x);
    int bad = 0;
    const int least_u = std::max(m, 1), least_v = std::max(high, 1);
    if (!finite(x, int64_t{m} * n)) bad = k + 1;
    else if (k > 0)
      with_work(4, [&](T* work, int length) {
        if constexpr (kComplex) {
          const int64_t few = k, most = std::max(m, n);
          R* const real_work = scratch<R>(5, few * std::max(5 * few + 7, 2 * most + 2 * few + 1));
          L::gesdd(what, &m, &n, x, &m, values, left, &least_u, right, &least_v, work, &length, real_work, whole_work,
                   &bad, 1);
        } else {
          L::gesdd(what, &m, &n, x, &m, values, left, &least_u, right, &least_v, work, &length, whole_work, &bad, 1);
        }
      });
    else {
      for (int i = 0; i < m * wide; ++i) left[i] = i % m == i / m;
      for (int i = 0; i < high * n; ++i) right[i] = i % high == i / high;
    }
    if (bad) std::fill_n(values, k, std::numeric_limits<R>::quiet_NaN());
    s.store(b, values);
    if (attrs.vectors) {
      u.store(b, left);
      v.store(b, right);
    }
    info.store(b, &bad);
  });
}

template <class T>
void Routines<T>::ldl_factor() {
  const Matrices a = in(0), ld = out(0), pivots = out(1, 1), info = out(2, 0);
  const int n = whole(a.rows);
  auto factorize = L::sytrf;
  if constexpr (kComplex)
    if (is_hermitian(1)) factorize = L::hetrf;
  each(a.count, cube(n) / 3, [&](int64_t b) {
    T* x = scratch<T>(0, int64_t{n} * n);
    int* p = scratch<int>(0, n);
    a.load(b, x);
    int bad = 0;
    if (n > 0) with_work(1, [&](T* work, int length) { factorize("L", &n, x, &n, p, work, &length, &bad, 1); });
    for (int64_t c = 1; c < n; ++c) std::fill_n(x + c * n, c, T(0));
    ld.store(b, x);
    pivots.store(b, p);
    info.store(b, &bad);
  });
}

template <class T>
void Routines<T>::ldl_solve() {
  const Matrices ld = in(0), pivots = in(1, 1), rhs = in(2), x = out(0);
  const int n = whole(x.rows), k = whole(x.columns);
  if (x.count * n * k == 0) return;
  auto solve = L::sytrs;
  if constexpr (kComplex)
    if (is_hermitian(3)) solve = L::hetrs;
  each(x.count, 2.0 * n * n * k, [&](int64_t b) {
    T* m = scratch<T>(0, int64_t{n} * n);
    T* y = scratch<T>(1, int64_t{n} * k);
    int* p = scratch<int>(0, n);
    ld.load(b, m);
    pivots.load(b, p);
    for (int i = 0; i < n; ++i)  // rows that do not exist would be written
      PF_CHECK(p[i] != 0 && p[i] <= n && p[i] >= -n, Index,
               "linalg.ldl_solve: a pivot is out of range; got {}; expected 1 to {}, or such a number below 0", p[i],
               n);
    int rows = 1;
    for (int i = 0; i < n; i += rows) {
      rows = p[i] < 0 ? 2 : 1;
      PF_CHECK(
          rows == 1 || (i + 1 < n && p[i + 1] < 0), Index,
          "linalg.ldl_solve: a pivot below 0 is alone; got {} in row {}; expected two of them for a block of 2 rows",
          p[i], i);
    }
    rhs.load(b, y);
    int bad = 0;
    solve("L", &n, &k, m, &n, p, y, &n, &bad, 1);
    x.store(b, y);
  });
}

// The solution has the rows of the longer side: below the unknowns are the rows whose squares are the residual.
template <class T>
void Routines<T>::lstsq() {
  const auto driver = static_cast<LstsqDriver>(node_.attr<LstsqAttrs>().driver);
  const Matrices a = in(0), rhs = in(1), x = out(0), rank = out(1, 0), values = out(2, 1), info = out(3, 0);
  const R rcond = static_cast<R>(params_[node_.ins[2].param].as_f64());
  const int m = whole(a.rows), n = whole(a.columns), k = whole(rhs.columns), high = whole(x.rows), few = std::min(m, n);
  each(x.count, 4.0 * m * n * (few + k), [&](int64_t b) {
    T* matrix = scratch<T>(0, int64_t{m} * n);
    T* given = scratch<T>(1, int64_t{m} * k);
    T* y = scratch<T>(2, int64_t{high} * k);
    R* s = scratch<R>(3, few);
    R* real_work = scratch<R>(5, kComplex ? 2 * int64_t{n} + 5 * few : 0);
    int* whole_work = scratch<int>(0, n);
    int found = 0, bad = 0;
    std::fill_n(s, few, R(0));
    std::fill_n(y, int64_t{high} * k, T(0));
    std::fill_n(whole_work, n, 0);
    a.load(b, matrix);
    rhs.load(b, given);
    for (int64_t c = 0; c < k; ++c) std::copy_n(given + c * m, m, y + c * high);
    if (few > 0 && k > 0) {
      int least = 0;
      R least_real = 0;
      with_work(4, [&](T* work, int length) {
        // Complex routines have one more argument: work memory of real numbers.
        const auto call = [&](auto routine, auto... before) {
          return [&, routine, before...](R* real, auto... after) {
            if constexpr (kComplex) routine(before..., work, &length, real, after...);
            else routine(before..., work, &length, after...);
          };
        };
        switch (driver) {
          case LstsqDriver::gels: return L::gels("N", &m, &n, &k, matrix, &m, y, &high, work, &length, &bad, 1);
          case LstsqDriver::gelsy:
            return call(L::gelsy, &m, &n, &k, matrix, &m, y, &high, whole_work, &rcond, &found)(real_work, &bad);
          case LstsqDriver::gelsd: {
            const bool asks = length < 0;
            int* const more = asks ? &least : scratch<int>(1, std::max(1, least));
            R* const more_real =
                asks ? &least_real : scratch<R>(6, kComplex ? static_cast<int64_t>(least_real) + 1 : 0);
            return call(L::gelsd, &m, &n, &k, matrix, &m, y, &high, s, &rcond, &found)(more_real, more, &bad);
          }
          case LstsqDriver::gelss:
            return call(L::gelss, &m, &n, &k, matrix, &m, y, &high, s, &rcond, &found)(real_work, &bad);
        }
      });
    }
    x.store(b, y);
    rank.store(b, &found);
    values.store(b, s);
    info.store(b, &bad);
  });
}

template <class T>
void Routines<T>::run() {
  static constexpr std::pair<OpId, void (Routines::*)()> kFunctions[] = {
#define OP(...)
#define LINALG(name, ...) {OpId::name, &Routines::name},
#include "pyflame/ops/ops.def"
  };
  for (const auto& [op, function] : kFunctions)
    if (op == node_.op) return (this->*function)();
  PF_FAIL(Runtime, "lapack: not an op of linear algebra; got {}", op_name(node_.op));
}

}  // namespace

void run(const Node& node, DType compute, void* const* ins, void* const* outs, Params params) {
  static const bool one_thread = (openblas_set_num_threads(1), true);
  (void)one_thread;
  switch (compute) {
    case DType::float64: return Routines<double>(node, ins, outs, params).run();
    case DType::complex64: return Routines<std::complex<float>>(node, ins, outs, params).run();
    case DType::complex128: return Routines<std::complex<double>>(node, ins, outs, params).run();
    default: return Routines<float>(node, ins, outs, params).run();
  }
}

}  // namespace pyflame::lapack
