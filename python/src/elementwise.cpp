// Elementwise functions, methods, operators and their in-place forms, most of them from the op table.
#include <string_view>

#include "casters.h"
#include "op_docs.h"
#include "pyflame/ops/helpers.h"

namespace pyflame::python {

namespace {

constexpr const char* kFloatResult =
    "\nShape: that of the input. Dtype: that of the input; integers and bools become the default dtype, float32 unless "
    "it was set.";
constexpr const char* kSameResult = "\nShape and dtype: those of the input.";
constexpr const char* kBoolResult = "\nShape: that of the input, which may be of any dtype. Dtype: bool.";
constexpr const char* kAbsResult =
    "\nShape: that of the input. Dtype: that of the input; of complex tensors that of their parts.";
constexpr const char* kNoComplex = " TypeError for complex tensors.";
constexpr const char* kNoTensor = " TypeError for what is not a tensor.";
constexpr const char* kNoBoolOrComplex = " TypeError for bools and for complex tensors.";

// Which dtypes an op refuses; tests/tools/test_op_docstrings.py calls each op with them.
const char* refused_by(OpId op) {
  switch (op) {
    case OpId::abs: return " TypeError for bools.";
    case OpId::relu:
    case OpId::floor:
    case OpId::ceil:
    case OpId::round: return kNoBoolOrComplex;
    case OpId::bitwise_not: return " TypeError for floats and for complex tensors.";
    case OpId::sign:
    case OpId::erf:
    case OpId::erfc:
    case OpId::erfinv:
    case OpId::lgamma:
    case OpId::digamma: return kNoComplex;
    default: return "";
  }
}

// What follows an op's documentation: of its result's shape and dtype.
std::string unary_doc(OpId op, const char* text) {
  const OpInfo& info = op_info(op);
  return std::string(text) +
         (op == OpId::abs    ? kAbsResult
          : info.bool_result ? kBoolResult
          : info.floats_only ? kFloatResult
                             : kSameResult) +
         (*refused_by(op) ? refused_by(op) : kNoTensor);
}

std::string unary_in_place_doc(OpId op) {
  const OpInfo& info = op_info(op);
  return in_place_doc(text_of(op) + std::string(refused_by(op)),
                      {.floats_only = info.floats_only, .gives_bool = info.bool_result});
}

std::string binary_in_place_doc(OpId op) {
  const OpInfo& info = op_info(op);
  return in_place_doc(text_of(op),
                      {.has_other = true, .floats_only = info.floats_only, .gives_bool = info.bool_result});
}

constexpr const char* kSquare = "x * x, elementwise.";
constexpr const char* kI0 = "The modified Bessel function of the first kind of order 0, elementwise.";
constexpr const char* kTrunc = "The integer part: rounded towards zero, elementwise.";

using BinaryFn = Tensor (*)(const Value&, const Value&);
using UnaryFn = Tensor (*)(const Tensor&);

std::string binary_doc(const char* text) {
  return std::string(text) +
         "\nElementwise; tensors or numbers; shapes broadcast, dtypes promote as PyTorch's. ValueError when shapes do "
         "not broadcast.";
}

void bind_unary(nb::module_& m, TensorClass& c) {
#define OP(...)
#define UNARY(name, text, ...) \
  both(m, c, #name, static_cast<UnaryFn>(&pyflame::name), unary_doc(OpId::name, text).c_str());
#include "pyflame/ops/ops.def"
  struct InPlace {
    const char* name;
    const char* method;
    UnaryFn fn;
    std::string text;
  };
  static const InPlace in_place[] = {
#define OP(...)
#define UNARY(name, ...) {#name, #name "_", static_cast<UnaryFn>(&pyflame::name), unary_in_place_doc(OpId::name)},
#include "pyflame/ops/ops.def"
      {"square", "square_", static_cast<UnaryFn>(&pyflame::square),
       in_place_doc(std::string(kSquare) + " RuntimeError for bools, as the results are integers.", {})},
      {"i0", "i0_", static_cast<UnaryFn>(&pyflame::i0),
       in_place_doc(std::string(kI0) + kNoComplex, {.floats_only = true})},
      {"trunc", "trunc_", static_cast<UnaryFn>(&pyflame::trunc),
       in_place_doc(std::string(kTrunc) + kNoBoolOrComplex, {})}};
  for (const InPlace& e : in_place) {
    const std::string_view n = e.name;
    if (n == "isnan" || n == "isinf") continue;
    c.def(
        e.method,
        [&e](nb::handle_t<Tensor> self) {
          unary_(e.fn, e.name, self_tensor(self));
          return nb::borrow(self);
        },
        e.text.c_str());
  }
  both(m, c, "trunc", &trunc, (std::string(kTrunc) + kSameResult + kNoBoolOrComplex).c_str());
  both(m, c, "i0", &i0, (std::string(kI0) + kFloatResult + kNoComplex).c_str());
  both(m, c, "square", &square, (std::string(kSquare) + kSameResult + " Bools become int64." + kNoTensor).c_str());
  both(
      m, c, "isfinite", [](const Tensor& x) { return logical_not(logical_or(isnan(x), isinf(x))); },
      (std::string("Whether neither NaN nor infinite, elementwise; of complex numbers, neither part.") + kBoolResult +
       kNoTensor)
          .c_str());
  both(m, c, "negative", &neg, alias_doc("neg", unary_doc(OpId::neg, text_of(OpId::neg))).c_str());
  both(m, c, "absolute", static_cast<UnaryFn>(&pyflame::abs),
       alias_doc("abs", unary_doc(OpId::abs, text_of(OpId::abs))).c_str());
  both(
      m, c, "gelu", [](const Tensor& x, const std::string& approximate) { return gelu(x, approximate); }, nb::kw_only(),
      "approximate"_a = "none",
      "x * P(Z <= x) for a standard normal Z, elementwise: 0.5 x (1 + erf(x / sqrt 2)), or with approximate='tanh' its "
      "tanh form.\n"
      "Floating dtypes. ValueError for another approximate.");
  both(m, c, "softplus", &softplus, "beta"_a = 1.0, "threshold"_a = 20.0,
       "log(1 + exp(beta x)) / beta, elementwise; x itself where beta x > threshold. "
       "Integers and bools become the default dtype. TypeError for complex tensors.");
  both(m, c, "leaky_relu", &leaky_relu, "negative_slope"_a = 0.01,
       (std::string("x where x > 0, otherwise negative_slope * x, elementwise.") + kFloatResult + kNoComplex).c_str());
  auto clamp_fn = [](const Tensor& x, std::optional<Scalar> min, std::optional<Scalar> max) {
    return clamp(x, min, max);
  };
  auto clamp_tensors = [](const Tensor& x, std::optional<Tensor> min, std::optional<Tensor> max) {
    return clamp_between(x, min.value_or(Tensor()), max.value_or(Tensor()));
  };
  for (const char* name : {"clamp", "clip"}) {
    both(m, c, name, clamp_fn, "min"_a.none() = nb::none(), "max"_a.none() = nb::none(),
         "Values below min become min, above max become max. ValueError when neither is given.");
    both(m, c, name, clamp_tensors, "min"_a.none() = nb::none(), "max"_a.none() = nb::none(),
         "The bounds may be tensors that broadcast.");
  }
  both(
      m, c, "round", [](const Tensor& x, int64_t decimals) { return round(x, decimals); }, nb::kw_only(), "decimals"_a,
      "With decimals: to that many digits after the decimal point; negative: before it. Floating dtypes.");
  c.def(
      "clamp_",
      [](nb::handle_t<Tensor> self, std::optional<Scalar> min, std::optional<Scalar> max) {
        const Tensor& x = self_tensor(self);
        copy_(x, clamp(x, min, max));
        return nb::borrow(self);
      },
      "min"_a.none() = nb::none(), "max"_a.none() = nb::none(),
      "Elements below min become min, those above max become max, in place; returns the tensor. ValueError when "
      "neither is given. RuntimeError for float bounds of an integer tensor.");
}

template <auto Fn>
Tensor reversed(const Tensor& x, const Operand& other) {
  return Fn(other.with(x), x);
}

template <auto Fn>
nb::object in_place_operator(nb::handle_t<Tensor> self, const Operand& other) {
  const Tensor& x = self_tensor(self);
  binary_(Fn, "in-place operator", x, other.with(x));
  return nb::borrow(self);
}

template <auto Fn>
void arithmetic(TensorClass& c, const char* name) {
  const std::string n = name;
  c.def(("__" + n + "__").c_str(), [](const Tensor& x, const Operand& other) { return Fn(x, other.with(x)); },
        "other"_a, nb::is_operator());
  c.def(("__r" + n + "__").c_str(), &reversed<Fn>, "other"_a, nb::is_operator());
  c.def(("__i" + n + "__").c_str(), &in_place_operator<Fn>, "other"_a, nb::is_operator());
}

template <auto Fn>
void comparison(TensorClass& c, const char* name) {
  c.def(
      name, [](const Tensor& x, const Operand& other) { return Fn(x, other.with(x)); }, "other"_a, nb::is_operator());
}

// x << n and x >> n are products with powers of 2 for floats.
template <bool kLeft>
Tensor shifted(const Value& x, const Value& n) {
  if (!is_float(x.is_tensor ? x.tensor.dtype() : n.tensor.dtype()))
    return kLeft ? bitwise_left_shift(x, n) : bitwise_right_shift(x, n);
  const Tensor power = pyflame::pow(Value(2.0), n.is_tensor ? n : Value(full({}, n.scalar, x.tensor.dtype())));
  return kLeft ? mul(x, power) : div(x, power);
}

void bind_operators(TensorClass& c) {
  arithmetic<static_cast<BinaryFn>(&pyflame::add)>(c, "add");
  arithmetic<static_cast<BinaryFn>(&pyflame::sub)>(c, "sub");
  arithmetic<static_cast<BinaryFn>(&pyflame::mul)>(c, "mul");
  arithmetic<static_cast<BinaryFn>(&pyflame::div)>(c, "truediv");
  arithmetic<static_cast<BinaryFn>(&pyflame::floor_divide)>(c, "floordiv");
  arithmetic<static_cast<BinaryFn>(&pyflame::remainder)>(c, "mod");
  c.def(
      "__pow__", [](const Tensor& x, const Operand& e, nb::handle) { return pyflame::pow(x, e.with(x)); }, "exponent"_a,
      "modulo"_a.none() = nb::none(), nb::is_operator());
  c.def(
      "__rpow__", [](const Tensor& x, const Operand& b, nb::handle) { return pyflame::pow(b.with(x), x); }, "base"_a,
      "modulo"_a.none() = nb::none(), nb::is_operator());
  c.def(
      "__ipow__",
      [](nb::handle_t<Tensor> self, const Operand& e, nb::handle) {
        const Tensor& x = self_tensor(self);
        binary_(&pyflame::pow, "pow_", x, e.with(x));
        return nb::borrow(self);
      },
      "exponent"_a, "modulo"_a.none() = nb::none(), nb::is_operator());
  comparison<static_cast<BinaryFn>(&pyflame::eq)>(c, "__eq__");
  comparison<static_cast<BinaryFn>(&pyflame::ne)>(c, "__ne__");
  comparison<static_cast<BinaryFn>(&pyflame::lt)>(c, "__lt__");
  comparison<static_cast<BinaryFn>(&pyflame::le)>(c, "__le__");
  comparison<static_cast<BinaryFn>(&pyflame::gt)>(c, "__gt__");
  comparison<static_cast<BinaryFn>(&pyflame::ge)>(c, "__ge__");
  arithmetic<static_cast<BinaryFn>(&pyflame::bitwise_and)>(c, "and");
  arithmetic<static_cast<BinaryFn>(&pyflame::bitwise_or)>(c, "or");
  arithmetic<static_cast<BinaryFn>(&pyflame::bitwise_xor)>(c, "xor");
  arithmetic<&shifted<true>>(c, "lshift");
  arithmetic<&shifted<false>>(c, "rshift");
  c.def("__invert__", static_cast<UnaryFn>(&pyflame::bitwise_not));
  c.def("__neg__", static_cast<UnaryFn>(&pyflame::neg));
  c.def("__pos__", [](const Tensor& x) { return x; });
  c.def("__abs__", static_cast<UnaryFn>(&pyflame::abs));
  c.def(
      "__matmul__",
      [](const Tensor& a, const Operand& b) {
        const Value right = b.with(a);
        if (!right.is_tensor) throw nb::next_overload();
        return matmul(a, right.tensor);
      },
      "other"_a, nb::is_operator());
}

void bind_binary(nb::module_& m, TensorClass& c) {
  auto define = [&](const char* name, BinaryFn fn, const std::string& text) {
    m.def(
        name, [fn](const Value& a, const Value& b) { return fn(a, b); }, "input"_a, "other"_a, text.c_str());
    c.def(
        name, [fn](const Tensor& a, const Value& b) { return fn(a, b); }, "other"_a, text.c_str());
  };
  auto define_in_place = [&](const char* method, const char* name, BinaryFn fn, const std::string& text) {
    c.def(
        method,
        [fn, name](nb::handle_t<Tensor> self, const Value& other) {
          binary_(fn, name, self_tensor(self), other);
          return nb::borrow(self);
        },
        "other"_a, text.c_str());
  };
  // add and sub can scale the second operand.
#define OP(...)
#define BINARY(name, text, ...)                                                                                \
  if (OpId::name != OpId::add && OpId::name != OpId::sub) {                                                    \
    define(#name, static_cast<BinaryFn>(&pyflame::name), binary_doc(text));                                    \
    define_in_place(#name "_", #name, static_cast<BinaryFn>(&pyflame::name), binary_in_place_doc(OpId::name)); \
  }
#include "pyflame/ops/ops.def"
  auto scaled = [&](const char* name, const char* method, BinaryFn fn, OpId op) {
    const std::string t = binary_doc(text_of(op)) + "\nalpha: a factor of other.";
    const std::string t_in_place = binary_in_place_doc(op) + "\nalpha: a factor of other.";
    // alpha * b, in the dtype of the result. A bool is 0 or 1, as if alpha were one.
    auto value = [name](const Value& a, const Value& b, const std::optional<Scalar>& alpha) {
      if (!alpha) return b;
      const DType d = ops::result_type(a, b);
      PF_CHECK(alpha->kind < Category::Float || is_float(d) || is_complex(d), Runtime,
               "{}: alpha does not fit integers; got {}; expected an integer for a result of dtype {}", name, alpha->f,
               dtype_name(d));
      if (d == DType::bool_) return Value(logical_and(b, Scalar(alpha->i != 0)));
      return b.is_tensor ? Value(mul(cast(b.tensor, d), *alpha)) : Value(mul(b, *alpha));
    };
    m.def(
        name,
        [fn, value](const Value& a, const Value& b, std::optional<Scalar> alpha) { return fn(a, value(a, b, alpha)); },
        "input"_a, "other"_a, nb::kw_only(), "alpha"_a.none() = nb::none(), t.c_str());
    c.def(
        name,
        [fn, value](const Tensor& a, const Value& b, std::optional<Scalar> alpha) { return fn(a, value(a, b, alpha)); },
        "other"_a, nb::kw_only(), "alpha"_a.none() = nb::none(), t.c_str());
    c.def(
        method,
        [fn, name, value](nb::handle_t<Tensor> self, const Value& b, std::optional<Scalar> alpha) {
          const Tensor& x = self_tensor(self);
          binary_(fn, name, x, value(x, b, alpha));
          return nb::borrow(self);
        },
        "other"_a, nb::kw_only(), "alpha"_a.none() = nb::none(), t_in_place.c_str());
  };
  scaled("add", "add_", static_cast<BinaryFn>(&pyflame::add), OpId::add);
  scaled("sub", "sub_", static_cast<BinaryFn>(&pyflame::sub), OpId::sub);
  define("multiply", static_cast<BinaryFn>(&pyflame::mul), alias_doc("mul", binary_doc(text_of(OpId::mul))));
  define("subtract", static_cast<BinaryFn>(&pyflame::sub),
         alias_doc("sub, without alpha", binary_doc(text_of(OpId::sub))));
  define("divide", static_cast<BinaryFn>(&pyflame::div), alias_doc("div", binary_doc(text_of(OpId::div))));
  constexpr const char* rounded =
      "With rounding_mode 'trunc' rounded towards zero, with 'floor' down; None does not round. Integers stay integers "
      "where they are rounded.";
  const auto quotient = [](const Value& a, const Value& b, const std::optional<std::string>& mode) {
    return mode ? div(a, b, *mode) : div(a, b);
  };
  for (const char* name : {"div", "divide"}) {
    m.def(name, quotient, "input"_a, "other"_a, nb::kw_only(), "rounding_mode"_a.none(), rounded);
    c.def(
        name,
        [quotient](const Tensor& a, const Value& b, const std::optional<std::string>& mode) {
          return quotient(a, b, mode);
        },
        "other"_a, nb::kw_only(), "rounding_mode"_a.none(), rounded);
  }
  define("lcm", &pyflame::lcm, binary_doc("The least common multiple. Integers."));
  define_in_place("lcm_", "lcm", &pyflame::lcm,
                  in_place_doc("The least common multiple. Integers.", {.has_other = true}));
  define("true_divide", static_cast<BinaryFn>(&pyflame::div), alias_doc("div", binary_doc(text_of(OpId::div))));
}

// The dtype is x's, also for a tensor as the value.
Tensor filled(const Tensor& x, const Tensor& mask, const Value& value) {
  return value.is_tensor ? where(mask, cast(value.tensor, x.dtype()), x) : masked_fill(x, mask, value.scalar);
}

void bind_choice(nb::module_& m, TensorClass& c) {
  m.def(
      "where", [](const Tensor& cond, const Value& a, const Value& b) { return where(cond, a, b); }, "condition"_a,
      "input"_a, "other"_a, "input where the bool condition holds, otherwise other; all three broadcast.");
  c.def(
      "where", [](const Tensor& x, const Tensor& cond, const Value& b) { return where(cond, x, b); }, "condition"_a,
      "other"_a,
      "The elements of the tensor where condition holds, otherwise those of other; all three broadcast, and the dtypes "
      "promote. TypeError when condition is not bool. ValueError when shapes do not broadcast.");
  both(
      m, c, "masked_fill", [](const Tensor& x, const Tensor& mask, const Value& v) { return filled(x, mask, v); },
      "mask"_a, "value"_a,
      "value where mask holds, otherwise input, in the dtype of input; all of them broadcast.\nmask: bool; TypeError "
      "otherwise. value: a number or a tensor. ValueError when shapes do not broadcast.");
  c.def(
      "masked_fill_",
      [](nb::handle_t<Tensor> self, const Tensor& mask, const Value& value) {
        copy_(self_tensor(self), filled(self_tensor(self), mask, value));
        return nb::borrow(self);
      },
      "mask"_a, "value"_a,
      "The elements where mask holds become value, in place; returns the tensor.\nmask: bool; TypeError otherwise. "
      "value: a number or a tensor. ValueError unless both broadcast to the tensor's shape.");
  c.def(
      "fill_",
      [](nb::handle_t<Tensor> self, const Value& v) {
        if (v.is_tensor) copy_(self_tensor(self), v);
        else fill_(self_tensor(self), v.scalar);
        return nb::borrow(self);
      },
      "value"_a,
      "Every element becomes value, cast to the tensor's dtype; returns the tensor.\nvalue: a number, or a tensor that "
      "broadcasts to the shape (ValueError otherwise). TypeError for a complex number in a real tensor. RuntimeError "
      "for a leaf that requires grad, except under no_grad().");
  c.def(
      "zero_",
      [](nb::handle_t<Tensor> self) {
        fill_(self_tensor(self), Scalar(0));
        return nb::borrow(self);
      },
      "Every element becomes zero; returns the tensor. RuntimeError for a leaf that requires grad, except under "
      "no_grad().");
  c.def(
      "copy_",
      [](nb::handle_t<Tensor> self, nb::handle src, bool) {
        copy_(self_tensor(self), make_value("copy_", src, self_tensor(self)));
        return nb::borrow(self);
      },
      "src"_a, "non_blocking"_a = false,
      "The elements become those of src, broadcast to the shape and cast to the dtype of this tensor, also from "
      "another device; returns the tensor.\nsrc: a tensor or a number. ValueError when src does not broadcast to the "
      "shape. TypeError for complex numbers in a real tensor. RuntimeError for a leaf that requires grad, except under "
      "no_grad().\nnon_blocking is accepted and has no effect.");
}

// Functions of the module pyflame.special.
void bind_special(nb::module_& m, TensorClass& c) {
#define OP(...)
#define SPECIAL(name, text, ...) \
  m.def("special_" #name, &pyflame::name, "input"_a, (unary_doc(OpId::name, text) + kNoComplex).c_str());
#include "pyflame/ops/ops.def"
  const auto one = [&](const char* name, UnaryFn fn, const char* text) {
    m.def(name, fn, "input"_a, (std::string(text) + kFloatResult + kNoComplex).c_str());
  };
  one("special_i1", &i1, "I1(x), the modified Bessel function of the first kind of order 1.");
  one("special_modified_bessel_k0", &modified_bessel_k0,
      "K0(x), the modified Bessel function of the second kind of order 0; inf at 0, NaN below.");
  one("special_modified_bessel_k1", &modified_bessel_k1,
      "K1(x), the modified Bessel function of the second kind of order 1; inf at 0, NaN below.");
  one("special_entr", &entr, "-x log(x): 0 at 0, -inf below.");
  m.def(
      "special_zeta", [](const Value& x, const Value& q) { return zeta(x, q); }, "input"_a, "other"_a,
      "Hurwitz' zeta function: the sum of (other + k)^-input over all k >= 0.\nElementwise; tensors or numbers; shapes "
      "broadcast. Its gradient is that of other. "
      "Integers and bools become the default dtype. ValueError when shapes do not broadcast, TypeError for complex "
      "tensors.");
  m.def("_frexp", &frexp, "input"_a, "Mantissa, and exponent in int32.");
  constexpr const char* text =
      "The n-th derivative of digamma, elementwise; n = 0 is digamma itself. The shape is the input's; integers and "
      "bools become the default dtype. ValueError for a negative n, TypeError for complex tensors.";
  m.def("polygamma", &polygamma, "n"_a, "input"_a, text);
  c.def(
      "polygamma", [](const Tensor& x, int64_t n) { return polygamma(n, x); }, "n"_a, text);
}

}  // namespace

void bind_elementwise(nb::module_& m, TensorClass& c) {
  bind_unary(m, c);
  bind_binary(m, c);
  bind_operators(c);
  bind_choice(m, c);
  bind_special(m, c);
}

}  // namespace pyflame::python
