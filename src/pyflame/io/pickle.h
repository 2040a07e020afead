// Reads Python pickles as data. Nothing is executed or imported: a class or function is only its name, and what would be called is
// handed to an interpreter (Pickle::Meaning), which knows the few names that stand for data. Everything else stays as a value of kind
// Object, with its name, arguments and state.
#pragma once
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

namespace pyflame {

struct PickleValue {
  enum class Kind {
    None,
    Bool,
    Int,
    BigInt,  // text: the bytes of a two's complement number, little-endian
    Float,
    Text,  // UTF-8
    Bytes,
    List,
    Tuple,
    Set,
    Dict,    // items: key, value, key, value, …
    Global,  // text: "module.name"
    Object,  // text: the name of its class or of the function that makes it; items: arguments, then state if there is one
    Tensor,  // integer: an index of the interpreter's
  };
  Kind kind = Kind::None;
  int64_t integer = 0;  // Bool, Int, Tensor
  double number = 0;    // Float
  std::string text;
  std::vector<PickleValue*> items;

  bool is(Kind k) const { return kind == k; }
  bool is_global(std::string_view name) const { return kind == Kind::Global && text == name; }
};

// The values of one pickle. They live as long as this object and may refer to each other, also in circles.
class Pickle {
 public:
  using Value = PickleValue;
  using Kind = PickleValue::Kind;

  // What names and references of a pickle mean. Returns null where it does not know: the value becomes an Object.
  class Meaning {
   public:
    virtual ~Meaning() = default;
    virtual Value* call(Pickle& pickle, const std::string& name, const std::vector<Value*>& arguments) = 0;
    virtual Value* persistent(Pickle& pickle, const Value& id) = 0;
  };

  // Reads one pickle from the beginning of `text` and removes it. ValueError ("the pickle is damaged: …") without the file's name.
  Value* read(std::string_view& text, Meaning& meaning);

  Value* make(Kind kind);
  Value* make_integer(int64_t value);

 private:
  friend class PickleReader;
  std::deque<Value> values_;
};

// How a message names a value: its type, and its name if it has one.
std::string describe(const PickleValue& value);

}  // namespace pyflame
