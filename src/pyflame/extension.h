// Ops of your own in C++, built and called by pf.utils.cpp_extension (docs/extensions.md). It needs no library of PyFlame's, only this file,
// plugin.h and base/half.h, and a compiler for C++20.
//
//   #include <cmath>
//   #include <pyflame/extension.h>
//   using namespace pyflame::extension;
//
//   template <class T>
//   void softplus(Input<T> x, double beta, Output<T> out) {
//     for (int64_t i = 0; i < x.size(); ++i) out[i] = std::log1p(std::exp(T(beta) * x[i])) / T(beta);
//   }
//   PYFLAME_OPS(ops) { ops.add<softplus<float>, softplus<double>>("softplus(x, beta) -> out"); }
#pragma once
#include <cstdint>
#include <cstdio>
#include <deque>
#include <exception>
#include <functional>
#include <stdexcept>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "pyflame/base/half.h"
#include "pyflame/plugin.h"

namespace pyflame::extension {

// The sizes of a tensor's dims.
using Shape = std::vector<int64_t>;

// A tensor: contiguous elements, those of the last dim next to each other. T: float, double, float16, bfloat16, int64_t, int32_t, int16_t, int8_t,
// uint8_t or bool. Where a GPU computes, data() is an address of the GPU.
template <class T>
class Tensor {
 public:
  explicit Tensor(const pyflame_plugin_tensor& t) : t_(&t) {
    for (int d = 0; d < rank(); ++d) size_ *= t.shape[d];
  }
  T* data() const { return static_cast<T*>(t_->data); }
  T& operator[](int64_t i) const { return data()[i]; }
  T* begin() const { return data(); }
  T* end() const { return data() + size_; }
  int64_t size() const { return size_; }  // the number of elements
  int rank() const { return t_->rank; }
  // The size of a dim. Negative numbers count from the last one.
  int64_t shape(int dim) const {
    const int at = dim < 0 ? dim + rank() : dim;
    if (at < 0 || at >= rank())
      throw std::out_of_range("the tensor has no dim " + std::to_string(dim) + ": it has " + std::to_string(rank()));
    return t_->shape[at];
  }
  Shape shape() const { return Shape(t_->shape, t_->shape + t_->rank); }
  int device() const { return t_->device_index; }

 private:
  const pyflame_plugin_tensor* t_;
  int64_t size_ = 1;
};
// A tensor that the op reads.
template <class T>
struct Input : Tensor<const T> {
  using Tensor<const T>::Tensor;
};
// A tensor that the op writes, every element of it.
template <class T>
struct Output : Tensor<T> {  // the op writes every element
  using Tensor<T>::Tensor;
};

// A function with an argument of this type computes on GPUs: it queues its work in the stream, a hipStream_t or cudaStream_t.
struct Stream {
  void* handle;
  template <class S>
  S as() const {
    return static_cast<S>(handle);
  }
};

// What the shapes of results are computed from.
class Arguments {
 public:
  explicit Arguments(const pyflame_plugin_call& c) : c_(c) {}
  // Of a tensor, which is counted among the tensors.
  Shape shape(int tensor) const {
    const pyflame_plugin_tensor& t = c_.inputs[at(tensor, false)];
    return Shape(t.shape, t.shape + t.rank);
  }
  // Of a number, which is counted among the numbers.
  double number(int scalar) const { return *static_cast<const double*>(of(scalar, 2)); }
  int64_t integer(int scalar) const { return *static_cast<const int64_t*>(of(scalar, 0)); }

