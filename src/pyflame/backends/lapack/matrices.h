// An operand as a batch of matrices, vectors or numbers, read and written in any layout.
#pragma once
#include <array>
#include <cstdint>
#include <vector>

#include "pyflame/record/ir.h"

namespace pyflame::lapack {

// Scratch memory of the calling thread; `slot` separates arrays that are in use at one time.
template <class T>
T* scratch(size_t slot, int64_t count) {
  thread_local std::array<std::vector<T>, 8> memory;
  auto& m = memory[slot];
  if (static_cast<int64_t>(m.size()) < count) m.resize(static_cast<size_t>(count));
  return m.data();
}

enum class Order { columns, rows };  // what is adjacent in memory: the elements of a column, or those of a row

class Matrices {
 public:
  // dims: 2 for matrices, 1 for vectors (as columns), 0 for numbers.
  Matrices(const Operand& o, void* data, int dims);
  int64_t rows = 1, columns = 1, count = 1;

  // Matrix number b, without gaps, in this order of the elements.
  template <class T>
  void load(int64_t b, T* to, Order order = Order::columns) const;
  // A block of matrix b from a row and a column on, row-major with rows `step` apart.
  template <class T>
  void load_block(int64_t b, int64_t row, int64_t high, int64_t column, int64_t wide, T* to, int64_t step) const;
  // The inverse of load; `leading` is the distance of neighbouring columns (or rows) of `from`, 0 where there are no gaps.
  template <class T>
  void store(int64_t b, const T* from, Order order = Order::columns, int64_t leading = 0) const;
  // The elements where they are, if T is their type.
  template <class T>
  T* direct(int64_t b) const {
    return reinterpret_cast<T*>(data_ + offset(b) * dtype_size(dtype_));
  }
  int64_t row_stride() const { return row_stride_; }
  int64_t column_stride() const { return column_stride_; }
  DType dtype() const { return dtype_; }

 private:
  int64_t offset(int64_t b) const;
  char* data_;
  DType dtype_;
  Dims batch_, batch_strides_;
  int64_t row_stride_ = 1, column_stride_ = 1;
};

}  // namespace pyflame::lapack
