#include "tools/inspect/msgpack.h"

#include <bit>

#include "pyflame/base/error.h"

namespace pyflame::tools::inspect {

using Kind = MsgpackToken::Kind;

uint64_t MsgpackReader::big_endian(int bytes) {
  uint64_t value = 0;
  for (const char c : take(static_cast<uint64_t>(bytes))) value = (value << 8) | static_cast<uint8_t>(c);
  return value;
}

std::string_view MsgpackReader::take(uint64_t size) {
  const auto part = slice(data_, at_, size);
  PF_CHECK(part.has_value(), Value, "MessagePack ends early: expected {} bytes at offset {} of {}", size, at_,
           data_.size());
  at_ += static_cast<size_t>(size);
  return as_text(*part);
}

MsgpackToken MsgpackReader::next() {
  const auto c = static_cast<uint8_t>(take(1)[0]);
  const auto container = [](Kind kind, uint64_t count) { return MsgpackToken{kind, count, 0, {}}; };
  const auto bytes = [this](Kind kind, uint64_t size) { return MsgpackToken{kind, 0, 0, take(size)}; };
  const auto sign_extended = [this](int size) {
    const int unused = 64 - 8 * size;
    const auto value = static_cast<int64_t>(big_endian(size) << unused) >> unused;
    return MsgpackToken{Kind::integer, static_cast<uint64_t>(value), 0, {}};
  };
  const auto extension = [this](uint64_t size) {
    take(1);  // its type
    return MsgpackToken{Kind::extension, 0, 0, take(size)};
  };
  if (c < 0x80) return container(Kind::unsigned_integer, c);
  if (c < 0x90) return container(Kind::map, c & 15);
  if (c < 0xa0) return container(Kind::array, c & 15);
  if (c < 0xc0) return bytes(Kind::text, c & 31);
  if (c >= 0xe0)
    return MsgpackToken{Kind::integer, static_cast<uint64_t>(static_cast<int64_t>(static_cast<int8_t>(c))), 0, {}};
  switch (c) {
    case 0xc0: return {};
    case 0xc2: return container(Kind::boolean, 0);
    case 0xc3: return container(Kind::boolean, 1);
    case 0xc4: return bytes(Kind::binary, big_endian(1));
    case 0xc5: return bytes(Kind::binary, big_endian(2));
    case 0xc6: return bytes(Kind::binary, big_endian(4));
    case 0xc7: return extension(big_endian(1));
    case 0xc8: return extension(big_endian(2));
    case 0xc9: return extension(big_endian(4));
    case 0xca: return {Kind::real, 0, std::bit_cast<float>(static_cast<uint32_t>(big_endian(4))), {}};
    case 0xcb: return {Kind::real, 0, std::bit_cast<double>(big_endian(8)), {}};
    case 0xcc: return container(Kind::unsigned_integer, big_endian(1));
    case 0xcd: return container(Kind::unsigned_integer, big_endian(2));
    case 0xce: return container(Kind::unsigned_integer, big_endian(4));
    case 0xcf: return container(Kind::unsigned_integer, big_endian(8));
    case 0xd0: return sign_extended(1);
    case 0xd1: return sign_extended(2);
    case 0xd2: return sign_extended(4);
    case 0xd3: return sign_extended(8);
    case 0xd4: return extension(1);
    case 0xd5: return extension(2);
    case 0xd6: return extension(4);
    case 0xd7: return extension(8);
    case 0xd8: return extension(16);
    case 0xd9: return bytes(Kind::text, big_endian(1));
    case 0xda: return bytes(Kind::text, big_endian(2));
    case 0xdb: return bytes(Kind::text, big_endian(4));
    case 0xdc: return container(Kind::array, big_endian(2));
    case 0xdd: return container(Kind::array, big_endian(4));
    case 0xde: return container(Kind::map, big_endian(2));
    case 0xdf: return container(Kind::map, big_endian(4));
    default: PF_FAIL(Value, "invalid MessagePack; got 0x{:02x} at offset {}", c, at_ - 1);
  }
}

void MsgpackReader::skip() {
  // Each token takes at least one byte and adds less than 2^33, so the number cannot overflow.
  for (uint64_t open = 1; open > 0; --open) {
    const MsgpackToken t = next();
    if (t.kind == Kind::array) open += t.number;
    if (t.kind == Kind::map) open += 2 * t.number;
  }
}

uint64_t MsgpackReader::map() {
  const MsgpackToken t = next();
  PF_CHECK(t.kind == Kind::map, Value, "MessagePack: expected a map at offset {}", at_);
  return t.number;
}

uint64_t MsgpackReader::array() {
  const MsgpackToken t = next();
  PF_CHECK(t.kind == Kind::array, Value, "MessagePack: expected an array at offset {}", at_);
  return t.number;
}

std::string_view MsgpackReader::text() {
  const MsgpackToken t = next();
  PF_CHECK(t.kind == Kind::text, Value, "MessagePack: expected a text at offset {}", at_);
  return t.text;
}

uint64_t MsgpackReader::number() {
  const MsgpackToken t = next();
  const bool fits = t.kind == Kind::unsigned_integer || t.kind == Kind::boolean ||
                    (t.kind == Kind::integer && static_cast<int64_t>(t.number) >= 0);
  PF_CHECK(fits, Value, "MessagePack: expected a non-negative number at offset {}", at_);
  return t.number;
}

}  // namespace pyflame::tools::inspect