 private:
  int at(int n, bool scalars) const {
    for (int i = 0; i < c_.input_count; ++i)
      if ((c_.inputs[i].device_type == PYFLAME_PLUGIN_NUMBER) == scalars && n-- == 0) return i;
    throw std::out_of_range("there are not so many arguments");
  }
  const void* of(int scalar, int type) const {
    const pyflame_plugin_tensor& t = c_.inputs[at(scalar, true)];
    if (t.type_code != type) throw std::invalid_argument("a number has another type");
    return t.data;
  }
  const pyflame_plugin_call& c_;
};

namespace detail {

struct Type {
  uint8_t code, bits;
  bool operator==(const Type&) const = default;
};
template <class T>
constexpr Type type_of() {
  constexpr auto bits = static_cast<uint8_t>(8 * sizeof(T));
  if constexpr (std::is_same_v<T, bool>) return {6, 8};
  else if constexpr (std::is_same_v<T, bfloat16>) return {4, 16};
  else if constexpr (std::is_floating_point_v<T> || std::is_same_v<T, float16>) return {2, bits};
  else {
    static_assert(std::is_integral_v<T>, "a tensor's type is none that PyFlame has");
    return {static_cast<uint8_t>(std::is_unsigned_v<T>), bits};
  }
}
inline std::string name_of(Type t) {
  if (t.code == 6) return "bool";
  const char* kinds[] = {"int", "uint", "float", "", "bfloat"};
  return kinds[t.code < 5 ? t.code : 3] + std::to_string(t.bits);
}

// What an argument of a function is. kind: t an input, o an output, d a number, i an integer, b a bool, s the stream.
template <class A>
struct Argument {
  static_assert(!sizeof(A*), "arguments are Input<T>, Output<T>, double, int64_t, bool and Stream, by value");
};
template <class T>
struct Argument<Input<T>> {
  static constexpr char kind = 't';
  static constexpr Type type = type_of<T>();
};
template <class T>
struct Argument<Output<T>> {
  static constexpr char kind = 'o';
  static constexpr Type type = type_of<T>();
};
template <>
struct Argument<double> {
  static constexpr char kind = 'd';
  static constexpr Type type{};
};
template <>
struct Argument<int64_t> {
  static constexpr char kind = 'i';
  static constexpr Type type{};
};
template <>
struct Argument<bool> {
  static constexpr char kind = 'b';
  static constexpr Type type{};
};
template <>
struct Argument<Stream> {
  static constexpr char kind = 's';
  static constexpr Type type{};
};

// The next argument of a call. Each kind has the order of the function's arguments.
struct Reader {
  explicit Reader(const pyflame_plugin_call& call) : c(call) {
    while (number < c.input_count && c.inputs[number].device_type != PYFLAME_PLUGIN_NUMBER) ++number;
  }
  const pyflame_plugin_call& c;
  int input = 0, number = 0, output = 0;
  template <class A>
  A next() {
    constexpr char kind = Argument<A>::kind;
    if constexpr (kind == 'o') return A(c.outputs[output++]);
    else if constexpr (kind == 's') return A{c.stream};
    else if constexpr (kind == 't') return A(c.inputs[input++]);
    else if constexpr (kind == 'd') return *static_cast<const double*>(c.inputs[number++].data);
    else if constexpr (kind == 'i') return *static_cast<const int64_t*>(c.inputs[number++].data);
    else return *static_cast<const int64_t*>(c.inputs[number++].data) != 0;
  }
};

// One function of an op: for one combination of dtypes.
struct Variant {
  std::string kinds;          // of the arguments
  std::vector<Type> in, out;  // of the tensors
  void (*run)(const pyflame_plugin_call&);
  bool fits(const pyflame_plugin_call& c) const {
    size_t at = 0;
    for (int i = 0; i < c.input_count; ++i) {
      const pyflame_plugin_tensor& t = c.inputs[i];
      if (t.device_type == PYFLAME_PLUGIN_NUMBER) continue;
      if (at >= in.size() || in[at++] != Type{t.type_code, t.bits}) return false;
    }
    return at == in.size();
  }
};
template <auto F, class... A>
Variant variant(void (*)(A...)) {
  Variant v{{Argument<A>::kind...}, {}, {}, [](const pyflame_plugin_call& c) {
              Reader r(c);
              std::tuple<A...> arguments{r.next<A>()...};  // braces: from left to right
              std::apply(F, std::move(arguments));
            }};
  const auto note = [&](char kind, Type type) {
    if (kind == 't') v.in.push_back(type);
    if (kind == 'o') v.out.push_back(type);
  };
  (note(Argument<A>::kind, Argument<A>::type), ...);
  return v;
}

}  // namespace detail

#ifndef PYFLAME_NO_OPS  // cpp_extension.load defines it for nvcc, whose version 13 does not survive what follows

// One op of the extension, as Ops::add() returns it.
class Op {
 public:
  // The shapes of the outputs, from the arguments. Without it, each output has the shape of the first input.
  Op& result(std::function<std::vector<Shape>(const Arguments&)> shapes) {
    shapes_ = std::move(shapes);
    return *this;
  }
  // The op of this extension that computes the gradient. Its inputs are the gradients of the outputs, this op's inputs, its outputs and its
  // numbers; its outputs are the gradients of the inputs.
  Op& gradient(std::string op) {
    gradient_ = std::move(op);
    return *this;
  }

 private:
  friend class Ops;
  std::string signature_, kinds_, gradient_;
  std::vector<detail::Variant> variants_;
  std::function<std::vector<Shape>(const Arguments&)> shapes_;

