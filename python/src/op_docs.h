// The documentation of elementwise functions and of their in-place methods, from the text and the facts of the op table.
#pragma once
#include <string>
#include <string_view>

#include "pyflame/ops/op.h"

namespace pyflame::python {

// The text of an op in ops.def.
inline const char* text_of(OpId op) {
#define OP(...)
#define UNARY(name, text, ...) \
  if (op == OpId::name) return text;
#define BINARY(name, text, ...) \
  if (op == OpId::name) return text;
#include "pyflame/ops/ops.def"
  return "";
}

inline std::string alias_doc(std::string_view of, const std::string& doc) {
  return "The same as " + std::string(of) + ".\n" + doc;
}

struct InPlaceFacts {
  bool has_other = false;    // a second operand
  bool floats_only = false;  // integers become floats
  bool gives_bool = false;
};

inline std::string in_place_doc(const std::string& text, InPlaceFacts facts) {
  std::string s = text + "\nIn place: ";
  s += facts.gives_bool ? "the elements become 1 where that is true and 0 elsewhere, in the tensor's dtype; "
                        : "the elements become the results, cast to the tensor's dtype; ";
  s += "returns the tensor.";
  if (facts.has_other) s += "\nother: a tensor or a number. ValueError unless it broadcasts to the tensor's shape.";
  s += "\nRuntimeError for a leaf that requires grad, except under no_grad(), and for a tensor in which several "
       "elements share one place in memory, as expand() makes it.";
  if (facts.floats_only) s += " RuntimeError for tensors of integers or bools, as the results are floats.";
  if (facts.has_other && !facts.gives_bool)
    s += " RuntimeError when the result's dtype is of a higher kind than the tensor's: bool, integer, float, complex.";
  return s;
}

}  // namespace pyflame::python
