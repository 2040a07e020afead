// Elementwise functions, methods, operators and their in-place forms, most of them from the op table.
#include <string_view>

#include "casters.h"

namespace pyflame::python {

namespace {

// What follows an op's documentation: of its result's shape and dtype.
std::string unary_doc(OpId op, const char* text) {
  const OpInfo& info = op_info(op);
  return std::string(text) + (info.bool_result   ? "\nDtype: bool."
                              : info.floats_only ? "\nShape: any. Integers and bools become float32."
                                                 : "\nShape and dtype: those of the input.");
}

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
  };
  static constexpr InPlace in_place[] = {
#define OP(...)
#define UNARY(name, ...) {#name, #name "_", static_cast<UnaryFn>(&pyflame::name)},
#include "pyflame/ops/ops.def"
      {"square", "square_", static_cast<UnaryFn>(&pyflame::square)},
      {"trunc", "trunc_", static_cast<UnaryFn>(&pyflame::trunc)}};
  for (const InPlace& e : in_place) {
    const std::string_view n = e.name;
    if (n == "isnan" || n == "isinf") continue;
    c.def(
        e.method,
        [&e](nb::handle_t<Tensor> self) {
          unary_(e.fn, e.name, self_tensor(self));
          return nb::borrow(self);
        },
        "In place.");
  }
  both(m, c, "trunc", &trunc,
       "The integer part: rounded towards zero, elementwise.\nShape and dtype: those of the input.");
  both(m, c, "square", &square, "x * x, elementwise.\nShape and dtype: those of the input.");
  both(
      m, c, "isfinite", [](const Tensor& x) { return logical_not(logical_or(isnan(x), isinf(x))); },
      "Whether neither NaN nor infinite, elementwise.\nDtype: bool.");
  both(m, c, "negative", &neg, "The same as neg.");
  both(m, c, "absolute", static_cast<UnaryFn>(&pyflame::abs), "The same as abs.");
  both(
      m, c, "gelu", [](const Tensor& x, const std::string& approximate) { return gelu(x, approximate); }, nb::kw_only(),
      "approximate"_a = "none",
      "x * P(Z <= x) for a standard normal Z, elementwise: 0.5 x (1 + erf(x / sqrt 2)), or with approximate='tanh' its "
      "tanh form.\n"
      "Floating dtypes. ValueError for another approximate.");
  both(m, c, "softplus", &softplus, "beta"_a = 1.0, "threshold"_a = 20.0,
       "log(1 + exp(beta x)) / beta, elementwise; x itself where beta x > threshold.");
  both(m, c, "leaky_relu", &leaky_relu, "negative_slope"_a = 0.01, "x where x > 0, otherwise negative_slope * x.");
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
      "min"_a.none() = nb::none(), "max"_a.none() = nb::none(), "clamp in place.");
}

