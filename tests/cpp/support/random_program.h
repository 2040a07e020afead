// Seeded random programs over tensors: the same seed makes the same ops on the same shapes whatever the device, the windows and the
// planner do, because decisions depend on shapes and dtypes and never on values.
#pragma once
#include <cmath>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "pyflame/autograd/autograd.h"
#include "pyflame/ops/ops.h"

namespace pyflame::testing {

struct RandomOptions {
  Device device{};
  int ops = 40;
  DType dtype = DType::float32;
  bool matmul = false;       // library products: not bit for bit the same when fused
  bool other_dtypes = true;  // casts to 16 bits and to integers
  bool jumps = true;         // comparisons and rounding: a small error upstream may flip them
  bool gradients = false;    // the results are followed by the gradients of the first inputs
  double scale = 1;          // enters scalars: the same program with other params
  std::function<void()> after_op;
};

class RandomProgram {
 public:
  RandomProgram(uint64_t seed, const RandomOptions& options) : o_(options), state_(seed * 0x9e3779b97f4a7c15ull + 1) {
    const bool large = chance(12);
    for (int64_t& d : base_) d = large ? pick<int64_t>({40, 70, 129, 7}) : pick<int64_t>({1, 2, 3, 5, 8, 17, 33});
    most_ = large ? 400000 : 6000;
  }

  Tensors run() {
    manual_seed(state_);
    for (int i = 0; i < 4; ++i) {
      Tensor t = host_tensor();
      if (o_.gradients) {
        leaves_.push_back(t.set_requires_grad(true));
        t = mul(t, 1.5);
      }
      keep(t);
    }
    for (int i = 0; i < o_.ops; ++i) {
      one_op();
      if (o_.after_op) o_.after_op();
      if (pool_.size() > 3 && chance(35)) pool_.erase(pool_.begin() + at(pool_.size()));
      while (pool_.size() > 12) pool_.erase(pool_.begin() + at(pool_.size()));
    }
    if (!o_.gradients) return pool_;
    Tensor loss = zeros({}, DType::float64, o_.device);
    for (const Tensor& t : pool_)
      if (is_float(t.dtype())) loss = add(loss, cast(sum(mul(tame(t), 0.3)), DType::float64));
    if (loss.requires_grad()) autograd::backward({loss});
    Tensors out;
    for (const Tensor& t : pool_) out.push_back(t.detach());
    for (const Tensor& t : leaves_)
      if (t.grad()) out.push_back(t.grad());
    return out;
  }
  const std::string& log() const { return log_; }

 private:
  uint64_t next() {
    uint64_t z = (state_ += 0x9e3779b97f4a7c15ull);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
  }
  int64_t below(int64_t n) { return static_cast<int64_t>(next() % static_cast<uint64_t>(n)); }
  std::ptrdiff_t at(size_t n) { return static_cast<std::ptrdiff_t>(below(static_cast<int64_t>(n))); }
  bool chance(int percent) { return below(100) < percent; }
  template <class T>
  T pick(std::initializer_list<T> v) {
    return v.begin()[at(v.size())];
  }
  double number() { return (static_cast<double>(below(2000)) / 1000.0 - 1.0) * o_.scale; }
  const Tensor& any() { return pool_[static_cast<size_t>(at(pool_.size()))]; }

  void note(const char* what, const Tensor& t) {
    log_ += std::string(what) + " -> " + t.shape().str() + " strides " + t.strides().str() + " +" +
            std::to_string(t.offset()) + " " + std::string(dtype_name(t.dtype())) + "\n";
  }
  void keep(const Tensor& t, const char* what = "input") {
    note(what, t);
    if (t.numel() <= most_) pool_.push_back(t);
  }

  Dims some_shape() {
    Dims s;
    const int rank = static_cast<int>(below(4));
    for (int d = 3 - rank; d < 3; ++d) s.push_back(chance(25) ? 1 : base_[d]);
    return s;
  }
  Tensor host_tensor() {
    const Dims shape = some_shape();
    std::vector<double> v(static_cast<size_t>(shape.numel()));
    for (double& x : v) x = static_cast<double>(below(4000)) / 1000.0 - 2.0;
    const Tensor wide = from_host(v.data(), shape, DType::float64, o_.device);
    return cast(wide, o_.dtype);
  }
  // Values stay near one, so that long programs neither overflow nor lose all digits.
  Tensor tame(const Tensor& t) { return is_float(t.dtype()) ? tanh(t) : remainder(t, 97); }
  Tensor as_float(const Tensor& t) { return is_float(t.dtype()) ? t : cast(t, o_.dtype); }
  Tensor integer(const Tensor& t) {
    return dtype_category(t.dtype()) == Category::Integer ? t : cast(round(mul(as_float(t), 8.0)), DType::int32);
  }

