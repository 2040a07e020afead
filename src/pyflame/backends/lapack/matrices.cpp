#include "pyflame/backends/lapack/matrices.h"

#include <algorithm>
#include <complex>
#include <type_traits>

#include "pyflame/base/error.h"
#include "pyflame/base/threads.h"

namespace pyflame::lapack {

namespace {

// In squares, so that neither side is read with a large stride for long.
template <class S, class D>
void copy_matrix(const S* from, int64_t from_row, int64_t from_column, D* to, int64_t to_row, int64_t to_column,
                 int64_t rows, int64_t columns) {
  constexpr int64_t kSquare = 16;
  const bool along_rows = to_column == 1 && from_column == 1, along_columns = to_row == 1 && from_row == 1;
  const int64_t high = along_rows ? 1 : along_columns ? rows : kSquare;
  const int64_t wide = along_columns ? 1 : along_rows ? columns : kSquare;
  for (int64_t c0 = 0; c0 < columns; c0 += wide)
    for (int64_t r0 = 0; r0 < rows; r0 += high) {
      const int64_t r1 = std::min(rows, r0 + high), c1 = std::min(columns, c0 + wide);
      if constexpr (std::is_same_v<S, D>)
        if (along_rows || along_columns) {
          std::copy_n(from + r0 * from_row + c0 * from_column, along_rows ? columns : rows,
                      to + r0 * to_row + c0 * to_column);
          continue;
        }
      if (along_rows)
        for (int64_t c = c0; c < c1; ++c) to[r0 * to_row + c] = static_cast<D>(from[r0 * from_row + c]);
      else
        for (int64_t c = c0; c < c1; ++c)
          for (int64_t r = r0; r < r1; ++r)
            to[r * to_row + c * to_column] = static_cast<D>(from[r * from_row + c * from_column]);
    }
}

// A large matrix by tiles of columns, in parallel.
template <class S, class D>
void copy_tiles(const S* from, int64_t from_row, int64_t from_column, D* to, int64_t to_row, int64_t to_column,
                int64_t rows, int64_t columns) {
  constexpr int64_t kTile = 64, kLarge = 1 << 15;
  if (rows * columns < kLarge) return copy_matrix(from, from_row, from_column, to, to_row, to_column, rows, columns);
  parallel_for((columns + kTile - 1) / kTile, 1, [&](int64_t begin, int64_t end) {
    const int64_t first = begin * kTile, count = std::min(columns, end * kTile) - first;
    copy_matrix(from + first * from_column, from_row, from_column, to + first * to_column, to_row, to_column, rows,
                count);
  });
}

template <class T>
constexpr bool kComplex = false;
template <class T>
constexpr bool kComplex<std::complex<T>> = true;

// f<S>() with the type S of an operand's elements, which is complex if T is.
template <class T, class F>
void with_type(DType d, F&& f) {
  if constexpr (kComplex<T>) {
    if (d == DType::complex64) return f.template operator()<std::complex<float>>();
    if (d == DType::complex128) return f.template operator()<std::complex<double>>();
  } else {
    if (d == DType::float32) return f.template operator()<float>();
    if (d == DType::float64) return f.template operator()<double>();
    if (d == DType::int32) return f.template operator()<int32_t>();
    if (d == DType::int64) return f.template operator()<int64_t>();
  }
  PF_FAIL(Runtime, "lapack: an operand of another type; got {}; expected {}", dtype_name(d),
          kComplex<T> ? "complex64 or complex128" : "float32, float64, int32 or int64");
}

}  // namespace

Matrices::Matrices(const Operand& o, void* data, int dims) : data_(static_cast<char*>(data)), dtype_(o.dtype) {
  batch_ = o.shape, batch_strides_ = o.strides;
  const auto take = [&](int64_t& size, int64_t& stride) {
    size = batch_.back(), stride = batch_strides_.back();
    batch_.erase(batch_.size() - 1), batch_strides_.erase(batch_strides_.size() - 1);
  };
  if (dims == 2) take(columns, column_stride_);
  if (dims >= 1) take(rows, row_stride_);
  count = batch_.numel();
}

int64_t Matrices::offset(int64_t b) const {
  int64_t at = 0;
  for (int d = batch_.size() - 1; d >= 0; --d) {
    at += b % batch_[d] * batch_strides_[d];
    b /= batch_[d];
  }
  return at;
}

template <class T>
void Matrices::load(int64_t b, T* to, Order order) const {
  const bool by_columns = order == Order::columns;
  with_type<T>(dtype_, [&]<class S>() {
    copy_tiles(direct<S>(b), row_stride_, column_stride_, to, by_columns ? 1 : columns, by_columns ? rows : 1, rows,
               columns);
  });
}

template <class T>
void Matrices::load_block(int64_t b, int64_t row, int64_t high, int64_t column, int64_t wide, T* to,
                          int64_t step) const {
  with_type<T>(dtype_, [&]<class S>() {
    copy_matrix(direct<S>(b) + row * row_stride_ + column * column_stride_, row_stride_, column_stride_, to, step, 1,
                high, wide);
  });
}

template <class T>
void Matrices::store(int64_t b, const T* from, Order order, int64_t leading) const {
  const bool by_columns = order == Order::columns;
  if (leading == 0) leading = by_columns ? rows : columns;
  with_type<T>(dtype_, [&]<class D>() {
    copy_tiles(from, by_columns ? 1 : leading, by_columns ? leading : 1, direct<D>(b), row_stride_, column_stride_,
               rows, columns);
  });
}

template void Matrices::load(int64_t, float*, Order) const;
template void Matrices::load(int64_t, double*, Order) const;
template void Matrices::load(int64_t, int*, Order) const;
template void Matrices::load(int64_t, std::complex<float>*, Order) const;
template void Matrices::load(int64_t, std::complex<double>*, Order) const;
template void Matrices::load_block(int64_t, int64_t, int64_t, int64_t, int64_t, float*, int64_t) const;
template void Matrices::load_block(int64_t, int64_t, int64_t, int64_t, int64_t, double*, int64_t) const;
template void Matrices::load_block(int64_t, int64_t, int64_t, int64_t, int64_t, std::complex<float>*, int64_t) const;
template void Matrices::load_block(int64_t, int64_t, int64_t, int64_t, int64_t, std::complex<double>*, int64_t) const;
template void Matrices::store(int64_t, const float*, Order, int64_t) const;
template void Matrices::store(int64_t, const double*, Order, int64_t) const;
template void Matrices::store(int64_t, const int*, Order, int64_t) const;
template void Matrices::store(int64_t, const std::complex<float>*, Order, int64_t) const;
template void Matrices::store(int64_t, const std::complex<double>*, Order, int64_t) const;

}  // namespace pyflame::lapack
