// How the reference kernels access memory: a View of any strides and dtype, read and written as double or as int64_t.
// Only access.cpp knows the dtypes; kernels are written for the two computation types.
#pragma once
#include <algorithm>
#include <array>
#include <type_traits>
#include <vector>

#include "pyflame/backends/backend.h"

namespace pyflame::reference {

struct View {
  char* data = nullptr;
  DType dtype = DType::float32;
  Dims shape, strides;
  int64_t numel() const { return shape.numel(); }
};

// n elements at element `offset`, `stride` apart. Reading a float as an integer truncates and saturates; NaN gives 0.
// Writing rounds once: int64 to a float type is rounded from the exact integer, and double to a 16-bit type from the
// exact double. Double to an integer saturates, int64 to an integer wraps, and anything to bool is != 0.
void load(const View& v, int64_t offset, int64_t stride, int64_t n, double* to);
void load(const View& v, int64_t offset, int64_t stride, int64_t n, int64_t* to);
void store(const View& v, int64_t offset, int64_t stride, int64_t n, const double* from);
void store(const View& v, int64_t offset, int64_t stride, int64_t n, const int64_t* from);

// A param's value as the op uses it: rounded to `dtype`.
double param_as_f64(const Param& p, DType dtype);
int64_t param_as_i64(const Param& p, DType dtype);

// Calls f(offsets, n, steps) for every line of n > 0 elements: operand k's elements are at offsets[k] + i * steps[k].
// Lines come in row-major order and dims that are contiguous in all operands are merged.
template <size_t K, class F>
void for_lines(const Dims& shape, const std::array<Dims, K>& strides, F&& f) {
  std::array<int64_t, kMaxDims + 1> size{};
  std::array<std::array<int64_t, K>, kMaxDims + 1> step{};
  size_t n = 0;
  for (int d = 0; d < shape.size(); ++d) {
    if (shape[d] == 0) return;
    if (shape[d] == 1) continue;
    bool merge = n > 0;
    for (size_t k = 0; merge && k < K; ++k) merge = step[n - 1][k] == strides[k][d] * shape[d];
    const size_t at = merge ? n - 1 : n++;
    size[at] = merge ? size[at] * shape[d] : shape[d];
    for (size_t k = 0; k < K; ++k) step[at][k] = strides[k][d];
  }
  if (n == 0) size[n++] = 1;
  std::array<int64_t, K> offsets{};
  std::array<int64_t, kMaxDims + 1> at{};
  while (true) {
    f(offsets, size[n - 1], step[n - 1]);
    size_t d = n - 1;
    while (true) {
      if (d == 0) return;
      --d;
      for (size_t k = 0; k < K; ++k) offsets[k] += step[d][k];
      if (++at[d] < size[d]) break;
      for (size_t k = 0; k < K; ++k) offsets[k] -= step[d][k] * size[d];
      at[d] = 0;
    }
  }
}

// The whole view in row-major order.
template <class T>
std::vector<T> read_all(const View& v) {
  std::vector<T> all(static_cast<size_t>(v.numel()));
  int64_t done = 0;
  for_lines<1>(v.shape, {v.strides}, [&](const auto& offset, int64_t n, const auto& step) {
    load(v, offset[0], step[0], n, all.data() + done);
    done += n;
  });
  return all;
}

template <class T>
void write_all(const View& v, const std::vector<T>& all) {
  int64_t done = 0;
  for_lines<1>(v.shape, {v.strides}, [&](const auto& offset, int64_t n, const auto& step) {
    store(v, offset[0], step[0], n, all.data() + done);
    done += n;
  });
}

// A node with its pointers.
struct Call {
  const Node& node;
  Pointers bindings;
  Params params;

  View view(const Operand& o) const { return {static_cast<char*>(bindings[o.binding]), o.dtype, o.shape, o.strides}; }
  View in(int i) const { return view(node.ins[static_cast<size_t>(i)]); }
  View out(int i) const { return view(node.outs[static_cast<size_t>(i)]); }
  int inputs() const { return static_cast<int>(node.ins.size()); }
  int outputs() const { return static_cast<int>(node.outs.size()); }
  // Number of tensors before the first param.
  int tensors() const {
    return static_cast<int>(
        std::find_if(node.ins.begin(), node.ins.end(), [](const Operand& o) { return o.is_param; }) - node.ins.begin());
  }
  // The i-th param after the tensors, exactly as given.
  const Param& param(int i) const {
    const size_t at = static_cast<size_t>(tensors() + i);
    PF_CHECK(at < node.ins.size(), Runtime, "{}: a param is missing; got {} inputs; expected more than {}",
             node.info().name, node.ins.size(), at);
    return params[node.ins[at].param];
  }
  double number(int i) const { return param(i).as_f64(); }
  int64_t integer(int i) const { return param(i).as_i64(); }
  const char* name() const { return node.info().name; }
};

// Calls f.template operator()<T>() with the computation type of a dtype: double or int64_t.
template <class F>
void with_compute_type(DType d, F&& f) {
  if (is_float(d)) f.template operator()<double>();
  else f.template operator()<int64_t>();
}

// Integer arithmetic wraps; these do it without undefined behaviour, and let one template serve both types.
inline double add(double a, double b) { return a + b; }
inline double sub(double a, double b) { return a - b; }
inline double mul(double a, double b) { return a * b; }
inline int64_t add(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
}
inline int64_t sub(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) - static_cast<uint64_t>(b));
}
inline int64_t mul(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
}

inline bool is_nan(double v) { return v != v; }
inline bool is_nan(int64_t) { return false; }

// The positions of the lines along dim d: the first element of each.
inline View without_dim(View v, int d) {
  v.shape.erase(d);
  v.strides.erase(d);
  return v;
}

// Elementwise ops and reductions: they write lines while other lines are still to be read.
void run_elementwise(const Call& c);
void run_source(const Call& c);
void run_reduce(const Call& c);
// The kernels of the other ops, by family (one file each). They read all inputs before they write anything.
#define OP(...)
#define KERNEL(name, ...) void run_##name(const Call& c);
#include "pyflame/ops/ops.def"

}  // namespace pyflame::reference
