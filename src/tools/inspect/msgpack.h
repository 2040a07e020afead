// MessagePack as a stream of tokens. The reader does not recurse and builds no tree, so neither the depth nor the
// counts of a hostile file cost anything: a container only says how many items follow.
#pragma once
#include <string_view>

#include "tools/inspect/bytes.h"

namespace pyflame::tools::inspect {

struct MsgpackToken {
  enum class Kind { nil, boolean, integer, unsigned_integer, real, text, binary, array, map, extension };
  Kind kind = Kind::nil;
  uint64_t number =
      0;  // the value of a boolean or number (two's complement); the items of an array, the pairs of a map
  double real = 0;
  std::string_view text;  // of text, binary and extension
};

class MsgpackReader {
 public:
  explicit MsgpackReader(Bytes data) : data_(data) {}
  // Error(Value) at the end of the bytes, and for bytes that are not MessagePack.
  MsgpackToken next();
  // Skips one value with everything that it contains.
  void skip();

  // The next value, which must have this kind; otherwise Error(Value).
  uint64_t map();
  uint64_t array();
  std::string_view text();
  // A number or boolean that is not negative; Error(Value) otherwise.
  uint64_t number();

  bool done() const { return at_ >= data_.size(); }
  size_t position() const { return at_; }

 private:
  uint64_t big_endian(int bytes);
  std::string_view take(uint64_t size);
  Bytes data_;
  size_t at_ = 0;
};

}  // namespace pyflame::tools::inspect