  // Runs f, and writes what it throws into the call.
  template <class F>
  static int guarded(pyflame_plugin_call* c, const F& f) {
    try {
      f();
      return 0;
    } catch (const std::exception& e) {
      std::snprintf(c->why, c->why_size, "%s", e.what());
    } catch (...) {
      std::snprintf(c->why, c->why_size, "an exception that is no std::exception");
    }
    return 1;
  }
  const detail::Variant& chosen(const pyflame_plugin_call& c) const {
    for (const detail::Variant& v : variants_)
      if (v.fits(c)) return v;
    std::string got, expected;
    for (int i = 0; i < c.input_count; ++i)
      if (c.inputs[i].device_type != PYFLAME_PLUGIN_NUMBER)
        got += (got.empty() ? "" : ", ") + detail::name_of({c.inputs[i].type_code, c.inputs[i].bits});
    for (const detail::Variant& v : variants_) {
      expected += expected.empty() ? "(" : " or (";
      for (size_t i = 0; i < v.in.size(); ++i) expected += (i ? ", " : "") + detail::name_of(v.in[i]);
      expected += ")";
    }
    throw std::invalid_argument("no function for these dtypes; got (" + got + "); expected " + expected);
  }
  static int run(pyflame_plugin_call* c) {
    return guarded(c, [&] {
      const detail::Variant& v = static_cast<const Op*>(c->context)->chosen(*c);
      if (!c->asks) v.run(*c);
    });
  }
  static int results(pyflame_plugin_call* c, pyflame_plugin_result* results) {
    return guarded(c, [&] {
      const Op& op = *static_cast<const Op*>(c->context);
      const detail::Variant& v = op.chosen(*c);
      const Arguments arguments(*c);
      const auto shapes = op.shapes_ ? op.shapes_(arguments) : std::vector<Shape>(v.out.size(), arguments.shape(0));
      if (shapes.size() != v.out.size())
        throw std::invalid_argument("result() gave " + std::to_string(shapes.size()) + " shapes for " +
                                    std::to_string(v.out.size()) + " outputs");
      for (size_t i = 0; i < shapes.size(); ++i) {
        if (shapes[i].size() > PYFLAME_PLUGIN_MAX_RANK) throw std::invalid_argument("a result has too many dims");
        results[i].rank = static_cast<int32_t>(shapes[i].size());
        results[i].type_code = v.out[i].code, results[i].bits = v.out[i].bits;
        for (size_t d = 0; d < shapes[i].size(); ++d) results[i].shape[d] = shapes[i][d];
      }
    });
  }
};

// The ops of an extension.
class Ops {
 public:
  // An op that the functions compute, one for each combination of dtypes. They return void; their arguments are Input<T>, double, int64_t,
  // bool, then Output<T>, in the order of the signature, "name(x, y, number) -> out, more"; and a Stream at any place for those of GPUs.
  template <auto... F>
  Op& add(std::string signature) {
    static_assert(sizeof...(F) > 0, "an op has at least one function");
    Op& op = all_.emplace_back();
    op.signature_ = std::move(signature);
    op.variants_ = {detail::variant<F>(F)...};
    op.kinds_ = op.variants_[0].kinds;
    for (const detail::Variant& v : op.variants_)
      if (v.kinds != op.kinds_)
        throw std::invalid_argument(op.signature_ + ": its functions have different kinds of arguments");
    return op;
  }

  // For PYFLAME_OPS.
  const pyflame_extension* table() {
    if (listed_.empty())
      for (Op& op : all_)
        listed_.push_back(
            {op.signature_.c_str(), op.kinds_.c_str(), op.gradient_.c_str(), &Op::run, &Op::results, &op});
    table_ = {PYFLAME_PLUGIN_VERSION, static_cast<int32_t>(listed_.size()), listed_.data(), error_.c_str()};
    return &table_;
  }
  explicit Ops(void (*define)(Ops&)) {
    try {
      define(*this);
    } catch (const std::exception& e) {
      error_ = e.what();
    }
  }
  Ops(const Ops&) = delete;

 private:
  std::deque<Op> all_;  // their addresses stay
  std::vector<pyflame_extension_op> listed_;
  pyflame_extension table_{};
  std::string error_;
};

#endif

}  // namespace pyflame::extension

#ifndef PYFLAME_NO_OPS
// Begins the function that lists the ops of the library. There is one in a library.
#define PYFLAME_OPS(name)                                                                                    \
  static void pyflame_define_ops(::pyflame::extension::Ops& name);                                           \
  extern "C" __attribute__((visibility("default"))) const pyflame_extension* pyflame_extension_table(void) { \
    static ::pyflame::extension::Ops ops(pyflame_define_ops);                                                \
    return ops.table();                                                                                      \
  }                                                                                                          \
  static void pyflame_define_ops(::pyflame::extension::Ops& name)
#endif