  static bool broadcasts(const Dims& a, const Dims& b) {
    for (int i = 1; i <= std::min(a.size(), b.size()); ++i) {
      const int64_t x = a[a.size() - i], y = b[b.size() - i];
      if (x != y && x != 1 && y != 1) return false;
    }
    return true;
  }
  static bool fits_into(const Dims& value, const Dims& target) {
    return broadcasts(value, target) && broadcast_shapes("test", value, target) == target;
  }
  Value partner(const Tensor& a) {
    if (chance(30)) return Value(number());
    for (int tries = 0; tries < 6; ++tries) {
      const Tensor& b = any();
      if (broadcasts(a.shape(), b.shape()) && broadcast_shapes("test", a.shape(), b.shape()).numel() <= most_)
        return Value(b);
    }
    return Value(number());
  }

  void one_op() {
    switch (below(o_.matmul ? 17 : 15)) {
      case 0:
      case 1: return unary_op();
      case 2:
      case 3:
      case 4: return binary_op();
      case 5:
      case 6: return in_place_op();
      case 7:
      case 8: return view_op();
      case 9:
      case 10: return reduce_op();
      case 11: return row_op();
      case 12: return join_op();
      case 13: return where_op();
      case 14: return o_.other_dtypes ? cast_op() : source_op();
      default: return matmul_op();
    }
  }