template <auto Fn>
Tensor reversed(const Tensor& x, const Value& other) {
  return Fn(other, x);
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

// & | ^ are logical ops on bools. On integers they would be bitwise ops, which do not exist.
template <auto Fn>
Tensor bits(const Tensor& x, const Value& other) {
  const bool bools = x.dtype() == DType::bool_ &&
                     (other.is_tensor ? other.tensor.dtype() == DType::bool_ : other.scalar.kind == Category::Bool);
  PF_CHECK(bools, Type,
           "bitwise operator: only for bool; got {} and {}; hint: compare first, or use logical_and / logical_or",
           dtype_name(x.dtype()), other.is_tensor ? dtype_name(other.tensor.dtype()) : std::string_view("a number"));
  return Fn(x, other);
}

template <auto Fn>
void bitwise(TensorClass& c, const char* name) {
  const std::string n = name;
  c.def(("__" + n + "__").c_str(), [](const Tensor& x, const Operand& other) { return bits<Fn>(x, other.with(x)); },
        "other"_a, nb::is_operator());
  c.def(("__r" + n + "__").c_str(), &bits<Fn>, "other"_a, nb::is_operator());
  c.def(("__i" + n + "__").c_str(),
        [](nb::handle_t<Tensor> self, const Operand& other) {
          const Tensor& x = self_tensor(self);
          copy_(x, bits<Fn>(x, other.with(x)));
          return nb::borrow(self);
        },
        "other"_a, nb::is_operator());
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
      "__rpow__", [](const Tensor& x, const Value& b, nb::handle) { return pyflame::pow(b, x); }, "base"_a,
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
  bitwise<static_cast<BinaryFn>(&pyflame::logical_and)>(c, "and");
  bitwise<static_cast<BinaryFn>(&pyflame::logical_or)>(c, "or");
  bitwise<static_cast<BinaryFn>(&pyflame::logical_xor)>(c, "xor");
  c.def("__invert__", [](const Tensor& x) {
    PF_CHECK(x.dtype() == DType::bool_, Type, "~: only for bool; got {}; hint: use logical_not", dtype_name(x.dtype()));
    return logical_not(x);
  });
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
  auto define_in_place = [&](const char* method, const char* name, BinaryFn fn) {
    c.def(
        method,
        [fn, name](nb::handle_t<Tensor> self, const Value& other) {
          binary_(fn, name, self_tensor(self), other);
          return nb::borrow(self);
        },
        "other"_a, "In place.");
  };
  // add and sub can scale the second operand.
  const char *add_text = "", *sub_text = "";
#define OP(...)
#define BINARY(name, text, ...)                                               \
  if (OpId::name == OpId::add) {                                              \
    add_text = text;                                                          \
  } else if (OpId::name == OpId::sub) {                                       \
    sub_text = text;                                                          \
  } else {                                                                    \
    define(#name, static_cast<BinaryFn>(&pyflame::name), binary_doc(text));   \
    define_in_place(#name "_", #name, static_cast<BinaryFn>(&pyflame::name)); \
  }
#include "pyflame/ops/ops.def"
  auto scaled = [&](const char* name, const char* method, BinaryFn fn, const char* text) {
    const std::string t = binary_doc(text) + "\nalpha: a factor of other.";
    auto value = [](const Value& b, const std::optional<Scalar>& alpha) {
      return alpha ? Value(mul(b, Value(*alpha))) : b;
    };
    m.def(
        name,
        [fn, value](const Value& a, const Value& b, std::optional<Scalar> alpha) { return fn(a, value(b, alpha)); },
        "input"_a, "other"_a, nb::kw_only(), "alpha"_a.none() = nb::none(), t.c_str());
    c.def(
        name,
        [fn, value](const Tensor& a, const Value& b, std::optional<Scalar> alpha) { return fn(a, value(b, alpha)); },
        "other"_a, nb::kw_only(), "alpha"_a.none() = nb::none(), t.c_str());
    c.def(
        method,
        [fn, name, value](nb::handle_t<Tensor> self, const Value& b, std::optional<Scalar> alpha) {
          binary_(fn, name, self_tensor(self), value(b, alpha));
          return nb::borrow(self);
        },
        "other"_a, nb::kw_only(), "alpha"_a.none() = nb::none(), "In place.");
  };
  scaled("add", "add_", static_cast<BinaryFn>(&pyflame::add), add_text);
  scaled("sub", "sub_", static_cast<BinaryFn>(&pyflame::sub), sub_text);
  define("multiply", static_cast<BinaryFn>(&pyflame::mul), "The same as mul.");
  define("subtract", static_cast<BinaryFn>(&pyflame::sub), "The same as sub.");
  define("divide", static_cast<BinaryFn>(&pyflame::div), "The same as div.");
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
  define("true_divide", static_cast<BinaryFn>(&pyflame::div), "The same as div.");
}

void bind_choice(nb::module_& m, TensorClass& c) {
  m.def(
      "where", [](const Tensor& cond, const Value& a, const Value& b) { return where(cond, a, b); }, "condition"_a,
      "input"_a, "other"_a, "input where the bool condition holds, otherwise other; all three broadcast.");
  c.def(
      "where", [](const Tensor& x, const Tensor& cond, const Value& b) { return where(cond, x, b); }, "condition"_a,
      "other"_a, "self where condition holds, otherwise other.");
  both(
      m, c, "masked_fill",
      [](const Tensor& x, const Tensor& mask, const Value& v) {
        if (v.is_tensor) return where(mask, v, x);
        return masked_fill(x, mask, v.scalar);
      },
      "mask"_a, "value"_a, "value where the bool mask (broadcast to input) holds, otherwise input.");
  c.def(
      "masked_fill_",
      [](nb::handle_t<Tensor> self, const Tensor& mask, Scalar value) {
        copy_(self_tensor(self), masked_fill(self_tensor(self), mask, value));
        return nb::borrow(self);
      },
      "mask"_a, "value"_a, "masked_fill in place.");
  c.def(
      "fill_",
      [](nb::handle_t<Tensor> self, const Value& v) {
        if (v.is_tensor) copy_(self_tensor(self), v);
        else fill_(self_tensor(self), v.scalar);
        return nb::borrow(self);
      },
      "value"_a, "Every element becomes value.");
  c.def(
      "zero_",
      [](nb::handle_t<Tensor> self) {
        fill_(self_tensor(self), Scalar(0));
        return nb::borrow(self);
      },
      "Every element becomes zero.");
  c.def(
      "copy_",
      [](nb::handle_t<Tensor> self, nb::handle src, bool) {
        copy_(self_tensor(self), make_value("copy_", src, self_tensor(self)));
        return nb::borrow(self);
      },
      "src"_a, "non_blocking"_a = false, "The elements become src's, broadcast and cast.");
  c.def(
      "uniform_",
      [](nb::handle_t<Tensor> self, double from, double to) {
        const Tensor& x = self_tensor(self);
        copy_(x, add(mul(rand(x.shape(), x.dtype(), x.device()), to - from), from));
        return nb::borrow(self);
      },
      "from_"_a = 0.0, "to"_a = 1.0, "Uniform numbers in [from, to).");
  c.def(
      "normal_",
      [](nb::handle_t<Tensor> self, double mean, double std) {
        const Tensor& x = self_tensor(self);
        copy_(x, add(mul(randn(x.shape(), x.dtype(), x.device()), std), mean));
        return nb::borrow(self);
      },
      "mean"_a = 0.0, "std"_a = 1.0, "Normal numbers of this mean and standard deviation.");
}

}  // namespace

void bind_elementwise(nb::module_& m, TensorClass& c) {
  bind_unary(m, c);
  bind_binary(m, c);
  bind_operators(c);
  bind_choice(m, c);
}

}  // namespace pyflame::python
