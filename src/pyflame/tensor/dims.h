// Shapes and strides: an array of fixed capacity inside the object, so that recording an op allocates nothing for them.
#pragma once
#include <algorithm>
#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>

#include "pyflame/base/error.h"

namespace pyflame {

// The most dims that a tensor may have.
constexpr int kMaxDims = 8;

// A shape, strides or a list of dims: at most kMaxDims numbers. ValueError for more.
class Dims {
 public:
  Dims() = default;
  Dims(std::initializer_list<int64_t> v) : Dims(std::span<const int64_t>(v.begin(), v.size())) {}
  explicit Dims(std::span<const int64_t> v) {
    PF_CHECK(v.size() <= kMaxDims, Value, "shape: too many dimensions; got {}; expected at most {}", v.size(),
             kMaxDims);
    n_ = static_cast<int>(v.size());
    std::copy(v.begin(), v.end(), d_.begin());
  }
  static Dims filled(int n, int64_t value) {
    Dims r;
    r.n_ = n;
    std::fill_n(r.d_.begin(), n, value);
    return r;
  }

  int size() const { return n_; }
  bool empty() const { return n_ == 0; }
  int64_t operator[](int i) const { return d_[static_cast<size_t>(i)]; }
  int64_t& operator[](int i) { return d_[static_cast<size_t>(i)]; }
  const int64_t* begin() const { return d_.data(); }
  const int64_t* end() const { return d_.data() + n_; }
  int64_t* begin() { return d_.data(); }
  int64_t* end() { return d_.data() + n_; }
  int64_t back() const { return d_[static_cast<size_t>(n_ - 1)]; }
  int64_t& back() { return d_[static_cast<size_t>(n_ - 1)]; }

  void push_back(int64_t v) {
    PF_CHECK(n_ < kMaxDims, Value, "shape: too many dimensions; got {}; expected at most {}", n_ + 1, kMaxDims);
    d_[static_cast<size_t>(n_++)] = v;
  }
  void insert(int at, int64_t v) {
    push_back(v);
    std::rotate(begin() + at, end() - 1, end());
  }
  void erase(int at) {
    std::copy(begin() + at + 1, end(), begin() + at);
    --n_;
  }
  bool operator==(const Dims& o) const { return n_ == o.n_ && std::equal(begin(), end(), o.begin()); }

  int64_t numel() const {
    int64_t p = 1;
    for (int64_t v : *this) p *= v;
    return p;
  }
  std::string str() const;  // "(2, 3)"

 private:
  std::array<int64_t, kMaxDims> d_{};
  int n_ = 0;
};

// NumPy broadcasting. `op` names the caller in the error.
Dims broadcast_shapes(const char* op, const Dims& a, const Dims& b);
// Wraps a negative dim; IndexError names op, dim and rank.
int normalize_dim(const char* op, int64_t dim, int rank);
// numel with overflow check (ValueError).
int64_t checked_numel(const char* op, const Dims& shape);

}  // namespace pyflame