  void unary_op() {
    const Tensor x = as_float(any());
    switch (below(o_.jumps ? 12 : 10)) {
      case 0: return keep(neg(x), "neg");
      case 1: return keep(abs(x), "abs");
      case 2: return keep(exp(tame(x)), "exp tanh");
      case 3: return keep(sqrt(abs(x)), "sqrt abs");
      case 4: return keep(sigmoid(x), "sigmoid");
      case 5: return keep(relu(x), "relu");
      case 6: return keep(gelu(tame(x)), "gelu tanh");
      case 7: return keep(sin(x), "sin");
      case 8: return keep(square(tame(x)), "square tanh");
      case 9: return keep(log1p(abs(x)), "log1p abs");
      case 10: return keep(floor(x), "floor");
      default: return keep(sign(x), "sign");
    }
  }
  void binary_op() {
    const Tensor a = as_float(any());
    const Value b = partner(a);
    switch (below(6)) {
      case 0: return keep(tame(add(a, b)), "tanh add");
      case 1: return keep(add(a, mul(b, 0.5)), "add mul");
      case 2: return keep(tame(sub(b, a)), "tanh sub");
      case 3: return keep(mul(tame(a), b), "mul tanh");
      case 4: return keep(maximum(a, b), "maximum");
      default: return keep(div(b, add(abs(a), 1.0)), "div");
    }
  }
  Tensor target() {
    Tensor x = any();
    if (o_.gradients) written_ = x = clone(x);  // what a gradient needs is not written
    if (chance(60)) x = some_view(x);
    for (int d = 0; d < x.dim(); ++d)
      if (x.shape()[d] > 1 && x.strides()[d] == 0) x = clone(x);
    return x;
  }
  void in_place_op() {
    const Tensor x = target();
    Value b = partner(x);
    if (b.is_tensor && !fits_into(b.tensor.shape(), x.shape())) b = Value(number());
    const bool whole = !is_float(x.dtype());
    if (whole) b = b.is_tensor ? Value(cast(b.tensor, x.dtype())) : Value(int64_t{3});
    note("in place on", x);
    switch (below(whole ? 3 : 5)) {
      case 0: copy_(x, b); break;
      case 1: fill_(x, whole ? Scalar(int64_t{5}) : Scalar(number())); break;
      case 2: binary_(whole ? maximum : add, "add_", x, b); break;
      case 3: binary_(mul, "mul_", x, b); break;
      default: unary_(tanh, "tanh_", x); break;
    }
    if (written_) keep(written_, "written");
    written_ = Tensor();
    if (chance(50)) keep(x, "in place");
  }
  Tensor some_view(const Tensor& x) {
    if (x.dim() == 0) return unsqueeze(x, 0);
    const int64_t d = below(x.dim());
    const int64_t n = x.shape()[static_cast<int>(d)];
    switch (below(6)) {
      case 0: return transpose(x, d, below(x.dim()));
      case 1: {
        const int64_t from = below(n), to = from + 1 + below(n - from);
        return slice(x, d, from, to, 1 + below(3));
      }
      case 2: return n > 0 ? select(x, d, below(n)) : x;
      case 3: return x.dim() < 5 ? unsqueeze(x, below(x.dim() + 1)) : flatten(x);
      case 4: return reshape(x, {-1});
      default: {
        Dims order;
        for (int i = 0; i < x.dim(); ++i) order.push_back((i + d) % x.dim());
        return permute(x, order);
      }
    }
  }
  void view_op() {
    const Tensor x = any();
    if (chance(15) && x.numel() * 3 <= most_ && x.dim() < 4) {
      Dims to = x.shape();
      to.insert(0, 3);
      return keep(expand(x, to), "expand");
    }
    keep(some_view(x), "view");
  }
  void reduce_op() {
    const Tensor x = as_float(any());
    Dims dims;
    for (int d = 0; d < x.dim(); ++d)
      if (chance(45)) dims.push_back(d);
    const bool keepdim = chance(50);
    switch (below(o_.other_dtypes ? 6 : 5)) {
      case 0: return keep(tame(sum(x, dims, keepdim)), "tanh sum");
      case 1: return keep(mean(x, dims, keepdim), "mean");
      case 2: return keep(amax(x, dims, keepdim), "amax");
      case 3: return keep(amin(x, dims, keepdim), "amin");
      case 4: {  // reduce and read back
        const Tensor m = mean(x, dims, true);
        return keep(tame(mul(sub(x, m), number())), "x - mean");
      }
      default: return keep(remainder(sum(integer(x), dims, keepdim), 1001), "integer sum");
    }
  }
  void row_op() {
    const Tensor x = as_float(any());
    if (x.dim() == 0) return source_op();
    const Dims last{x.shape().back()};
    switch (below(4)) {
      case 0: return keep(softmax(x, below(x.dim())), "softmax");
      case 1: return keep(layer_norm(add(x, number()), last), "layer_norm");
      case 2: {
        const Tensor e = exp(sub(x, amax(x, {-1}, true)));
        return keep(div(e, sum(e, {-1}, true)), "softmax by hand");
      }
      default: return keep(tame(var(x, {-1}, 0)), "var");
    }
  }
  void join_op() {
    const Tensor x = any();
    if (x.dim() == 0) return keep(stack({x, x}), "stack");
    return keep(cat({x, cast(tame(x), x.dtype())}, below(x.dim())), "cat");
  }
  void where_op() {
    const Tensor x = as_float(any());
    if (!o_.jumps) return keep(dropout(x, 0.25), "dropout");
    const Value y = partner(x);
    switch (below(3)) {
      case 0: return keep(where(gt(x, y), x, y), "where");
      case 1: return keep(dropout(x, 0.25), "dropout");
      default: return keep(cast(le(x, y), DType::int64), "le");
    }
  }
  void cast_op() {
    const Tensor x = any();
    switch (below(5)) {
      case 0: return keep(cast(x, DType::bfloat16), "bfloat16");
      case 1: return keep(cast(x, DType::float16), "float16");
      case 2: return keep(cast(x, DType::float64), "float64");
      case 3: return keep(integer(x), "integer");
      default: return source_op();
    }
  }
  void source_op() {
    const Dims shape = some_shape();
    switch (below(3)) {
      case 0: return keep(full(shape, number(), o_.dtype, o_.device), "full");
      case 1: return keep(rand(shape, o_.dtype, o_.device), "rand");
      default: return keep(mul(arange(0, 1 + below(40), 1, o_.dtype, o_.device), number() / 40), "arange");
    }
  }
  void matmul_op() {
    Tensor x = cast(as_float(any()), o_.dtype);
    if (x.dim() == 0) x = reshape(x, {1, 1});
    if (x.dim() == 1) x = unsqueeze(x, 0);
    const int64_t k = x.shape().back(), n = 1 + below(20);
    const Tensor w = mul(rand({n, k}, o_.dtype, o_.device), 1.0 / static_cast<double>(k));
    Tensor y = linear(x, w, chance(50) ? rand({n}, o_.dtype, o_.device) : Tensor());
    if (chance(50)) y = gelu(y);
    if (chance(40)) y = add(y, mul(rand({n}, o_.dtype, o_.device), number()));
    keep(tame(y), "linear");
  }

  RandomOptions o_;
  uint64_t state_;
  int64_t base_[3];
  int64_t most_;
  Tensors pool_, leaves_;
  Tensor written_;  // the tensor whose part is being written
  std::string log_;
};

}  // namespace pyflame::testing
